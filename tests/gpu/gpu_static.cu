// SPDX-License-Identifier: MIT
// a_statically_linked_runtime_runs: vector addition and a stream-ordered allocation. run.sh builds it with
// `nvcc -cudart static` where nvcc is: then no CUDA library but the driver's is loaded.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define MUST(call) \
	do { \
		cudaError_t result_ = (call); \
		if (result_ != cudaSuccess) { \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result_)); \
			exit(1); \
		} \
	} while (0)

__global__ void add(const int *a, const int *b, int *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

int main()
{
	const int n = 1 << 20;
	const size_t bytes = n * sizeof(int);
	std::vector<int> host(n), result(n);
	int *a, *b, *c, wrong = 0;
	cudaStream_t stream;

	for (int i = 0; i < n; i++)
		host[i] = i;
	MUST(cudaStreamCreate(&stream));
	MUST(cudaMalloc(&a, bytes));
	MUST(cudaMalloc(&b, bytes));
	MUST(cudaMallocAsync(&c, bytes, stream));
	MUST(cudaMemcpyAsync(a, host.data(), bytes, cudaMemcpyHostToDevice, stream));
	MUST(cudaMemcpyAsync(b, host.data(), bytes, cudaMemcpyHostToDevice, stream));
	add<<<n / 256, 256, 0, stream>>>(a, b, c, n);
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(result.data(), c, bytes, cudaMemcpyDeviceToHost, stream));
	MUST(cudaFreeAsync(c, stream));
	MUST(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		wrong += result[i] != 2 * i;
	printf("%s: %d of %d results wrong\n", wrong ? "FAILED" : "ok", wrong, n);
	return wrong != 0;
}
