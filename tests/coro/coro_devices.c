/* Two devices and several contexts: the lease is that of one context. */
#include "server.h"

static CUgraphExec graph_in(CUcontext context, CUkernel kernel, void **params)
{
	CUDA_KERNEL_NODE_PARAMS node_params = { .gridDimX = 1,
						.gridDimY = 1,
						.gridDimZ = 1,
						.blockDimX = 1,
						.blockDimY = 1,
						.blockDimZ = 1,
						.kernelParams = params,
						.kern = kernel,
						.ctx = context };
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;

	CU(cuGraphCreate(&graph, 0));
	CU(cuCtxPushCurrent_v2(context));
	CU(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &node_params));
	CU(cuCtxPopCurrent_v2(&context));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphDestroy(graph));
	return exec;
}

/* A kernel of another device stays there. */
static void a_node_of_another_device_keeps_its_context(void)
{
	CUcontext first, second;
	CUfunction where;
	CUlibrary library;
	CUdeviceptr at;
	CUgraphExec exec;
	CUkernel kernel;
	uint32_t k = 5, got;
	void *params[] = { &at, &k };

	start();
	CU(cuCtxGetCurrent(&first));
	where = check_function(ptx, "where");
	lease_set(1);
	CHECK_EQUAL(__builtin_popcount(launched(where, NULL)), page->unit_sms);
	CHECK_EQUAL(page->is_fixed, 0);
	CU(cuDevicePrimaryCtxRetain(&second, 1));
	CHECK_EQUAL(page->is_fixed, 1);			/* what runs there does not follow the lease */
	CHECK_EQUAL(launched(where, NULL), UINT32_MAX); /* nor does the rest */
	CU(cuCtxPushCurrent_v2(second));
	CU(cuMemAlloc_v2(&at, 4));
	CU(cuMemsetD32_v2(at, 0, 1));
	CU(cuCtxSynchronize());
	CU(cuCtxPopCurrent_v2(&second));
	CU(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, library, "step"));
	exec = graph_in(second, kernel, params);
	lease_set(1);
	CU(cuGraphLaunch(exec, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(cuCtxPushCurrent_v2(second));
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(&got, at, sizeof(got)));
	CHECK_EQUAL(got, 5);
	CU(cuMemFree_v2(at));
	CU(cuCtxPopCurrent_v2(&second));
	CU(cuGraphExecDestroy(exec));
	CU(cuDevicePrimaryCtxRelease_v2(1));
	lease_set(CORO_UNITS_ALL);
}

/* The primary context comes back, under whatever handle. */
static void a_context_is_released_and_retained_again(void)
{
	CUfunction where;

	start();
	for (unsigned i = 0; i < 5; i++) {
		lease_set(1u << i % 4);
		where = check_function(ptx, "where");
		CHECK_EQUAL(__builtin_popcount(launched(where, NULL)), page->unit_sms);
		while (!cuDevicePrimaryCtxRelease_v2(0))
			;
		CHECK(is_fenced(lease_set(2), WAIT_MS));
		check_context();
		CU(cuMemAlloc_v2(&memory, sizeof(places)));
	}
	lease_set(CORO_UNITS_ALL);
}

/* The second one uses another device, so that the process is fixed from then on. */
TESTS(TEST(a_context_is_released_and_retained_again), TEST(a_node_of_another_device_keeps_its_context))
