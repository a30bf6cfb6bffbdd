// Grids: stencils, life, graphs, fractals, particles, images of the plane.
#include <stdint.h>

extern "C" __global__ void stencil2d(int w, int h, const float *in, float *out)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x <= 0 || y <= 0 || x >= w - 1 || y >= h - 1)
		return;
	const float *p = in + y * w + x;
	out[y * w + x] = 0.2f * (p[0] + p[-1] + p[1] + p[-w] + p[w]);
}

extern "C" __global__ void stencil3d(int w, int h, int d, const double *in, double *out)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	int z = blockIdx.z * blockDim.z + threadIdx.z;
	if (x <= 0 || y <= 0 || z <= 0 || x >= w - 1 || y >= h - 1 || z >= d - 1)
		return;
	long i = ((long)z * h + y) * w + x;
	out[i] = in[i] * -6.0 + in[i - 1] + in[i + 1] + in[i - w] + in[i + w] + in[i - w * h] + in[i + w * h];
}

extern "C" __global__ void life(int w, int h, const uint8_t *in, uint8_t *out)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, n = 0;
	if (x >= w || y >= h)
		return;
	for (int dy = -1; dy <= 1; dy++)
		for (int dx = -1; dx <= 1; dx++)
			if (dx || dy)
				n += in[(y + dy + h) % h * w + (x + dx + w) % w];
	out[y * w + x] = n == 3 || (n == 2 && in[y * w + x]);
}

extern "C" __global__ void bfs_step(int n, int level, const int *start, const int *edge, int *depth, int *changed)
{
	int v = blockIdx.x * blockDim.x + threadIdx.x;
	if (v >= n || depth[v] != level)
		return;
	for (int i = start[v]; i < start[v + 1]; i++)
		if (atomicCAS(&depth[edge[i]], -1, level + 1) == -1)
			*changed = 1;
}

extern "C" __global__ void mandelbrot(int w, int h, int limit, uint32_t *out)
{
	int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
	if (px >= w || py >= h)
		return;
	float cx = __fsub_rn(__fmul_rn(__fdiv_rn((float)px, (float)w), 3.0f), 2.0f);
	float cy = __fsub_rn(__fmul_rn(__fdiv_rn((float)py, (float)h), 2.0f), 1.0f);
	float x = 0, y = 0;
	int i = 0;
	while (i < limit && __fadd_rn(__fmul_rn(x, x), __fmul_rn(y, y)) <= 4.0f) {
		float next = __fadd_rn(__fsub_rn(__fmul_rn(x, x), __fmul_rn(y, y)), cx);
		y = __fadd_rn(__fmul_rn(__fmul_rn(2.0f, x), y), cy);
		x = next;
		i++;
	}
	out[py * w + px] = i;
}

extern "C" __global__ void nbody(int n, const float4 *pos, float4 *acc)
{
	__shared__ float4 tile[64];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float4 p = i < n ? pos[i] : make_float4(0, 0, 0, 0);
	float ax = 0, ay = 0, az = 0;
	for (int base = 0; base < n; base += 64) {
		tile[threadIdx.x] = base + threadIdx.x < n ? pos[base + threadIdx.x] : make_float4(0, 0, 0, 0);
		__syncthreads();
		for (int j = 0; j < 64; j++) {
			float dx = tile[j].x - p.x, dy = tile[j].y - p.y, dz = tile[j].z - p.z;
			float d2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
			float inv = 1.0f / sqrtf(d2);
			float f = tile[j].w * inv * inv * inv;
			ax = fmaf(dx, f, ax);
			ay = fmaf(dy, f, ay);
			az = fmaf(dz, f, az);
		}
		__syncthreads();
	}
	if (i < n)
		acc[i] = make_float4(ax, ay, az, 0);
}

// Points in a quarter circle, by xorshift in integers.
extern "C" __global__ void monte_carlo(int rounds, uint32_t *hits)
{
	uint32_t s = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u, n = 0;
	for (int i = 0; i < rounds; i++) {
		s ^= s << 13;
		s ^= s >> 17;
		s ^= s << 5;
		uint32_t x = s >> 16, y = s & 0xffff;
		if ((uint64_t)x * x + (uint64_t)y * y < 65536ull * 65536ull)
			n++;
	}
	atomicAdd(hits, n);
}
