/* Arrays, texture and surface objects through the driver API: what they are told, what is refused, what goes with a
 * context. What kernels read through them is tested in runtime/textures.cu. */
#include "check.h"

enum { W = 10, H = 6, D = 3 };

static CUarray array_of(size_t width, size_t height, size_t depth, unsigned flags)
{
	const CUDA_ARRAY3D_DESCRIPTOR shape = { .Width = width,
						.Height = height,
						.Depth = depth,
						.Format = CU_AD_FORMAT_UNSIGNED_INT16,
						.NumChannels = 2,
						.Flags = flags };
	CUarray array;

	CU(cuArray3DCreate_v2(&array, &shape));
	return array;
}

static CUDA_RESOURCE_DESC resource_of(CUarray array)
{
	return (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array };
}

static void an_array_tells_its_shape(void)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4
	};
	CUDA_ARRAY3D_DESCRIPTOR whole;
	CUDA_ARRAY_DESCRIPTOR told;
	CUarray array;

	check_context();
	array = array_of(W, H, D, CUDA_ARRAY3D_SURFACE_LDST);
	CU(cuArray3DGetDescriptor_v2(&whole, array));
	CHECK_EQUAL(whole.Depth, D);
	CHECK_EQUAL(whole.Flags, CUDA_ARRAY3D_SURFACE_LDST);
	CHECK_EQUAL(whole.Format, CU_AD_FORMAT_UNSIGNED_INT16);
	CU(cuArrayDestroy(array));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&whole, array));
	CU(cuArrayCreate_v2(&array, &flat));
	CU(cuArrayGetDescriptor_v2(&told, array));
	CHECK_EQUAL(told.Width, W);
	CHECK_EQUAL(told.NumChannels, 4);
	CU(cuArrayDestroy(array));
}

static void wrong_shapes_are_refused(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR right = {
		.Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1
	};
	CUDA_ARRAY3D_DESCRIPTOR shape;
	CUarray array;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(NULL, &right));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, NULL));
	for (unsigned i = 0; i < 9; i++) {
		shape = right;
		if (i == 0)
			shape.Width = 0;
		else if (i == 1)
			shape.NumChannels = 3;
		else if (i == 2)
			shape.Format = (CUarray_format)0x7;
		else if (i == 3)
			shape.Width = 1 << 18;
		else if (i == 4)
			shape.Height = 1 << 17;
		else if (i == 5)
			shape.Depth = 1 << 15;
		else if (i == 6)
			shape.Flags = CUDA_ARRAY3D_LAYERED; /* of no layers */
		else if (i == 7)
			shape.Flags = CUDA_ARRAY3D_CUBEMAP, shape.Depth = 6; /* not square */
		else
			shape.Height = 0, shape.Depth = 2;
		CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&array, &shape));
	}
	shape = right;
	shape.Flags = CUDA_ARRAY3D_SPARSE;
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate_v2(&array, &shape));
	shape = right;
	shape.Format = CU_AD_FORMAT_BC1_UNORM;
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate_v2(&array, &shape));
}

/* A box out of the middle of a volume, through every way that leads to it. */
static void boxes_are_copied(void)
{
	uint32_t from[D][H][W], to[D][H][W], line[W];
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = from,
			       .srcPitch = sizeof(from[0][0]),
			       .srcHeight = H,
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			       .WidthInBytes = sizeof(from[0][0]),
			       .Height = H,
			       .Depth = D };
	CUdeviceptr device;
	CUarray array;

	check_context();
	for (unsigned i = 0; i < D * H * W; i++)
		(&from[0][0][0])[i] = i + 1;
	copy.dstArray = array = array_of(W, H, D, 0);
	CU(cuMemcpy3D_v2(&copy));
	memset(to, 0, sizeof(to));
	copy = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				.srcArray = array,
				.srcXInBytes = 8,
				.srcY = 1,
				.srcZ = 1,
				.dstMemoryType = CU_MEMORYTYPE_HOST,
				.dstHost = to,
				.dstPitch = sizeof(to[0][0]),
				.dstHeight = H,
				.WidthInBytes = 12,
				.Height = 4,
				.Depth = 2 };
	CU(cuMemcpy3D_v2(&copy));
	for (unsigned z = 0; z < D; z++)
		for (unsigned y = 0; y < H; y++)
			for (unsigned x = 0; x < W; x++)
				CHECK_EQUAL(to[z][y][x],
					    x < 3 && y < 4 && z < 2 ? from[z + 1][y + 1][x + 2] : 0);
	copy.Depth = 3;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&copy));
	copy.Depth = 2;
	copy.srcXInBytes = SIZE_MAX - 3;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&copy));
	copy.srcXInBytes = 0;
	copy.srcArray = (CUarray)from;
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D_v2(&copy));
	CU(cuMemcpyAtoH_v2(line, array, sizeof(from[0][0]), sizeof(line)));
	CHECK(!memcmp(line, from[0][1], sizeof(line)));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH_v2(line, array, sizeof(from) - 4, sizeof(line)));
	CU(cuMemAlloc_v2(&device, sizeof(line)));
	CU(cuMemcpyAtoD_v2(device, array, 0, sizeof(line)));
	CU(cuMemcpyDtoA_v2(array, sizeof(from) - sizeof(line), device, sizeof(line)));
	CU(cuMemcpyHtoA_v2(array, 4, &(uint32_t){ 77 }, 4));
	CU(cuMemcpyAtoA_v2(array, 8, array, 4, 4));
	CU(cuMemcpyAtoHAsync_v2(to, array, 0, sizeof(to), NULL));
	CU(cuCtxSynchronize());
	CHECK(!memcmp(to[D - 1][H - 1], from[0][0], sizeof(line)));
	CHECK_EQUAL(to[0][0][0], 1);
	CHECK_EQUAL(to[0][0][2], 77);
	CU(cuMemFree_v2(device));
	CU(cuArrayDestroy(array));
}

static void an_array_is_copied_in_a_graph(void)
{
	uint32_t from[H][W], to[H][W];
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = from,
			       .srcPitch = sizeof(from[0]),
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			       .WidthInBytes = sizeof(from[0]),
			       .Height = H,
			       .Depth = 1 },
		      told;
	CUcontext context = check_context();
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	copy.dstArray = array_of(W, H, 0, 0);
	CU(cuGraphCreate(&graph, 0));
	CU(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
	CU(cuGraphMemcpyNodeGetParams(node, &told));
	CHECK_EQUAL(told.dstMemoryType, CU_MEMORYTYPE_ARRAY);
	CHECK(told.dstArray == copy.dstArray);
	CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned i = 0; i < W * H; i++)
		(&from[0][0])[i] = i * 3;
	CU(cuGraphLaunch(exec, NULL));
	CU(cuMemcpyAtoH_v2(to, copy.dstArray, 0, sizeof(to)));
	CHECK(!memcmp(from, to, sizeof(to)));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	CU(cuArrayDestroy(copy.dstArray));
}

static void objects_tell_what_they_were_made_of(void)
{
	CUDA_TEXTURE_DESC sampling = { .filterMode = CU_TR_FILTER_MODE_LINEAR,
				       .flags = CU_TRSF_NORMALIZED_COORDINATES };
	CUDA_RESOURCE_DESC resource, told;
	CUDA_TEXTURE_DESC sampled;
	CUsurfObject surface;
	CUtexObject texture;

	check_context();
	resource = resource_of(array_of(W, H, 0, CUDA_ARRAY3D_SURFACE_LDST));
	CU(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	CU(cuSurfObjectCreate(&surface, &resource));
	CHECK(texture != surface);
	CU(cuTexObjectGetResourceDesc(&told, texture));
	CHECK(told.res.array.hArray == resource.res.array.hArray);
	CU(cuTexObjectGetTextureDesc(&sampled, texture));
	CHECK_EQUAL(sampled.filterMode, CU_TR_FILTER_MODE_LINEAR);
	CU(cuSurfObjectGetResourceDesc(&told, surface));
	/* neither is the other, nor memory of the program's */
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(texture));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(surface));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(texture));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(texture, NULL));
	CU(cuTexObjectDestroy(texture));
	CU(cuSurfObjectDestroy(surface));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&told, texture));
	CU(cuArrayDestroy(resource.res.array.hArray));
}

static void wrong_objects_are_refused(void)
{
	const CUDA_RESOURCE_VIEW_DESC view = { .format = CU_RES_VIEW_FORMAT_UINT_2X16,
					       .width = W,
					       .height = H };
	CUDA_TEXTURE_DESC sampling = { .flags = CU_TRSF_READ_AS_INTEGER };
	CUDA_RESOURCE_DESC resource;
	CUtexObject texture;
	CUdeviceptr memory;

	check_context();
	resource = resource_of(array_of(W, H, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, NULL, NULL));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&texture, &resource));
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&texture, &resource, &sampling, &view));
	sampling.filterMode = CU_TR_FILTER_MODE_LINEAR; /* of integers */
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	sampling = (CUDA_TEXTURE_DESC){ .flags = CU_TRSF_SRGB };
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	sampling = (CUDA_TEXTURE_DESC){ .addressMode = { (CUaddress_mode)9 } };
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	sampling = (CUDA_TEXTURE_DESC){ 0 };
	CU(cuArrayDestroy(resource.res.array.hArray));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	CU(cuMemAlloc_v2(&memory, 4096));
	resource = (CUDA_RESOURCE_DESC){ .resType = CU_RESOURCE_TYPE_LINEAR,
					 .res.linear = { .devPtr = memory + 2,
							 .format = CU_AD_FORMAT_FLOAT,
							 .numChannels = 1,
							 .sizeInBytes = 1024 } };
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	resource.res.linear.devPtr = memory;
	resource.res.linear.sizeInBytes = 3;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
	CU_FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&texture, &resource, &sampling, NULL));
	CU(cuMemFree_v2(memory));
}

static void what_was_made_in_a_context_goes_with_it(void)
{
	CUDA_TEXTURE_DESC sampling = { .flags = CU_TRSF_READ_AS_INTEGER };
	CUDA_RESOURCE_DESC resource;
	CUcontext context;
	CUtexObject texture;
	CUarray array;
	size_t before, after, total;

	check_context();
	CU(cuMemGetInfo_v2(&before, &total));
	for (unsigned i = 0; i < 3; i++) {
		CU(cuCtxCreate_v4(&context, NULL, 0, 0));
		array = array_of(1024, 4096, 0, 0);
		resource = resource_of(array);
		CU(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
		CU(cuCtxDestroy_v2(context));
		CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
		CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
	}
	CU(cuMemGetInfo_v2(&after, &total));
	CHECK_EQUAL(after, before);
}

TESTS(TEST(an_array_tells_its_shape), TEST(wrong_shapes_are_refused), TEST(boxes_are_copied),
      TEST(an_array_is_copied_in_a_graph), TEST(objects_tell_what_they_were_made_of),
      TEST(wrong_objects_are_refused), TEST(what_was_made_in_a_context_goes_with_it))
