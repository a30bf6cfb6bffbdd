/* cuProfiler*: programs mark what a profiler shall look at; without one there is nothing to do, and no error. */
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
