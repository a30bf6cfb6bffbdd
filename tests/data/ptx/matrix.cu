// Dense linear algebra: tiled GEMM, transpose, matrix-vector, double precision.
#define TILE 16

extern "C" __global__ void gemm(int m, int n, int k, const float *a, const float *b, float *c)
{
	__shared__ float as[TILE][TILE], bs[TILE][TILE];
	int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
	float sum = 0;
	for (int t = 0; t < (k + TILE - 1) / TILE; t++) {
		int ak = t * TILE + threadIdx.x, bk = t * TILE + threadIdx.y;
		as[threadIdx.y][threadIdx.x] = row < m && ak < k ? a[row * k + ak] : 0.0f;
		bs[threadIdx.y][threadIdx.x] = bk < k && col < n ? b[bk * n + col] : 0.0f;
		__syncthreads();
		for (int i = 0; i < TILE; i++)
			sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
		__syncthreads();
	}
	if (row < m && col < n)
		c[row * n + col] = sum;
}

extern "C" __global__ void transpose(int w, int h, const float *in, float *out)
{
	__shared__ float tile[32][33];
	int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
	for (int j = 0; j < 32; j += 8)
		if (x < w && y + j < h)
			tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
	__syncthreads();
	x = blockIdx.y * 32 + threadIdx.x;
	y = blockIdx.x * 32 + threadIdx.y;
	for (int j = 0; j < 32; j += 8)
		if (x < h && y + j < w)
			out[(y + j) * h + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void matvec(int rows, int cols, const double *a, const double *x, double *y)
{
	int r = blockIdx.x * blockDim.x + threadIdx.x;
	double sum = 0;
	if (r >= rows)
		return;
	for (int c = 0; c < cols; c++)
		sum = fma(a[r * cols + c], x[c], sum);
	y[r] = sum;
}

// Kahan's sum, one thread a row; the compensation must survive the compiler.
extern "C" __global__ void kahan(int rows, int cols, const double *a, double *out)
{
	int r = blockIdx.x * blockDim.x + threadIdx.x;
	double sum = 0, c = 0;
	if (r >= rows)
		return;
	for (int i = 0; i < cols; i++) {
		double y = __dsub_rn(a[r * cols + i], c);
		double t = __dadd_rn(sum, y);
		c = __dsub_rn(__dsub_rn(t, sum), y);
		sum = t;
	}
	out[r] = sum;
}

extern "C" __global__ void floyd_warshall(int n, int k, int *d)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
	if (j < n) {
		int through = d[i * n + k] + d[k * n + j];
		if (through < d[i * n + j])
			d[i * n + j] = through;
	}
}

extern "C" __global__ void spmv(int rows, const int *start, const int *col, const float *val, const float *x, float *y)
{
	int r = blockIdx.x * blockDim.x + threadIdx.x;
	if (r >= rows)
		return;
	float sum = 0;
	for (int i = start[r]; i < start[r + 1]; i++)
		sum += val[i] * x[col[i]];
	y[r] = sum;
}
