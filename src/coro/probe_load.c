/* Modules and libraries are loaded with the probes that are attached. Whatever fails, the program gets what it would get
 * without probes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "coro/coro.h"
#include "coro/probe.h"
#include "coro/probe_time.h"

enum { KERNELS_TOLD = 256 };

/* One call of the program. */
struct loading {
	const void *image;
	size_t length; /* 0: not known */
	/* The driver's function, with another image. Sets `handle`. */
	CUresult (*load)(struct loading *loading, const void *image);
	void (*unload)(void *handle);
	int (*threads)(void *handle, const char *kernel,
		       CUdevice device); /* the most of a block; 0: unknown */
	void *handle;			 /* a CUmodule or a CUlibrary */
	void *original; /* the module without probes, if it was loaded to compare; NULL: it was not */
	CUdevice device;
	/* Of the program's call. */
	unsigned count, library_count;
	CUjit_option *options;
	void **values;
	/* The values before the driver's first call: it writes there, for example the sizes of logs in place of those of the
	 * buffers. NULL: there is nothing to restore. */
	void **kept;
	CUlibraryOption *library_options;
	void **library_values;
	bool is_fat, is_library, is_linked;
	/* What is attached, and the result. */
	struct carried *probes[PROBE_WIRE_PROBES];
	unsigned probe_count;
	struct weave_result woven;
	/* For a policy that is told of modules. */
	struct {
		bool is_known, is_text;
		uint32_t kernels, woven;
		size_t bytes;
	} facts;
};

static void keep_values(struct loading *loading)
{
	if (!loading->count || !loading->options || !loading->values)
		return;
	loading->kept = calloc(loading->count, sizeof(*loading->kept));
	if (loading->kept)
		memcpy(loading->kept, loading->values, loading->count * sizeof(*loading->kept));
}

/* Before each call of the driver. */
static void restore_values(const struct loading *loading)
{
	if (loading->kept)
		memcpy(loading->values, loading->kept, loading->count * sizeof(*loading->kept));
}

/* What was read of the module. rc: weave_image()'s. */
static void keep_facts(struct loading *loading, int rc)
{
	loading->facts.is_known = true;
	loading->facts.is_text = !rc;
	loading->facts.bytes = loading->woven.text_bytes;
	loading->facts.kernels = 0;
	for (size_t k = 0; k < loading->woven.kernel_count; k++)
		loading->facts.kernels += loading->woven.kernels[k].is_entry;
}

static void tell(const struct carried *carried, enum probe_outcome outcome, unsigned woven, const char *text)
{
	struct probe_note note = { .kind = PROBE_NOTE_MODULE, .outcome = outcome, .woven = woven };

	snprintf(note.text, sizeof(note.text), "%.255s", text);
	probes_tell(carried, &note, -1);
}

static void tell_all(const struct loading *loading, enum probe_outcome outcome, const char *text)
{
	for (unsigned i = 0; i < loading->probe_count; i++)
		tell(loading->probes[i], outcome, 0, text);
}

static void tell_kernel(struct carried *carried, const struct weave_kernel *kernel)
{
	struct probe_note note = { .kind = PROBE_NOTE_KERNEL, .id = kernel->id };

	if (carried->told >= KERNELS_TOLD)
		return;
	carried->told++;
	snprintf(note.kernel, sizeof(note.kernel), "%.127s", kernel->name);
	probes_tell(carried, &note, -1);
}

/* What became of each probe in a module that was loaded with probes. */
static void tell_woven(const struct loading *loading)
{
	for (unsigned i = 0; i < loading->probe_count; i++) {
		const char *reason = "";
		unsigned woven = 0;

		for (size_t k = 0; k < loading->woven.kernel_count; k++) {
			const struct weave_kernel *kernel = &loading->woven.kernels[k];

			if (kernel->probes >> i & 1) {
				woven++;
				tell_kernel(loading->probes[i], kernel);
			} else if (kernel->reason[0] &&
				   weave_matches(loading->probes[i]->kernel[0] ? loading->probes[i]->kernel
									       : NULL,
						 kernel->name)) {
				reason = kernel->reason;
			}
		}
		tell(loading->probes[i],
		     woven	 ? PROBE_WOVEN
		     : reason[0] ? PROBE_REFUSED
				 : PROBE_NO_MATCH,
		     woven, reason);
	}
}

static bool weave(struct loading *loading, struct bf_error *err)
{
	struct weave_probe probes[PROBE_WIRE_PROBES] = { { 0 } };
	int major = 0, minor = 0, rc;

	for (unsigned i = 0; i < loading->probe_count; i++) {
		struct carried *carried = loading->probes[i];

		if (!area_reserve(carried, loading->device)) {
			tell_all(loading, PROBE_REFUSED, "there is no address for its maps");
			return false;
		}
		probes[i] = (struct weave_probe){ .probe = carried->probe,
						  .kernels = carried->kernel[0] ? carried->kernel : NULL,
						  .area = carried->area,
						  .period = carried->sample,
						  /* Of what a linker makes, the handles are not known. */
						  .has_times = !loading->is_linked };
	}
	real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, loading->device);
	real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, loading->device);
	rc = weave_image(loading->image, loading->length, (uint32_t)(10 * major + minor), probes,
			 loading->probe_count, &loading->woven, err);
	keep_facts(loading, rc);
	if (rc) {
		tell_all(loading, rc == -ENOEXEC ? PROBE_NO_TEXT : PROBE_REFUSED,
			 rc == -ENOEXEC ? "" : err->text);
		return false;
	}
	if (!loading->woven.text)
		tell_woven(loading);
	return loading->woven.text;
}

/* Memory for the probes that were woven in. */
static bool fill(const struct loading *loading)
{
	uint32_t used = 0;
	const char *why;

	for (size_t k = 0; k < loading->woven.kernel_count; k++)
		used |= loading->woven.kernels[k].probes;
	for (unsigned i = 0; i < loading->probe_count; i++)
		if (used >> i & 1 && !area_fill(loading->probes[i], loading->device, &why)) {
			tell_all(loading, PROBE_REFUSED, why);
			return false;
		}
	return true;
}

/* Of the kernel and its timed form, whichever can have fewer. */
static int threads_of(const struct loading *loading, void *woven, const struct weave_kernel *kernel)
{
	int threads = loading->threads(woven, kernel->name, loading->device);
	int timed = kernel->timed ? loading->threads(woven, kernel->timed, loading->device) : threads;

	return timed < threads ? timed : threads;
}

/* Woven kernels can need more registers, and then a block can have fewer threads. The original is loaded to compare only if
 * a woven kernel is limited at all. */
static bool is_too_large(struct loading *loading, void *woven)
{
	int most = 0;

	real.cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, loading->device);
	for (size_t k = 0; k < loading->woven.kernel_count; k++) {
		const struct weave_kernel *kernel = &loading->woven.kernels[k];
		int with = kernel->is_entry && kernel->probes ? threads_of(loading, woven, kernel) : most;

		if (!with || with >= most)
			continue;
		if (!loading->original) {
			if (loading->load(loading, loading->image))
				return false;
			loading->original = loading->handle;
		}
		if (with < loading->threads(loading->original, kernel->name, loading->device))
			return true;
	}
	return false;
}

enum attempt { ATTEMPT_LOADED, ATTEMPT_FAILED, ATTEMPT_TOO_LARGE };

static enum attempt load_woven(struct loading *loading)
{
	const char *name = NULL;
	char text[160];
	CUresult result = loading->load(loading, loading->woven.text);
	void *woven = loading->handle;

	if (result) {
		real.cuGetErrorName(result, &name);
		snprintf(text, sizeof(text), "the driver refuses the module with the probe: %s",
			 name ? name : "an unknown error");
		tell_all(loading, PROBE_REFUSED, text);
		return ATTEMPT_FAILED;
	}
	if (is_too_large(loading, woven)) {
		loading->unload(woven);
		return ATTEMPT_TOO_LARGE;
	}
	loading->handle = woven;
	times_loaded(woven, loading->is_library, &loading->woven);
	for (size_t k = 0; k < loading->woven.kernel_count; k++)
		loading->facts.woven += loading->woven.kernels[k].probes != 0;
	tell_woven(loading);
	return ATTEMPT_LOADED;
}

/* The device that the module is for. A constant address is of one device only. */
static bool find_device(struct loading *loading)
{
	int count = 0;

	if (real.cuCtxGetDevice(&loading->device))
		loading->device = 0;
	if (!real.cuDeviceGetCount(&count) && count == 1)
		return true;
	tell_all(loading, PROBE_REFUSED, "the process sees several GPUs");
	return false;
}

/* The driver keeps a pointer to the image instead of a copy. */
static bool is_preserved(const struct loading *loading)
{
	for (unsigned i = 0; i < loading->library_count; i++)
		if (loading->library_options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
			return true;
	return false;
}

/* Linkers that were given woven text, and their output, which carries the probes already. */
enum { LINKS_MOST = 16 };
static struct {
	pthread_mutex_t lock;
	struct {
		CUlinkState state; /* NULL: unused */
		const void *image;
	} of[LINKS_MOST];
	unsigned next;
} links = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void link_add(CUlinkState state)
{
	bool is_there = false;

	pthread_mutex_lock(&links.lock);
	for (unsigned i = 0; i < LINKS_MOST; i++)
		is_there |= links.of[i].state == state;
	if (!is_there) {
		links.of[links.next].state = state;
		links.of[links.next].image = NULL;
		links.next = (links.next + 1) % LINKS_MOST;
	}
	pthread_mutex_unlock(&links.lock);
}

/* Image NULL: the linker is destroyed. */
static void link_set(CUlinkState state, const void *image)
{
	pthread_mutex_lock(&links.lock);
	for (unsigned i = 0; i < LINKS_MOST; i++)
		if (links.of[i].state == state) {
			links.of[i].image = image;
			links.of[i].state = image ? state : NULL;
		}
	pthread_mutex_unlock(&links.lock);
}

static bool is_linked(const void *image)
{
	bool is = false;

	pthread_mutex_lock(&links.lock);
	for (unsigned i = 0; i < LINKS_MOST; i++)
		is |= links.of[i].image == image;
	pthread_mutex_unlock(&links.lock);
	return is;
}

/* Leaves out the latest probe that is in a kernel. The list of probes has the latest first. */
static void drop_one(struct loading *loading, const struct weave_result *woven)
{
	uint32_t used = 0;
	unsigned at;

	for (size_t k = 0; k < woven->kernel_count; k++)
		used |= woven->kernels[k].probes;
	at = used ? (unsigned)__builtin_ctz(used) : 0;
	tell(loading->probes[at], PROBE_REFUSED, 0,
	     loading->probe_count > 1 ? "it needs more registers than a kernel leaves beside the other probes"
				      : "it needs more registers than a kernel leaves");
	loading->probe_count--;
	for (unsigned i = at; i < loading->probe_count; i++)
		loading->probes[i] = loading->probes[i + 1];
}

static enum attempt attempt(struct loading *loading)
{
	struct bf_error err = { 0 };
	enum attempt result = weave(loading, &err) && fill(loading) ? load_woven(loading) : ATTEMPT_FAILED;

	if (result == ATTEMPT_TOO_LARGE)
		drop_one(loading, &loading->woven);
	if (result == ATTEMPT_LOADED && is_preserved(loading))
		loading->woven.text = NULL; /* it stays while the process lives */
	weave_result_free(&loading->woven);
	loading->woven = (struct weave_result){ 0 };
	return result;
}

/* False: nothing was loaded. */
static bool load_with_probes(struct loading *loading)
{
	enum attempt result = ATTEMPT_TOO_LARGE;

	loading->probe_count = probes_now(loading->probes);
	if (!loading->probe_count || !loading->image || is_linked(loading->image) || !find_device(loading))
		return false;
	keep_values(loading);
	while (result == ATTEMPT_TOO_LARGE && loading->probe_count)
		result = attempt(loading);
	if (result != ATTEMPT_LOADED && !loading->original)
		restore_values(loading); /* the caller loads the original */
	free(loading->kept);
	loading->kept = NULL;
	if (result == ATTEMPT_LOADED && loading->original)
		loading->unload(loading->original);
	else if (loading->original)
		loading->handle = loading->original;
	return result == ATTEMPT_LOADED || loading->original;
}

/* After the program's call. Tells the GPU server of the module if a policy wants to know. */
static CUresult loaded(struct loading *loading, CUresult result)
{
	struct probe_note note = { .kind = PROBE_NOTE_LOADED };
	struct bf_error err = { 0 };
	int error = errno;

	if (result || !loading->image || !probes_are_watched())
		return result;
	if (!loading->facts.is_known && !is_linked(loading->image)) {
		keep_facts(loading, weave_image(loading->image, loading->length, UINT32_MAX, NULL, 0,
						&loading->woven, &err));
		weave_result_free(&loading->woven);
	}
	note.id = loading->facts.bytes;
	note.kernels = loading->facts.kernels;
	note.woven = loading->facts.woven;
	note.is_text = loading->facts.is_text;
	probes_tell(NULL, &note, -1);
	errno = error;
	return result;
}

/* ---- modules */
static CUresult load_module(struct loading *loading, const void *image)
{
	bool is_original = image == loading->image;
	CUmodule module = NULL;
	CUresult result;

	restore_values(loading);
	result = is_original && loading->is_fat ? real.cuModuleLoadFatBinary(&module, image)
						: real.cuModuleLoadDataEx(&module, image, loading->count,
									  loading->options, loading->values);
	loading->handle = module;
	return result;
}

static void unload_module(void *handle)
{
	real.cuModuleUnload(handle);
}

static int module_threads(void *handle, const char *kernel, CUdevice device)
{
	CUfunction function;
	int threads = 0;

	(void)device;
	if (real.cuModuleGetFunction(&function, handle, kernel) ||
	    real.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function))
		return 0;
	return threads;
}

static bool module_with_probes(CUmodule *module, struct loading *loading)
{
	int error = errno;
	bool is_loaded;

	loading->load = load_module;
	loading->unload = unload_module;
	loading->threads = module_threads;
	is_loaded = module && load_with_probes(loading);
	if (is_loaded)
		*module = loading->handle;
	errno = error;
	return is_loaded;
}

CUresult probing_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
				    CUjit_option *options, void **values)
{
	struct loading loading = { .image = image, .count = count, .options = options, .values = values };

	return loaded(&loading, module_with_probes(module, &loading)
					? CUDA_SUCCESS
					: real.cuModuleLoadDataEx(module, image, count, options, values));
}

CUresult probing_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct loading loading = { .image = image };

	return loaded(&loading, module_with_probes(module, &loading) ? CUDA_SUCCESS
								     : real.cuModuleLoadData(module, image));
}

CUresult probing_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	struct loading loading = { .image = image, .is_fat = true };

	return loaded(&loading, module_with_probes(module, &loading)
					? CUDA_SUCCESS
					: real.cuModuleLoadFatBinary(module, image));
}

/* A file, with a NUL behind it. NULL: it cannot be read; the driver's own call reports the error. */
static char *read_file(const char *path, size_t *length)
{
	cleanup_close int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	cleanup_free char *bytes = NULL;
	char *taken;
	struct stat st;

	if (file < 0 || fstat(file, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
	    st.st_size > WEAVE_TEXT_MAX_BYTES)
		return NULL;
	bytes = malloc((size_t)st.st_size + 1);
	*length = 0;
	while (bytes && *length < (size_t)st.st_size) {
		ssize_t got = read(file, bytes + *length, (size_t)st.st_size - *length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return NULL;
		*length += (size_t)got;
	}
	if (bytes)
		bytes[*length] = 0;
	taken = bytes;
	bytes = NULL;
	return taken;
}

CUresult probing_cuModuleLoad(CUmodule *module, const char *path)
{
	struct loading loading = { 0 };
	int error = errno;
	cleanup_free char *bytes = read_file(path, &loading.length);

	errno = error;
	loading.image = bytes;
	return loaded(&loading,
		      module_with_probes(module, &loading) ? CUDA_SUCCESS : real.cuModuleLoad(module, path));
}

/* ---- libraries: also the kernels of the CUDA runtime */
static CUresult load_library(struct loading *loading, const void *image)
{
	CUlibrary library = NULL;
	CUresult result;

	restore_values(loading);
	result = real.cuLibraryLoadData(&library, image, loading->options, loading->values, loading->count,
					loading->library_options, loading->library_values,
					loading->library_count);
	loading->handle = library;
	return result;
}

static void unload_library(void *handle)
{
	real.cuLibraryUnload(handle);
}

static int library_threads(void *handle, const char *name, CUdevice device)
{
	CUkernel kernel;
	int threads = 0;

	if (real.cuLibraryGetKernel(&kernel, handle, name) ||
	    real.cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device))
		return 0;
	return threads;
}

static bool library_with_probes(CUlibrary *library, struct loading *loading)
{
	int error = errno;
	bool is_loaded;

	loading->load = load_library;
	loading->unload = unload_library;
	loading->threads = library_threads;
	loading->is_library = true;
	is_loaded = library && (!loading->library_count || loading->library_options) &&
		    load_with_probes(loading);
	if (is_loaded)
		*library = loading->handle;
	errno = error;
	return is_loaded;
}

CUresult probing_cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options,
				   void **values, unsigned count, CUlibraryOption *library_options,
				   void **library_values, unsigned library_count)
{
	struct loading loading = { .image = image,
				   .count = count,
				   .options = options,
				   .values = values,
				   .library_options = library_options,
				   .library_values = library_values,
				   .library_count = library_count };

	return loaded(&loading,
		      library_with_probes(library, &loading)
			      ? CUDA_SUCCESS
			      : real.cuLibraryLoadData(library, image, options, values, count,
						       library_options, library_values, library_count));
}

CUresult probing_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
				       void **values, unsigned count, CUlibraryOption *library_options,
				       void **library_values, unsigned library_count)
{
	struct loading loading = { .count = count,
				   .options = options,
				   .values = values,
				   .library_options = library_options,
				   .library_values = library_values,
				   .library_count = library_count };
	int error = errno;
	cleanup_free char *bytes = read_file(path, &loading.length);

	errno = error;
	loading.image = bytes;
	return loaded(&loading,
		      library_with_probes(library, &loading)
			      ? CUDA_SUCCESS
			      : real.cuLibraryLoadFromFile(library, path, options, values, count,
							   library_options, library_values, library_count));
}

/* ---- the linker: PTX that is given to it. What it makes is machine code. */
static CUresult add_text(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
			 unsigned count, CUjit_option *options, void **values,
			 CUresult (*by)(CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned,
					CUjit_option *, void **))
{
	struct loading loading = { .image = data,
				   .length = size,
				   .is_linked = true,
				   .count = count,
				   .options = options,
				   .values = values };
	struct bf_error err = { 0 };
	CUresult result = CUDA_ERROR_UNKNOWN;
	int error = errno;

	loading.probe_count = type == CU_JIT_INPUT_PTX && data && size ? probes_now(loading.probes) : 0;
	if (loading.probe_count && find_device(&loading) && weave(&loading, &err) && fill(&loading)) {
		keep_values(&loading);
		result = by(state, CU_JIT_INPUT_PTX, loading.woven.text, loading.woven.length + 1, name,
			    count, options, values);
		if (!result) {
			link_add(state);
			tell_woven(&loading);
		} else {
			tell_all(&loading, PROBE_REFUSED, "the linker refuses the text with the probe");
			restore_values(&loading);
		}
		free(loading.kept);
	}
	weave_result_free(&loading.woven);
	errno = error;
	return result ? by(state, type, data, size, name, count, options, values) : result;
}

CUresult probing_cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size,
			       const char *name, unsigned count, CUjit_option *options, void **values)
{
	return add_text(state, type, data, size, name, count, options, values, real.cuLinkAddData);
}

CUresult probing_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
				  const char *name, unsigned count, CUjit_option *options, void **values)
{
	return add_text(state, type, data, size, name, count, options, values, real.cuLinkAddData_v2);
}

CUresult probing_cuLinkComplete(CUlinkState state, void **image, size_t *size)
{
	CUresult result = real.cuLinkComplete(state, image, size);

	if (!result && image && *image)
		link_set(state, *image);
	return result;
}

CUresult probing_cuLinkDestroy(CUlinkState state)
{
	link_set(state, NULL);
	return real.cuLinkDestroy(state);
}

/* ---- contexts of the program's own */
CUresult probing_cuCtxDestroy(CUcontext context)
{
	probes_leaving(context);
	return real.cuCtxDestroy(context);
}

CUresult probing_cuCtxDestroy_v2(CUcontext context)
{
	probes_leaving(context);
	return real.cuCtxDestroy_v2(context);
}
