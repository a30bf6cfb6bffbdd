/* Memory that both sides use. */
#include "check.h"

__global__ void square(int *data)
{
	data[threadIdx.x] *= data[threadIdx.x];
}

int main()
{
	cudaPointerAttributes what;
	int *data, *pinned;

	OK(cudaMallocManaged(&data, 32 * sizeof(int)));
	for (int i = 0; i < 32; i++)
		data[i] = i;
	square<<<1, 32>>>(data);
	OK(cudaDeviceSynchronize());
	for (int i = 0; i < 32; i++)
		WANT(data[i] == i * i);
	OK(cudaPointerGetAttributes(&what, data));
	WANT(what.type == cudaMemoryTypeManaged);
	OK(cudaHostAlloc(&pinned, 32 * sizeof(int), cudaHostAllocMapped));
	for (int i = 0; i < 32; i++)
		pinned[i] = -i;
	square<<<1, 32>>>(pinned);
	OK(cudaDeviceSynchronize());
	WANT(pinned[5] == 25);
	OK(cudaFreeHost(pinned));
	OK(cudaFree(data));
	return 0;
}
