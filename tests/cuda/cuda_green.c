/* cuda: green contexts: parts of the SMs, and streams that run on theirs alone. The test's GPUs have 4 SMs, so a part is
 * 2 of them (8 on a GPU of 32 and more). */
#include "check.h"
#include "graphs.h"

enum { SMS = 4, UNIT = 2, BLOCKS = 64 };

static CUdeviceptr out;

static void begin(void)
{
	check_context();
	graphs_begin();
	CU(cuMemAlloc_v2(&out, BLOCKS * 4ul));
}

static void end(void)
{
	CU(cuMemFree_v2(out));
}

static void whole(CUdevResource *resource)
{
	CU(cuDeviceGetDevResource(0, resource, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_EQUAL(resource->sm.smCount, SMS);
}

/* Two halves of GPU 0. */
static void make_two(CUgreenCtx greens[2])
{
	CUdevResource all, halves[2];
	CUdevResourceDesc desc;
	unsigned count = 2;

	whole(&all);
	CU(cuDevSmResourceSplitByCount(halves, &count, &all, NULL, 0, UNIT));
	CHECK_EQUAL(count, 2);
	for (int i = 0; i < 2; i++) {
		CU(cuDevResourceGenerateDesc(&desc, &halves[i], 1));
		CU(cuGreenCtxCreate(&greens[i], desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	}
}

static CUresult stamp(CUstream stream)
{
	void *list[] = { &out };

	return cuLaunchKernel(graphs_stamp, BLOCKS, 1, 1, 32, 1, 1, 0, stream, list, NULL);
}

/* The SMs that blocks have run on. */
static uint32_t stamped(void)
{
	uint32_t sms[BLOCKS], mask = 0;

	CU(cuMemcpyDtoH_v2(sms, out, sizeof(sms)));
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(sms[i] < SMS);
		mask |= 1u << sms[i];
	}
	return mask;
}

static void resources_are_split_in_units(void)
{
	CUdevResource all, groups[4], rest, again;
	unsigned count = 0;

	begin();
	whole(&all);
	CHECK_EQUAL(all.sm.minSmPartitionSize, UNIT);
	CHECK_EQUAL(all.sm.smCoscheduledAlignment, UNIT);
	CU(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 0));
	CHECK_EQUAL(count, SMS / UNIT);
	CU(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 3));
	CHECK_EQUAL(count, 1);
	count = 1;
	CU(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 1));
	CHECK_EQUAL(count, 1);
	CHECK_EQUAL(groups[0].sm.smCount, UNIT);
	CHECK(rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount == SMS - UNIT);
	count = 4;
	CU(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, UNIT));
	CHECK_EQUAL(count, 2);
	CHECK_EQUAL(rest.type, CU_DEV_RESOURCE_TYPE_INVALID);
	/* What came out of a split is not split again; nor is more to be had than there is. */
	count = 1;
	CU_FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
		 cuDevSmResourceSplitByCount(&again, &count, &groups[0], NULL, 0, 1));
	CU_FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
		 cuDevSmResourceSplitByCount(&again, &count, &all, NULL, 0, SMS + 1));
	CU_FAILS(CUDA_ERROR_INVALID_RESOURCE_TYPE,
		 cuDeviceGetDevResource(0, &again, CU_DEV_RESOURCE_TYPE_INVALID));
	end();
}

static void descriptors_join_parts_that_do_not_overlap(void)
{
	CUdevResource all, halves[2], twice[2], found;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	unsigned count = 2;

	begin();
	whole(&all);
	CU(cuDevSmResourceSplitByCount(halves, &count, &all, NULL, 0, UNIT));
	twice[0] = twice[1] = halves[0];
	CU_FAILS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, twice, 2));
	CU(cuDevResourceGenerateDesc(&desc, halves, 2));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, 0, 0));
	CU(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CU(cuGreenCtxGetDevResource(green, &found, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_EQUAL(found.sm.smCount, SMS);
	CHECK_EQUAL(found.sm.minSmPartitionSize, UNIT);
	CU(cuGreenCtxDestroy(green));
	end();
}

static void streams_run_on_their_part_alone(void)
{
	CUgreenCtx greens[2], found;
	CUstream streams[2], own;
	uint32_t masks[2];

	begin();
	make_two(greens);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuGreenCtxStreamCreate(&streams[0], greens[0], CU_STREAM_DEFAULT, 0));
	for (int i = 0; i < 2; i++) {
		CU(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
		CU(cuStreamGetGreenCtx(streams[i], &found));
		CHECK(found == greens[i]);
		CU(stamp(streams[i]));
		CU(cuStreamSynchronize(streams[i]));
		masks[i] = stamped();
		CHECK_EQUAL(__builtin_popcount(masks[i]), UNIT);
	}
	CHECK_EQUAL(masks[0] & masks[1], 0);
	CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	CU(cuStreamGetGreenCtx(own, &found));
	CHECK(!found);
	CU(stamp(own));
	CU(cuStreamSynchronize(own));
	CHECK_EQUAL(stamped(), (1 << SMS) - 1);
	CU(cuStreamDestroy_v2(own));
	CU(cuGreenCtxDestroy(greens[0]));
	CU(cuGreenCtxDestroy(greens[1]));
	CHECK(cuStreamQuery(streams[0]) != CUDA_SUCCESS); /* it went with its context */
	end();
}

static void a_green_context_can_be_the_current_one(void)
{
	CUcontext primary, context, owner;
	unsigned long long id, same;
	CUdevResource resource;
	CUdeviceptr memory;
	CUgreenCtx greens[2], found;
	CUstream stream;

	begin();
	CU(cuCtxGetCurrent(&primary));
	make_two(greens);
	CU(cuCtxFromGreenCtx(&context, greens[0]));
	CU(cuCtxSetCurrent(context));
	CU(cuGreenCtxGetId(greens[0], &id));
	CU(cuCtxGetId(context, &same));
	CHECK(id == same);
	CU(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_EQUAL(resource.sm.smCount, UNIT);
	CU(cuCtxGetDevResource(primary, &resource, CU_DEV_RESOURCE_TYPE_SM));
	CHECK_EQUAL(resource.sm.smCount, SMS);
	CU(stamp(NULL));
	CU(cuCtxSynchronize());
	CHECK_EQUAL(__builtin_popcount(stamped()), UNIT);
	CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	CU(cuStreamGetGreenCtx(stream, &found));
	CHECK(found == greens[0]);
	/* Memory is the primary context's, and outlives the green one. */
	CU(cuMemAlloc_v2(&memory, 64));
	CU(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
	CHECK(owner == primary);
	CU(cuCtxSetCurrent(primary));
	CU(cuGreenCtxDestroy(greens[0]));
	CU(cuMemsetD8_v2(memory, 1, 64));
	CU(cuMemFree_v2(memory));
	CU(cuGreenCtxDestroy(greens[1]));
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(greens[1]));
	end();
}

/* Each waits for the other; taking turns they would never meet. */
static void green_contexts_run_side_by_side(void)
{
	CUdeviceptr flag;
	CUgreenCtx greens[2];
	CUstream streams[2];
	uint32_t got[2] = { 0 };

	begin();
	make_two(greens);
	CU(cuMemAlloc_v2(&flag, 16));
	CU(cuMemsetD32_v2(flag, 0, 4));
	CU(cuCtxSynchronize());
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t want = 1u << i, say = 2u >> i;
		CUdeviceptr met = flag + 4 + 4ull * i;
		void *list[] = { &flag, &want, &say, &met };

		CU(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
		CU(cuLaunchKernel(graphs_meet, 1, 1, 1, 1, 1, 1, 0, streams[i], list, NULL));
	}
	for (uint32_t i = 0; i < 2; i++)
		CU(cuStreamSynchronize(streams[i])); /* cuCtxSynchronize does not wait for them */
	CU(cuMemcpyDtoH_v2(got, flag + 4, sizeof(got)));
	CHECK(got[0] && got[1]);
	CU(cuGreenCtxDestroy(greens[0]));
	CU(cuGreenCtxDestroy(greens[1]));
	CU(cuMemFree_v2(flag));
	end();
}

static void events_order_green_contexts(void)
{
	CUgreenCtx greens[2];
	CUstream streams[2];
	CUdeviceptr slots;
	CUevent event;
	uint32_t got = 0;

	begin();
	make_two(greens);
	CU(cuMemAlloc_v2(&slots, 16));
	CU(cuMemsetD32_v2(slots, 0, 4));
	CU(cuCtxSynchronize());
	CU(cuEventCreate(&event, 0));
	for (int i = 0; i < 2; i++)
		CU(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
	for (uint32_t i = 0; i < 50; i++) {
		uint32_t zero = 0, k = 255;
		void *list[] = { &slots, &zero, &zero, &zero, &k };

		CU(cuLaunchKernel(graphs_mix, 1, 1, 1, 1, 1, 1, 0, streams[i % 2], list, NULL));
		CU(cuGreenCtxRecordEvent(greens[i % 2], event));
		CU(cuGreenCtxWaitEvent(greens[(i + 1) % 2], event));
	}
	CU(cuEventSynchronize(event));
	CU(cuMemcpyDtoH_v2(&got, slots, 4));
	for (uint32_t i = 0, expected = 0; i <= 50; i++, expected = expected * 38 + 255)
		if (i == 50)
			CHECK_EQUAL(got, expected);
	CU(cuEventDestroy_v2(event));
	CU(cuGreenCtxDestroy(greens[0]));
	CU(cuGreenCtxDestroy(greens[1]));
	CU(cuMemFree_v2(slots));
	end();
}

static void graphs_run_where_they_were_captured(void)
{
	CUgreenCtx greens[2];
	CUstream stream, own;
	CUgraphExec exec;
	CUgraph graph;

	begin();
	make_two(greens);
	CU(cuGreenCtxStreamCreate(&stream, greens[1], CU_STREAM_NON_BLOCKING, 0));
	CU(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(stamp(stream));
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CU(cuGraphLaunch(exec, own));
	CU(cuStreamSynchronize(own));
	CHECK_EQUAL(__builtin_popcount(stamped()), UNIT);
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamSynchronize(stream));
	CHECK_EQUAL(__builtin_popcount(stamped()), UNIT);
	CU(cuGreenCtxDestroy(greens[1]));
	CU_FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGraphLaunch(exec, own));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuGreenCtxDestroy(greens[0]));
	CU(cuStreamDestroy_v2(own));
	end();
}

TESTS(TEST(resources_are_split_in_units), TEST(descriptors_join_parts_that_do_not_overlap),
      TEST(streams_run_on_their_part_alone), TEST(a_green_context_can_be_the_current_one),
      TEST(green_contexts_run_side_by_side), TEST(events_order_green_contexts),
      TEST(graphs_run_where_they_were_captured))
