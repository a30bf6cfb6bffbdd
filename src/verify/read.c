/* Reads the traces of a run. They were written inside a program, so that nothing in them is trusted. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/own.h"
#include "coro/trace_format.h"
#include "verify/verify.h"

enum { FILES_MOST = 4096 };
#define TEXT_MOST (4ull << 30)

/* Makes room for another item in the array that `at` points to. False: out of memory, and the array is unchanged. */
static bool make_room(void *at, size_t count, size_t *room, size_t bytes)
{
	size_t wanted = *room ? 2 * *room : 64;
	void *items, *more;

	if (count < *room)
		return true;
	memcpy(&items, at, sizeof(items));
	more = reallocarray(items, wanted, bytes);
	if (!more)
		return false;
	memcpy(at, &more, sizeof(more));
	*room = wanted;
	return true;
}

/* A hexadecimal number, and the space or the end of the line behind it. */
static bool take_number(const char **at, uint64_t most, uint64_t *to)
{
	const char *text = *at;
	uint64_t value = 0;
	int digits = 0;

	for (; digits < 16; text++, digits++) {
		if (*text >= '0' && *text <= '9')
			value = value << 4 | (uint64_t)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			value = value << 4 | (uint64_t)(*text - 'a' + 10);
		else
			break;
	}
	if (!digits || value > most || (*text && *text != ' '))
		return false;
	*at = *text ? text + 1 : text;
	*to = value;
	return true;
}

static bool take_small(const char **at, uint32_t *to)
{
	uint64_t value;

	if (!take_number(at, UINT32_MAX, &value))
		return false;
	*to = (uint32_t)value;
	return true;
}

/* GRID BLOCK SHARED ATTRIBUTES PARAMETERS: a hash of the first four as they are, and the last one. */
static bool take_shape(const char *at, uint64_t name, struct verify_node *to)
{
	const char *last = strrchr(at, ' ');
	unsigned spaces = 0;

	for (const char *c = at; *c; c++)
		spaces += *c == ' ';
	if (!last || spaces != 4)
		return false;
	to->text = at;
	to->result = bf_hash_bytes(name, at, (size_t)(last - at));
	to->has_parameters = strcmp(last + 1, "-") != 0;
	last++;
	return !to->has_parameters || take_number(&last, UINT64_MAX, &to->parameters);
}

static uint64_t name_hash(const struct verify_file *file, uint32_t name)
{
	return bf_hash_bytes(0, file->names[name], strlen(file->names[name]));
}

static bool add_name(struct verify_file *file, const char *at)
{
	uint32_t number;

	if (!take_small(&at, &number) || number != file->name_count ||
	    !make_room(&file->names, file->name_count, &file->name_room, sizeof(*file->names)))
		return false;
	file->names[file->name_count++] = at;
	return true;
}

/* A graph has a number above that of the graph before it. Graphs without kernel nodes have no lines of their own. */
static struct verify_graph *graph_at(struct verify_file *file, uint32_t number)
{
	while (file->graph_count <= number && number - file->graph_count <= 1) {
		if (!make_room(&file->graphs, file->graph_count, &file->graph_room, sizeof(*file->graphs)))
			return NULL;
		file->graphs[file->graph_count++] = (struct verify_graph){ .first = file->node_count };
	}
	return number < file->graph_count ? &file->graphs[number] : NULL;
}

static bool add_node(struct verify_file *file, const char *at)
{
	struct verify_node node = { 0 };
	struct verify_graph *graph;
	uint32_t number;

	if (!take_small(&at, &number) || !take_small(&at, &node.name) || node.name >= file->name_count ||
	    !take_shape(at, name_hash(file, node.name), &node))
		return false;
	graph = graph_at(file, number);
	if (!graph || graph->first + graph->count != file->node_count ||
	    !make_room(&file->nodes, file->node_count, &file->node_room, sizeof(*file->nodes)))
		return false;
	file->nodes[file->node_count++] = node;
	graph->count++;
	return true;
}

static bool take_launch(const struct verify_file *file, const char *at, struct verify_event *event)
{
	struct verify_node same = { 0 };

	if (!take_small(&at, &event->what) || event->what >= file->name_count ||
	    !take_shape(at, name_hash(file, event->what), &same))
		return false;
	event->text = same.text;
	event->result = same.result;
	event->parameters = same.parameters;
	event->has_parameters = same.has_parameters;
	return true;
}

static bool take_graph(struct verify_file *file, const char *at, struct verify_event *event)
{
	const struct verify_graph *graph;

	if (!take_small(&at, &event->what) || !(graph = graph_at(file, event->what)))
		return false;
	event->text = "";
	event->result = bf_hash_word(VERIFY_GRAPH, graph->count);
	event->has_parameters = true;
	for (size_t i = 0; i < graph->count; i++) {
		const struct verify_node *node = &file->nodes[graph->first + i];

		event->result = bf_hash_word(event->result, node->result);
		event->parameters = bf_hash_word(event->parameters, node->parameters);
		event->has_parameters &= node->has_parameters;
	}
	return true;
}

static uint64_t buffer_stream(const char *name)
{
	return bf_hash_bytes(VERIFY_BUFFER, name, strlen(name));
}

bool verify_has_buffer(const struct verify_trace *trace, const char *name)
{
	for (size_t i = 0; i < trace->count; i++)
		if (trace->events[i].kind == VERIFY_BUFFER && trace->events[i].stream == buffer_stream(name))
			return true;
	return false;
}

/* BYTES CONTENT, and of a buffer its name, which takes the place of the stream. */
static bool take_content(const char *at, struct verify_event *event)
{
	uint64_t bytes, content;

	event->text = at;
	if (!take_number(&at, UINT64_MAX, &bytes) || !take_number(&at, UINT64_MAX, &content))
		return false;
	event->result = bf_hash_word(bf_hash_word(event->kind, bytes), content);
	if (event->kind == VERIFY_BUFFER)
		event->stream = buffer_stream(at);
	return true;
}

static bool take_event(struct verify_file *file, char letter, const char *at, struct verify_event *event)
{
	static const char letters[] = "LGCB";

	event->kind = (uint8_t)(strchr(letters, letter) - letters);
	if (!take_number(&at, UINT64_MAX, &event->number) || !take_small(&at, &event->thread) ||
	    (event->kind != VERIFY_BUFFER && !take_number(&at, UINT64_MAX, &event->stream)))
		return false;
	if (event->kind == VERIFY_LAUNCH)
		return take_launch(file, at, event);
	return event->kind == VERIFY_GRAPH ? take_graph(file, at, event) : take_content(at, event);
}

static bool add_event(struct verify_trace *trace, struct verify_file *file, char letter, const char *at)
{
	struct verify_event event = { .file = (uint32_t)(file - trace->files) };

	if (!take_event(file, letter, at, &event) ||
	    !make_room(&trace->events, trace->count, &trace->room, sizeof(*trace->events)))
		return false;
	trace->events[trace->count++] = event;
	trace->counts[event.kind]++;
	return true;
}

static bool add_line(struct verify_trace *trace, struct verify_file *file, const char *line)
{
	if (!line[0] || line[1] != ' ')
		return false;
	switch (line[0]) {
	case 'F':
		return add_name(file, line + 2);
	case 'N':
		return add_node(file, line + 2);
	case 'L':
	case 'G':
	case 'C':
	case 'B':
		return add_event(trace, file, line[0], line + 2);
	default:
		return false;
	}
}

/* What follows the last newline is a part of a line, of a process that was killed. */
static int parse(struct verify_trace *trace, struct verify_file *file, const char *path, struct bf_error *err)
{
	char *line = file->text + sizeof(TRACE_HEAD) - 1, *end;

	if (!*file->text)
		return bf_fail(err, EIO, "%.300s: the trace is not complete; is there room in its folder?",
			       path);
	if (strncmp(file->text, TRACE_HEAD, sizeof(TRACE_HEAD) - 1))
		return bf_fail(err, EINVAL, "%.300s: not a trace of this version of Belfry", path);
	for (unsigned number = 2; (end = strchr(line, '\n')); line = end + 1, number++) {
		*end = 0;
		if (!add_line(trace, file, line))
			return bf_fail(err, EINVAL, "%.300s: line %u is not one of a trace", path, number);
	}
	return 0;
}

static int read_text(int fd, size_t bytes, char **text)
{
	size_t done = 0;

	*text = malloc(bytes + 1);
	if (!*text)
		return -ENOMEM;
	while (done < bytes) {
		ssize_t more = read(fd, *text + done, bytes - done);

		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0)
			return -errno;
		if (!more)
			break;
		done += (size_t)more;
	}
	(*text)[done] = 0;
	return 0;
}

int verify_add(struct verify_trace *trace, char *text, const char *path, struct bf_error *err)
{
	void *more = trace->file_count < FILES_MOST
			     ? reallocarray(trace->files, trace->file_count + 1, sizeof(*trace->files))
			     : NULL;
	struct verify_file *file;

	if (!more) {
		free(text);
		return bf_fail(err, ENOMEM, "more than %d traces, or out of memory", FILES_MOST);
	}
	trace->files = more;
	file = &trace->files[trace->file_count++];
	*file = (struct verify_file){ .text = text };
	return parse(trace, file, path, err);
}

static int read_file(struct verify_trace *trace, const char *path, struct bf_error *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	char *text = NULL;
	int rc;

	if (fd < 0 || fstat(fd, &status))
		return bf_fail(err, errno, "%.300s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size > TEXT_MOST)
		return bf_fail(err, EFBIG, "%.300s: no file, or larger than 4 GiB", path);
	rc = read_text(fd, (size_t)status.st_size, &text);
	if (!rc)
		return verify_add(trace, text, path, err);
	free(text);
	return bf_fail(err, -rc, "%.300s: %s", path, strerror(-rc));
}

static int is_trace(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name), suffix = sizeof(TRACE_SUFFIX) - 1;

	return length > suffix && !strcmp(entry->d_name + length - suffix, TRACE_SUFFIX);
}

int verify_read(const char *folder, struct verify_trace *trace, struct bf_error *err)
{
	struct dirent **entries = NULL;
	int count = scandir(folder, &entries, is_trace, alphasort), rc = 0;

	*trace = (struct verify_trace){ 0 };
	if (count < 0)
		return bf_fail(err, errno, "%.300s: %s", folder, strerror(errno));
	for (int i = 0; i < count; i++) {
		char path[PATH_MAX];

		if (snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) >= (int)sizeof(path))
			rc = bf_fail(err, ENAMETOOLONG, "%.300s: too long a path", folder);
		if (!rc)
			rc = read_file(trace, path, err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

void verify_free(struct verify_trace *trace)
{
	for (size_t i = 0; i < trace->file_count; i++) {
		free(trace->files[i].text);
		free(trace->files[i].names);
		free(trace->files[i].nodes);
		free(trace->files[i].graphs);
	}
	free(trace->files);
	free(trace->events);
	*trace = (struct verify_trace){ 0 };
}
