/* Threads of the host, each with its own default stream (compiled with --default-stream per-thread) */
#include "check.h"
#include <pthread.h>

__global__ void fill(int *data, int value)
{
	data[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static void *work(void *number)
{
	int value = (int)(size_t)number, *data, host[128];

	OK(cudaMalloc(&data, sizeof(host)));
	for (int round = 0; round < 10; round++) {
		fill<<<2, 64>>>(data, value + round);
		OK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, 0));
		OK(cudaStreamSynchronize(0));
		for (int i = 0; i < 128; i++)
			WANT(host[i] == value + round);
	}
	OK(cudaFree(data));
	return nullptr;
}

int main()
{
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		WANT(!pthread_create(&threads[i], nullptr, work, (void *)(i * 1000)));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], nullptr);
	return 0;
}
