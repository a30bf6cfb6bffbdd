/* Textures and surfaces: plain memory, read through a descriptor (texture.h) in device memory. Filtering and
 * addressing follow the CUDA programming guide, "Texture Fetching". */
#include "soft/ptx/access.h"
#include "soft/ptx/number.h"
#include "soft/ptx/texture.h"

#define SIZE_MAX_TEXELS 0x7fffffffu
#define WEIGHT_ONE 256 /* weights have 8 fractional bits */

static uint32_t coordinate(const struct ptx_warp *w, unsigned k, unsigned lane)
{
	return w->extra[(size_t)k * PTX_LANES + lane];
}

static unsigned channel_bytes(unsigned format)
{
	static const uint8_t bytes[PTX_TEXTURE_FORMATS] = { 1, 2, 4, 1, 2, 4, 2, 4 };

	return bytes[format];
}

static bool is_valid(const struct ptx_texture *t)
{
	uint64_t align;

	if (t->magic != PTX_TEXTURE_MAGIC || t->format >= PTX_TEXTURE_FORMATS ||
	    (t->channels != 1 && t->channels != 2 && t->channels != 4))
		return false;
	align = channel_bytes(t->format) * (uint64_t)t->channels - 1;
	return t->width - 1 < SIZE_MAX_TEXELS && t->height - 1 < SIZE_MAX_TEXELS &&
	       t->depth - 1 < SIZE_MAX_TEXELS &&
	       !((t->base | (t->height > 1 ? t->pitch : 0) | (t->depth > 1 ? t->slice : 0)) & align);
}

/* Read the descriptor of a handle; false: the warp has faulted. */
static bool texture_open(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t handle,
			 struct ptx_texture *t)
{
	const uint8_t *at = handle % PTX_TEXTURE_ALIGN ? NULL
						       : ptx_span_find(w->block, handle, sizeof(*t), false);
	uint64_t words[sizeof(*t) / 8];

	for (unsigned k = 0; at && k < sizeof(words) / 8; k++)
		words[k] = __atomic_load_n((const uint64_t *)(const void *)at + k, __ATOMIC_RELAXED);
	if (at)
		memcpy(t, words, sizeof(*t));
	if (at && is_valid(t))
		return true;
	ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, handle, sizeof(*t), false);
	return false;
}

/* The arguments of a sampling. */
struct sampling {
	struct ptx_warp *w;
	const struct ptx_op *op;
	unsigned lane;
	const struct ptx_texture *t;
	bool is_float;	/* results are f32, not integers */
	bool is_linear; /* filtering */
};

static bool reads_float(const struct ptx_texture *t)
{
	bool is_wide = t->format == PTX_TEXTURE_U32 || t->format == PTX_TEXTURE_S32;

	return t->format >= PTX_TEXTURE_F16 || (!is_wide && !(t->flags & PTX_TEXTURE_INTEGER));
}

/* One channel as 32 bits: an f32 or an integer. */
static uint32_t channel_read(const struct ptx_texture *t, const uint8_t *at)
{
	bool is_integer = t->flags & PTX_TEXTURE_INTEGER;
	uint8_t b8 = 0;
	uint16_t b16 = 0;
	float f;

	switch (channel_bytes(t->format)) {
	case 1:
		b8 = __atomic_load_n(at, __ATOMIC_RELAXED);
		break;
	case 2:
		b16 = __atomic_load_n((const uint16_t *)(const void *)at, __ATOMIC_RELAXED);
		break;
	default:
		return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
	}
	switch (t->format) {
	case PTX_TEXTURE_U8:
		return is_integer ? b8 : ptx_bits32((float)b8 / 255.0f);
	case PTX_TEXTURE_S8:
		f = (float)(int8_t)b8 / 127.0f;
		return is_integer ? (uint32_t)(int8_t)b8 : ptx_bits32(f < -1 ? -1 : f);
	case PTX_TEXTURE_U16:
		return is_integer ? b16 : ptx_bits32((float)b16 / 65535.0f);
	case PTX_TEXTURE_S16:
		f = (float)(int16_t)b16 / 32767.0f;
		return is_integer ? (uint32_t)(int16_t)b16 : ptx_bits32(f < -1 ? -1 : f);
	default:
		return ptx_bits32(ptx_from_f16(b16));
	}
}

static bool texel_read(const struct sampling *s, const int64_t at[3], uint32_t out[4])
{
	const struct ptx_texture *t = s->t;
	unsigned bytes = channel_bytes(t->format);
	uint64_t address = t->base + (uint64_t)at[2] * t->slice + (uint64_t)at[1] * t->pitch +
			   (uint64_t)at[0] * bytes * t->channels;
	const uint8_t *from = ptx_span_find(s->w->block, address, bytes * t->channels, false);

	if (!from) {
		ptx_fault_set(s->w, s->op, PTX_FAULT_ADDRESS, s->lane, address, bytes * t->channels, false);
		return false;
	}
	s->w->block->moved_bytes += (uint64_t)bytes * t->channels;
	for (unsigned k = 0; k < 3; k++)
		out[k] = k < t->channels ? channel_read(t, from + (size_t)k * bytes) : 0;
	out[3] = t->channels == 4 ? channel_read(t, from + (size_t)3 * bytes)
		 : s->is_float	  ? ptx_bits32(1.0f)
				  : 1;
	return true;
}

/* The integral part, clamped to 32 bits. */
static uint32_t border_integer(float f)
{
	if (f >= 0)
		return f < 4294967296.0f ? (uint32_t)f : 0;
	return f > -2147483648.0f ? (uint32_t)(int32_t)f : 0;
}

static void border_read(const struct sampling *s, uint32_t out[4])
{
	for (unsigned k = 0; k < 4; k++) {
		float f = s->t->border[k];

		if (s->t->flags & PTX_TEXTURE_BUFFER)
			out[k] = 0;
		else if (s->is_float)
			out[k] = ptx_bits32(f);
		else
			out[k] = border_integer(f);
	}
}

static uint32_t size_of(const struct ptx_texture *t, unsigned d)
{
	return d == 0 ? t->width : d == 1 ? t->height : t->depth;
}

/* The mode for indices outside. Wrap and mirror apply only to normalised coordinates. */
static unsigned address_mode(const struct ptx_texture *t, unsigned d)
{
	unsigned mode = t->flags & PTX_TEXTURE_BUFFER ? PTX_TEXTURE_BORDER : t->address[d];

	if (mode == PTX_TEXTURE_BORDER)
		return mode;
	return t->flags & PTX_TEXTURE_NORMALIZED && (mode == PTX_TEXTURE_WRAP || mode == PTX_TEXTURE_MIRROR)
		       ? mode
		       : PTX_TEXTURE_CLAMP;
}

/* Map an index to one inside the texture; false: the border. */
static bool index_inside(const struct ptx_texture *t, unsigned d, int64_t *at)
{
	int64_t size = size_of(t, d), period = 2 * size;

	if (*at >= 0 && *at < size)
		return true;
	if (!size)
		return false; /* sizes are never 0 */
	switch (address_mode(t, d)) {
	case PTX_TEXTURE_BORDER:
		return false;
	case PTX_TEXTURE_WRAP:
		*at = (*at % size + size) % size;
		return true;
	case PTX_TEXTURE_MIRROR:
		*at = (*at % period + period) % period;
		*at = *at < size ? *at : period - 1 - *at;
		return true;
	default:
		*at = *at < 0 ? 0 : size - 1;
		return true;
	}
}

/* A coordinate as an index, and the weight of the next texel. */
struct position {
	int64_t at;
	unsigned weight; /* of WEIGHT_ONE */
};

static struct position locate(const struct sampling *s, unsigned d, uint32_t bits, bool is_linear)
{
	struct position p = { 0 };
	double c, whole;

	if (s->op->type2 == PTX_TYPE_S32)
		return (struct position){ .at = (int32_t)bits };
	c = (double)ptx_f32(bits);
	if (s->t->flags & PTX_TEXTURE_NORMALIZED) {
		if (address_mode(s->t, d) == PTX_TEXTURE_WRAP)
			c -= floor(c);
		else if (address_mode(s->t, d) == PTX_TEXTURE_MIRROR)
			c -= 2 * floor(c / 2);
		c *= size_of(s->t, d);
	}
	if (is_linear)
		c -= 0.5;
	c = c > -0x1p33 ? (c < 0x1p33 ? c : 0x1p33) : c <= -0x1p33 ? -0x1p33 : 0; /* 0 for a NaN */
	whole = floor(c);
	p.at = (int64_t)whole;
	if (is_linear)
		p.weight = (unsigned)((c - whole) * WEIGHT_ONE + 0.5);
	return p;
}

static bool texel_at(const struct sampling *s, int64_t at[3], unsigned dimensions, uint32_t out[4])
{
	for (unsigned d = 0; d < dimensions; d++)
		if (!index_inside(s->t, d, &at[d])) {
			border_read(s, out);
			return true;
		}
	return texel_read(s, at, out);
}

/* The weighted sum of 2, 4 or 8 texels. */
static bool filter_linear(const struct sampling *s, const struct position p[3], unsigned dimensions,
			  int64_t plane, uint32_t out[4])
{
	double sum[4] = { 0 };

	for (unsigned corner = 0; corner < 1u << dimensions; corner++) {
		int64_t at[3] = { 0, 0, plane };
		double weight = 1;
		uint32_t texel[4];

		for (unsigned d = 0; d < dimensions; d++) {
			bool is_next = corner >> d & 1;

			at[d] = p[d].at + is_next;
			weight *= (is_next ? p[d].weight : WEIGHT_ONE - p[d].weight) / (double)WEIGHT_ONE;
		}
		if (weight == 0)
			continue;
		if (!texel_at(s, at, dimensions, texel))
			return false;
		for (unsigned k = 0; k < 4; k++)
			sum[k] += weight * (double)ptx_f32(texel[k]);
	}
	for (unsigned k = 0; k < 4; k++)
		out[k] = ptx_bits32((float)sum[k]);
	return true;
}

/* tld4: one channel of the four texels of linear filtering, counter-clockwise from the lower left. */
static bool gather_four(const struct sampling *s, const struct position p[3], uint32_t out[4])
{
	static const uint8_t corners[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };

	for (unsigned k = 0; k < 4; k++) {
		int64_t at[3] = { p[0].at + corners[k][0], p[1].at + corners[k][1], 0 };
		uint32_t texel[4];

		if (!texel_at(s, at, 2, texel))
			return false;
		out[k] = texel[s->op->combine - 1];
	}
	return true;
}

static int64_t layer_of(const struct ptx_texture *t, uint32_t bits)
{
	int64_t layer = (int32_t)bits;

	return layer < 0 ? 0 : layer >= t->depth ? (int64_t)t->depth - 1 : layer;
}

/* The cube face of a direction; the three coordinates become two. */
static unsigned cube_face(uint32_t xyz[3])
{
	float x = ptx_f32(xyz[0]), y = ptx_f32(xyz[1]), z = ptx_f32(xyz[2]), m, s, t;
	unsigned face;

	if (fabsf(x) >= fabsf(y) && fabsf(x) >= fabsf(z)) {
		face = x >= 0 ? 0 : 1;
		m = fabsf(x);
		s = x >= 0 ? -z : z;
		t = -y;
	} else if (fabsf(y) >= fabsf(z)) {
		face = y >= 0 ? 2 : 3;
		m = fabsf(y);
		s = x;
		t = y >= 0 ? z : -z;
	} else {
		face = z >= 0 ? 4 : 5;
		m = fabsf(z);
		s = z >= 0 ? x : -x;
		t = -y;
	}
	xyz[0] = ptx_bits32((s / m + 1) / 2);
	xyz[1] = ptx_bits32((t / m + 1) / 2);
	return face;
}

/* Read the coordinates in the order x, y, z, and the plane if the geometry is not three-dimensional. Returns
 * the number of dimensions. */
static unsigned coordinates_read(const struct sampling *s, uint32_t c[4], int64_t *plane)
{
	unsigned geometry = s->op->mode;
	bool is_cube = geometry == PTX_GEOMETRY_CUBE || geometry == PTX_GEOMETRY_ACUBE;
	bool has_layer = geometry == PTX_GEOMETRY_A1D || geometry == PTX_GEOMETRY_A2D ||
			 geometry == PTX_GEOMETRY_ACUBE;
	uint64_t layer = 0;

	for (unsigned k = 0; k < 4; k++)
		c[k] = coordinate(s->w, k, s->lane);
	*plane = 0;
	if (has_layer) {
		layer = c[0];
		*plane = layer_of(s->t, c[0]);
		memmove(c, c + 1, 3 * sizeof(*c));
	}
	if (is_cube) {
		layer = layer * 6 + cube_face(c);
		*plane = layer_of(s->t, layer > SIZE_MAX_TEXELS ? SIZE_MAX_TEXELS : (uint32_t)layer);
	}
	switch (geometry) {
	case PTX_GEOMETRY_1D:
	case PTX_GEOMETRY_A1D:
		return 1;
	case PTX_GEOMETRY_3D:
		return 3;
	default:
		return 2;
	}
}

static bool sample(const struct sampling *s, uint32_t out[4])
{
	struct position p[3] = { 0 };
	uint32_t c[4];
	int64_t plane, at[3];
	unsigned dimensions = coordinates_read(s, c, &plane);
	bool is_linear = s->is_linear || s->op->combine;

	for (unsigned d = 0; d < dimensions; d++)
		p[d] = locate(s, d, c[d], is_linear);
	if (s->op->combine)
		return gather_four(s, p, out);
	if (is_linear)
		return filter_linear(s, p, dimensions, plane, out);
	for (unsigned d = 0; d < 3; d++)
		at[d] = d < dimensions ? p[d].at : d == 2 ? plane : 0;
	return texel_at(s, at, dimensions, out);
}

PTX_HANDLER(tex)
{
	const uint64_t *handles = ptx_in(w, op->r[4]);
	struct ptx_texture t;
	uint64_t open = 0;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		struct sampling s = { .w = w, .op = op, .lane = i, .t = &t };
		uint32_t out[4];

		if (!(mask >> i & 1))
			continue;
		if (handles[i] != open || !open) {
			if (!texture_open(w, op, i, handles[i], &t))
				return;
			open = handles[i];
		}
		s.is_float = reads_float(&t);
		s.is_linear = t.flags & PTX_TEXTURE_LINEAR && s.is_float && op->type2 == PTX_TYPE_F32 &&
			      !(t.flags & PTX_TEXTURE_BUFFER);
		if (!sample(&s, out))
			return;
		for (unsigned k = 0; k < 4; k++)
			((uint32_t *)ptx_out(w, op->r[k]))[i] = out[k];
	}
}

/* ---- surfaces */

static bool clamp_to(int64_t *at, int64_t last)
{
	bool is_inside = *at >= 0 && *at <= last;

	if (*at < 0)
		*at = 0;
	if (*at > last)
		*at = last < 0 ? 0 : last;
	return is_inside;
}

/* The address of the element of a lane; *is_inside is false outside the surface. */
static uint64_t surface_address(const struct ptx_warp *w, const struct ptx_op *op, unsigned lane,
				const struct ptx_texture *t, uint32_t bytes, bool *is_inside)
{
	bool has_layer = op->mode == PTX_GEOMETRY_A1D || op->mode == PTX_GEOMETRY_A2D;
	bool has_line = op->mode == PTX_GEOMETRY_2D || op->mode == PTX_GEOMETRY_3D ||
			op->mode == PTX_GEOMETRY_A2D;
	unsigned first = has_layer ? 1 : 0;
	int64_t line = (int64_t)t->width * channel_bytes(t->format) * t->channels;
	int64_t x = (int32_t)coordinate(w, first, lane);
	int64_t y = has_line ? (int32_t)coordinate(w, first + 1, lane) : 0;
	int64_t z = has_layer			  ? (int32_t)coordinate(w, 0, lane)
		    : op->mode == PTX_GEOMETRY_3D ? (int32_t)coordinate(w, 2, lane)
						  : 0;

	*is_inside = clamp_to(&x, line - (int64_t)bytes);
	*is_inside &= clamp_to(&y, (int64_t)t->height - 1);
	*is_inside &= clamp_to(&z, (int64_t)t->depth - 1);
	return t->base + (uint64_t)z * t->slice + (uint64_t)y * t->pitch + (uint64_t)x;
}

static uint8_t *surface_resolve(struct ptx_warp *w, const struct ptx_op *op, unsigned lane, uint64_t address,
				uint32_t bytes, bool is_write)
{
	uint8_t *at = NULL;

	if (address & (bytes - 1)) {
		ptx_fault_set(w, op, PTX_FAULT_MISALIGNED, lane, address, bytes, is_write);
		return NULL;
	}
	at = ptx_span_find(w->block, address, bytes, is_write);
	if (!at)
		ptx_fault_set(w, op, PTX_FAULT_ADDRESS, lane, address, bytes, is_write);
	w->block->moved_bytes += bytes;
	return at;
}

/* The host addresses of all lanes; lanes outside, if that is not a fault, are removed from *mask. */
static bool surface_places(struct ptx_warp *w, const struct ptx_op *op, uint32_t *mask, bool is_write,
			   uint8_t **at)
{
	uint32_t bytes = ptx_type_bytes((enum ptx_type)op->type2) * op->vector;
	const uint64_t *handles = ptx_in(w, op->r[op->vector]);
	struct ptx_texture t;
	uint64_t open = 0;

	for (unsigned i = 0; i < PTX_LANES; i++) {
		bool is_inside;
		uint64_t address;

		if (!(*mask >> i & 1))
			continue;
		if (handles[i] != open || !open) {
			if (!texture_open(w, op, i, handles[i], &t))
				return false;
			open = handles[i];
		}
		address = surface_address(w, op, i, &t, bytes, &is_inside);
		if (!is_inside && op->combine == PTX_OUTSIDE_ZERO) {
			*mask &= ~(1u << i);
			continue;
		}
		if (!is_inside && op->combine == PTX_OUTSIDE_TRAP) {
			ptx_fault_set(w, op, PTX_FAULT_ADDRESS, i, address, bytes, is_write);
			return false;
		}
		at[i] = surface_resolve(w, op, i, address, bytes, is_write);
		if (!at[i])
			return false;
	}
	return true;
}

PTX_HANDLER(surface_load)
{
	static uint8_t nothing[16] __attribute__((aligned(16)));
	uint8_t *at[PTX_LANES];
	uint32_t inside = mask;

	if (!surface_places(w, op, &inside, false, at))
		return;
	for (unsigned i = 0; i < PTX_LANES; i++)
		if ((mask & ~inside) >> i & 1)
			at[i] = nothing;
	PTX_BUILT(ptx_load_rows)(w, op, mask, at);
}

PTX_HANDLER(surface_store)
{
	uint8_t *at[PTX_LANES];

	if (surface_places(w, op, &mask, true, at))
		PTX_BUILT(ptx_store_rows)(w, op, mask, at);
}

ptx_handler PTX_BUILT(ptx_find_texture)(unsigned family, unsigned type)
{
	static const ptx_handler handlers[PTX_FAMILY_COUNT] = {
		[PTX_TEX] = tex,
		[PTX_SULD] = surface_load,
		[PTX_SUST] = surface_store,
	};

	return type == PTX_TYPE_NONE ? handlers[family] : NULL;
}
