/* The demo's kernels. kernels.ptx is made of this by `nvcc -ptx -arch=compute_80 kernels.cu`, and shipped for machines
 * without nvcc. */

/* One step of a small language model's decoding, as far as the GPU sees it: a matrix times a vector, row by row, a
 * warp a row, then a soft threshold. */
extern "C" __global__ void decode(const float *weights, const float *in, float *out, int columns)
{
	int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
	float sum = 0;

	for (int i = lane; i < columns; i += 32)
		sum += weights[row * columns + i] * in[i];
	for (int step = 16; step; step /= 2)
		sum += __shfl_down_sync(0xffffffff, sum, step);
	if (!lane)
		out[row] = sum > 0 ? sum : 0.125f * sum;
}

/* One step of training: a matrix product in tiles of 16 by 16, through shared memory. n is a multiple of 16. */
extern "C" __global__ void train(const float *a, const float *b, float *c, int n)
{
	__shared__ float left[16][16], right[16][17];
	int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
	float sum = 0;

	for (int tile = 0; tile < n; tile += 16) {
		left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
		right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
		__syncthreads();
		for (int k = 0; k < 16; k++)
			sum += left[threadIdx.y][k] * right[k][threadIdx.x];
		__syncthreads();
	}
	c[row * n + column] = sum;
}

/* A mistake: far outside of anything. */
extern "C" __global__ void stray(float *out)
{
	out[1ull << 40] = 1;
}
