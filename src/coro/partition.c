/* Partitions: green contexts of a set of units. Units are what the driver divides the SMs into. */
#include "coro/coro.h"

/* The driver rounds 1 up to the smallest number of SMs that a part can have. */
static void learn_units(struct context *context)
{
	CUdevResource all, rest;
	unsigned count = UNITS_MOST - 1; /* and the rest */

	if (context->unit_count || context->has_no_units)
		return;
	context->has_no_units = true;
	if (real.cuDeviceGetDevResource(context->device, &all, CU_DEV_RESOURCE_TYPE_SM) ||
	    real.cuDevSmResourceSplitByCount(context->units, &count, &all, &rest, 0, 1) || !count)
		return;
	context->unit_count = count;
	if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount)
		context->units[context->unit_count++] = rest;
	context->has_no_units = false;
	if (lease_page()) {
		struct coro_lease *page = lease_page();

		atomic_store(&page->unit_sms, context->units[0].sm.smCount);
		atomic_store(&page->last_unit_sms, context->units[context->unit_count - 1].sm.smCount);
		atomic_store(&page->unit_count, context->unit_count);
	}
}

/* No unit at all is not a lease. */
uint64_t partition_units(const struct context *context, uint64_t units)
{
	uint64_t every = ((uint64_t)1 << context->unit_count) - 1;

	return !(units & every) || (units & every) == every ? CORO_UNITS_ALL : units & every;
}

static bool make(CUdevice device, CUdevResource *parts, unsigned count, struct partition *to)
{
	CUdevResourceDesc description;

	if (real.cuDevResourceGenerateDesc(&description, parts, count) ||
	    real.cuGreenCtxCreate(&to->green, description, device, CU_GREEN_CTX_DEFAULT_STREAM))
		return false;
	if (real.cuCtxFromGreenCtx(&to->context, to->green) ||
	    real.cuGreenCtxStreamCreate(&to->builder, to->green, CU_STREAM_NON_BLOCKING, 0)) {
		real.cuGreenCtxDestroy(to->green);
		return false;
	}
	return true;
}

/* The largest partition within these units: -1 if there is none. */
static int find_within(const struct context *context, uint64_t units)
{
	int best = -1, most = 0;

	for (unsigned i = 0; i < context->partition_count; i++) {
		uint64_t has = context->partitions[i].units;

		if (!(has & ~units) && __builtin_popcountll(has) > most) {
			best = (int)i;
			most = __builtin_popcountll(has);
		}
	}
	return best;
}

bool partition_is_missing(struct context *context, uint64_t units)
{
	int found;

	learn_units(context);
	units = partition_units(context, units);
	if (!context->handle || units == CORO_UNITS_ALL || context->partition_count == PARTITIONS_MOST)
		return false;
	found = find_within(context, units);
	return found < 0 || context->partitions[found].units != units;
}

/* The parts of a partition that is missing. 0: none is. */
static unsigned gather(struct context *context, uint64_t units, CUdevResource *parts)
{
	unsigned count = 0;

	pthread_mutex_lock(&context->lock);
	if (partition_is_missing(context, units))
		for (unsigned i = 0; i < context->unit_count; i++)
			if (units >> i & 1)
				parts[count++] = context->units[i];
	pthread_mutex_unlock(&context->lock);
	return count;
}

void partition_make(struct context *context, uint64_t units)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdevResource parts[UNITS_MOST];
	struct partition made = { 0 };
	unsigned count;
	bool is_made;

	pthread_mutex_lock(&context->making);
	count = gather(context, units, parts);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	is_made = count && make(context->device, parts, count, &made);
	real.cuThreadExchangeStreamCaptureMode(&mode);
	if (is_made) {
		pthread_mutex_lock(&context->lock);
		made.units = partition_units(context, units);
		context->partitions[context->partition_count++] = made;
		pthread_mutex_unlock(&context->lock);
	}
	pthread_mutex_unlock(&context->making);
}

int partition_find(struct context *context, uint64_t units)
{
	int found;

	learn_units(context);
	if (!context->unit_count)
		lease_fix(); /* the driver divides no SMs */
	units = partition_units(context, units);
	if (units == CORO_UNITS_ALL)
		return -1;
	found = find_within(context, units);
	if (found < 0)
		lease_fix();
	return found;
}

void partitions_forget(struct context *context)
{
	for (unsigned i = 0; i < context->partition_count; i++) {
		real.cuStreamDestroy_v2(context->partitions[i].builder);
		real.cuGreenCtxDestroy(context->partitions[i].green);
	}
	context->partition_count = 0;
	context->unit_count = 0;
	context->has_no_units = false;
}
