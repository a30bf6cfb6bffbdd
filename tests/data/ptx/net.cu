// What networks are made of: softmax, layer norm, one transformer layer in float32.
#include <math.h>

// One warp a row.
extern "C" __global__ void softmax(int rows, int cols, const float *in, float *out)
{
	int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
	if (row >= rows)
		return;
	float top = -INFINITY, sum = 0;
	for (int c = lane; c < cols; c += 32)
		top = fmaxf(top, in[row * cols + c]);
	for (int d = 16; d; d >>= 1)
		top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
	for (int c = lane; c < cols; c += 32)
		sum += expf(in[row * cols + c] - top);
	for (int d = 16; d; d >>= 1)
		sum += __shfl_xor_sync(0xffffffff, sum, d);
	for (int c = lane; c < cols; c += 32)
		out[row * cols + c] = expf(in[row * cols + c] - top) / sum;
}

extern "C" __global__ void layernorm(int rows, int cols, const float *in, const float *gain, const float *bias, float *out)
{
	__shared__ float part[2][8];
	int lane = threadIdx.x & 31, warp = threadIdx.x / 32, row = blockIdx.x;
	float sum = 0, square = 0;
	for (int c = threadIdx.x; c < cols; c += blockDim.x) {
		float v = in[row * cols + c];
		sum += v;
		square = fmaf(v, v, square);
	}
	for (int d = 16; d; d >>= 1) {
		sum += __shfl_xor_sync(0xffffffff, sum, d);
		square += __shfl_xor_sync(0xffffffff, square, d);
	}
	if (lane == 0) {
		part[0][warp] = sum;
		part[1][warp] = square;
	}
	__syncthreads();
	sum = square = 0;
	for (int w = 0; w < blockDim.x / 32; w++) {
		sum += part[0][w];
		square += part[1][w];
	}
	float mean = sum / cols, scale = rsqrtf(square / cols - mean * mean + 1e-5f);
	for (int c = threadIdx.x; c < cols; c += blockDim.x)
		out[row * cols + c] = (in[row * cols + c] - mean) * scale * gain[c] + bias[c];
}

// y = x w + b, then gelu if asked: one thread an output.
extern "C" __global__ void linear(int rows, int in, int out, const float *x, const float *w, const float *b, float *y, int gelu)
{
	int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
	if (c >= out || r >= rows)
		return;
	float sum = b ? b[c] : 0.0f;
	for (int i = 0; i < in; i++)
		sum = fmaf(x[r * in + i], w[i * out + c], sum);
	if (gelu)
		sum = 0.5f * sum * (1.0f + tanhf(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
	y[r * out + c] = sum;
}

// Causal attention: one block a head and row, up to 64 positions, 16 wide heads.
extern "C" __global__ void attention(int positions, int heads, const float *q, const float *k, const float *v, float *out)
{
	__shared__ float score[64];
	int head = blockIdx.x, row = blockIdx.y, t = threadIdx.x, width = heads * 16;
	if (t <= row) {
		float s = 0;
		for (int i = 0; i < 16; i++)
			s = fmaf(q[row * width + head * 16 + i], k[t * width + head * 16 + i], s);
		score[t] = s * 0.25f;
	}
	__syncthreads();
	float top = score[0], sum = 0;
	for (int i = 1; i <= row; i++)
		top = fmaxf(top, score[i]);
	for (int i = 0; i <= row; i++)
		sum += expf(score[i] - top);
	if (t < 16) {
		float acc = 0;
		for (int i = 0; i <= row; i++)
			acc = fmaf(expf(score[i] - top) / sum, v[i * width + head * 16 + t], acc);
		out[row * width + head * 16 + t] = acc;
	}
}

extern "C" __global__ void add(int n, const float *a, const float *b, float *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = a[i] + b[i];
}
