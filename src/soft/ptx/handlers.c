/* Select the build of the handlers for this processor. */
#include "soft/ptx/lane.h"

#define DECLARE(build) \
	ptx_handler ptx_find_integer_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_bits_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_choose_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_float_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_rounded_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_half_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_convert_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_memory_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_atomic_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_warp_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_control_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_async_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_call_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_texture_##build(unsigned family, unsigned type); \
	ptx_handler ptx_find_matrix_##build(unsigned family, unsigned type);
#define FINDERS(build) \
	{ \
		ptx_find_control_##build, ptx_find_memory_##build, ptx_find_integer_##build, \
			ptx_find_bits_##build, ptx_find_choose_##build, ptx_find_float_##build, \
			ptx_find_half_##build, ptx_find_rounded_##build, ptx_find_convert_##build, \
			ptx_find_atomic_##build, ptx_find_warp_##build, ptx_find_call_##build, \
			ptx_find_async_##build, ptx_find_texture_##build, ptx_find_matrix_##build \
	}
#define FINDER_COUNT 15

#ifdef PTX_HAS_V3
DECLARE(v3)
#endif

ptx_handler ptx_handler_find(unsigned family, unsigned type)
{
	static ptx_handler (*const any[FINDER_COUNT])(unsigned, unsigned) = FINDERS(any);
	ptx_handler (*const *finders)(unsigned, unsigned) = any;
#ifdef PTX_HAS_V3
	static ptx_handler (*const v3[FINDER_COUNT])(unsigned, unsigned) = FINDERS(v3);

	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		finders = v3;
#endif
	for (unsigned i = 0; i < FINDER_COUNT; i++) {
		ptx_handler found = finders[i](family, type);

		if (found)
			return found;
	}
	return NULL;
}
