/* Stream operations that wait for a value in memory, or write one. */
#include "soft/cuda/core.h"

enum { VALUES_MAX = 256 };

static bool is_64bit(const CUstreamBatchMemOpParams *params)
{
	return params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
	       params->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static CUresult check_one(const CUstreamBatchMemOpParams *params)
{
	uint64_t align = is_64bit(params) ? 8 : 4;

	switch (params->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		if ((params->waitValue.flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) >
		    CU_STREAM_WAIT_VALUE_NOR)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		if (params->writeValue.flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_BARRIER:
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* waitValue and writeValue have the same first fields. */
	if (!params->waitValue.address || params->waitValue.address % align ||
	    !range_find(params->waitValue.address))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static void put_wait(struct channel *channel, const CUstreamBatchMemOpParams *params)
{
	static const uint32_t operations[] = {
		[CU_STREAM_WAIT_VALUE_GEQ] = SOFT_SEM_ACQUIRE_CIRC_GEQ,
		[CU_STREAM_WAIT_VALUE_EQ] = SOFT_SEM_ACQUIRE,
		[CU_STREAM_WAIT_VALUE_AND] = SOFT_SEM_ACQUIRE_AND,
		[CU_STREAM_WAIT_VALUE_NOR] = SOFT_SEM_ACQUIRE_NOR,
	};
	bool is_long = is_64bit(params);

	channel_acquire(channel, params->waitValue.address,
			is_long ? params->waitValue.value64 : params->waitValue.value,
			operations[params->waitValue.flags & CU_STREAM_WAIT_VALUE_NOR], is_long);
}

static void put_write(struct channel *channel, const CUstreamBatchMemOpParams *params)
{
	bool is_long = is_64bit(params);

	channel_release(channel, params->writeValue.address,
			is_long ? params->writeValue.value64 : params->writeValue.value, is_long, false);
}

CUresult op_submit_values(struct stream *stream, const struct op_values *values)
{
	CUresult result = stream_begin(stream, values->count * CHANNEL_RELEASE_WORDS, 0);

	if (result)
		return result;
	for (uint32_t i = 0; i < values->count; i++) {
		const CUstreamBatchMemOpParams *params = &values->list[i];

		switch (params->operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			put_wait(stream->channel, params);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			put_write(stream->channel, params);
			break;
		default: /* barriers: all work is in order, and memory is coherent */
			break;
		}
	}
	stream_end(stream);
	return CUDA_SUCCESS;
}

static CUresult do_values(CUstream handle, unsigned count, CUstreamBatchMemOpParams *list)
{
	struct op op = { .kind = OP_VALUES, .values = { count, list } };
	struct stream *stream;
	CUresult result = stream_find(handle, &stream);

	for (unsigned i = 0; i < count && !result; i++)
		result = check_one(&list[i]);
	return result ? result : stream_do(stream, &op);
}

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
				      unsigned int flags)
{
	if (flags || !list || !count || count > VALUES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	LEAVE(do_values(stream, count, list));
}

static CUresult do_one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address, uint64_t value,
		       unsigned flags)
{
	CUstreamBatchMemOpParams params = { 0 };

	/* waitValue and writeValue have the same layout. */
	params.waitValue.operation = operation;
	params.waitValue.address = address;
	params.waitValue.value64 = value;
	params.waitValue.flags = flags;
	ENTER();
	LEAVE(do_values(stream, 1, &params));
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
				       unsigned int flags)
{
	return do_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

EXPORT CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
				       unsigned int flags)
{
	return do_one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
					unsigned int flags)
{
	return do_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
					unsigned int flags)
{
	return do_one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
