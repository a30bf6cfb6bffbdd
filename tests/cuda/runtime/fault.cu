/* What goes wrong in a kernel is an error that stays until the device is reset. */
#include "check.h"
#include <cassert>

__global__ void insist(int value)
{
	assert(value == 1);
}

__global__ void stray(int *where)
{
	*where = 1;
}

int main()
{
	int *memory;

	insist<<<1, 1>>>(1);
	OK(cudaDeviceSynchronize());
	stray<<<1, 1>>>((int *)0x10);
	WANT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
	WANT(cudaMalloc(&memory, 4) == cudaErrorIllegalAddress);
	OK(cudaDeviceReset());
	OK(cudaMalloc(&memory, 4));
	stray<<<1, 1>>>(memory);
	OK(cudaDeviceSynchronize());
	insist<<<1, 1>>>(2);
	WANT(cudaDeviceSynchronize() == cudaErrorAssert);
	return 0;
}
