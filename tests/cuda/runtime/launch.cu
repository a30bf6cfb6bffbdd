/* A kernel with <<<>>>, memory and copies, on the default stream and on others. */
#include "check.h"
#include <vector>

__global__ void saxpy(int n, float a, const float *x, float *y)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		y[i] = a * x[i] + y[i];
}

template <typename T> __global__ void reverse(T *data, int n)
{
	extern __shared__ char raw[];
	T *tile = (T *)raw;

	tile[threadIdx.x] = data[threadIdx.x];
	__syncthreads();
	data[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

static void default_stream(void)
{
	const int n = 1000;
	std::vector<float> x(n), y(n);
	float *dx, *dy;

	for (int i = 0; i < n; i++)
		x[i] = (float)i, y[i] = 1;
	OK(cudaMalloc(&dx, n * sizeof(float)));
	OK(cudaMalloc(&dy, n * sizeof(float)));
	OK(cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	OK(cudaMemcpy(dy, y.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	saxpy<<<(n + 127) / 128, 128>>>(n, 2, dx, dy);
	OK(cudaGetLastError());
	OK(cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		WANT(y[i] == 2.0f * (float)i + 1);
	OK(cudaFree(dx));
	OK(cudaFree(dy));
}

static void own_streams(void)
{
	cudaStream_t streams[3];
	cudaEvent_t begin, end;
	double *data[3], *host;
	float ms = -1;

	OK(cudaMallocHost(&host, 3 * 64 * sizeof(double)));
	OK(cudaEventCreate(&begin));
	OK(cudaEventCreate(&end));
	for (int s = 0; s < 3; s++) {
		OK(cudaStreamCreate(&streams[s]));
		OK(cudaMallocAsync(&data[s], 64 * sizeof(double), streams[s]));
		for (int i = 0; i < 64; i++)
			host[s * 64 + i] = s * 100 + i;
	}
	OK(cudaEventRecord(begin, streams[0]));
	for (int s = 0; s < 3; s++) {
		OK(cudaMemcpyAsync(data[s], host + s * 64, 64 * sizeof(double), cudaMemcpyHostToDevice,
				   streams[s]));
		reverse<<<1, 64, 64 * sizeof(double), streams[s]>>>(data[s], 64);
		OK(cudaMemcpyAsync(host + s * 64, data[s], 64 * sizeof(double), cudaMemcpyDeviceToHost,
				   streams[s]));
		OK(cudaFreeAsync(data[s], streams[s]));
	}
	OK(cudaEventRecord(end, streams[0]));
	OK(cudaDeviceSynchronize());
	OK(cudaEventElapsedTime(&ms, begin, end));
	WANT(ms >= 0);
	for (int s = 0; s < 3; s++) {
		for (int i = 0; i < 64; i++)
			WANT(host[s * 64 + i] == s * 100 + 63 - i);
		OK(cudaStreamDestroy(streams[s]));
	}
	OK(cudaEventDestroy(begin));
	OK(cudaEventDestroy(end));
	OK(cudaFreeHost(host));
}

static void errors_are_told(void)
{
	saxpy<<<1, 2000>>>(0, 0, nullptr, nullptr);
	WANT(cudaGetLastError() == cudaErrorInvalidValue || cudaGetLastError() == cudaSuccess);
	WANT(cudaMalloc((void **)nullptr, 4) == cudaErrorInvalidValue);
	WANT(cudaGetLastError() == cudaErrorInvalidValue);
	WANT(cudaGetLastError() == cudaSuccess);
}

int main()
{
	int count = 0;
	cudaDeviceProp prop;

	OK(cudaGetDeviceCount(&count));
	WANT(count > 0);
	OK(cudaGetDeviceProperties(&prop, 0));
	WANT(prop.multiProcessorCount > 0 && prop.warpSize == 32);
	default_stream();
	own_streams();
	errors_are_told();
	OK(cudaDeviceReset());
	default_stream();
	return 0;
}
