/* printf in a kernel reaches the program's output, in order. */
#include "check.h"

__global__ void hello(const char *unused, float f)
{
	if (!unused)
		printf("thread %d of block %d: %.2f %s\n", threadIdx.x, blockIdx.x, f, "text");
}

int main()
{
	printf("before\n");
	fflush(stdout);
	hello<<<1, 2>>>(nullptr, 1.5f);
	OK(cudaDeviceSynchronize());
	printf("after\n");
	return 0;
}
