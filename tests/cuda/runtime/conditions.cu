/* Conditional graph nodes: the condition is set by kernels. */
#include "check.h"

__global__ void count_down(int *at, cudaGraphConditionalHandle handle)
{
	int left = --at[0];

	at[1]++;
	cudaGraphSetConditional(handle, left > 0);
}

__global__ void add(int *at, int what)
{
	*at += what;
}

static cudaGraphNode_t add_condition(cudaGraph_t graph, cudaGraphConditionalHandle handle,
				     cudaGraphConditionalNodeType type, cudaGraph_t *body)
{
	cudaGraphNodeParams params = {};
	cudaGraphNode_t node;

	params.type = cudaGraphNodeTypeConditional;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = 1;
#if CUDART_VERSION >= 13000
	OK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
#else
	OK(cudaGraphAddNode(&node, graph, nullptr, 0, &params));
#endif
	*body = params.conditional.phGraph_out[0];
	return node;
}

/* A body that is captured from a stream, as most programs make it. */
static void loops(int *at)
{
	int start[2] = { 7, 0 }, end[2] = { -1, -1 };
	cudaGraphConditionalHandle handle;
	cudaGraph_t graph, body;
	cudaGraphExec_t exec;
	cudaStream_t stream;

	OK(cudaStreamCreate(&stream));
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
	add_condition(graph, handle, cudaGraphCondTypeWhile, &body);
	OK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
	count_down<<<1, 1, 0, stream>>>(at, handle);
	OK(cudaStreamEndCapture(stream, nullptr));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 2; i++) {
		OK(cudaMemcpy(at, start, sizeof(start), cudaMemcpyHostToDevice));
		OK(cudaGraphLaunch(exec, stream));
		OK(cudaStreamSynchronize(stream));
		OK(cudaMemcpy(end, at, sizeof(end), cudaMemcpyDeviceToHost));
		WANT(end[0] == 0 && end[1] == 7);
	}
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
}

static void chooses(int *at)
{
	for (unsigned value = 0; value < 2; value++) {
		cudaGraphConditionalHandle handle;
		cudaKernelNodeParams kernel = {};
		cudaGraph_t graph, body;
		cudaGraphExec_t exec;
		cudaGraphNode_t node;
		int what = 5, host = -1;
		void *args[] = { &at, &what };

		OK(cudaGraphCreate(&graph, 0));
		OK(cudaGraphConditionalHandleCreate(&handle, graph, value, cudaGraphCondAssignDefault));
		add_condition(graph, handle, cudaGraphCondTypeIf, &body);
		kernel.func = (void *)add;
		kernel.gridDim = kernel.blockDim = dim3(1);
		kernel.kernelParams = args;
		OK(cudaGraphAddKernelNode(&node, body, nullptr, 0, &kernel));
		OK(cudaGraphInstantiate(&exec, graph, 0));
		OK(cudaMemset(at, 0, sizeof(int)));
		OK(cudaGraphLaunch(exec, 0));
		OK(cudaDeviceSynchronize());
		OK(cudaMemcpy(&host, at, sizeof(host), cudaMemcpyDeviceToHost));
		WANT(host == (value ? 5 : 0));
		OK(cudaGraphExecDestroy(exec));
		OK(cudaGraphDestroy(graph));
	}
}

int main(void)
{
	int *at;

	OK(cudaMalloc(&at, 2 * sizeof(int)));
	loops(at);
	chooses(at);
	OK(cudaFree(at));
	return 0;
}
