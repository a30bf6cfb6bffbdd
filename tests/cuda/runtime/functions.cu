/* What the runtime tells about kernels, and its other ways to launch them. */
#include "check.h"
#include <cooperative_groups.h>

__global__ void __launch_bounds__(256) shaped(int *out, int value)
{
	__shared__ int tile[100];
	extern __shared__ int more[];

	tile[threadIdx.x % 100] = value;
	if (more[0] == 12345)
		tile[0] = 1;
	__syncthreads();
	out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x % 100];
}

__global__ void meet(int *arrived, int *seen)
{
	cooperative_groups::grid_group grid = cooperative_groups::this_grid();

	if (!threadIdx.x)
		atomicAdd(arrived, 1);
	grid.sync();
	if (!threadIdx.x)
		seen[blockIdx.x] = *(volatile int *)arrived;
}

static void attributes(void)
{
	cudaFuncAttributes a;
	int blocks = 0, grid = 0, threads = 0;

	OK(cudaFuncGetAttributes(&a, shaped));
	WANT(a.maxThreadsPerBlock == 256);
	WANT(a.sharedSizeBytes == 400);
	WANT(a.numRegs > 0);
	WANT(a.maxDynamicSharedSizeBytes == 48 * 1024 - 400);
	OK(cudaFuncSetAttribute(shaped, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024));
	OK(cudaFuncGetAttributes(&a, shaped));
	WANT(a.maxDynamicSharedSizeBytes == 100 * 1024);
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shaped, 256, 0));
	WANT(blocks == 8);
	OK(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, shaped));
	WANT(threads == 256 && grid > 0);
}

static void launches(void)
{
	int *out, host = 0, value = 3;
	void *args[] = { &out, &value };
	cudaLaunchConfig_t config = {};

	OK(cudaMalloc(&out, 512 * sizeof(int)));
	OK(cudaLaunchKernel((void *)shaped, dim3(2), dim3(256), args, 1024, 0));
	OK(cudaMemcpy(&host, out + 511, sizeof(int), cudaMemcpyDeviceToHost));
	WANT(host == 3);
	config.gridDim = dim3(2);
	config.blockDim = dim3(256);
	config.dynamicSmemBytes = 90 * 1024;
	OK(cudaLaunchKernelEx(&config, shaped, out, 4));
	OK(cudaMemcpy(&host, out, sizeof(int), cudaMemcpyDeviceToHost));
	WANT(host == 4);
	OK(cudaFree(out));
}

static void cooperative(void)
{
	int *memory, host[5];
	int *seen;

	OK(cudaMalloc(&memory, sizeof(host)));
	OK(cudaMemset(memory, 0, sizeof(host)));
	seen = memory + 1;
	void *args[] = { &memory, &seen };
	OK(cudaLaunchCooperativeKernel((void *)meet, dim3(4), dim3(32), args, 0, 0));
	OK(cudaMemcpy(host, memory, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 5; i++)
		WANT(host[i] == 4);
	OK(cudaFree(memory));
}

int main()
{
	attributes();
	launches();
	cooperative();
	return 0;
}
