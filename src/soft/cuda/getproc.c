/* cuGetProcAddress: look up a function by its base name and the CUDA version of the program. */
#include <string.h>

#include "soft/cuda/core.h"
#include "soft/cuda/getproc.h"

/* A base name is followed by nothing or _vN, then by nothing, _ptsz or _ptds. A name with such a suffix is
 * not a base name, and is not found (measured on driver 580). */
static bool is_form_of(const char *name, const char *base, bool is_per_thread)
{
	size_t length = strcspn(name, "_");
	const char *rest = name + length;

	if (strlen(base) != length || strncmp(name, base, length))
		return false;
	if (!strncmp(rest, "_v", 2)) {
		rest += 2;
		rest += strspn(rest, "0123456789");
	}
	return is_per_thread ? !strcmp(rest, "_ptsz") || !strcmp(rest, "_ptds") : !*rest;
}

const char *proc_name(const char *base, int version, bool is_per_thread, bool *is_known)
{
	const struct proc_version *best = NULL;

	for (size_t i = 0; i < proc_version_count; i++) {
		const struct proc_version *at = &proc_versions[i];

		if (!is_form_of(at->name, base, is_per_thread))
			continue;
		*is_known = true;
		if (at->since <= version && (!best || at->since > best->since))
			best = at;
	}
	return best ? best->name : NULL;
}

static const char *find_name(const char *symbol, int version, cuuint64_t flags, bool *is_known)
{
	const char *name = NULL;

	if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		name = proc_name(symbol, version, true, is_known);
	return name ? name : proc_name(symbol, version, false, is_known);
}

static CUdriverProcAddressQueryResult find(const char *symbol, int version, cuuint64_t flags, void **function)
{
	bool is_known = false;
	const char *name = find_name(symbol, version, flags, &is_known);
	const struct entry *entry = name ? entry_find(name) : NULL;

	*function = entry ? entry->function : NULL;
	if (entry)
		return CU_GET_PROC_ADDRESS_SUCCESS;
	return is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

static bool are_valid(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	return symbol && pfn && version <= CUDA_VERSION &&
	       (flags == CU_GET_PROC_ADDRESS_DEFAULT || flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM ||
		flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

/* The status alone says that a symbol is not found; the first version has no status. */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult found;

	if (!are_valid(symbol, pfn, version, flags))
		return CUDA_ERROR_INVALID_VALUE;
	found = find(symbol, version, flags, pfn);
	if (status)
		*status = found;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);

	return !result && !*pfn ? CUDA_ERROR_NOT_FOUND : result;
}
