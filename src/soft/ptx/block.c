/* Blocks: created for a launch, started for an index, run warp by warp until done, stopped or faulted. */
#include "soft/ptx/block.h"

#include <errno.h>
#include <stdlib.h>

#include "soft/ptx/lane.h"

/* The number of ops that a warp runs before the next warp runs, and before the stop flag and the budget are
 * checked. It is smaller if the budget would not reach all warps. */
#define SLICE_OPS 2048u
#define SLICE_MIN_OPS 32u

#ifdef PTX_HAS_V3
uint32_t ptx_fragment_run_v3(struct ptx_warp *warp, uint32_t limit);
#endif

const char *ptx_fault_name(enum ptx_fault_kind kind)
{
	static const char *const names[] = {
		"none",
		"bad address",
		"misaligned address",
		"outside of shared memory",
		"outside of local memory",
		"trap",
		"breakpoint",
		"assertion",
		"barrier deadlock",
		"branch index",
		"stack overflow",
		"call of no function",
	};

	return names[kind];
}

void ptx_fault_set(struct ptx_warp *w, const struct ptx_op *op, enum ptx_fault_kind kind, unsigned lane,
		   uint64_t address, uint32_t bytes, bool is_write)
{
	struct ptx_block *b = w->block;

	w->stop = 0;
	if (b->fault.kind != PTX_FAULT_NONE)
		return;
	b->fault = (struct ptx_fault){ .kind = kind,
				       .address = address,
				       .bytes = bytes,
				       .is_write = is_write,
				       .line = op ? op->line : 0 };
	for (unsigned k = 0; k < 3; k++) {
		b->fault.thread[k] = w->tid[k][lane];
		b->fault.block[k] = b->index[k];
	}
	b->state = PTX_STATE_FAULT;
}

/* The address is not in the span used last: search the others, then call translate. */
uint8_t *ptx_span_miss(struct ptx_block *block, uint64_t address, uint32_t bytes, bool is_write)
{
	struct ptx_span found = { 0 };
	unsigned at;

	for (at = 1; at < PTX_SPANS; at++) {
		const struct ptx_span *s = &block->spans[at];

		if (address - s->base < s->bytes && s->bytes - (address - s->base) >= bytes &&
		    (!is_write || s->is_writable))
			break;
	}
	if (at < PTX_SPANS) {
		found = block->spans[at];
	} else {
		at = PTX_SPANS - 1;
		if (!block->host->translate(block->host->ctx, address, bytes, is_write, &found) ||
		    address - found.base >= found.bytes || found.bytes - (address - found.base) < bytes ||
		    !found.host || (is_write && !found.is_writable))
			return NULL;
	}
	memmove(&block->spans[1], &block->spans[0], at * sizeof(found));
	block->spans[0] = found;
	return found.host + (address - found.base);
}

static int check_launch(const struct ptx_launch *launch, struct bf_error *err)
{
	const struct ptx_kernel *k = launch->kernel;
	uint64_t threads = 1;

	for (unsigned i = 0; i < 3; i++) {
		if (!launch->threads[i] || !launch->grid[i] || launch->threads[i] > PTX_THREADS_MAX)
			return bf_fail(err, EINVAL,
				       "launching %s: a grid or block of this size is not possible", k->name);
		threads *= launch->threads[i];
		if (k->required[0] && k->required[i] != launch->threads[i])
			return bf_fail(err, EINVAL, "launching %s: it requires blocks of %u, %u, %u threads",
				       k->name, k->required[0], k->required[1], k->required[2]);
	}
	if (!k->is_entry)
		return bf_fail(err, EINVAL, "launching %s: it is not a kernel", k->name);
	if (threads > k->max_threads)
		return bf_fail(err, EINVAL, "launching %s: %llu threads a block, at most %u", k->name,
			       (unsigned long long)threads, k->max_threads);
	if (launch->dynamic_shared_bytes > PTX_SHARED_MAX_BYTES ||
	    k->shared_bytes + launch->dynamic_shared_bytes > PTX_SHARED_MAX_BYTES)
		return bf_fail(err, EINVAL, "launching %s: more than %u bytes of shared memory", k->name,
			       PTX_SHARED_MAX_BYTES);
	if (k->param_bytes && !launch->params)
		return bf_fail(err, EINVAL, "launching %s: no parameters", k->name);
	return 0;
}

static uint32_t stack_bytes(const struct ptx_launch *launch)
{
	uint32_t wanted = launch->stack_bytes;

	if (!launch->kernel->uses_stack)
		return 0;
	if (wanted < PTX_STACK_BYTES)
		return PTX_STACK_BYTES;
	return wanted > PTX_LOCAL_MAX_BYTES ? PTX_LOCAL_MAX_BYTES : (wanted + 15) & ~15u;
}

uint64_t ptx_launch_stack_bytes(const struct ptx_launch *launch)
{
	return (uint64_t)stack_bytes(launch) * (1 + PTX_CONTROL_FACTOR);
}

/* The stacks of the lanes are a few lines apart; otherwise they would share a few sets of the host's
 * caches. */
#define STACK_APART_BYTES 64u

/* Memory for all threads. No memset: the host then allocates only the touched pages of a stack. */
static void *alloc_threads(const struct ptx_block *b, uint32_t bytes)
{
	return calloc((size_t)b->warp_count * PTX_LANES + 1, bytes ? bytes : 1);
}

static void *alloc_rows(size_t bytes)
{
	size_t rounded = (bytes + 127) & ~(size_t)63;
	void *got = aligned_alloc(64, rounded);

	if (got)
		memset(got, 0, rounded);
	return got;
}

static void set_threads(struct ptx_warp *w, const uint32_t threads[3], uint32_t thread_count)
{
	uint32_t first = w->index * PTX_LANES, count = thread_count - first;

	w->exists = count >= PTX_LANES ? ~0u : (1u << count) - 1;
	for (unsigned i = 0; i < PTX_LANES; i++) {
		uint32_t n = first + i;

		w->tid[0][i] = n % threads[0];
		w->tid[1][i] = n / threads[0] % threads[1];
		w->tid[2][i] = n / threads[0] / threads[1];
	}
}

static size_t extra_bytes(const struct ptx_block *b)
{
	return (size_t)b->warp_count * PTX_EXTRA_ROWS * PTX_LANES * sizeof(*b->extra);
}

static int block_allocate(struct ptx_block *b)
{
	const struct ptx_function *f = b->function;
	const struct ptx_launch *l = &b->launch;

	b->thread_count = l->threads[0] * l->threads[1] * l->threads[2];
	b->warp_count = (b->thread_count + PTX_LANES - 1) / PTX_LANES;
	b->dynamic_base = (f->shared_total + 127) & ~127u;
	b->shared_bytes = l->dynamic_shared_bytes ? b->dynamic_base + l->dynamic_shared_bytes
						  : f->shared_total;
	b->shared_used = b->shared_bytes;
	if (b->module->uses_reserved) {
		b->reserved_base = (b->shared_bytes + 127) & ~127u;
		b->shared_bytes = b->reserved_base + PTX_RESERVED_BYTES;
	}
	b->local_bytes = f->local_total;
	if (stack_bytes(l)) {
		b->local_bytes += stack_bytes(l) + STACK_APART_BYTES;
		b->control_bytes = stack_bytes(l) * PTX_CONTROL_FACTOR + STACK_APART_BYTES;
		b->control = alloc_threads(b, b->control_bytes);
		if (!b->control)
			return -ENOMEM;
	}
	b->params = alloc_rows(f->kernel.param_bytes);
	b->shared = alloc_rows(b->shared_bytes);
	b->local = alloc_threads(b, b->local_bytes);
	b->files = alloc_rows((size_t)f->regs_total * b->warp_count);
	b->warps = calloc(b->warp_count, sizeof(*b->warps));
	if (b->module->uses_extra)
		b->extra = alloc_rows(extra_bytes(b));
	if (!b->params || !b->shared || !b->local || !b->files || !b->warps ||
	    (b->module->uses_extra && !b->extra))
		return -ENOMEM;
	if (f->kernel.param_bytes)
		memcpy(b->params, l->params, f->kernel.param_bytes);
	for (uint32_t i = 0; i < b->warp_count; i++) {
		struct ptx_warp *w = &b->warps[i];

		w->block = b;
		w->index = i;
		w->base[0] = b->files + (size_t)i * f->regs_total;
		w->base[1] = b->module->constants;
		w->extra = b->extra ? b->extra + (size_t)i * PTX_EXTRA_ROWS * PTX_LANES : NULL;
		set_threads(w, l->threads, b->thread_count);
	}
	return 0;
}

int ptx_block_create(const struct ptx_launch *launch, const struct ptx_host *host, struct ptx_block **block,
		     struct bf_error *err)
{
	struct ptx_block *b;
	int rc = check_launch(launch, err);

	*block = NULL;
	if (rc)
		return rc;
	b = calloc(1, sizeof(*b));
	if (!b)
		return bf_fail(err, ENOMEM, "launching %s: not enough memory", launch->kernel->name);
	b->module = launch->module;
	b->function = (const struct ptx_function *)(const void *)launch->kernel;
	b->host = host;
	b->launch = *launch;
	rc = block_allocate(b);
	b->launch.params = NULL; /* the caller's; copied */
	b->state = PTX_STATE_DONE;
	if (rc) {
		ptx_block_free(b);
		return bf_fail(err, ENOMEM, "launching %s: not enough memory", launch->kernel->name);
	}
	*block = b;
	return 0;
}

void ptx_block_free(struct ptx_block *b)
{
	if (!b)
		return;
	free(b->params);
	free(b->shared);
	free(b->local);
	free(b->control);
	free(b->files);
	free(b->extra);
	free(b->warps);
	free(b);
}

/* The stack is cleared only as far as calls have used it: writes past that can be visible in the next
 * block. */
static void clear_local(struct ptx_block *b)
{
	uint32_t used = b->control ? b->stack_used : b->local_bytes;

	if (used < b->function->local_total)
		used = b->function->local_total;
	for (uint32_t i = 0; i < b->warp_count * PTX_LANES && used; i++)
		memset(b->local + (size_t)i * b->local_bytes, 0, used);
	b->stack_used = 0;
}

void ptx_block_start(struct ptx_block *b, const uint32_t index[3], uint32_t sm)
{
	memcpy(b->index, index, sizeof(b->index));
	b->sm = sm;
	b->cost = 0;
	b->next_warp = 0;
	b->idle_warps = 0;
	b->live_threads = b->thread_count;
	b->state = PTX_STATE_RUNNING;
	memset(b->barriers, 0, sizeof(b->barriers));
	memset(&b->fault, 0, sizeof(b->fault));
	/* no data of another block or program must be visible */
	memset(b->shared, 0, b->shared_bytes);
	clear_local(b);
	memset(b->files, 0, (size_t)b->function->regs_total * b->warp_count);
	if (b->extra)
		memset(b->extra, 0, extra_bytes(b));
	for (uint32_t i = 0; i < b->warp_count; i++)
		ptx_warp_start(&b->warps[i]);
}

static uint32_t fragment_run(struct ptx_warp *w, uint32_t limit)
{
#ifdef PTX_HAS_V3
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return ptx_fragment_run_v3(w, limit);
#endif
	return ptx_fragment_run_any(w, limit);
}

/* Run a warp for one turn. Returns false if it could not run. */
static bool warp_turn(struct ptx_warp *w, uint32_t left)
{
	bool has_run = false;

	while (left && w->live && w->block->state == PTX_STATE_RUNNING) {
		uint32_t done;

		if (!ptx_warp_pick(w))
			break;
		has_run = true;
		done = fragment_run(w, left);
		left -= done < left ? done : left;
		if (w->is_spinning)
			break;
	}
	w->block->cost += w->cost;
	w->cost = 0;
	return has_run;
}

/* Run the next warp. If no warp could run in a full round, none ever will. */
static void block_step(struct ptx_block *b, uint32_t ops)
{
	struct ptx_warp *w = &b->warps[b->next_warp];

	b->next_warp = b->next_warp + 1 < b->warp_count ? b->next_warp + 1 : 0;
	if (w->live && warp_turn(w, ops))
		b->idle_warps = 0;
	else
		b->idle_warps++;
	if (b->state != PTX_STATE_RUNNING)
		return;
	if (!b->live_threads)
		b->state = PTX_STATE_DONE;
	else if (b->idle_warps > b->warp_count)
		ptx_fault_set(&b->warps[0], NULL, PTX_FAULT_BARRIER, 0, 0, 0, false);
}

static uint32_t slice_ops(const struct ptx_block *b, uint64_t max_cost)
{
	uint64_t ops = max_cost / PTX_LANES / b->warp_count;

	if (!max_cost || ops > SLICE_OPS)
		return SLICE_OPS;
	return ops < SLICE_MIN_OPS ? SLICE_MIN_OPS : (uint32_t)ops;
}

enum ptx_state ptx_block_run(struct ptx_block *b, uint64_t max_cost, const uint32_t *stop, uint64_t *cost)
{
	uint64_t before = b->run_cost = b->cost;
	uint32_t ops = slice_ops(b, max_cost);

	b->moved_bytes = 0;
	memset(b->spans, 0, sizeof(b->spans));
	while (b->state == PTX_STATE_RUNNING) {
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
			break;
		if (max_cost && b->cost - before >= max_cost)
			break;
		block_step(b, ops);
	}
	if (cost)
		*cost += b->cost - before;
	return b->state;
}

uint64_t ptx_block_moved_bytes(const struct ptx_block *b)
{
	return b->moved_bytes;
}

const struct ptx_fault *ptx_block_fault(const struct ptx_block *b)
{
	return &b->fault;
}
