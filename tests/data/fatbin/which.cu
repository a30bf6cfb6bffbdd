/* Tells which of several translations of it was loaded, and reads variables with initial values. */
__device__ int counter = 5;
__constant__ int table[4] = { 10, 20, 30, 40 };

extern "C" __global__ void which(int *out)
{
	out[0] = __CUDA_ARCH__;
	out[1] = counter + table[threadIdx.x & 3];
}
