/* What these programs share: a call that fails ends the program, and says where. */
#ifndef CHECK_H
#define CHECK_H

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define OK(call) \
	do { \
		cudaError_t ok_error = (call); \
\
		if (ok_error != cudaSuccess) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				cudaGetErrorName(ok_error)); \
			exit(1); \
		} \
	} while (0)
#define WANT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

#endif
