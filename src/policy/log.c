#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/inside.h"

enum { LINES_MAX = 64 };

static _Thread_local struct log_kept *kept_now;

static int keep(enum libbpf_print_level level, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));

static int keep(enum libbpf_print_level level, const char *format, va_list args)
{
	static const char prefix[] = "libbpf: ";
	char text[sizeof(kept_now->text)];
	const char *from = text;

	if (!kept_now || level != LIBBPF_WARN || kept_now->text[0])
		return 0;
	vsnprintf(text, sizeof(text), format, args);
	if (!strncmp(from, prefix, sizeof(prefix) - 1))
		from += sizeof(prefix) - 1;
	snprintf(kept_now->text, sizeof(kept_now->text), "%.*s", (int)strcspn(from, "\n"), from);
	return 0;
}

static void take_prints(void)
{
	libbpf_set_print(keep);
}

void log_keep(struct log_kept *kept)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, take_prints);
	if (kept)
		kept->text[0] = 0;
	kept_now = kept;
}

/* Lines that help verifier developers only. */
static bool is_noise(const char *line, size_t length)
{
	static const char *const noise[] = { "processed ", "verification time ", "stack depth ",
					     "peak_states ", "max_states " };

	for (size_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++)
		if (length >= strlen(noise[i]) && !strncmp(line, noise[i], strlen(noise[i])))
			return true;
	return !length;
}

/* Returns the last line of text[0..*length) and removes it from *length; NULL: no line is left. */
static const char *take_last_line(const char *text, size_t *length, size_t *line_length)
{
	while (*length) {
		size_t end = text[*length - 1] == '\n' ? *length - 1 : *length, begin = end;

		while (begin && text[begin - 1] != '\n')
			begin--;
		*length = begin;
		*line_length = end - begin;
		if (!is_noise(text + begin, end - begin))
			return text + begin;
	}
	return NULL;
}

char *log_readable(const char *program, const char *verifier)
{
	size_t left = strlen(verifier), size = 0, length = 0;
	char *text = NULL;
	const char *line;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		return NULL;
	fprintf(file, "program %s, last lines first:\n", program);
	for (int i = 0; i < LINES_MAX && (line = take_last_line(verifier, &left, &length)); i++)
		fprintf(file, "%.*s\n", (int)length, line);
	if (left)
		fprintf(file, "(earlier lines omitted)\n");
	fclose(file);
	return text;
}

void log_reason(const char *verifier, char *to, size_t room)
{
	size_t left = strlen(verifier), length = 0;
	const char *line = take_last_line(verifier, &left, &length);

	snprintf(to, room, "%.*s", (int)length, line ? line : "");
}
