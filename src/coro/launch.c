/* Launches: on the SMs of the lease, or on all SMs where they do not fit. */
#include "coro/coro.h"
#include "coro/probe_time.h"
#include "coro/trace.h"

enum { DEVICES_MOST = 64 };

/* A cooperative launch or a cluster may need more SMs at once than the partition has. The program was told what the whole
 * device allows. */
bool launch_does_not_fit(const struct taken *taken, CUresult result)
{
	return taken->at >= 0 &&
	       (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE ||
		result == CUDA_ERROR_INVALID_CLUSTER_SIZE || result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

static CUresult launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		       unsigned int block_x, unsigned int block_y, unsigned int block_z,
		       unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
	struct taken taken = stream_take(stream, false, TAKE_PLACE);
	CUresult result;

	result = real.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
				     shared_bytes, taken.stream, parameters, extra);
	if (launch_does_not_fit(&taken, result)) {
		stream_fall_back(&taken);
		result = real.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
					     shared_bytes, taken.stream, parameters, extra);
	}
	stream_leave(&taken);
	return result;
}

/* With the time of the submission, for a probe that needs it. */
static CUresult launch_timed(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			     unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			     unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			     void **parameters, void **extra)
{
	struct timed_launch timed = { .function = function, .parameters = parameters, .extra = extra };
	CUresult result;

	times_before(&timed, stream);
	result = launch(timed.function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
			stream, timed.parameters, timed.extra);
	times_after(&timed);
	return result;
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
	struct taken taken;
	CUlaunchConfig placed;
	CUresult result;

	if (!config)
		return real.cuLaunchKernelEx(config, function, parameters, extra);
	taken = stream_take(config->hStream, false, TAKE_PLACE);
	placed = *config;
	placed.hStream = taken.stream;
	result = real.cuLaunchKernelEx(&placed, function, parameters, extra);
	if (launch_does_not_fit(&taken, result)) {
		stream_fall_back(&taken);
		placed.hStream = taken.stream;
		result = real.cuLaunchKernelEx(&placed, function, parameters, extra);
	}
	if (!result)
		launch_note_events(config, &taken);
	stream_leave(&taken);
	return result;
}

static CUresult launch_ex_timed(const CUlaunchConfig *config, CUfunction function, void **parameters,
				void **extra)
{
	struct timed_launch timed = { .function = function, .parameters = parameters, .extra = extra };
	CUresult result;

	if (config)
		times_before(&timed, config->hStream);
	result = launch_ex(config, timed.function, timed.parameters, timed.extra);
	times_after(&timed);
	return result;
}

static CUresult launch_cooperative(CUfunction function, unsigned int grid_x, unsigned int grid_y,
				   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
				   void **parameters)
{
	struct taken taken = stream_take(stream, false, TAKE_PLACE);
	CUresult result;

	result = real.cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
						shared_bytes, taken.stream, parameters);
	if (launch_does_not_fit(&taken, result)) {
		stream_fall_back(&taken);
		result = real.cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
							block_z, shared_bytes, taken.stream, parameters);
	}
	stream_leave(&taken);
	return result;
}

static CUresult launch_cooperative_timed(CUfunction function, unsigned int grid_x, unsigned int grid_y,
					 unsigned int grid_z, unsigned int block_x, unsigned int block_y,
					 unsigned int block_z, unsigned int shared_bytes, CUstream stream,
					 void **parameters)
{
	struct timed_launch timed = { .function = function, .parameters = parameters };

	times_before(&timed, stream);
	return launch_cooperative(timed.function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
				  shared_bytes, stream, timed.parameters);
}

/* One launch on each of several devices, on the bases of their streams: the partitions of devices are not the same. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
						     unsigned int flags)
{
	CUDA_LAUNCH_PARAMS placed[DEVICES_MOST];
	struct taken taken[DEVICES_MOST];
	CUresult result;

	if (!launches || count > DEVICES_MOST || !lease_is_there())
		return real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
	for (unsigned i = 0; i < count; i++) {
		taken[i] = stream_take(launches[i].hStream, false, TAKE_BASE);
		placed[i] = launches[i];
		placed[i].hStream = taken[i].stream;
	}
	result = real.cuLaunchCooperativeKernelMultiDevice(placed, count, flags);
	for (unsigned i = 0; i < count; i++)
		stream_leave(&taken[i]);
	return result;
}

/* After a launch that succeeded. */
static void traced(const struct trace_launch *launch, CUstream stream)
{
	trace_launched(launch,
		       (struct trace_place){ .stream = stream, .is_own_default = default_is_per_thread });
}

static CUresult launch_traced(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			      unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			      unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			      void **parameters, void **extra)
{
	CUresult result = (times_are_there() ? launch_timed : launch)(function, grid_x, grid_y, grid_z,
								      block_x, block_y, block_z, shared_bytes,
								      stream, parameters, extra);

	if (!result)
		traced(&(struct trace_launch){ .function = function,
					       .grid = { grid_x, grid_y, grid_z },
					       .block = { block_x, block_y, block_z },
					       .shared_bytes = shared_bytes,
					       .parameters = parameters,
					       .extra = extra },
		       stream);
	return result;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			       unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			       unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			       void **parameters, void **extra)
{
	CUresult result;

	if (!trace_is_on)
		return (times_are_there() ? launch_timed : launch)(function, grid_x, grid_y, grid_z, block_x,
								   block_y, block_z, shared_bytes, stream,
								   parameters, extra);
	if (control_splits(grid_x)) {
		result = launch_traced(function, grid_x / 2, grid_y, grid_z, block_x, block_y, block_z,
				       shared_bytes, stream, parameters, extra);
		if (result)
			return result;
		grid_x -= grid_x / 2;
	}
	return launch_traced(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
			     stream, parameters, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
				 void **extra)
{
	CUresult result =
		(times_are_there() ? launch_ex_timed : launch_ex)(config, function, parameters, extra);

	if (trace_is_on && !result)
		traced(
			&(struct trace_launch){
				.function = function,
				.grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
				.block = { config->blockDimX, config->blockDimY, config->blockDimZ },
				.shared_bytes = config->sharedMemBytes,
				.attribute_count = config->numAttrs,
				.attributes = config->attrs,
				.parameters = parameters,
				.extra = extra },
			config->hStream);
	return result;
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
					  unsigned int grid_z, unsigned int block_x, unsigned int block_y,
					  unsigned int block_z, unsigned int shared_bytes, CUstream stream,
					  void **parameters)
{
	CUresult result = (times_are_there() ? launch_cooperative_timed : launch_cooperative)(
		function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
		parameters);

	if (trace_is_on && !result)
		traced(&(struct trace_launch){ .function = function,
					       .grid = { grid_x, grid_y, grid_z },
					       .block = { block_x, block_y, block_z },
					       .shared_bytes = shared_bytes,
					       .is_cooperative = true,
					       .parameters = parameters },
		       stream);
	return result;
}
