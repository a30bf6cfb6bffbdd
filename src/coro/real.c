/* The driver's library: where it is, its functions, and cuGetProcAddress, which answers with the functions of this library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coro/coro.h"

/* In this order, unless BELFRY_LIBCUDA names it. */
static const char *const places[] = {
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
};

/* An older driver does not have every function. */
static CUresult not_there(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Its own calls must stay inside it: symbols of this library come first in the program otherwise. The sanitizers do not
 * permit that flag. */
static void *open_at(const char *path)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
#else
	return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
#endif
}

static void *open_real(void)
{
	const char *path = getenv("BELFRY_LIBCUDA");
	void *library = NULL;

	if (path)
		return open_at(path);
	for (size_t i = 0; !library && i < sizeof(places) / sizeof(*places); i++)
		library = open_at(places[i]);
	return library;
}

__attribute__((constructor)) static void load(void)
{
	void *library = open_real();

	if (!library)
		fprintf(stderr, "belfry: no libcuda.so.1 of the driver: %s\n", dlerror());
	for (size_t i = 0; i < symbol_count; i++) {
		void *function = library ? dlsym(library, symbols[i].name) : NULL;

		*symbols[i].real = function ? function : (void *)(uintptr_t)not_there;
	}
}

/* The driver's answer, with its functions replaced by those of this library. With a lease, a function that this library does
 * not know does not exist: it might place work unseen. */
static bool replace(void **function)
{
	for (size_t i = 0; i < symbol_count; i++)
		if (*symbols[i].real == *function) {
			*function = symbols[i].own;
			return true;
		}
	if (!lease_is_there())
		return true;
	*function = NULL;
	return false;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = real.cuGetProcAddress(symbol, pfn, version, flags);

	if (!result && pfn && *pfn && !replace(pfn))
		result = CUDA_ERROR_NOT_FOUND;
	return result;
}

/* The status alone says that a symbol is not found. */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status)
{
	CUresult result = real.cuGetProcAddress_v2(symbol, pfn, version, flags, status);

	if (!result && pfn && *pfn && !replace(pfn) && status)
		*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return result;
}
