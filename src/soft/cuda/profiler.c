/* cuProfiler*: without a profiler these functions do nothing and succeed. */
#include "soft/cuda/core.h"

CUresult cuProfilerStart(void); /* cudaProfiler.h */
CUresult cuProfilerStop(void);

EXPORT CUresult cuProfilerStart(void)
{
	ENTER();
	LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuProfilerStop(void)
{
	ENTER();
	LEAVE(CUDA_SUCCESS);
}
