/* Reads a command line of ptxas. Only what Triton uses is understood; anything else leaves the output as it is. */
#include <string.h>

#include "ptxas/ptxas.h"

/* The value of an option with the given long and short name: --name=value, --name value, -short=value, -short value. NULL: *at
 * is another argument. A value that is an argument of its own is skipped. */
static const char *value_of(char *const **at, const char *name, const char *short_name)
{
	const char *word = **at, *const names[] = { name, short_name };

	for (unsigned i = 0; i < 2; i++) {
		size_t length = strlen(names[i]);

		if (strncmp(word, names[i], length) != 0)
			continue;
		if (word[length] == '=')
			return word + length + 1;
		if (!word[length] && (*at)[1])
			return *++*at;
	}
	return NULL;
}

static bool starts(const char *word, const char *with)
{
	return !strncmp(word, with, strlen(with));
}

/* Options for which the driver would make other code of the PTX than ptxas does, or whose output is no module. */
static const char *obstacle(const char *word)
{
	static const struct {
		const char *option, *why;
	} list[] = {
		{ "--fmad", "the driver cannot compile without fused multiply-add" },
		{ "-fmad", "the driver cannot compile without fused multiply-add" },
		{ "--opt-level", "the driver compiles with optimization" },
		{ "-O", "the driver compiles with optimization" },
		{ "--device-debug", "it is for a debugger" },
		{ "--compile-only", "the output is not a module" },
		{ "--options-file", "its options are in a file" },
		{ "-optf", "its options are in a file" },
	};

	if (!strcmp(word, "-g"))
		return "it is for a debugger";
	if (!strcmp(word, "-c"))
		return "the output is not a module";
	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (starts(word, list[i].option))
			return list[i].why;
	return NULL;
}

static void take_input(struct ptxas_job *job, const char *word, bool *has_several)
{
	*has_several |= job->input != NULL;
	job->input = word;
}

void ptxas_read_arguments(char *const *argv, bool (*is_text)(const char *path), struct ptxas_job *job)
{
	const char *value, *target = NULL, *why = NULL;
	bool has_several = false;

	*job = (struct ptxas_job){ 0 };
	for (char *const *at = argv + 1; argv[0] && *at; at++) {
		if (!strcmp(*at, "--version") || !strcmp(*at, "-V"))
			job->is_version = true;
		else if ((value = value_of(&at, "--output-file", "-o")))
			job->output = value;
		else if ((value = value_of(&at, "--gpu-name", "-arch")))
			target = value;
		else if ((*at)[0] == '-')
			why = why ? why : obstacle(*at);
		else if (is_text(*at))
			take_input(job, *at, &has_several);
	}
	if (!target || !fatbin_target_read(target, strlen(target), &job->target))
		why = "no GPU is named";
	else if (!job->output)
		why = "no output is named";
	else if (!job->input || has_several)
		why = has_several ? "there are several inputs" : "no input is PTX";
	job->why_not = why;
}
