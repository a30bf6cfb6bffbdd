/* Launches: a descriptor is read once, checked, and prepared for the SMs. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "soft/hw/state.h"

static bool translate(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span)
{
	struct hw_launch *launch = ctx;

	return hw_space_translate(launch->space, address, bytes, is_write, span);
}

static int print(void *ctx, const struct ptx_print *p)
{
	struct hw_launch *launch = ctx;

	return hw_print(launch->space, p);
}

/* The SM's own time, which is consistent with timestamps before and after the launch although the host
 * computes ahead of or behind it. Only the thread that runs a block of the SM changes it, which is the
 * caller. */
static uint64_t now_ns(void *ctx, uint32_t sm, uint64_t cost)
{
	const struct hw_gpu *gpu = ((struct hw_launch *)ctx)->gpu;

	return gpu->sms[sm].time_ns + (uint64_t)((double)cost * 1e9 / (double)gpu->options.rate);
}

static bool refuse(struct hw_channel *ch, const char *why)
{
	return hw_channel_fail(ch, SOFT_ERROR_COMPUTE, (uint64_t)ch->methods.send_a << 8, why);
}

/* Returns what is wrong with the shape, or NULL. */
static const char *check_shape(const struct soft_launch *d, const struct ptx_kernel *k)
{
	uint64_t threads = 1;

	for (unsigned i = 0; i < 3; i++) {
		if (!d->grid[i] || d->grid[i] > (i ? 65535u : 0x7fffffffu))
			return "launch: invalid grid size";
		if (!d->threads[i] || d->threads[i] > PTX_THREADS_MAX)
			return "launch: invalid block size";
		if (k->required[0] && d->threads[i] != k->required[i])
			return "launch: the kernel requires another block size";
		threads *= d->threads[i];
	}
	if (threads > k->max_threads)
		return "launch: too many threads per block";
	if (d->dynamic_shared_bytes > PTX_SHARED_MAX_BYTES ||
	    k->shared_bytes > PTX_SHARED_MAX_BYTES - d->dynamic_shared_bytes)
		return "launch: too much shared memory";
	return NULL;
}

static const char *check_kernel(const struct soft_launch *d, const struct ptx_kernel *k)
{
	if (!k || !k->is_entry)
		return "launch: no such kernel";
	if (d->param_bytes < k->param_bytes)
		return "launch: too few parameters";
	if (d->flags & ~(uint32_t)SOFT_LAUNCH_COOPERATIVE)
		return "launch: unknown flags";
	return check_shape(d, k);
}

/* The resources of an SM that a block takes, as a real GPU allocates them (registers by warps, in units of
 * 256), and those of the host. */
static void measure(struct hw_launch *l)
{
	const struct ptx_kernel *k = l->ptx.kernel;
	uint32_t threads = l->ptx.threads[0] * l->ptx.threads[1] * l->ptx.threads[2];
	uint32_t warps = (threads + 31) / 32;

	l->threads = warps * 32;
	l->registers = warps * (uint32_t)bf_round_up(32ull * k->register_count, 256);
	l->shared_bytes = (uint32_t)bf_round_up(k->shared_bytes + l->ptx.dynamic_shared_bytes, 128) +
			  HW_BLOCK_SHARED_BYTES;
	l->host_bytes = (uint64_t)l->threads *
				(k->local_bytes + k->register_bytes + 64 + ptx_launch_stack_bytes(&l->ptx)) +
			l->shared_bytes;
}

static struct hw_launch *make(struct hw_channel *ch, const struct soft_launch *d, struct hw_code *code,
			      const struct ptx_kernel *k)
{
	struct hw_launch *l = calloc(1, sizeof(*l) + k->param_bytes);

	if (!l)
		return NULL;
	l->channel = ch;
	l->gpu = ch->group->gpu;
	l->space = hw_space_get(ch->space);
	l->code = code;
	l->ptx = (struct ptx_launch){ .module = code->module,
				      .kernel = k,
				      .dynamic_shared_bytes = d->dynamic_shared_bytes,
				      .params = l->params,
				      .grid_id = d->grid_id,
				      .stack_bytes = d->stack_bytes,
				      .sm_count = l->gpu->options.sms };
	memcpy(l->ptx.grid, d->grid, sizeof(d->grid));
	memcpy(l->ptx.threads, d->threads, sizeof(d->threads));
	l->is_cooperative = d->flags & SOFT_LAUNCH_COOPERATIVE;
	l->ptx.workspace = l->is_cooperative ? d->workspace : 0;
	l->host = (struct ptx_host){ .ctx = l, .translate = translate, .print = print, .now_ns = now_ns };
	memcpy(l->mask, ch->mask, sizeof(l->mask));
	l->block_count = (uint64_t)d->grid[0] * d->grid[1] * d->grid[2];
	measure(l);
	return l;
}

/* A launch starts when the channel reached it, but not so far in the past that the clock would have to wait
 * for it. */
static bool start(struct hw_channel *ch, struct hw_launch *l)
{
	struct hw_launch **at = &ch->group->unit->waiting;
	struct hw_gpu *gpu = l->gpu;
	uint64_t now = hw_clock_settle(&gpu->clock);

	l->start_ns = ch->time_ns + HW_LAG_NS < now ? now - HW_LAG_NS : ch->time_ns;
	l->end_ns = l->start_ns;
	ch->launch = l;
	ch->work = HW_WORK_LAUNCH;
	ch->group->time.launches++;
	ch->group->has_run = true;
	while (*at)
		at = &(*at)->next;
	*at = l;
	hw_place(gpu, ch->group->unit);
	gpu->has_news = true;
	return false; /* the next commands wait for it */
}

bool hw_launch_begin(struct hw_channel *ch)
{
	uint64_t address = (uint64_t)ch->methods.send_a << 8;
	const struct ptx_kernel *k;
	struct soft_launch d;
	struct hw_launch *l;
	struct hw_code *code;
	const char *wrong;

	if (!hw_space_read(ch->space, address, &d, sizeof(d)))
		return hw_channel_fail(ch, SOFT_ERROR_MMU, address, "a launch descriptor");
	if (d.magic != SOFT_LAUNCH_MAGIC)
		return refuse(ch, "launch: invalid descriptor");
	code = hw_space_find_code(ch->space, d.code);
	if (!code)
		return refuse(ch, "launch: no such code");
	k = ptx_kernel_at(code->module, d.kernel);
	wrong = check_kernel(&d, k);
	l = wrong ? NULL : make(ch, &d, code, k);
	if (!l) {
		hw_code_put(code);
		return refuse(ch, wrong ? wrong : "launch: not enough memory");
	}
	if (!hw_space_read(ch->space, address + sizeof(d), l->params, k->param_bytes)) {
		hw_launch_bury(l);
		return hw_channel_fail(ch, SOFT_ERROR_MMU, address, "a launch's parameters");
	}
	if (!hw_place_could(l->gpu, l)) {
		hw_launch_bury(l);
		return refuse(ch, "launch: the blocks do not fit on the channel's SMs");
	}
	return start(ch, l);
}

static void forget_waiting(struct hw_launch *l)
{
	struct hw_launch **at = &l->channel->group->unit->waiting;

	while (*at && *at != l)
		at = &(*at)->next;
	if (*at)
		*at = l->next;
}

/* Running blocks of the launch return soon and are dropped then; the last one frees it. */
void hw_launch_drop(struct hw_launch *l)
{
	struct hw_unit *unit = l->channel->group->unit;
	struct hw_gpu *gpu = l->gpu;

	forget_waiting(l);
	l->is_dropped = true;
	__atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < gpu->options.sms; i++) {
		struct hw_seat *seat = &unit->seats[i];

		for (uint32_t n = seat->count; n; n--) {
			struct hw_resident *r = seat->residents;

			seat->residents = r->next;
			if (r->launch == l && gpu->sms[i].running != r)
				hw_resident_remove(r);
		}
	}
	l->channel->launch = NULL;
	if (!l->resident_count)
		hw_launch_bury(l);
}

void hw_launch_bury(struct hw_launch *l)
{
	l->next = l->gpu->cores->dead;
	l->gpu->cores->dead = l;
}

void hw_launch_free(struct hw_launch *l)
{
	while (l->spare) {
		struct hw_resident *r = l->spare;

		l->spare = r->next;
		ptx_block_free(r->block);
		free(r);
	}
	hw_code_put(l->code);
	hw_space_put(l->space);
	free(l);
}
