/* Variables of the program on the GPU: __device__, __constant__, __managed__. */
#include "check.h"

__device__ int counters[4] = { 1, 2, 3, 4 };
__constant__ float factors[2];
__managed__ int both = 7;
static __device__ int hidden = 11;
__device__ int *link = &counters[2];

__global__ void use(float *out)
{
	out[0] = factors[0] * counters[threadIdx.x] + factors[1];
	out[1] = (float)(hidden + *link);
	both++;
	counters[3] = 99;
}

int main()
{
	const float sent[2] = { 2.5f, 0.5f };
	int got[4], more = 21;
	float *out, host[2];
	void *address;
	size_t bytes;

	WANT(both == 7);
	OK(cudaMemcpyToSymbol(factors, sent, sizeof(sent)));
	OK(cudaMemcpyToSymbol(hidden, &more, sizeof(more)));
	OK(cudaMalloc(&out, sizeof(host)));
	use<<<1, 1>>>(out);
	OK(cudaDeviceSynchronize());
	WANT(both == 8);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host[0] == 3.0f);
	WANT(host[1] == 24.0f);
	OK(cudaMemcpyFromSymbol(got, counters, sizeof(got)));
	WANT(got[0] == 1 && got[3] == 99);
	OK(cudaGetSymbolAddress(&address, counters));
	OK(cudaGetSymbolSize(&bytes, counters));
	WANT(bytes == sizeof(got));
	OK(cudaMemcpy(got, address, sizeof(got), cudaMemcpyDeviceToHost));
	WANT(got[1] == 2);
	OK(cudaFree(out));
	return 0;
}
