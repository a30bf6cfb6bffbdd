// Functions called through pointers, virtual functions and recursion, as a program of the runtime has them.
#include "check.h"
#include <new>

typedef int (*op_fn)(int, int);
static __device__ int add(int a, int b)
{
	return a + b;
}
static __device__ int multiply(int a, int b)
{
	return a * b;
}
__device__ op_fn table[2] = { add, multiply };
__device__ op_fn chosen = multiply;

__global__ void by_table(int *out)
{
	out[threadIdx.x] = table[threadIdx.x % 2](threadIdx.x, 3);
}

__global__ void by_parameter(op_fn f, int *out)
{
	out[threadIdx.x] = f(threadIdx.x, 5);
}

struct shape {
	__device__ virtual int area() const = 0;
	__device__ virtual ~shape() {}
};
struct square : shape {
	int side;
	__device__ square(int side) : side(side) {}
	__device__ int area() const override { return side * side; }
};
struct pair : shape {
	const shape *a, *b;
	__device__ pair(const shape *a, const shape *b) : a(a), b(b) {}
	__device__ int area() const override { return a->area() + b->area(); }
};

__global__ void virtuals(int *out)
{
	int i = threadIdx.x;
	square small(i), large(i + 1);
	pair both(&small, &large), all(&both, &small);
	const shape *const shapes[3] = { &small, &both, &all };
	out[i] = shapes[i % 3]->area();
}

static __device__ __noinline__ int deep(int n, int *above)
{
	int mine = n, r = n ? deep(n - 1, &mine) : 0;
	*above += 1;
	return r + mine - n;
}

__global__ void recurse(int n, int *out)
{
	int mine = 0;
	out[threadIdx.x] = deep(n, &mine) + mine;
}

int main()
{
	int *out, host[64];
	size_t limit = 0;
	op_fn f;

	OK(cudaMalloc(&out, sizeof(host)));
	by_table<<<1, 64>>>(out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 64; i++)
		WANT(host[i] == (i % 2 ? i * 3 : i + 3));
	OK(cudaMemcpyFromSymbol(&f, chosen, sizeof(f)));
	by_parameter<<<1, 64>>>(f, out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 64; i++)
		WANT(host[i] == i * 5);
	virtuals<<<1, 64>>>(out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 64; i++) {
		int small = i * i, both = small + (i + 1) * (i + 1);
		WANT(host[i] == (i % 3 == 0 ? small : i % 3 == 1 ? both : both + small));
	}
	recurse<<<2, 64>>>(50, out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host[63] == 51);
	OK(cudaDeviceSetLimit(cudaLimitStackSize, 256 * 1024));
	OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
	WANT(limit == 256 * 1024);
	recurse<<<1, 64>>>(2000, out);
	OK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	WANT(host[63] == 2001);
	recurse<<<1, 64>>>(1 << 30, out);
	WANT(cudaDeviceSynchronize() == cudaErrorHardwareStackError);
	return 0;
}
