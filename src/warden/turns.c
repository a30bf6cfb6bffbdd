/* The driver's event buffer of context switches: two memory objects of the GPU server, which the driver
 * writes and user space can only read. The driver checks no privilege, but without CAP_SYS_ADMIN the records
 * of other users have no process ID. */
#include "warden/turns.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "warden/nv.h"
#include "warden/turns_parse.h"

enum {
	RECORDS = 1 << 14, /* two for each turn; two busy programs made 354 turns a second */
	HEADER_BYTES = 4096,
	CLASS_EVENT_BUFFER = 0x90cd,
	DETAIL_SIMPLE = 1, /* what user space gets in any case: a context was restored, or saved */
	KEEP_OLDEST = 1,
	CLOCK_TRIES = 5,
	CLOCK_AGAIN_NS = 1000000000,
	CLOCK_DRIFT_PPM = 100,	 /* assumed, of the GPU's clock against the host's; crystals differ by less */
	CLOCK_JUMP_NS = 1000000, /* a larger change is no drift: the GPU's clock was set */
};

struct buffer_params { /* NV_EVENT_BUFFER_ALLOC_PARAMETERS */
	uint64_t header, records;
	uint32_t record_bytes, record_count;
	uint64_t vardata;
	uint32_t vardata_bytes, records_free;
	uint64_t notification;
	uint32_t vardata_free, subdevice, flags, header_memory, record_memory, vardata_memory;
};
struct bind_params { /* NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS */
	uint32_t buffer, record_bytes, detail, filter;
	uint8_t is_for_all_users, pad[3];
	uint32_t reason;
};
static_assert(sizeof(struct buffer_params) == 72, "NV_EVENT_BUFFER_ALLOC_PARAMETERS");
static_assert(sizeof(struct bind_params) == 24, "NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS");

struct turns {
	struct nv *nv;
	struct device_view header, records;
	uint32_t buffer; /* 0: none */
	uint32_t reported_get;
	struct turns_parser parser;
	uint64_t ahead_ns;    /* the host's clock minus the GPU's; unsigned arithmetic may wrap */
	uint64_t bracket_ns;  /* half of the duration of the query */
	uint64_t measured_ns; /* by the host's clock */
	uint64_t last_end_ns; /* of the last turn that was returned */
};

/* The GPU reads its clock at some time between two reads of the host's clock. The shortest of a few queries
 * is the most precise. */
static int measure_clock(struct turns *turns)
{
	uint64_t best_ns = UINT64_MAX, was_ns = turns->ahead_ns, moved_ns;

	for (unsigned i = 0; i < CLOCK_TRIES; i++) {
		uint64_t gpu_ns = 0, before_ns = bf_now_ns(), took_ns;
		int rc = own_control(turns->nv, OWN_SUBDEVICE, RM_CTRL_GET_TIME, &gpu_ns, sizeof(gpu_ns));

		if (rc)
			return rc;
		took_ns = bf_now_ns() - before_ns;
		if (took_ns >= best_ns)
			continue;
		best_ns = took_ns;
		turns->ahead_ns = before_ns + took_ns / 2 - gpu_ns;
	}
	turns->bracket_ns = best_ns / 2;
	moved_ns = turns->ahead_ns - was_ns;
	if (moved_ns > UINT64_MAX / 2)
		moved_ns = -moved_ns;
	if (turns->measured_ns && moved_ns > CLOCK_JUMP_NS + best_ns) {
		bf_log(BF_LOG_INFO, "the GPU's clock was set; the current turn is not known");
		turns_forget(&turns->parser);
	}
	turns->measured_ns = bf_now_ns();
	return 0;
}

static int make_buffer(struct turns *turns)
{
	struct buffer_params params = { .record_bytes = TURNS_RECORD_BYTES,
					.record_count = RECORDS,
					.subdevice = OWN_SUBDEVICE,
					.header_memory = turns->header.handle,
					.record_memory = turns->records.handle };
	uint32_t handle = own_next_handle(turns->nv);
	int rc = own_alloc(turns->nv, turns->nv->client, handle, CLASS_EVENT_BUFFER, &params, sizeof(params));

	if (!rc)
		turns->buffer = handle;
	return rc;
}

static int bind_buffer(struct turns *turns, uint32_t *reason)
{
	struct bind_params bind = { .buffer = turns->buffer,
				    .record_bytes = TURNS_RECORD_BYTES,
				    .detail = DETAIL_SIMPLE,
				    .filter = ~0u,
				    .is_for_all_users = 1 };
	uint32_t enable[2] = { 1, KEEP_OLDEST };
	int rc = own_control(turns->nv, OWN_SUBDEVICE, RM_CTRL_BIND_TURNS, &bind, sizeof(bind));

	*reason = bind.reason;
	return rc ? rc
		  : own_control(turns->nv, turns->buffer, RM_CTRL_EVENT_BUFFER_ENABLE, enable,
				sizeof(enable));
}

static int setup(struct turns *turns, struct bf_error *err)
{
	struct nv *nv = turns->nv;
	uint32_t reason = 0;
	int rc;

	if (own_host_memory(nv, HEADER_BYTES, true, &turns->header, err) ||
	    own_host_memory(nv, (uint64_t)RECORDS * TURNS_RECORD_BYTES, true, &turns->records, err))
		return -ENOTSUP;
	rc = make_buffer(turns);
	if (rc)
		return bf_fail(err, ENOTSUP, "GPU %u: the driver has no event buffers (0x%x)",
			       nv->device.index, (unsigned)rc);
	rc = bind_buffer(turns, &reason);
	if (rc)
		return bf_fail(err, ENOTSUP,
			       "GPU %u: the driver does not report context switches (0x%x, reason %u)",
			       nv->device.index, (unsigned)rc, reason);
	rc = measure_clock(turns);
	if (rc)
		return bf_fail(err, ENOTSUP, "GPU %u: the driver does not report the GPU's time (0x%x)",
			       nv->device.index, (unsigned)rc);
	return 0;
}

struct turns *turns_open(struct device *device, struct bf_error *err)
{
	struct turns *turns = calloc(1, sizeof(*turns));

	if (!turns) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	turns->nv = nv_of(device);
	if (!setup(turns, err))
		return turns;
	if (err)
		err->code = ENOTSUP; /* also if memory could not be allocated or mapped */
	turns_close(turns);
	return NULL;
}

void turns_close(struct turns *turns)
{
	if (!turns)
		return;
	if (turns->buffer) /* before the memory to which the driver writes */
		own_free(turns->nv, turns->buffer);
	if (turns->records.base)
		nv_unview(&turns->nv->device, &turns->records);
	if (turns->header.base)
		nv_unview(&turns->nv->device, &turns->header);
	free(turns);
}

/* Convert to the host's clock. Two turns may be converted with different measurements; they must not overlap
 * because of that. */
static void convert(struct turns *turns, struct device_turn *turn)
{
	turn->start_ns += turns->ahead_ns;
	turn->end_ns += turns->ahead_ns;
	if (turn->start_ns < turns->last_end_ns)
		turn->start_ns = turns->last_end_ns;
	if (turn->end_ns < turn->start_ns)
		turn->end_ns = turn->start_ns;
	if (!turn->is_open)
		turns->last_end_ns = turn->end_ns;
}

/* Tell the driver how far the records were read, so that it can reuse the space. After a failure the next
 * call tries again. */
static void report_get(struct turns *turns)
{
	uint32_t get[2] = { turns->parser.get, 0 };

	if (turns->parser.is_empty && get[0] != turns->reported_get &&
	    !own_control(turns->nv, turns->buffer, RM_CTRL_EVENT_BUFFER_UPDATE_GET, get, sizeof(get)))
		turns->reported_get = get[0];
}

int turns_read(struct turns *turns, struct device_turn *to, size_t room)
{
	const struct turns_image image = { turns->header.base, turns->records.base, RECORDS };
	size_t found;

	if (bf_now_ns() - turns->measured_ns > CLOCK_AGAIN_NS && measure_clock(turns))
		return -EIO;
	if (own_control(turns->nv, turns->buffer, RM_CTRL_EVENT_BUFFER_FLUSH, NULL, 0))
		return -EIO;
	room = room < INT32_MAX ? room : INT32_MAX;
	found = turns_parse(&turns->parser, &image, bf_now_ns() - turns->ahead_ns, to, room);
	for (size_t i = 0; i < found; i++)
		convert(turns, &to[i]);
	report_get(turns);
	return (int)found;
}

uint64_t turns_lost(const struct turns *turns)
{
	return turns->parser.lost;
}

uint64_t turns_error_ns(const struct turns *turns)
{
	return turns->bracket_ns + (bf_now_ns() - turns->measured_ns) / 1000000 * CLOCK_DRIFT_PPM;
}
