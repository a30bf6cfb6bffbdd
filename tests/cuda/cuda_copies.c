/* Every form of copy and fill, between every kind of memory, against memcpy. */
#include "check.h"

enum { BYTES = 3 << 20 }; /* more than the library has staging for in one piece */
/* Random copies for each pair of kinds. The thread sanitizer takes time for each byte. */
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 2 };
#else
enum { ROUNDS = 8 };
#endif
enum kind { PAGEABLE, PINNED, MANAGED, DEVICE, POOL, KINDS };

/* Memory of some kind, and beside it what should be in it. */
struct place {
	enum kind kind;
	CUdeviceptr at;
	uint8_t *model;
};

static CUdeviceptr take(enum kind kind)
{
	CUdeviceptr at = 0;
	void *memory = NULL;

	if (kind == PAGEABLE)
		memory = malloc(BYTES);
	else if (kind == PINNED)
		CU(cuMemHostAlloc(&memory, BYTES, 0));
	else if (kind == MANAGED)
		CU(cuMemAllocManaged(&at, BYTES, CU_MEM_ATTACH_GLOBAL));
	else if (kind == DEVICE)
		CU(cuMemAlloc_v2(&at, BYTES));
	else
		CU(cuMemAllocAsync(&at, BYTES, NULL));
	return memory ? (uintptr_t)memory : at;
}

/* The same for all kinds, from another byte on. Made once: under a sanitizer each byte costs. */
static const uint8_t *pattern(enum kind kind)
{
	enum { APART = 4099 };
	static uint8_t bytes[BYTES + KINDS * APART];
	static bool is_made;

	for (size_t i = 0; i < sizeof(bytes) && !is_made; i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 9));
	is_made = true;
	return bytes + (size_t)kind * APART;
}

static void place_new(struct place *place, enum kind kind)
{
	uint8_t *model = malloc(BYTES);

	memcpy(model, pattern(kind), BYTES);
	*place = (struct place){ kind, take(kind), model };
	CU(cuMemcpy(place->at, (uintptr_t)model, BYTES));
}

static void place_free(struct place *place)
{
	if (place->kind == PAGEABLE)
		free((void *)(uintptr_t)place->at);
	else if (place->kind == PINNED)
		CU(cuMemFreeHost((void *)(uintptr_t)place->at));
	else if (place->kind == POOL)
		CU(cuMemFreeAsync(place->at, NULL));
	else
		CU(cuMemFree_v2(place->at));
	free(place->model);
}

static void place_check(const struct place *place)
{
	uint8_t *got = malloc(BYTES);

	memset(got, 0, BYTES);
	CU(cuMemcpy((uintptr_t)got, place->at, BYTES));
	if (memcmp(got, place->model, BYTES)) {
		size_t i = 0;

		while (got[i] == place->model[i])
			i++;
		fprintf(stderr, "kind %d: byte %zu is %u, not %u\n", place->kind, i, got[i], place->model[i]);
		exit(1);
	}
	free(got);
}

struct shape {
	size_t width, height, depth;
	size_t src_pitch, dst_pitch, src_height, dst_height; /* heights: lines of a plane */
	size_t src_at, dst_at;				     /* where the first byte is */
};

static size_t pick(size_t least, size_t most)
{
	return least + (size_t)rand() % (most - least + 1);
}

static size_t pick_start(size_t pitch, size_t height, const struct shape *shape)
{
	size_t extent = (shape->depth - 1) * pitch * height + (shape->height - 1) * pitch + shape->width;

	return pick(0, BYTES - extent);
}

static struct shape pick_shape(unsigned dimensions)
{
	struct shape shape = { .height = 1, .depth = 1 };

	shape.width = dimensions == 1 ? pick(1, rand() % 2 ? 5000 : BYTES) : pick(1, rand() % 3 ? 300 : 9000);
	if (dimensions > 1) /* up to more than fits one piece of staging */
		shape.height = pick(1, rand() % 3 ? 60 : BYTES * 3 / 4 / (shape.width + 50));
	if (dimensions > 2)
		shape.depth = pick(1, BYTES / (shape.width + 60) / (shape.height + 10) / 2 % 9 + 1);
	shape.src_pitch = shape.width + (rand() % 2 ? pick(0, 50) : 0);
	shape.dst_pitch = shape.width + (rand() % 2 ? pick(0, 50) : 0);
	shape.src_height = shape.height + (rand() % 2 ? pick(0, 5) : 0);
	shape.dst_height = shape.height + (rand() % 2 ? pick(0, 5) : 0);
	while (shape.depth > 1 && shape.depth * (shape.src_height + 5) * (shape.width + 50) > BYTES)
		shape.depth--;
	shape.src_at = pick_start(shape.src_pitch, shape.src_height, &shape);
	shape.dst_at = pick_start(shape.dst_pitch, shape.dst_height, &shape);
	return shape;
}

static void model_copy(struct place *dst, const struct place *src, const struct shape *shape)
{
	for (size_t z = 0; z < shape->depth; z++)
		for (size_t y = 0; y < shape->height; y++)
			memcpy(dst->model + shape->dst_at + (z * shape->dst_height + y) * shape->dst_pitch,
			       src->model + shape->src_at + (z * shape->src_height + y) * shape->src_pitch,
			       shape->width);
}

static void copy_1d(struct place *dst, const struct place *src, const struct shape *shape, CUstream stream)
{
	CUdeviceptr to = dst->at + shape->dst_at, from = src->at + shape->src_at;
	bool is_in = dst->kind >= DEVICE && src->kind < DEVICE,
	     is_out = dst->kind < DEVICE && src->kind >= DEVICE;
	bool is_within = dst->kind >= DEVICE && src->kind >= DEVICE;
	void *to_host = (void *)(uintptr_t)to;
	const void *from_host = (const void *)(uintptr_t)from;

	if (is_in)
		CU(stream ? cuMemcpyHtoDAsync_v2(to, from_host, shape->width, stream)
			  : cuMemcpyHtoD_v2(to, from_host, shape->width));
	else if (is_out)
		CU(stream ? cuMemcpyDtoHAsync_v2(to_host, from, shape->width, stream)
			  : cuMemcpyDtoH_v2(to_host, from, shape->width));
	else if (is_within)
		CU(stream ? cuMemcpyDtoDAsync_v2(to, from, shape->width, stream)
			  : cuMemcpyDtoD_v2(to, from, shape->width));
	else
		CU(stream ? cuMemcpyAsync(to, from, shape->width, stream) : cuMemcpy(to, from, shape->width));
}

static CUmemorytype type_of(enum kind kind)
{
	if (rand() % 3 == 0)
		return CU_MEMORYTYPE_UNIFIED;
	return kind < MANAGED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static void copy_2d(struct place *dst, const struct place *src, const struct shape *shape, CUstream stream)
{
	/* Part of the start is given as coordinates. */
	size_t skip = shape->src_at < shape->src_pitch ? 0 : 1;
	size_t x = shape->dst_pitch - shape->width > shape->dst_at ? 0 : shape->dst_pitch - shape->width;
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = type_of(src->kind),
		.dstMemoryType = type_of(dst->kind),
		.srcY = skip,
		.srcHost = (void *)(uintptr_t)(src->at + shape->src_at - skip * shape->src_pitch),
		.srcDevice = src->at + shape->src_at - skip * shape->src_pitch,
		.srcPitch = shape->src_pitch,
		.dstXInBytes = x,
		.dstHost = (void *)(uintptr_t)(dst->at + shape->dst_at - x),
		.dstDevice = dst->at + shape->dst_at - x,
		.dstPitch = shape->dst_pitch,
		.WidthInBytes = shape->width,
		.Height = shape->height,
	};

	if (stream)
		CU(cuMemcpy2DAsync_v2(&copy, stream));
	else
		CU(rand() % 2 ? cuMemcpy2D_v2(&copy) : cuMemcpy2DUnaligned_v2(&copy));
}

static void copy_3d(struct place *dst, const struct place *src, const struct shape *shape, CUstream stream)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = type_of(src->kind),
		.dstMemoryType = type_of(dst->kind),
		.srcHost = (void *)(uintptr_t)(src->at + shape->src_at),
		.srcDevice = src->at + shape->src_at,
		.srcPitch = shape->src_pitch,
		.srcHeight = shape->src_height,
		.dstHost = (void *)(uintptr_t)(dst->at + shape->dst_at),
		.dstDevice = dst->at + shape->dst_at,
		.dstPitch = shape->dst_pitch,
		.dstHeight = shape->dst_height,
		.WidthInBytes = shape->width,
		.Height = shape->height,
		.Depth = shape->depth,
	};

	CU(stream ? cuMemcpy3DAsync_v2(&copy, stream) : cuMemcpy3D_v2(&copy));
}

static void copies_of(unsigned dimensions)
{
	void (*const forms[])(struct place *, const struct place *, const struct shape *,
			      CUstream) = { copy_1d, copy_2d, copy_3d };
	struct place src, dst;
	CUstream stream;

	check_context();
	srand(dimensions);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (enum kind from = 0; from < KINDS; from++)
		for (enum kind to = 0; to < KINDS; to++) {
			place_new(&src, from);
			place_new(&dst, to);
			for (unsigned i = 0; i < ROUNDS; i++) {
				struct shape shape = pick_shape(dimensions);

				forms[dimensions - 1](&dst, &src, &shape, i % 2 ? stream : NULL);
				CU(cuStreamSynchronize(i % 2 ? stream : NULL));
				model_copy(&dst, &src, &shape);
			}
			place_check(&dst);
			place_free(&src);
			place_free(&dst);
		}
	CU(cuStreamDestroy_v2(stream));
}

static void lines_arrive(void)
{
	copies_of(1);
}

static void planes_arrive(void)
{
	copies_of(2);
}

static void volumes_arrive(void)
{
	copies_of(3);
}

static void fills_fill(void)
{
	struct place place;

	check_context();
	srand(9);
	for (unsigned i = 0; i < 60; i++) {
		unsigned size = 1u << i % 3, value = (unsigned)rand();
		size_t width = pick(1, 2000), height = pick(1, 20), pitch = (width + pick(0, 40)) * size;
		size_t at = pick(0, (BYTES - pitch * height) / size) * size;

		if (i % 20 == 0)
			place_new(&place, i < 20 ? DEVICE : i < 40 ? PINNED : POOL);
		if (size == 1)
			CU(cuMemsetD2D8_v2(place.at + at, pitch, (unsigned char)value, width, height));
		else if (size == 2)
			CU(cuMemsetD2D16_v2(place.at + at, pitch, (unsigned short)value, width, height));
		else
			CU(cuMemsetD2D32Async(place.at + at, pitch, value, width, height, NULL));
		for (size_t y = 0; y < height; y++)
			for (size_t x = 0; x < width; x++)
				memcpy(place.model + at + y * pitch + x * size, &value, size);
		if (i % 20 == 19) {
			CU(cuCtxSynchronize());
			place_check(&place);
			place_free(&place);
		}
	}
}

static void wrong_copies_are_refused(void)
{
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcPitch = 10,
			       .dstPitch = 20,
			       .WidthInBytes = 20,
			       .Height = 2 };
	static uint8_t here[4096];
	CUdeviceptr at;

	check_context();
	CU(cuMemAlloc_v2(&at, 4096));
	CU(cuMemcpyHtoD_v2(at, here, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at, here, 8192));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at + 1, here, 4096));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2((uintptr_t)here, here, 10));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(here, 0, 10));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(at, NULL, 10));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(at + 2, 0, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2((uintptr_t)here, 0, 1));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D32_v2(at, 8, 0, 3, 2));
	copy.srcHost = here;
	copy.dstDevice = at;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&copy));
	copy.srcPitch = 20;
	CU(cuMemcpy2D_v2(&copy));
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy2D_v2(&copy));
	copy.dstMemoryType = (CUmemorytype)9;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&copy));
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.Height = SIZE_MAX / 4;
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&copy));
	CU(cuMemFree_v2(at));
}

static void batches_arrive(void)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	uint32_t from[8], to[8] = { 0 };
	CUdeviceptr dst[8], src[8], at;
	size_t bytes[8], first = 0;
	CUstream stream;

	check_context();
	CU(cuStreamCreate(&stream, 0));
	CU(cuMemAlloc_v2(&at, sizeof(from)));
	for (uint32_t i = 0; i < 8; i++) {
		from[i] = i * i + 1;
		dst[i] = at + 4ull * i;
		src[i] = (uintptr_t)&from[i];
		bytes[i] = 4;
	}
	CU(cuMemcpyBatchAsync_v2(dst, src, bytes, 8, &attributes, &first, 1, stream));
	CU(cuMemcpyDtoHAsync_v2(to, at, sizeof(to), stream));
	CU(cuStreamSynchronize(stream));
	CHECK(!memcmp(from, to, sizeof(to)));
	CU(cuMemFree_v2(at));
	CU(cuStreamDestroy_v2(stream));
}

TESTS(TEST(lines_arrive), TEST(planes_arrive), TEST(volumes_arrive), TEST(fills_fill),
      TEST(wrong_copies_are_refused), TEST(batches_arrive))
