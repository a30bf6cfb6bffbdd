/* Device code in two parts, compiled separately: parts.more is the other one. */
#include "check.h"

extern __device__ int twice(int x);
extern __device__ int common;
extern __constant__ int fixed[2];
static __device__ int own = 3;

static __device__ __noinline__ int helper(int x)
{
	return x + own;
}

template <typename T> __device__ __noinline__ T both(T x)
{
	return x * 10;
}

__global__ void here(int *out)
{
	extern __shared__ int tile[];

	tile[0] = helper(twice(20));
	out[0] = tile[0];
	out[1] = common + fixed[1];
	out[2] = both(7);
}

__global__ void there(int *out);
int value_of_other(void);

int main()
{
	int *out, host[6], changed = 500;

	OK(cudaMalloc(&out, sizeof(host)));
	here<<<1, 1, 64>>>(out);
	there<<<1, 1, 64>>>(out + 3);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host[0] == 43 && host[1] == 100 + 8 && host[2] == 70);
	WANT(host[3] == 1000 + 5 && host[4] == 41 && host[5] == 70);
	OK(cudaMemcpyToSymbol(common, &changed, sizeof(changed)));
	here<<<1, 1, 64>>>(out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host[1] == 508);
	WANT(value_of_other() == 500);
	OK(cudaFree(out));
	return 0;
}
