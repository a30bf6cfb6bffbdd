#include "replay/worked.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* A record may contain any number of vGPUs, so they are kept in a search tree by id. */
struct seen {
	uint64_t id, gpu_ns; /* gpu_ns: at its first entry */
	bool has_worked;
};

static int compare(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static struct seen *meet(void **tree, const struct record_work *work, size_t *count)
{
	struct seen key = { .id = work->id }, *seen;
	void *found = tfind(&key, tree, compare);

	if (found)
		return *(struct seen **)found;
	seen = malloc(sizeof(*seen));
	if (!seen)
		return NULL;
	*seen = (struct seen){ .id = work->id, .gpu_ns = work->gpu_ns };
	if (!tsearch(seen, tree, compare)) {
		free(seen);
		return NULL;
	}
	++*count;
	return seen;
}

/* The entries of a burst may be lost; its GPU time shows it too. */
static bool is_work(const struct record_work *work, const struct seen *seen)
{
	return work->what == RECORD_CAME || work->what == RECORD_DONE || work->gpu_ns > seen->gpu_ns;
}

static int take(struct worked *worked, void **tree, const struct record_entry *entry, struct bf_error *err)
{
	struct record_work work;
	struct seen *seen;

	if (entry->kind != RECORD_WORK)
		return 0;
	memcpy(&work, record_ctx(entry), sizeof(work));
	seen = meet(tree, &work, &worked->idle_count);
	if (!seen)
		return bf_fail(err, ENOMEM, "not enough memory for the vGPUs of the record");
	if (seen->has_worked || !is_work(&work, seen))
		return 0;
	if (worked->count == BELFRY_VGPUS_MAX)
		return bf_fail(err, E2BIG, "more than %d vGPUs of the record had work", BELFRY_VGPUS_MAX);
	seen->has_worked = true;
	worked->ids[worked->count++] = work.id;
	worked->idle_count--;
	return 0;
}

int worked_read(FILE *record, void *buffer, struct worked *worked, struct bf_error *err)
{
	void *tree = NULL;
	int rc = record_read_header(record, err);

	*worked = (struct worked){ .count = 0 };
	while (!rc) {
		rc = record_read(record, buffer, err);
		if (rc != RECORD_ENTRY)
			break;
		rc = take(worked, &tree, buffer, err);
	}
	tdestroy(tree, free);
	return rc < 0 ? rc : 0;
}

bool worked_has(const struct worked *worked, uint64_t id)
{
	for (unsigned i = 0; i < worked->count; i++)
		if (worked->ids[i] == id)
			return true;
	return false;
}
