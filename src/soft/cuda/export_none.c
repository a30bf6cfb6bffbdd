/* cuGetExportTable of a build without support for the CUDA runtime (-Dlibcudart=false): there are no tables.
 * Programs of the driver API run; libcudart does not start. */
#include "soft/cuda/core.h"

CUresult export_find(const CUuuid *id, const void **table)
{
	(void)id;
	*table = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	return table && id ? export_find(id, table) : CUDA_ERROR_INVALID_VALUE;
}
