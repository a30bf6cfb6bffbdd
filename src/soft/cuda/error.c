/* Names and descriptions of error codes. */
#include "soft/cuda/core.h"

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define ROW(code, text) \
	{ \
		code, #code, text \
	}
	ROW(CUDA_SUCCESS, "no error"),
	ROW(CUDA_ERROR_INVALID_VALUE, "an argument is not valid"),
	ROW(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	ROW(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called, or this is a forked child"),
	ROW(CUDA_ERROR_DEINITIALIZED, "the driver is shutting down"),
	ROW(CUDA_ERROR_PROFILER_DISABLED, "the profiler is disabled"),
	ROW(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "the profiler was not initialized"),
	ROW(CUDA_ERROR_PROFILER_ALREADY_STARTED, "the profiler was started already"),
	ROW(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "the profiler was stopped already"),
	ROW(CUDA_ERROR_STUB_LIBRARY, "this libcuda is only a stub to link with"),
	ROW(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "this call needs a newer driver"),
	ROW(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or not available"),
	ROW(CUDA_ERROR_NO_DEVICE, "no CUDA device was found"),
	ROW(CUDA_ERROR_INVALID_DEVICE, "there is no device of this number"),
	ROW(CUDA_ERROR_DEVICE_NOT_LICENSED, "the device has no valid license"),
	ROW(CUDA_ERROR_INVALID_IMAGE, "the image is not one of device code"),
	ROW(CUDA_ERROR_INVALID_CONTEXT, "there is no valid context"),
	ROW(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "the context is current already"),
	ROW(CUDA_ERROR_MAP_FAILED, "mapping the object failed"),
	ROW(CUDA_ERROR_UNMAP_FAILED, "unmapping the object failed"),
	ROW(CUDA_ERROR_ARRAY_IS_MAPPED, "the array is mapped"),
	ROW(CUDA_ERROR_ALREADY_MAPPED, "the resource is mapped already"),
	ROW(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image holds no code that this GPU can run"),
	ROW(CUDA_ERROR_ALREADY_ACQUIRED, "the resource was acquired already"),
	ROW(CUDA_ERROR_NOT_MAPPED, "the resource is not mapped"),
	ROW(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "the resource is not mapped as an array"),
	ROW(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "the resource is not mapped as a pointer"),
	ROW(CUDA_ERROR_ECC_UNCORRECTABLE, "an uncorrectable memory error was found"),
	ROW(CUDA_ERROR_UNSUPPORTED_LIMIT, "the device has no such limit"),
	ROW(CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "another thread is using the context"),
	ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "these devices cannot reach each other's memory"),
	ROW(CUDA_ERROR_INVALID_PTX, "the PTX text cannot be loaded"),
	ROW(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "the graphics context is not valid"),
	ROW(CUDA_ERROR_NVLINK_UNCORRECTABLE, "an uncorrectable NVLink error was found"),
	ROW(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "the PTX compiler was not found"),
	ROW(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX text is of a version that is not known here"),
	ROW(CUDA_ERROR_JIT_COMPILATION_DISABLED, "compiling PTX is disabled"),
	ROW(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the device cannot do such execution affinity"),
	ROW(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, "device code cannot synchronize with its children"),
	ROW(CUDA_ERROR_CONTAINED, "an error was contained; memory of other programs is intact"),
	ROW(CUDA_ERROR_INVALID_SOURCE, "the kernel's source is not valid"),
	ROW(CUDA_ERROR_FILE_NOT_FOUND, "the file was not found"),
	ROW(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "a symbol of a shared object was not found"),
	ROW(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "a shared object failed to start"),
	ROW(CUDA_ERROR_OPERATING_SYSTEM, "a call of the operating system failed"),
	ROW(CUDA_ERROR_INVALID_HANDLE, "a handle is not valid"),
	ROW(CUDA_ERROR_ILLEGAL_STATE, "what was asked for does not fit the object's state"),
	ROW(CUDA_ERROR_LOSSY_QUERY, "the answer would leave out something that matters"),
	ROW(CUDA_ERROR_NOT_FOUND, "nothing of this name was found"),
	ROW(CUDA_ERROR_NOT_READY, "the work is not done yet"),
	ROW(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel or copy used memory that is not there"),
	ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "the launch asks for more than an SM has"),
	ROW(CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel ran for too long and was ended"),
	ROW(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "the launch's texturing mode does not fit"),
	ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "access to the peer is enabled already"),
	ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "access to the peer is not enabled"),
	ROW(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the device's primary context is active"),
	ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context was destroyed"),
	ROW(CUDA_ERROR_ASSERT, "an assertion in a kernel failed"),
	ROW(CUDA_ERROR_TOO_MANY_PEERS, "no room for another peer"),
	ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the host memory is registered already"),
	ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the host memory is not registered"),
	ROW(CUDA_ERROR_HARDWARE_STACK_ERROR, "a kernel's stack is broken"),
	ROW(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel came to an instruction that is none"),
	ROW(CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel used an address that is not aligned"),
	ROW(CUDA_ERROR_INVALID_ADDRESS_SPACE, "a kernel used an address of another state space"),
	ROW(CUDA_ERROR_INVALID_PC, "a kernel went to where no code is"),
	ROW(CUDA_ERROR_LAUNCH_FAILED, "a kernel failed"),
	ROW(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks for a cooperative launch"),
	ROW(CUDA_ERROR_TENSOR_MEMORY_LEAK, "a block ended without freeing its tensor memory"),
	ROW(CUDA_ERROR_NOT_PERMITTED, "this is not permitted"),
	ROW(CUDA_ERROR_NOT_SUPPORTED, "this is not supported"),
	ROW(CUDA_ERROR_SYSTEM_NOT_READY, "the system is not ready yet"),
	ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "library and kernel driver are of different versions"),
	ROW(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility is not for this device"),
	ROW(CUDA_ERROR_MPS_CONNECTION_FAILED, "no connection to the MPS control daemon"),
	ROW(CUDA_ERROR_MPS_RPC_FAILURE, "the MPS server did not answer as it should"),
	ROW(CUDA_ERROR_MPS_SERVER_NOT_READY, "the MPS server is not ready"),
	ROW(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "the MPS server has all the clients it can have"),
	ROW(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, "the MPS server has all the connections it can have"),
	ROW(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS server ended this client"),
	ROW(CUDA_ERROR_CDP_NOT_SUPPORTED, "kernels cannot launch kernels here"),
	ROW(CUDA_ERROR_CDP_VERSION_MISMATCH, "two versions of launching from kernels do not mix"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not possible while a stream is captured"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error made the capture invalid"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE, "this would merge two captures"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was not begun on this stream"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a forked stream was not joined before the capture ended"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a dependency crosses the capture's border"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream would depend on the capture"),
	ROW(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a capture"),
	ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread"),
	ROW(CUDA_ERROR_TIMEOUT, "the time given is over"),
	ROW(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the executable graph cannot be updated like this"),
	ROW(CUDA_ERROR_EXTERNAL_DEVICE, "another device failed"),
	ROW(CUDA_ERROR_INVALID_CLUSTER_SIZE, "the cluster's size is not valid"),
	ROW(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function is not loaded"),
	ROW(CUDA_ERROR_INVALID_RESOURCE_TYPE, "not a valid type of resource"),
	ROW(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "the resources do not fit together"),
	ROW(CUDA_ERROR_KEY_ROTATION, "a key was rotated"),
	ROW(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ROW
};

/* The index, or -1. */
static int find(CUresult code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
	int row = find(code);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = row < 0 ? NULL : errors[row].name;
	return row < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text)
{
	int row = find(code);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = row < 0 ? NULL : errors[row].text;
	return row < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
