#include "slurm/shards.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

enum { COUNT_MAX = 1 << 20, NAME_ROOM = 16, PERCENT_ROOM = 32 };

/* The end of an entry: the next comma that is not within parentheses. */
static const char *end_of_entry(const char *at)
{
	int depth = 0;

	for (; *at && (*at != ',' || depth); at++)
		depth += (*at == '(') - (*at == ')');
	return at;
}

/* "0-1,3)": the first number, and how many there are. */
static void read_indices(const char *at, struct shards_grant *grant)
{
	while (isdigit((unsigned char)*at)) {
		char *end;
		unsigned long first = strtoul(at, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (first > COUNT_MAX || last < first || last > COUNT_MAX)
			return;
		if (grant->gpu < 0)
			grant->gpu = (int)first;
		grant->spread += (uint32_t)(last - first + 1);
		at = end + (*end == ',');
	}
}

/* "0/16,8/16)": what is granted of each GPU. */
static void read_fractions(const char *at, struct shards_grant *grant)
{
	for (int gpu = 0; isdigit((unsigned char)*at) && gpu < COUNT_MAX; gpu++) {
		char *end;
		bool is_granted = strtoul(at, &end, 10) != 0;

		if (*end != '/')
			return;
		strtoul(end + 1, &end, 10);
		if (is_granted && grant->gpu < 0)
			grant->gpu = gpu;
		grant->spread += is_granted;
		at = end + (*end == ',');
	}
}

/* "gpu", "gpu:2", "gpu:a100:2": the count, which is 1 if it is missing. */
static int read_count(const char *entry, const char *end, uint32_t *count)
{
	const char *colon = memrchr(entry, ':', (size_t)(end - entry));
	unsigned long value;
	char *after;

	*count = 1;
	if (!colon || !isdigit((unsigned char)colon[1]))
		return 0;
	value = strtoul(colon + 1, &after, 10);
	if (after != end) /* the name of a model that begins with a digit */
		return 0;
	if (value > COUNT_MAX)
		return -ERANGE;
	*count = (uint32_t)value;
	return 0;
}

/* The end of name, model and count. A model that is not known is written "(null)". */
static const char *end_of_head(const char *at)
{
	while (*at && *at != ',' && (*at != '(' || !strncmp(at, "(null)", 6)))
		at++;
	return at;
}

static int read_entry(const char *entry, const char *end, struct shards_grant *grant)
{
	const char *head = end_of_head(entry);
	size_t name = strcspn(entry, ":(,");
	bool is_gpu = name == 3 && !strncmp(entry, "gpu", 3),
	     is_shard = name == 5 && !strncmp(entry, "shard", 5);
	uint32_t count;
	int rc;

	if (!is_gpu && !is_shard)
		return 0;
	rc = read_count(entry, head, &count);
	if (rc)
		return rc;
	if (is_gpu)
		grant->gpus += count;
	else
		grant->shards += count;
	if (!count)
		return 0;
	for (const char *at = head; at < end; at++) {
		if (*at != '(')
			continue;
		if (!strncmp(at, "(IDX:", 5))
			read_indices(at + 5, grant);
		else
			read_fractions(at + 1, grant);
	}
	return 0;
}

int shards_read(const char *gres, struct shards_grant *grant, struct bf_error *err)
{
	*grant = (struct shards_grant){ .gpu = -1 };
	for (const char *at = gres; *at;) {
		const char *end = end_of_entry(at);

		if (read_entry(at, end, grant) || grant->shards > COUNT_MAX || grant->gpus > COUNT_MAX)
			return bf_fail(err, ERANGE, "generic resources '%.100s': more than %d GPUs or shards",
				       gres, COUNT_MAX);
		at = end + (*end == ',');
	}
	return 0;
}

uint64_t shards_count(const struct shards_rule *rule, const struct shards_grant *grant)
{
	return grant->shards + (uint64_t)grant->gpus * rule->per_gpu;
}

static const char *percent(uint64_t ppm, char *to)
{
	snprintf(to, PERCENT_ROOM, "%.6g", (double)ppm / 1e4);
	return to;
}

static int fill_mem(const struct shards_rule *rule, uint64_t count, struct spec *spec, uint32_t *parts,
		    struct bf_error *err)
{
	uint64_t allowed = count * rule->mem_bytes;
	char wanted[NAME_ROOM], each[NAME_ROOM], all[NAME_ROOM];

	if (!(*parts & SPEC_MEM)) {
		spec->mem_bytes = allowed;
		*parts |= SPEC_MEM;
	}
	if (spec->mem_bytes <= allowed)
		return 0;
	return bf_fail(err, EDQUOT,
		       "--vgpu-mem: %s do not fit: the job has %" PRIu64
		       " shards here, with %s each: %" PRIu64
		       " * %s = %s; ask for less, or for --gres=shard:%" PRIu64,
		       bf_format_size(spec->mem_bytes, wanted, sizeof(wanted)), count,
		       bf_format_size(rule->mem_bytes, each, sizeof(each)), count, each,
		       bf_format_size(allowed, all, sizeof(all)),
		       (spec->mem_bytes + rule->mem_bytes - 1) / rule->mem_bytes);
}

static int fill_time(const struct shards_rule *rule, uint64_t count, struct spec *spec, uint32_t *parts,
		     struct bf_error *err)
{
	uint64_t allowed = count * SPEC_WHOLE_PPM / rule->per_gpu, wanted = spec->request_ppm;
	char asked[PERCENT_ROOM], all[PERCENT_ROOM];

	if (!(*parts & SPEC_TIME)) {
		spec->request_ppm = (uint32_t)allowed;
		spec->limit_ppm = SPEC_WHOLE_PPM;
		*parts |= SPEC_TIME;
	}
	if (spec->request_ppm <= allowed)
		return 0;
	return bf_fail(err, EDQUOT,
		       "--vgpu-time: %s %% do not fit: the job has %" PRIu64
		       " of the %u shards of a GPU: %" PRIu64
		       " / %u = %s %%; ask for less, or for --gres=shard:%" PRIu64,
		       percent(wanted, asked), count, rule->per_gpu, count, rule->per_gpu,
		       percent(allowed, all), (wanted * rule->per_gpu + SPEC_WHOLE_PPM - 1) / SPEC_WHOLE_PPM);
}

int shards_fill(const struct shards_rule *rule, const struct shards_grant *grant, struct spec *spec,
		uint32_t *parts, struct bf_error *err)
{
	uint64_t count = shards_count(rule, grant);
	int rc;

	if (!rule->per_gpu || !rule->mem_bytes)
		return bf_fail(err, EINVAL,
			       "the shards of this node's GPU are not known; set shards= in plugstack.conf");
	if (!count)
		return bf_fail(err, EDQUOT,
			       "the job has no shards on this node; ask for some with --gres=shard:NUMBER");
	if (grant->spread > 1 || count > rule->per_gpu)
		return bf_fail(
			err, ENOTSUP,
			"the job's %" PRIu64
			" shards are on more than one GPU, which has %u; a vGPU is on one GPU: ask for at most %u",
			count, rule->per_gpu, rule->per_gpu);
	rc = fill_mem(rule, count, spec, parts, err);
	if (!rc)
		rc = fill_time(rule, count, spec, parts, err);
	return rc ? rc : spec_check(spec, err);
}
