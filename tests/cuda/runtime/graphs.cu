/* Graphs: captured from a stream, launched often, and made node by node. */
#include "check.h"

__global__ void add(int *at, int what)
{
	*at += what;
}

static void captured(int *at)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	int host = -1;

	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	OK(cudaMemsetAsync(at, 0, sizeof(int), stream));
	for (int i = 1; i <= 4; i++)
		add<<<1, 1, 0, stream>>>(at, i);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	OK(cudaMemcpy(&host, at, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host == 10);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
}

static void by_hand(int *at)
{
	cudaGraph_t graph;
	cudaGraphNode_t clear, node;
	cudaGraphExec_t exec;
	cudaMemsetParams memset = {};
	cudaKernelNodeParams kernel = {};
	int what = 5, host = -1;
	void *args[] = { &at, &what };

	OK(cudaGraphCreate(&graph, 0));
	memset.dst = at;
	memset.elementSize = 4;
	memset.width = memset.height = 1;
	OK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset));
	kernel.func = (void *)add;
	kernel.gridDim = kernel.blockDim = dim3(1);
	kernel.kernelParams = args;
	OK(cudaGraphAddKernelNode(&node, graph, &clear, 1, &kernel));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaDeviceSynchronize());
	OK(cudaMemcpy(&host, at, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host == 5);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

int main()
{
	int *at;

	OK(cudaMalloc(&at, sizeof(int)));
	captured(at);
	by_hand(at);
	OK(cudaFree(at));
	return 0;
}
