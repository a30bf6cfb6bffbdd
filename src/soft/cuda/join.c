/* Select the statements of several texts, and rename local names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "soft/cuda/join.h"

struct joint_name {
	struct join_statement *of;
	bool is_mine; /* another input has the same name, and this one is local */
};
struct joint {
	struct join_statements all; /* in the order of the inputs */
	struct joint_name *by_name;
	size_t named_count;
	bool *is_taken; /* by input */
	struct bf_error *err;
};

static int compare_names(const struct join_statement *a, const struct join_statement *b)
{
	size_t shorter = a->name_length < b->name_length ? a->name_length : b->name_length;
	int order = memcmp(a->name, b->name, shorter);

	return order ? order : (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

/* By name, then by position. */
static int compare(const void *left, const void *right)
{
	const struct join_statement *a = ((const struct joint_name *)left)->of;
	const struct join_statement *b = ((const struct joint_name *)right)->of;
	int order = compare_names(a, b);

	return order ? order : (a > b) - (a < b);
}

static int sort_names(struct joint *j)
{
	j->by_name = calloc(j->all.count + 1, sizeof(*j->by_name));
	if (!j->by_name)
		return bf_fail(j->err, ENOMEM, "joining PTX: out of memory");
	for (size_t i = 0; i < j->all.count; i++)
		if (j->all.list[i].name)
			j->by_name[j->named_count++].of = &j->all.list[i];
	qsort(j->by_name, j->named_count, sizeof(*j->by_name), compare);
	return 0;
}

/* The end of the group of statements with the name of by_name[from]. */
static size_t group_end(const struct joint *j, size_t from)
{
	size_t at = from + 1;

	while (at < j->named_count && !compare_names(j->by_name[from].of, j->by_name[at].of))
		at++;
	return at;
}

static bool is_for_others(const struct join_statement *s)
{
	return s->is_definition && (s->linkage == JOIN_VISIBLE || s->linkage == JOIN_WEAK);
}

/* ---- selection of inputs */

static bool is_root(const struct join_statement *s)
{
	return is_for_others(s) && (s->is_entry || s->kind == JOIN_VARIABLE);
}

/* libcudadevrt has this variable. nvcc always adds that library (measured, CUDA 13.0). */
static bool is_device_runtime(const struct join_statement *s)
{
	static const char mark[] = "__CNPRT_VERSION_NUMBER__";

	return s->name_length == sizeof(mark) - 1 && !memcmp(s->name, mark, sizeof(mark) - 1);
}

/* If a selected input declares the name, select the input that defines it. Returns true if an input was
 * added. */
static bool take_definer(struct joint *j, size_t from, size_t end)
{
	struct join_statement *definer = NULL;
	bool is_wanted = false;

	for (size_t i = from; i < end; i++) {
		struct join_statement *s = j->by_name[i].of;

		is_wanted |= s->linkage == JOIN_EXTERN && j->is_taken[s->input];
		if (!is_for_others(s))
			continue;
		if (j->is_taken[s->input])
			return false;
		definer = definer ? definer : s;
	}
	if (!is_wanted || !definer)
		return false;
	j->is_taken[definer->input] = true;
	return true;
}

static void take_inputs(struct joint *j, unsigned count, bool is_lazy)
{
	bool is_news = true;

	for (unsigned i = 0; i < count; i++)
		j->is_taken[i] = !is_lazy;
	for (size_t i = 0; i < j->all.count; i++)
		if (is_root(&j->all.list[i]))
			j->is_taken[j->all.list[i].input] = true;
	for (size_t i = 0; i < j->named_count && is_lazy; i++)
		if (is_device_runtime(j->by_name[i].of))
			j->is_taken[j->by_name[i].of->input] = false;
	while (is_news) {
		is_news = false;
		for (size_t from = 0, end; from < j->named_count; from = end) {
			end = group_end(j, from);
			is_news |= take_definer(j, from, end);
		}
	}
	for (size_t i = 0; i < j->all.count; i++)
		j->all.list[i].is_dropped = !j->is_taken[j->all.list[i].input];
}

/* ---- one definition of each name */

static int choose(struct joint *j, size_t from, size_t end, struct join_statement **chosen)
{
	*chosen = NULL;
	for (size_t i = from; i < end; i++) {
		struct join_statement *s = j->by_name[i].of;

		if (s->is_dropped || !is_for_others(s))
			continue;
		if (s->linkage == JOIN_VISIBLE && *chosen && (*chosen)->linkage == JOIN_VISIBLE)
			return bf_fail(j->err, EEXIST, "Multiple definition of '%.*s'", (int)s->name_length,
				       s->name);
		if (!*chosen || ((*chosen)->linkage == JOIN_WEAK && s->linkage == JOIN_VISIBLE))
			*chosen = s;
	}
	return 0;
}

/* Decide about a statement with a global name; `chosen` is its definition, or NULL. A declaration before the
 * definition is kept, one after it is dropped. */
static void settle(struct join_statement *s, const struct join_statement *chosen, bool is_first)
{
	if (!chosen) {
		s->is_dropped |= s->linkage == JOIN_EXTERN && !is_first;
		return;
	}
	if (s == chosen)
		return;
	if (is_for_others(s) || s > chosen)
		s->is_dropped = true;
	else if (s->linkage == JOIN_EXTERN && s->kind == JOIN_FUNCTION)
		s->is_prototype = true;
}

static int settle_group(struct joint *j, size_t from, size_t end)
{
	struct join_statement *chosen;
	bool is_first = true, is_shared = false;
	int rc = choose(j, from, end, &chosen);

	for (size_t i = from; i < end; i++)
		is_shared |= j->by_name[i].of->input != j->by_name[from].of->input;
	for (size_t i = from; i < end && !rc; i++) {
		struct join_statement *s = j->by_name[i].of;

		if (s->linkage == JOIN_LOCAL) {
			j->by_name[i].is_mine = is_shared;
		} else if (!s->is_dropped) {
			settle(s, chosen, is_first);
			is_first = false;
		}
	}
	return rc;
}

static int settle_all(struct joint *j)
{
	int rc = 0;

	for (size_t from = 0, end; from < j->named_count && !rc; from = end) {
		end = group_end(j, from);
		rc = settle_group(j, from, end);
	}
	return rc;
}

/* ---- output */

/* Whether the local name of this input conflicts with another input. */
static bool is_renamed(const struct joint *j, const struct join_token *word, unsigned input)
{
	struct join_statement key = { .name = word->from, .name_length = (size_t)(word->end - word->from) };
	size_t low = 0, high = j->named_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (compare_names(j->by_name[middle].of, &key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < j->named_count && !compare_names(j->by_name[low].of, &key); low++)
		if (j->by_name[low].is_mine && j->by_name[low].of->input == input)
			return true;
	return false;
}

static void write_statement(const struct joint *j, const struct join_statement *s, FILE *out)
{
	const char *at = s->from;

	for (struct join_token t = join_next(at, s->end); t.kind != JOIN_END; t = join_next(t.end, s->end)) {
		if (s->is_prototype && t.from == s->extern_at) {
			fwrite(at, 1, (size_t)(t.from - at), out);
			fputs(".visible", out);
			at = t.end;
		} else if (t.kind == JOIN_WORD && is_renamed(j, &t, s->input)) {
			fwrite(at, 1, (size_t)(t.end - at), out);
			fprintf(out, "$input%u", s->input);
			at = t.end;
		}
	}
	fwrite(at, 1, (size_t)(s->end - at), out);
	fputc('\n', out);
}

/* The number in a directive: 90 in ".version 9.0" and in ".target sm_90". */
static unsigned head_number(const struct join_statement *s)
{
	unsigned number = 0;

	for (const char *at = s->from; at < s->end && *at != ','; at++)
		if (*at >= '0' && *at <= '9' && number < 100000)
			number = number * 10 + (unsigned)(*at - '0');
	return number;
}

/* Write the highest version and target: older code is valid there. */
static void write_head(const struct joint *j, const char *word, FILE *out)
{
	const struct join_statement *best = NULL;

	for (size_t i = 0; i < j->all.count; i++) {
		const struct join_statement *s = &j->all.list[i];

		if (s->kind == JOIN_HEAD && !s->is_dropped && !strncmp(s->from, word, strlen(word)) &&
		    (!best || head_number(s) > head_number(best)))
			best = s;
	}
	if (best)
		fprintf(out, "%.*s\n", (int)(best->end - best->from), best->from);
}

static int write_all(const struct joint *j, char **text, size_t *length)
{
	FILE *out = open_memstream(text, length);
	bool is_whole;

	if (!out)
		return bf_fail(j->err, ENOMEM, "joining PTX: out of memory");
	write_head(j, ".version", out);
	write_head(j, ".target", out);
	write_head(j, ".address_size", out);
	for (size_t i = 0; i < j->all.count; i++)
		if (j->all.list[i].kind != JOIN_HEAD && !j->all.list[i].is_dropped)
			write_statement(j, &j->all.list[i], out);
	is_whole = !ferror(out);
	if (fclose(out) || !is_whole) {
		free(*text);
		*text = NULL;
		return bf_fail(j->err, ENOMEM, "joining PTX: out of memory");
	}
	return 0;
}

int join_texts(const struct join_input *inputs, unsigned count, bool is_lazy, char **text, size_t *length,
	       struct bf_error *err)
{
	struct joint j = { .err = err };
	int rc = 0;

	*text = NULL;
	j.is_taken = calloc(count + 1, sizeof(*j.is_taken));
	if (!j.is_taken)
		rc = bf_fail(err, ENOMEM, "joining PTX: out of memory");
	for (unsigned i = 0; i < count && !rc; i++)
		rc = join_scan(&inputs[i], i, &j.all, err);
	if (!rc)
		rc = sort_names(&j);
	if (!rc) {
		take_inputs(&j, count, is_lazy);
		rc = settle_all(&j);
	}
	if (!rc)
		rc = write_all(&j, text, length);
	free(j.all.list);
	free(j.by_name);
	free(j.is_taken);
	return rc;
}
