// Element-wise kernels: saxpy, integer vector operations, vectorised copies, half and bfloat16 axpy.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

extern "C" __global__ void saxpy(int n, float a, const float *x, float *y)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = a * x[i] + y[i];
}

extern "C" __global__ void vector_ops(int n, const int *x, const int *y, int *out)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		int a = x[i], b = y[i];
		int s = a + b * 3 - (a ^ b);
		s += a / (b | 1) + a % (b | 1);
		s += (a << (b & 15)) + (a >> (b & 7));
		s += __popc(a) + __clz(b) + __brev(a) + min(a, b) - max(a, b);
		s += __mulhi(a, b) + __umulhi(a, b) + abs(a - b);
		out[i] = s;
	}
}

extern "C" __global__ void copy4(int n, const float4 *x, float4 *y)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) {
		float4 v = x[i];
		y[i] = make_float4(v.w, v.z, v.y, v.x);
	}
}

extern "C" __global__ void half_axpy(int n, __half a, const __half *x, __half *y)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = __hfma(a, x[i], y[i]);
}

extern "C" __global__ void half2_ops(int n, const __half2 *x, const __half2 *y, __half2 *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = __hadd2(__hmul2(x[i], y[i]), __hsub2(x[i], y[i]));
}

extern "C" __global__ void bf16_ops(int n, const __nv_bfloat16 *x, const __nv_bfloat16 *y, __nv_bfloat16 *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = __float2bfloat16(__bfloat162float(__hfma(x[i], y[i], x[i])) + 1.0f);
}

// Bytes and shorts: narrow loads and stores.
extern "C" __global__ void narrow(int n, const int8_t *x, const uint16_t *y, int16_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = (int16_t)(x[i] * 3 + y[i] / 7);
}
