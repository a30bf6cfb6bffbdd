// Calls through pointers, virtual functions, tables of functions, recursion.
#include <new>
#include <stdio.h>

typedef int (*op_fn)(int, int);
static __device__ __noinline__ int add(int a, int b) { return a + b; }
static __device__ __noinline__ int sub(int a, int b) { return a - b; }
static __device__ __noinline__ int mul(int a, int b) { return a * b; }
__device__ op_fn table[3] = { add, sub, mul };
__constant__ op_fn constant_table[3] = { mul, sub, add };
__device__ op_fn single = mul;
struct entry {
	char name;
	op_fn call;
	int bias;
};
__device__ entry entries[2] = { { 'a', add, 100 }, { 's', sub, 200 } };

extern "C" __global__ void by_table(int *out)
{
	int i = threadIdx.x;
	out[i] = table[i % 3](i, 7) + 1000 * constant_table[i % 3](i, 2);
}

extern "C" __global__ void by_entry(int *out)
{
	int i = threadIdx.x;
	const entry *e = &entries[i / 3 % 2];
	out[i] = e->call(i, 9) + e->bias + e->name;
}

extern "C" __global__ void by_parameter(op_fn f, int *out)
{
	int i = threadIdx.x;
	out[i] = f(i, 3);
}

extern "C" __global__ void by_choice(int *out)
{
	int i = threadIdx.x;
	op_fn f = i & 1 ? add : mul;
	if (i % 5 != 2)
		out[i] = f(i, 5);
}

struct big {
	int v[10];
};
typedef big (*big_fn)(big, double);
static __device__ __noinline__ big scale(big b, double f)
{
	for (int i = 0; i < 10; i++)
		b.v[i] = (int)(b.v[i] * f);
	return b;
}
static __device__ __noinline__ big shift(big b, double f)
{
	for (int i = 0; i < 10; i++)
		b.v[i] = (int)(b.v[i] + f);
	return b;
}

extern "C" __global__ void structures(int *out)
{
	int i = threadIdx.x, s = 0;
	big b;
	big_fn f = i % 3 ? scale : shift;
	for (int k = 0; k < 10; k++)
		b.v[k] = i + k;
	b = f(b, i % 5);
	for (int k = 0; k < 10; k++)
		s += b.v[k] * k;
	out[i] = s;
}

// A tree of virtual nodes: evaluation is recursion through a pointer.
struct node {
	__device__ virtual int value(int x) const = 0;
	__device__ virtual ~node() {}
};
struct leaf : node {
	int v;
	__device__ leaf(int v) : v(v) {}
	__device__ int value(int x) const override { return v + x; }
};
struct sum : node {
	const node *a, *b;
	__device__ sum(const node *a, const node *b) : a(a), b(b) {}
	__device__ int value(int x) const override { return a->value(x) + b->value(x + 1); }
};
struct product : node {
	const node *a, *b;
	__device__ product(const node *a, const node *b) : a(a), b(b) {}
	__device__ int value(int x) const override { return a->value(x + 2) * b->value(x); }
};

extern "C" __global__ void virtuals(int *out)
{
	int i = threadIdx.x;
	leaf one(1), many(i);
	sum s(&one, &many);
	product p(&s, &many);
	sum t(&p, &s);
	const node *const nodes[4] = { &one, &s, &p, &t };
	out[i] = nodes[i % 4]->value(i % 7);
}

static __device__ __noinline__ int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

extern "C" __global__ void fibonacci(int *out)
{
	out[threadIdx.x] = fib(threadIdx.x % 12);
}

// Two functions that call each other, with variables of every depth alive and changed by the next.
static __device__ __noinline__ int even(int n, int *above);
static __device__ __noinline__ int odd(int n, int *above)
{
	int mine = n * 3, r;
	if (n == 0)
		return 0;
	r = even(n - 1, &mine);
	*above += mine;
	return r;
}
static __device__ __noinline__ int even(int n, int *above)
{
	int mine = n * 5, r;
	if (n == 0)
		return 1;
	r = odd(n - 1, &mine);
	*above += mine;
	return r;
}

extern "C" __global__ void mutual(int *out)
{
	int i = threadIdx.x, t = 0;
	out[i] = even(i % 9, &t) * 1000;
	out[i] += t;
}

static __device__ __noinline__ void sort(int *v, int n)
{
	if (n < 2)
		return;
	int pivot = v[n / 2], i = 0, k = n - 1;
	while (i <= k) {
		while (v[i] < pivot)
			i++;
		while (v[k] > pivot)
			k--;
		if (i <= k) {
			int t = v[i];
			v[i++] = v[k];
			v[k--] = t;
		}
	}
	sort(v, k + 1);
	sort(v + i, n - i);
}

extern "C" __global__ void quicksort(int *values, int each)
{
	sort(values + threadIdx.x * each, each);
}

static __device__ __noinline__ int depth(int n, int *above)
{
	int mine = n, r = n ? depth(n - 1, &mine) : 0;
	*above += 1;
	if (n == 3)
		printf("depth %d\n", mine);
	return r + mine - n;
}

// As deep as it is told to go.
extern "C" __global__ void deep(int n, int *out)
{
	int mine = 0;
	out[threadIdx.x] = depth(n, &mine) + mine;
}
