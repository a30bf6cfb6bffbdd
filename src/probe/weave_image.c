/* Weaves images of device code. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "cuda/fatbin.h"
#include "probe/weave.h"

#define ELF_MAGIC 0x464c457fu

static int no_text(uint32_t machine_target, struct bf_error *err)
{
	if (machine_target)
		return bf_fail(err, ENOEXEC,
			       "not instrumentable: the image has machine code for sm_%u and no PTX",
			       machine_target);
	return bf_fail(err, ENOEXEC, "not instrumentable: the image has machine code and no PTX");
}

static int weave_fatbin(const void *image, uint64_t length, uint32_t target, const struct weave_probe *probes,
			size_t probe_count, struct weave_result *result, struct bf_error *err)
{
	struct fatbin_choices choices;
	cleanup_free char *text = NULL;
	size_t text_length;
	int rc = fatbin_choose(image, length, target, &choices, err);

	if (rc)
		return rc;
	if (!choices.count || choices.list[0].target > target)
		return no_text(choices.machine_target, err);
	rc = fatbin_text(&choices.list[0], &text, &text_length, err);
	return rc ? rc : weave_text(text, text_length, probes, probe_count, result, err);
}

static int weave_wrapped(const void *image, uint32_t target, const struct weave_probe *probes,
			 size_t probe_count, struct weave_result *result, struct bf_error *err)
{
	struct fatbin_wrapper wrapper;

	memcpy(&wrapper, image, sizeof(wrapper));
	if (wrapper.version == 2 && wrapper.parts)
		return bf_fail(err, ENOTSUP,
			       "not instrumentable: the driver links it from separately compiled parts");
	if (!wrapper.data || !fatbin_starts_with(wrapper.data, 0, FATBIN_MAGIC))
		return bf_fail(err, EINVAL, "the wrapper does not contain a fat binary");
	return weave_fatbin(wrapper.data, fatbin_length(wrapper.data), target, probes, probe_count, result,
			    err);
}

int weave_image(const void *image, size_t length, uint32_t target, const struct weave_probe *probes,
		size_t probe_count, struct weave_result *result, struct bf_error *err)
{
	*result = (struct weave_result){ 0 };
	/* A wrapper has pointers, so it is in the program's own data, and no length comes with it. */
	if (!length && fatbin_starts_with(image, 0, FATBIN_WRAPPER_MAGIC))
		return weave_wrapped(image, target, probes, probe_count, result, err);
	if (fatbin_starts_with(image, length, ELF_MAGIC))
		return no_text(0, err);
	if (fatbin_starts_with(image, length, FATBIN_MAGIC))
		return weave_fatbin(image, length ? length : fatbin_length(image), target, probes,
				    probe_count, result, err);
	return weave_text(image, length ? length : (size_t)WEAVE_TEXT_MAX_BYTES + 1, probes, probe_count,
			  result, err);
}
