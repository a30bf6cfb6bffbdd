/* cuda: conditional nodes of graphs: which bodies run, how often, and in which order. */
#include "check.h"

static const char ptx[] = PTX_HEAD
	".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
	/* down(n, handle): --*n, and the condition is the result. */
	".visible .entry down(.param .u64 n, .param .u64 handle)\n"
	"{\n"
	"	.reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
	"	ld.param.u64 %rd1, [n]; ld.param.u64 %rd2, [handle];\n"
	"	ld.global.u32 %r1, [%rd1]; add.s32 %r2, %r1, -1; st.global.u32 [%rd1], %r2;\n"
	"	{\n"
	"	.param .b64 p0; st.param.b64 [p0+0], %rd2;\n"
	"	.param .b32 p1; st.param.b32 [p1+0], %r2;\n"
	"	call.uni cudaGraphSetConditional, (p0, p1);\n"
	"	}\n"
	"	ret;\n"
	"}\n"
	/* step(at, k): *at = *at * 3 + k. */
	".visible .entry step(.param .u64 at, .param .u32 k)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [k];\n"
	"	ld.global.u32 %r2, [%rd1]; mad.lo.u32 %r3, %r2, 3, %r1; st.global.u32 [%rd1], %r3;\n"
	"	ret;\n"
	"}\n";

static CUdeviceptr words; /* what down() counts, and what step() changes */
static CUfunction down, step;
static CUstream stream;

static void start(void)
{
	check_context();
	down = check_function(ptx, "down");
	step = check_function(ptx, "step");
	CU(cuMemAlloc_v2(&words, 64));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void finish(void)
{
	CU(cuStreamDestroy_v2(stream));
	CU(cuMemFree_v2(words));
}

static CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, CUfunction function, void **parameters)
{
	CUDA_KERNEL_NODE_PARAMS params = { .func = function,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = parameters };
	CUgraphNode node;

	CU(cuGraphAddKernelNode_v2(&node, graph, &after, after != NULL, &params));
	return node;
}

static CUgraphNode add_step(CUgraph graph, CUgraphNode after, uint32_t k)
{
	CUdeviceptr at = words + 4;
	void *parameters[] = { &at, &k };

	return add_kernel(graph, after, step, parameters);
}

static CUgraphNode add_down(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle)
{
	void *parameters[] = { &words, &handle };

	return add_kernel(graph, after, down, parameters);
}

static CUgraphNode add_condition(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
				 CUgraphConditionalNodeType type, unsigned size, CUgraph *bodies)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphNodeType is;
	CUgraphNode node;

	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	CU(cuGraphAddNode(&node, graph, &after, after != NULL, &params));
	for (unsigned i = 0; i < size; i++)
		bodies[i] = params.conditional.phGraph_out[i];
	CU(cuGraphNodeGetType(node, &is));
	CHECK_EQUAL(is, CU_GRAPH_NODE_TYPE_CONDITIONAL);
	return node;
}

static CUgraphConditionalHandle handle_with(CUgraph graph, unsigned value)
{
	CUgraphConditionalHandle handle;

	CU(cuGraphConditionalHandleCreate(&handle, graph, NULL, value, CU_GRAPH_COND_ASSIGN_DEFAULT));
	return handle;
}

/* Launches it with these words, and returns what step() has made of the second one. */
static uint32_t launched(CUgraphExec exec, uint32_t n, uint32_t value)
{
	uint32_t got[2] = { n, value };

	CU(cuMemcpyHtoD_v2(words, got, sizeof(got)));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH_v2(got, words, sizeof(got)));
	return got[1];
}

static void a_while_node_repeats_its_body(void)
{
	CUgraphConditionalHandle handle;
	CUgraphNode loop, last;
	CUgraph graph, body;
	CUgraphExec exec;

	start();
	CU(cuGraphCreate(&graph, 0));
	handle = handle_with(graph, 1);
	loop = add_condition(graph, add_step(graph, NULL, 1), handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	add_step(graph, loop, 7);
	last = add_step(body, NULL, 2);
	add_down(body, last, handle);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned round = 0; round < 3; round++) /* the default counts at each launch */
		for (uint32_t n = 1; n <= 5; n++) {
			uint32_t expected = 0 * 3 + 1;

			for (uint32_t i = 0; i < n; i++)
				expected = expected * 3 + 2;
			CHECK_EQUAL(launched(exec, n, 0), expected * 3 + 7);
		}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	finish();
}

static void launches_follow_each_other(void)
{
	CUgraphConditionalHandle handle;
	uint32_t got[2] = { 4, 0 };
	CUgraph graph, body;
	CUgraphExec exec;

	start();
	CU(cuGraphCreate(&graph, 0));
	handle = handle_with(graph, 1);
	add_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	add_down(body, add_step(body, NULL, 1), handle);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuMemcpyHtoD_v2(words, got, sizeof(got)));
	for (unsigned i = 0; i < 3; i++) {
		CU(cuGraphLaunch(exec, stream));
		CU(cuMemsetD32Async(words, 2, 1, stream)); /* behind the loop */
	}
	CU(cuGraphExecDestroy(exec)); /* what was launched goes on */
	CU(cuGraphDestroy(graph));
	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH_v2(got, words, sizeof(got)));
	CHECK_EQUAL(got[0], 2);
	CHECK_EQUAL(got[1], 3280); /* 4 + 2 + 2 steps: (3^8 - 1) / 2 */
	finish();
}

static void if_and_switch_nodes_run_one_body(void)
{
	static const struct {
		CUgraphConditionalNodeType type;
		unsigned size, value;
		uint32_t expected; /* from 1: 3 + the number of the body, from 1, or 1 if none runs */
	} cases[] = {
		{ CU_GRAPH_COND_TYPE_IF, 1, 0, 1 },	{ CU_GRAPH_COND_TYPE_IF, 1, 1, 4 },
		{ CU_GRAPH_COND_TYPE_IF, 1, 9, 4 },	{ CU_GRAPH_COND_TYPE_IF, 2, 0, 5 },
		{ CU_GRAPH_COND_TYPE_IF, 2, 1, 4 },	{ CU_GRAPH_COND_TYPE_SWITCH, 3, 0, 4 },
		{ CU_GRAPH_COND_TYPE_SWITCH, 3, 2, 6 }, { CU_GRAPH_COND_TYPE_SWITCH, 3, 3, 1 },
	};

	start();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CUgraph graph, clone, bodies[3];
		CUgraphExec exec;

		CU(cuGraphCreate(&graph, 0));
		add_condition(graph, NULL, handle_with(graph, cases[i].value), cases[i].type, cases[i].size,
			      bodies);
		for (unsigned body = 0; body < cases[i].size; body++)
			add_step(bodies[body], NULL, body + 1);
		CU(cuGraphClone(&clone, graph));
		CU(cuGraphDestroy(graph));
		CU(cuGraphInstantiateWithFlags(&exec, clone, 0));
		CU(cuGraphDestroy(clone));
		CHECK_EQUAL(launched(exec, 0, 1), cases[i].expected);
		CHECK_EQUAL(launched(exec, 0, 1), cases[i].expected);
		CU(cuGraphExecDestroy(exec));
	}
	finish();
}

static void bodies_have_conditions_and_child_graphs(void)
{
	CUgraphConditionalHandle outer, inner;
	CUgraph graph, body, inside, child;
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode node;
	CUgraphExec exec;

	start();
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphCreate(&child, 0));
	add_step(child, NULL, 1);
	outer = handle_with(graph, 1);
	inner = handle_with(graph, 1);
	add_condition(graph, NULL, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	node = add_condition(body, NULL, inner, CU_GRAPH_COND_TYPE_IF, 1, &inside);
	params.graph.graph = child;
	CU(cuGraphAddNode(&node, body, &node, 1, &params));
	add_down(body, node, outer);
	add_step(inside, NULL, 2);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK_EQUAL(launched(exec, 1, 0), 7);  /* (0 * 3 + 2) * 3 + 1 */
	CHECK_EQUAL(launched(exec, 2, 0), 70); /* (7 * 3 + 2) * 3 + 1 */
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(child));
	CU(cuGraphDestroy(graph));
	finish();
}

static void nothing(void *argument)
{
	(void)argument;
}

static void what_is_not_possible_is_refused(void)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUDA_HOST_NODE_PARAMS host = { .fn = nothing };
	CUgraphConditionalHandle handle;
	CUgraph graph, other, body, captured;
	CUgraphNode node, refused;

	start();
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphCreate(&other, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(NULL, graph, NULL, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate(&handle, graph, NULL, 0, 2));
	handle = handle_with(graph, 0);
	params.conditional.handle = handle;
	params.conditional.size = 3;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, 0, &params));
	params.conditional.size = 1;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, other, NULL, 0, &params));
	params.conditional.handle++;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&node, graph, NULL, 0, &params));
	node = add_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddHostNode(&refused, body, NULL, 0, &host));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(body)); /* the node owns it */
	CU(cuStreamBeginCaptureToGraph(stream, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy(graph));
	CU_FAILS(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroyNode(node));
	CU(cuStreamEndCapture(stream, &captured));
	CHECK(captured == body);
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamEndCapture(stream, NULL)); /* the graph would be lost */
	CU(cuStreamEndCapture(stream, &captured));
	CU(cuGraphDestroy(captured));
	CU(cuGraphDestroyNode(node));
	CU(cuGraphDestroy(graph));
	CU(cuGraphDestroy(other));
	finish();
}

TESTS(TEST(a_while_node_repeats_its_body), TEST(launches_follow_each_other),
      TEST(if_and_switch_nodes_run_one_body), TEST(bodies_have_conditions_and_child_graphs),
      TEST(what_is_not_possible_is_refused))
