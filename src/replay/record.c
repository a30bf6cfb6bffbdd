/* Makes, checks, writes and reads entries. Input is untrusted: no field is used before record_check() has
 * accepted it. */
#include "replay/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "base/text.h"

enum { CTX_MOST = 1024 };

static const struct record_header header_now = {
	.magic = { 'B', 'E', 'L', 'F', 'R', 'Y', 'R', '2' },
	.abi = BELFRY_POLICY_ABI,
	.vgpu_size = sizeof(struct belfry_vgpu),
};

static uint32_t count_of(const void *ctx)
{
	struct belfry_head head;

	memcpy(&head, ctx, sizeof(head));
	return head.count < BELFRY_VGPUS_MAX ? head.count : BELFRY_VGPUS_MAX;
}

/* Contexts are padded to the table's alignment, so that both can be used in place. */
static size_t aligned(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

static size_t size_of(unsigned kind)
{
	switch (kind) {
	case RECORD_SETUP:
		return sizeof(struct record_setup);
	case RECORD_SHARE:
		return sizeof(struct record_share);
	default:
		return sizeof(struct record_work);
	}
}

size_t record_make(const struct sched_decision *decision, const void *ctx, size_t ctx_bytes,
		   const struct belfry_vgpu *table, void *to, size_t room)
{
	struct record_entry entry = {
		.hook = (uint16_t)decision->hook,
		.decider = (uint8_t)decision->decider,
		.clamps = decision->clamps,
		.at_ns = decision->at_ns,
		.proposed_id = decision->proposed_id,
		.got_id = decision->got_id,
		.proposed_ns = decision->proposed_ns,
		.got_ns = decision->got_ns,
	};
	uint8_t *bytes = to;
	size_t all;

	if (ctx_bytes < sizeof(struct belfry_head) || ctx_bytes > CTX_MOST)
		return 0;
	entry.ctx_bytes = (uint32_t)aligned(ctx_bytes);
	entry.count = count_of(ctx);
	all = sizeof(entry) + entry.ctx_bytes + entry.count * sizeof(*table);
	if (all > room)
		return 0;
	entry.bytes = (uint32_t)all;
	memcpy(bytes, &entry, sizeof(entry));
	memset(bytes + sizeof(entry), 0, entry.ctx_bytes);
	memcpy(bytes + sizeof(entry), ctx, ctx_bytes);
	if (entry.count)
		memcpy(bytes + sizeof(entry) + entry.ctx_bytes, table, entry.count * sizeof(*table));
	return all;
}

size_t record_make_other(enum record_kind kind, uint64_t at_ns, const void *what, size_t bytes, void *to,
			 size_t room)
{
	struct record_entry entry = { .bytes = (uint32_t)(sizeof(entry) + bytes),
				      .kind = (uint8_t)kind,
				      .ctx_bytes = (uint32_t)bytes,
				      .at_ns = at_ns };

	if (bytes != size_of(kind) || entry.bytes > room)
		return 0;
	memcpy(to, &entry, sizeof(entry));
	memcpy((uint8_t *)to + sizeof(entry), what, bytes);
	return entry.bytes;
}

const void *record_ctx(const struct record_entry *entry)
{
	return entry + 1;
}

const struct belfry_vgpu *record_table(const struct record_entry *entry)
{
	return (const struct belfry_vgpu *)((const uint8_t *)(entry + 1) + entry->ctx_bytes);
}

/* The smallest context of the hooks that are replayed, so that every field read exists. */
static size_t ctx_least(uint16_t hook)
{
	switch (hook) {
	case BELFRY_HOOK_PICK:
		return sizeof(struct belfry_pick);
	case BELFRY_HOOK_PREEMPT:
		return sizeof(struct belfry_preempt);
	case BELFRY_HOOK_TICK:
		return sizeof(struct belfry_tick);
	case BELFRY_HOOK_ENQUEUE:
		return sizeof(struct belfry_enqueue);
	default:
		return sizeof(struct belfry_head);
	}
}

static int check_decision_sizes(const struct record_entry *entry, struct bf_error *err)
{
	/* Each size is limited, so their sum cannot overflow. */
	if (entry->ctx_bytes > CTX_MOST || entry->ctx_bytes % 8 || entry->ctx_bytes < ctx_least(entry->hook))
		return bf_fail(err, EBADMSG, "invalid record entry: a context of %" PRIu32 " bytes",
			       entry->ctx_bytes);
	if (entry->count > BELFRY_VGPUS_MAX)
		return bf_fail(err, EBADMSG, "invalid record entry: %" PRIu32 " vGPUs; the maximum is %u",
			       entry->count, BELFRY_VGPUS_MAX);
	if (entry->bytes != sizeof(*entry) + entry->ctx_bytes + entry->count * sizeof(struct belfry_vgpu))
		return bf_fail(err, EBADMSG,
			       "invalid record entry: %" PRIu32 " bytes, not the sum of its parts",
			       entry->bytes);
	return 0;
}

/* The vGPU concerned and the holder of the token are entries or BELFRY_NOBODY. */
static int check_ctx(const struct record_entry *entry, const void *bytes, struct bf_error *err)
{
	struct belfry_preempt preempt;
	struct belfry_head head;

	memcpy(&head, bytes, sizeof(head));
	if (head.hook != entry->hook || head.count < entry->count ||
	    (head.count > entry->count && entry->count != BELFRY_VGPUS_MAX))
		return bf_fail(err, EBADMSG, "invalid record entry: its context is of another hook");
	if (entry->hook == BELFRY_HOOK_TICK && head.vgpu >= head.count)
		return bf_fail(err, EBADMSG, "invalid record entry: a tick without a vGPU");
	if (entry->hook != BELFRY_HOOK_PREEMPT)
		return 0;
	memcpy(&preempt, bytes, sizeof(preempt));
	if (head.vgpu >= head.count || preempt.holder >= head.count)
		return bf_fail(err, EBADMSG, "invalid record entry: a stop without a vGPU");
	return 0;
}

bool record_introduces(const struct record_entry *entry, uint64_t *id, char name[BELFRY_NAME_SIZE])
{
	struct belfry_vgpu_init init;

	if (entry->kind != RECORD_DECISION || entry->ctx_bytes < sizeof(init) ||
	    (entry->hook != BELFRY_HOOK_VGPU_INIT && entry->hook != BELFRY_HOOK_VGPU_SET))
		return false;
	memcpy(&init, record_ctx(entry), sizeof(init));
	*id = init.id;
	memcpy(name, init.name, sizeof(init.name));
	return init.name[0] && bf_is_line(init.name, sizeof(init.name));
}

/* The same limits as for the configuration (docs/sharing.md); sched divides by some of these values. */
static int check_setup(const struct record_setup *setup, struct bf_error *err)
{
	const uint64_t ms = 1000000;

	if (setup->window_ns < 10 * ms || setup->window_ns > 60000 * ms || setup->round_ns < ms ||
	    setup->round_ns > setup->window_ns || setup->slice_min_ns < ms / 10 ||
	    setup->slice_min_ns > setup->round_ns || setup->grace_ns > 1000 * ms ||
	    setup->idle_ns > 1000 * ms || setup->how > SCHED_TURNS || setup->is_measured > 1 ||
	    setup->is_soft > 1 || !bf_is_line(setup->policy, sizeof(setup->policy)))
		return bf_fail(err, EBADMSG, "invalid record entry: invalid sharing options");
	return 0;
}

static int check_share(const struct record_share *share, struct bf_error *err)
{
	if (!share->id || !bf_is_line(share->name, sizeof(share->name)) || !share->limit_ppm ||
	    share->limit_ppm > SCHED_WHOLE_PPM || share->request_ppm > share->limit_ppm ||
	    share->class > SCHED_LATENCY || share->percentile_ppm > SCHED_WHOLE_PPM ||
	    share->objective_ns > RECORD_LONGEST_NS || share->timeslice_us > RECORD_LONGEST_NS / 1000 ||
	    share->interleave < -1 || share->interleave > 2)
		return bf_fail(err, EBADMSG, "invalid record entry: invalid vGPU");
	return 0;
}

static int check_work(const struct record_work *work, struct bf_error *err)
{
	if (!work->id || work->what >= RECORD_WHATS)
		return bf_fail(err, EBADMSG,
			       "invalid record entry: work of an unknown kind, or without a vGPU");
	if (work->what == RECORD_DONE && work->end_ns < work->came_ns)
		return bf_fail(err, EBADMSG, "invalid record entry: work that ended before it began");
	return 0;
}

static int check_other(const struct record_entry *entry, const void *bytes, struct bf_error *err)
{
	union {
		struct record_setup setup;
		struct record_share share;
		struct record_work work;
	} is;

	memcpy(&is, bytes, entry->ctx_bytes);
	if (entry->kind == RECORD_SETUP)
		return check_setup(&is.setup, err);
	return entry->kind == RECORD_SHARE ? check_share(&is.share, err) : check_work(&is.work, err);
}

/* Whether the sizes in the head are consistent, so that the rest can be read. */
static int check_head(const struct record_entry *entry, struct bf_error *err)
{
	if (entry->hook >= BELFRY_HOOKS || entry->decider > SCHED_BY_OWN_POLICY ||
	    entry->kind >= RECORD_KINDS)
		return bf_fail(err, EBADMSG, "invalid record entry: hook %u, decided by %u, kind %u",
			       entry->hook, entry->decider, entry->kind);
	if (entry->kind == RECORD_DECISION)
		return check_decision_sizes(entry, err);
	if (entry->ctx_bytes != size_of(entry->kind) || entry->count ||
	    entry->bytes != sizeof(*entry) + entry->ctx_bytes)
		return bf_fail(err, EBADMSG, "invalid record entry: %" PRIu32 " bytes of kind %u",
			       entry->bytes, entry->kind);
	return 0;
}

int record_check(const void *bytes, size_t size, struct bf_error *err)
{
	const uint8_t *rest = (const uint8_t *)bytes + sizeof(struct record_entry);
	struct record_entry entry;
	int rc;

	if (size < sizeof(entry))
		return bf_fail(err, EBADMSG, "invalid record entry: %zu bytes", size);
	memcpy(&entry, bytes, sizeof(entry));
	rc = check_head(&entry, err);
	if (!rc && entry.bytes != size)
		rc = bf_fail(err, EBADMSG, "invalid record entry: %zu bytes instead of %" PRIu32, size,
			     entry.bytes);
	if (rc)
		return rc;
	return entry.kind == RECORD_DECISION ? check_ctx(&entry, rest, err) : check_other(&entry, rest, err);
}

struct record_setup record_setup_of(const struct sched_options *options)
{
	return (struct record_setup){ .window_ns = options->window_ns,
				      .round_ns = options->round_ns,
				      .slice_min_ns = options->slice_min_ns,
				      .grace_ns = options->grace_ns,
				      .idle_ns = options->idle_ns,
				      .how = options->how,
				      .is_measured = options->is_measured };
}

struct sched_options record_options(const struct record_setup *setup)
{
	return (struct sched_options){ .window_ns = setup->window_ns,
				       .round_ns = setup->round_ns,
				       .slice_min_ns = setup->slice_min_ns,
				       .grace_ns = setup->grace_ns,
				       .idle_ns = setup->idle_ns,
				       .how = (enum sched_how)setup->how,
				       .is_measured = setup->is_measured };
}

struct record_share record_share_of(const struct sched_share *share)
{
	return (struct record_share){ .request_ppm = share->request_ppm,
				      .limit_ppm = share->limit_ppm,
				      .class = share->class,
				      .percentile_ppm = share->percentile_ppm,
				      .objective_ns = share->objective_ns,
				      .timeslice_us = share->timeslice_us,
				      .domain = share->domain,
				      .interleave = share->interleave };
}

struct sched_share record_sched_share(const struct record_share *share)
{
	return (struct sched_share){ .request_ppm = share->request_ppm,
				     .limit_ppm = share->limit_ppm,
				     .class = (enum sched_class)share->class,
				     .percentile_ppm = share->percentile_ppm,
				     .objective_ns = share->objective_ns,
				     .timeslice_us = share->timeslice_us,
				     .domain = share->domain,
				     .interleave = share->interleave };
}

int record_write_header(FILE *to, struct bf_error *err)
{
	if (fwrite(&header_now, sizeof(header_now), 1, to) != 1)
		return bf_fail(err, EIO, "the record's header cannot be written");
	return 0;
}

int record_read_header(FILE *from, struct bf_error *err)
{
	struct record_header header;

	if (fread(&header, sizeof(header), 1, from) != 1 ||
	    memcmp(header.magic, header_now.magic, sizeof(header.magic) - 1) != 0)
		return bf_fail(err, EBADMSG, "not a record of decisions");
	if (memcmp(header.magic, header_now.magic, sizeof(header.magic)) != 0)
		return bf_fail(err, EPROTONOSUPPORT,
			       "the record is from another release of Belfry; record again");
	if (header.abi != header_now.abi || header.vgpu_size != header_now.vgpu_size)
		return bf_fail(err, EPROTONOSUPPORT,
			       "a record of policy ABI %" PRIu32 ", entries of %" PRIu32
			       " bytes; this is %u, of %zu",
			       header.abi, header.vgpu_size, BELFRY_POLICY_ABI, sizeof(struct belfry_vgpu));
	return 0;
}

/* The result at the end of the input. */
static int ended(FILE *from, enum record_got how, struct bf_error *err)
{
	return ferror(from) ? bf_fail(err, EIO, "the record cannot be read to its end") : (int)how;
}

int record_read(FILE *from, void *buffer, struct bf_error *err)
{
	struct record_entry entry;
	size_t got = fread(&entry, 1, sizeof(entry), from);
	int rc;

	if (got != sizeof(entry))
		return ended(from, got ? RECORD_CUT_OFF : RECORD_END, err);
	rc = check_head(&entry, err);
	if (rc)
		return rc;
	memcpy(buffer, &entry, sizeof(entry));
	if (fread((uint8_t *)buffer + sizeof(entry), entry.bytes - sizeof(entry), 1, from) != 1)
		return ended(from, RECORD_CUT_OFF, err);
	rc = record_check(buffer, entry.bytes, err);
	return rc ? rc : RECORD_ENTRY;
}

/* The length of all whole entries; 0 if even the header is incomplete. */
static long whole_bytes(FILE *record, void *buffer, struct record_kept *kept)
{
	const struct record_entry *entry = buffer;
	long end;

	if (record_read_header(record, NULL))
		return 0;
	for (end = ftell(record); record_read(record, buffer, NULL) == RECORD_ENTRY; end = ftell(record)) {
		kept->decisions += entry->kind == RECORD_DECISION;
		kept->lost += entry->lost;
	}
	return end;
}

int record_mend(FILE *record, struct record_kept *kept, struct bf_error *err)
{
	cleanup_free void *buffer = malloc(RECORD_ENTRY_MAX);
	long end;

	*kept = (struct record_kept){ .decisions = 0 };
	if (!buffer)
		return bf_fail(err, ENOMEM, "not enough memory");
	__fpurge(record);
	rewind(record);
	end = whole_bytes(record, buffer, kept);
	if (end < 0 || ftruncate(fileno(record), end))
		return bf_fail(err, errno, "the partial last entry cannot be removed: %s", strerror(errno));
	return 0;
}
