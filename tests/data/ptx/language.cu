// Parts of the language: structs by value, calls, switches, divergent loops, constants, globals, printf, assert.
#include <assert.h>
#include <stdint.h>
#include <stdio.h>

struct pair {
	int a;
	double b;
	float c[3];
	uint8_t d;
};

__constant__ int table[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
__constant__ float settings[4];
__device__ int counter = 40;
__device__ int *pointer = &counter;
__device__ const char *names[3] = { "one", "two", "three" };
__device__ float zeros[100];

struct node {
	int value;
	const node *next;
};
__device__ node last = { 7, 0 };
__device__ node middle = { 5, &last };
__device__ node first = { 2, &middle };

extern "C" __global__ void struct_param(pair p, const pair *q, double *out)
{
	int i = threadIdx.x;
	out[i] = p.a * p.b + p.c[i % 3] + p.d + q[i].a * q[i].b - q[i].c[2] + q[i].d;
}

__device__ __noinline__ float square(float x)
{
	return x * x;
}

__device__ __noinline__ float poly(float x, const float *c)
{
	return c[0] + c[1] * x + c[2] * square(x);
}

__device__ __noinline__ pair bump(pair p, int by)
{
	p.a += by;
	p.b *= 2;
	p.c[by % 3] = square(p.c[by % 3]);
	return p;
}

extern "C" __global__ void calls(const float *x, float *out)
{
	int i = threadIdx.x;
	float c[3] = { 1.0f, x[i] * 0.5f, 2.0f };
	pair p = { i, 1.5, { x[i], 2.0f, 3.0f }, (uint8_t)i };
	if (i & 1)
		p = bump(p, i);
	float r = poly(x[i], c);
	if (i % 3 == 0)
		r += square(r);
	out[i] = r + p.a + (float)p.b + p.c[0] + p.c[1] + p.c[2] + p.d;
}

extern "C" __global__ void switches(int n, const int *in, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	int v = in[i], r = 0;
	switch (v) {
	case 0: r = v + 11; break;
	case 1: r = v * 13; break;
	case 2: r = v - 17; /* falls through */
	case 3: r += v ^ 19; break;
	case 4: r = v << 3; break;
	case 5: r = 29 - v; break;
	case 6: for (int k = 0; k < i % 7; k++) r += k * v; break;
	case 7: r = v % 3; break;
	case 8: r = -v; break;
	case 9: return;
	default: r = 1000 + v; break;
	}
	out[i] = r;
}

extern "C" __global__ void nested(int n, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, r = 0;
	if (i >= n)
		return;
	for (int a = 0; a < i % 9; a++) {
		if (a == 5)
			continue;
		for (int b = a; b < 20; b++) {
			if ((b * 7 + i) % 11 == 0)
				break;
			if ((b + a) & 1)
				continue;
			r += a * b + 1;
			if (r > 500 + i)
				goto out_of_both;
		}
		if (r % 13 == 12)
			return;
	}
out_of_both:
	out[i] = r;
}

extern "C" __global__ void globals(int *out)
{
	int i = threadIdx.x;
	out[i] = table[i & 7] + *pointer + (int)settings[i & 3] + names[i % 3][1] + (int)zeros[i];
	const node *n = &first;
	for (int k = 0; k < i % 3; k++)
		n = n->next;
	out[i] += n->value * 1000;
	if (i == 0)
		atomicAdd(&counter, 2);
}

extern "C" __global__ void talk(int n)
{
	if (threadIdx.x < n)
		printf("thread %d of %s: %f\n", threadIdx.x, names[threadIdx.x % 3], threadIdx.x * 0.5);
}

extern "C" __global__ void doubt(int n)
{
	assert(threadIdx.x < n);
}

extern "C" __global__ void local_array(int n, const int *in, int *out)
{
	int i = threadIdx.x, a[16];
	for (int k = 0; k < 16; k++)
		a[k] = in[i * 16 + k];
	for (int k = 0; k < n; k++) {
		int from = a[k & 15] & 15, t = a[from];
		a[from] = a[(from + k) & 15] + 1;
		a[(from + k) & 15] = t;
	}
	int sum = 0;
	for (int k = 0; k < 16; k++)
		sum = sum * 31 + a[k];
	out[i] = sum;
}

extern "C" __global__ void places(uint64_t *out)
{
	__shared__ int s;
	int l = threadIdx.x;
	int *p = threadIdx.x & 1 ? &s : threadIdx.x & 2 ? &l : &counter;
	s = 9;
	__syncthreads();
	out[threadIdx.x] = *p + 100 * (__isShared(p) ? 1 : __isLocal(p) ? 2 : __isGlobal(p) ? 3 : 4);
}

extern "C" __global__ void late(int *out)
{
	// threads leave one by one while others wait at barriers
	for (int k = 0; k < 8; k++) {
		if (threadIdx.x / 32 == k)
			return;
		__syncthreads();
		if (threadIdx.x % 32 == 0)
			atomicAdd(&out[k], 1);
	}
}

extern "C" __global__ void spin(int *lock, int *value)
{
	// a lock taken lane by lane: lanes that wait must not starve the one that holds it
	bool done = false;
	while (!done) {
		if (atomicCAS(lock, 0, 1) == 0) {
			*(volatile int *)value += 1;
			__threadfence();
			atomicExch(lock, 0);
			done = true;
		}
	}
}
