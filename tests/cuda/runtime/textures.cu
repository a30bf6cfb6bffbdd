// Arrays, texture objects and surface objects as a program of the runtime has them: every kind of texture, addressing and
// filtering, against the formulas of the CUDA programming guide computed here.
#include "check.h"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

enum { W = 13, H = 7, D = 5, LAYERS = 3, N = 512 };

__global__ void read_1d(cudaTextureObject_t t, const float *c, float *out)
{
	out[threadIdx.x] = tex1D<float>(t, c[3 * threadIdx.x]);
}
__global__ void read_2d(cudaTextureObject_t t, const float *c, float *out)
{
	out[threadIdx.x] = tex2D<float>(t, c[3 * threadIdx.x], c[3 * threadIdx.x + 1]);
}
__global__ void read_3d(cudaTextureObject_t t, const float *c, float *out)
{
	out[threadIdx.x] = tex3D<float>(t, c[3 * threadIdx.x], c[3 * threadIdx.x + 1], c[3 * threadIdx.x + 2]);
}
__global__ void read_layered(cudaTextureObject_t t, const float *c, int layer, float *out)
{
	out[threadIdx.x] = tex2DLayered<float>(t, c[3 * threadIdx.x], c[3 * threadIdx.x + 1], layer);
}
__global__ void fetch_bytes(cudaTextureObject_t t, int4 *out, int first)
{
	uchar4 v = tex1Dfetch<uchar4>(t, (int)threadIdx.x + first);
	out[threadIdx.x] = make_int4(v.x, v.y, v.z, v.w);
}
__global__ void read_cube(cudaTextureObject_t t, const float *c, float *out)
{
	out[threadIdx.x] =
		texCubemap<float>(t, c[3 * threadIdx.x], c[3 * threadIdx.x + 1], c[3 * threadIdx.x + 2]);
}
__global__ void read_normalized(cudaTextureObject_t t, float2 *out)
{
	out[threadIdx.x] = tex2D<float2>(t, threadIdx.x % W + 0.5f, threadIdx.x / W + 0.5f);
}
__global__ void read_shorts(cudaTextureObject_t t, int *out)
{
	short4 v = tex2D<short4>(t, threadIdx.x % W + 0.5f, threadIdx.x / W + 0.5f);
	out[threadIdx.x] = v.x + 3 * v.y + 5 * v.z + 7 * v.w;
}
__global__ void gather(cudaTextureObject_t t, float x, float y, float4 *out)
{
	out[0] = tex2Dgather<float4>(t, x, y, 0);
}
__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to)
{
	int x = threadIdx.x, y = threadIdx.y;
	float4 v;
	surf2Dread(&v, from, x * (int)sizeof(float4), y);
	surf2Dwrite(make_float4(v.w, v.z, v.y, v.x), to, y * (int)sizeof(float4), x);
}
__global__ void bytes_3d(cudaSurfaceObject_t s, unsigned char *out)
{
	int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
	unsigned char v = surf3Dread<unsigned char>(s, x, y, z), outside;
	surf3Dwrite((unsigned char)(v + 1), s, x, y, z);
	surf3Dread(&outside, s, x + W, y, z, cudaBoundaryModeZero);
	out[(z * H + y) * W + x] = v * 2 + outside;
	surf3Dread(&outside, s, x + W, y, z, cudaBoundaryModeClamp);
	if (x == W - 1)
		out[(z * H + y) * W + x] += outside != (unsigned char)(v + 1);
}
__global__ void outside(cudaSurfaceObject_t s)
{
	surf2Dwrite(1.0f, s, 4 * W, 0);
}

static float texels[LAYERS * D * H * W];

static float at(const int size[3], int dims, int plane, const int i[3])
{
	int x = i[0], y = dims > 1 ? i[1] : 0, z = dims > 2 ? i[2] : plane;
	return texels[(z * (dims > 1 ? size[1] : 1) + y) * size[0] + x];
}

/* Index i of size n, or -1: the border. */
static int place(cudaTextureAddressMode mode, bool normalized, int i, int n)
{
	if (i >= 0 && i < n)
		return i;
	if (mode == cudaAddressModeBorder)
		return -1;
	if (normalized && mode == cudaAddressModeWrap)
		return ((i % n) + n) % n;
	if (normalized && mode == cudaAddressModeMirror) {
		int m = ((i % (2 * n)) + 2 * n) % (2 * n);
		return m < n ? m : 2 * n - 1 - m;
	}
	return i < 0 ? 0 : n - 1;
}

static float expected(const cudaTextureDesc &d, const int size[3], int dims, int plane, const float *c)
{
	bool linear = d.filterMode == cudaFilterModeLinear;
	int first[3] = { 0, 0, 0 };
	double weight[3] = { 0, 0, 0 }, sum = 0;

	for (int k = 0; k < dims; k++) {
		double x = (d.normalizedCoords ? (double)c[k] * size[k] : (double)c[k]) - (linear ? 0.5 : 0);
		first[k] = (int)floor(x);
		if (linear)
			weight[k] = floor((x - floor(x)) * 256 + 0.5) / 256;
	}
	for (int corner = 0; corner < (linear ? 1 << dims : 1); corner++) {
		double w = 1;
		bool border = false;
		int i[3] = { 0, 0, 0 };
		for (int k = 0; k < dims; k++) {
			int next = corner >> k & 1;
			w *= next ? weight[k] : 1 - weight[k];
			i[k] = place(d.addressMode[k], d.normalizedCoords, first[k] + next, size[k]);
			border |= i[k] < 0;
		}
		sum += w * (border ? d.borderColor[0] : at(size, dims, plane, i));
	}
	return (float)sum;
}

static void fill_coordinates(const cudaTextureDesc &d, const int size[3], float *c)
{
	uint32_t seed = 12345;
	for (int i = 0; i < 3 * N; i++) {
		seed = seed * 1664525 + 1013904223;
		double unit = (seed >> 8) / (double)(1 << 24) * 4 - 1.5; /* inside, and well outside */
		c[i] = (float)(d.normalizedCoords ? unit : unit * size[i % 3]);
	}
}

static cudaArray_t make_array(int dims, const int size[3], unsigned flags)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaExtent extent = make_cudaExtent(size[0], dims > 1 ? size[1] : 0, dims > 2 || flags ? size[2] : 0);
	cudaMemcpy3DParms copy = {};
	cudaArray_t array;

	OK(cudaMalloc3DArray(&array, &format, extent, flags));
	copy.srcPtr = make_cudaPitchedPtr(texels, size[0] * sizeof(float), size[0], dims > 1 ? size[1] : 1);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(size[0], dims > 1 ? size[1] : 1, extent.depth ? extent.depth : 1);
	copy.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&copy));
	return array;
}

static cudaTextureObject_t make_texture(cudaArray_t array, const cudaTextureDesc &d)
{
	cudaResourceDesc res = {};
	cudaTextureObject_t t;

	res.resType = cudaResourceTypeArray;
	res.res.array.array = array;
	OK(cudaCreateTextureObject(&t, &res, &d, nullptr));
	return t;
}

static void check_floats(const cudaTextureDesc &d, const int size[3], int dims, int plane, const float *c,
			 const float *device)
{
	std::vector<float> got(N);

	OK(cudaMemcpy(got.data(), device, N * sizeof(float), cudaMemcpyDeviceToHost));
	for (int i = 0; i < N; i++) {
		float want = expected(d, size, dims, plane, c + 3 * i);
		if (fabsf(got[i] - want) > 1e-4f * (1 + fabsf(want))) {
			fprintf(stderr, "%dD, filter %d, address %d, normalized %d at %g %g %g: %g, not %g\n",
				dims, d.filterMode, d.addressMode[0], d.normalizedCoords, c[3 * i],
				c[3 * i + 1], c[3 * i + 2], got[i], want);
			exit(1);
		}
	}
}

static void test_sampling(int dims, bool layered)
{
	const int size[3] = { W, H, layered ? LAYERS : D };
	cudaArray_t array = make_array(dims, size, layered ? cudaArrayLayered : 0);
	static float c[3 * N];
	float *dc, *out;

	OK(cudaMalloc(&dc, sizeof(c)));
	OK(cudaMalloc(&out, N * sizeof(float)));
	for (int mode = 0; mode < 4; mode++)
		for (int bits = 0; bits < 4; bits++) {
			cudaTextureDesc d = {};
			for (int k = 0; k < 3; k++)
				d.addressMode[k] = (cudaTextureAddressMode)mode;
			d.filterMode = bits & 1 ? cudaFilterModeLinear : cudaFilterModePoint;
			d.normalizedCoords = bits >> 1;
			d.borderColor[0] = -3.5f;
			cudaTextureObject_t t = make_texture(array, d);
			fill_coordinates(d, size, c);
			OK(cudaMemcpy(dc, c, sizeof(c), cudaMemcpyHostToDevice));
			for (int layer = 0; layer < (layered ? LAYERS : 1); layer++) {
				if (layered)
					read_layered<<<1, N>>>(t, dc, layer, out);
				else if (dims == 1)
					read_1d<<<1, N>>>(t, dc, out);
				else if (dims == 2)
					read_2d<<<1, N>>>(t, dc, out);
				else
					read_3d<<<1, N>>>(t, dc, out);
				check_floats(d, size, dims, layer, c, out);
			}
			OK(cudaDestroyTextureObject(t));
		}
	OK(cudaFreeArray(array));
	OK(cudaFree(dc));
	OK(cudaFree(out));
}

static void test_linear_memory()
{
	std::vector<unsigned char> bytes(4 * 64);
	cudaResourceDesc res = {}, told;
	cudaTextureDesc d = {};
	cudaTextureObject_t t;
	int4 *out, got[96];
	void *memory;

	for (size_t i = 0; i < bytes.size(); i++)
		bytes[i] = (unsigned char)(i * 7 + 1);
	OK(cudaMalloc(&memory, bytes.size()));
	OK(cudaMalloc(&out, sizeof(got)));
	OK(cudaMemcpy(memory, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
	res.resType = cudaResourceTypeLinear;
	res.res.linear.devPtr = memory;
	res.res.linear.desc = cudaCreateChannelDesc<uchar4>();
	res.res.linear.sizeInBytes = bytes.size();
	OK(cudaCreateTextureObject(&t, &res, &d, nullptr));
	OK(cudaGetTextureObjectResourceDesc(&told, t));
	WANT(told.resType == cudaResourceTypeLinear && told.res.linear.devPtr == memory);
	fetch_bytes<<<1, 96>>>(t, out, -16);
	OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 96; i++) {
		bool inside = i >= 16 && i < 80;
		const unsigned char *want = inside ? &bytes[4 * (i - 16)] : nullptr;
		WANT(got[i].x == (inside ? want[0] : 0) && got[i].y == (inside ? want[1] : 0));
		WANT(got[i].z == (inside ? want[2] : 0) && got[i].w == (inside ? want[3] : 0));
	}
	OK(cudaDestroyTextureObject(t));
	WANT(cudaDestroyTextureObject(t) != cudaSuccess);
	cudaGetLastError();
}

/* Pitched memory, bytes and shorts, read as floats in [0, 1] and [-1, 1] and as integers. */
static void test_pitched()
{
	signed char bytes[H][W][2];
	short shorts[H][W][4];
	cudaResourceDesc res = {};
	cudaTextureDesc d = {};
	cudaTextureObject_t t;
	float2 *out, got[W * H];
	int *sums, got_sums[W * H];
	size_t pitch;
	void *memory;

	for (int i = 0; i < H * W; i++) {
		bytes[i / W][i % W][0] = (signed char)(i * 5 - 128);
		bytes[i / W][i % W][1] = (signed char)(127 - i);
		for (int k = 0; k < 4; k++)
			shorts[i / W][i % W][k] = (short)(i * 701 * (k + 1) - 30000);
	}
	OK(cudaMallocPitch(&memory, &pitch, sizeof(shorts[0]), H));
	OK(cudaMalloc(&out, sizeof(got)));
	OK(cudaMalloc(&sums, sizeof(got_sums)));
	OK(cudaMemcpy2D(memory, pitch, bytes, sizeof(bytes[0]), sizeof(bytes[0]), H, cudaMemcpyHostToDevice));
	res.resType = cudaResourceTypePitch2D;
	res.res.pitch2D.devPtr = memory;
	res.res.pitch2D.desc = cudaCreateChannelDesc<char2>();
	res.res.pitch2D.width = W;
	res.res.pitch2D.height = H;
	res.res.pitch2D.pitchInBytes = pitch;
	d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
	d.readMode = cudaReadModeNormalizedFloat;
	OK(cudaCreateTextureObject(&t, &res, &d, nullptr));
	read_normalized<<<1, W * H>>>(t, out);
	OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
	for (int i = 0; i < W * H; i++) {
		WANT(fabsf(got[i].x - fmaxf(-1, bytes[i / W][i % W][0] / 127.0f)) < 1e-6f);
		WANT(fabsf(got[i].y - fmaxf(-1, bytes[i / W][i % W][1] / 127.0f)) < 1e-6f);
	}
	OK(cudaDestroyTextureObject(t));
	OK(cudaMemcpy2D(memory, pitch, shorts, sizeof(shorts[0]), sizeof(shorts[0]), H,
			cudaMemcpyHostToDevice));
	res.res.pitch2D.desc = cudaCreateChannelDesc<short4>();
	d.readMode = cudaReadModeElementType;
	OK(cudaCreateTextureObject(&t, &res, &d, nullptr));
	read_shorts<<<1, W * H>>>(t, sums);
	OK(cudaMemcpy(got_sums, sums, sizeof(got_sums), cudaMemcpyDeviceToHost));
	for (int i = 0; i < W * H; i++) {
		const short *v = shorts[i / W][i % W];
		WANT(got_sums[i] == v[0] + 3 * v[1] + 5 * v[2] + 7 * v[3]);
	}
	OK(cudaDestroyTextureObject(t));
	/* linear filtering of integers is not possible */
	d.filterMode = cudaFilterModeLinear;
	WANT(cudaCreateTextureObject(&t, &res, &d, nullptr) != cudaSuccess);
	cudaGetLastError();
}

static void test_cube()
{
	const int size[3] = { 4, 4, 6 };
	cudaArray_t array = make_array(3, size, cudaArrayCubemap);
	cudaTextureDesc d = {};
	float c[3 * 6] = { 1, 0.1f, 0.2f, -1, 0.1f, 0.2f, 0.1f, 1, 0.2f, 0.1f, -1, 0.2f, 0.1f, 0.2f, 1, 0.1f, 0.2f, -1 };
	/* the two coordinates on each face, from the guide's table */
	const float st[6][2] = { { -0.2f, -0.1f }, { 0.2f, -0.1f }, { 0.1f, 0.2f },
				 { 0.1f, -0.2f },  { 0.1f, -0.2f }, { -0.1f, -0.2f } };
	float *dc, *out, got[6];

	d.normalizedCoords = 1;
	for (int k = 0; k < 3; k++)
		d.addressMode[k] = cudaAddressModeClamp;
	cudaTextureObject_t t = make_texture(array, d);
	OK(cudaMalloc(&dc, sizeof(c)));
	OK(cudaMalloc(&out, sizeof(got)));
	OK(cudaMemcpy(dc, c, sizeof(c), cudaMemcpyHostToDevice));
	read_cube<<<1, 6>>>(t, dc, out);
	OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
	for (int face = 0; face < 6; face++) {
		int x = (int)((st[face][0] + 1) / 2 * 4), y = (int)((st[face][1] + 1) / 2 * 4);
		WANT(got[face] == texels[(face * 4 + y) * 4 + x]);
	}
	OK(cudaDestroyTextureObject(t));
	OK(cudaFreeArray(array));
}

static void test_gather()
{
	const int size[3] = { W, H, 1 };
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaTextureDesc d = {};
	cudaArray_t array;
	float4 *out, got;

	OK(cudaMallocArray(&array, &format, W, H, cudaArrayTextureGather));
	OK(cudaMemcpy2DToArray(array, 0, 0, texels, W * 4, W * 4, H, cudaMemcpyHostToDevice));
	d.addressMode[0] = d.addressMode[1] = cudaAddressModeClamp;
	cudaTextureObject_t t = make_texture(array, d);
	OK(cudaMalloc(&out, sizeof(got)));
	gather<<<1, 1>>>(t, 3.0f, 2.0f, out);
	OK(cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost));
	const int i[4][3] = { { 2, 2, 0 }, { 3, 2, 0 }, { 3, 1, 0 }, { 2, 1, 0 } };
	WANT(got.x == at(size, 2, 0, i[0]) && got.y == at(size, 2, 0, i[1]));
	WANT(got.z == at(size, 2, 0, i[2]) && got.w == at(size, 2, 0, i[3]));
	OK(cudaDestroyTextureObject(t));
	OK(cudaFreeArray(array));
}

static void test_copies()
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(), told;
	cudaExtent extent;
	cudaArray_t a, b;
	unsigned flags;
	float back[H][W];

	OK(cudaMallocArray(&a, &format, W, H));
	OK(cudaMallocArray(&b, &format, W, H));
	OK(cudaArrayGetInfo(&told, &extent, &flags, a));
	WANT(told.x == 32 && told.f == cudaChannelFormatKindFloat && extent.width == W && extent.height == H);
	OK(cudaMemcpy2DToArray(a, 0, 0, texels, W * 4, W * 4, H, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DArrayToArray(b, 4, 1, a, 8, 2, (W - 3) * 4, H - 3, cudaMemcpyDeviceToDevice));
	OK(cudaMemcpy2DFromArray(back, W * 4, b, 0, 0, W * 4, H, cudaMemcpyDeviceToHost));
	for (int y = 0; y < H - 3; y++)
		for (int x = 0; x < W - 3; x++)
			WANT(back[y + 1][x + 1] == texels[(y + 2) * W + x + 2]);
	WANT(cudaMemcpy2DToArray(a, 4, 0, texels, W * 4, W * 4, H, cudaMemcpyHostToDevice) != cudaSuccess);
	WANT(cudaMemcpy2DToArray(a, 0, 1, texels, W * 4, W * 4, H, cudaMemcpyHostToDevice) != cudaSuccess);
	cudaGetLastError();
	OK(cudaFreeArray(a));
	OK(cudaFreeArray(b));
	WANT(cudaFreeArray(b) != cudaSuccess);
	cudaGetLastError();
}

static cudaSurfaceObject_t make_surface(cudaArray_t array)
{
	cudaResourceDesc res = {};
	cudaSurfaceObject_t s;

	res.resType = cudaResourceTypeArray;
	res.res.array.array = array;
	OK(cudaCreateSurfaceObject(&s, &res));
	return s;
}

static void test_surfaces()
{
	cudaChannelFormatDesc four = cudaCreateChannelDesc<float4>(), byte = cudaCreateChannelDesc<unsigned char>();
	float4 in[H][W], back[W][H];
	cudaArray_t a, b, volume, plain;
	unsigned char *out, start[D][H][W], got[D][H][W];
	cudaMemcpy3DParms copy = {};
	cudaResourceDesc res = {};
	cudaSurfaceObject_t s;

	for (int i = 0; i < H * W; i++)
		in[i / W][i % W] = make_float4(i, i + 0.25f, i + 0.5f, i + 0.75f);
	OK(cudaMallocArray(&a, &four, W, H, cudaArraySurfaceLoadStore));
	OK(cudaMallocArray(&b, &four, H, W, cudaArraySurfaceLoadStore));
	OK(cudaMemcpy2DToArray(a, 0, 0, in, sizeof(in[0]), sizeof(in[0]), H, cudaMemcpyHostToDevice));
	turn<<<1, dim3(W, H)>>>(make_surface(a), make_surface(b));
	OK(cudaMemcpy2DFromArray(back, sizeof(back[0]), b, 0, 0, sizeof(back[0]), W, cudaMemcpyDeviceToHost));
	for (int x = 0; x < W; x++)
		for (int y = 0; y < H; y++)
			WANT(back[x][y].x == in[y][x].w && back[x][y].y == in[y][x].z &&
			     back[x][y].z == in[y][x].y && back[x][y].w == in[y][x].x);
	for (int i = 0; i < D * H * W; i++)
		(&start[0][0][0])[i] = (unsigned char)(i % 100);
	OK(cudaMalloc3DArray(&volume, &byte, make_cudaExtent(W, H, D), cudaArraySurfaceLoadStore));
	OK(cudaMalloc(&out, sizeof(got)));
	copy.srcPtr = make_cudaPitchedPtr(start, W, W, H);
	copy.dstArray = volume;
	copy.extent = make_cudaExtent(W, H, D);
	copy.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&copy));
	bytes_3d<<<1, dim3(W, H, D)>>>(make_surface(volume), out);
	OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
	for (int i = 0; i < D * H * W; i++)
		WANT((&got[0][0][0])[i] == (unsigned char)(2 * (i % 100)));
	OK(cudaMallocArray(&plain, &four, W, H));
	res.resType = cudaResourceTypeArray;
	res.res.array.array = plain;
	WANT(cudaCreateSurfaceObject(&s, &res) != cudaSuccess);
	cudaGetLastError();
	four = cudaCreateChannelDesc<float>();
	OK(cudaMallocArray(&plain, &four, W, H, cudaArraySurfaceLoadStore));
	outside<<<1, 1>>>(make_surface(plain));
	WANT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

int main()
{
	for (size_t i = 0; i < sizeof(texels) / sizeof(texels[0]); i++)
		texels[i] = (float)((i * 37) % 101) - 20.25f;
	for (int dims = 1; dims <= 3; dims++)
		test_sampling(dims, false);
	test_sampling(2, true);
	test_linear_memory();
	test_pitched();
	test_cube();
	test_gather();
	test_copies();
	test_surfaces(); /* ends with a fault */
	return 0;
}
