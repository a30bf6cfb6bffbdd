/* The CUDA runtime starts only if the library answers a challenge: a keyed hash (RFC 2104, with MD2 of RFC
 * 1319) of data that both sides know. The parts, their order and the key are published by the ZLUDA project
 * (github.com/vosen/ZLUDA, dark_api); the code is written from the two RFCs. It protects nothing in
 * Belfry. */
#include <string.h>

#include "soft/cuda/export.h"

enum { MD2_BYTES = 16, MD2_ROUNDS = 18 };

/* RFC 1319: 256 bytes derived from the digits of pi. */
static const uint8_t pi[256] = {
	41,  46,  67,  201, 162, 216, 124, 1,	61,  54,  84,  161, 236, 240, 6,   19,	98,  167, 5,   243,
	192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,	 155, 87,  60,	253, 212, 224, 22,
	103, 66,  111, 24,  138, 23,  229, 18,	190, 78,  196, 214, 218, 158, 222, 73,	160, 251, 245, 142,
	187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137, 11,  34,  95,  33,
	128, 127, 93,  154, 90,	 144, 50,  39,	53,  62,  204, 231, 191, 247, 151, 3,	255, 25,  48,  179,
	72,  165, 181, 209, 215, 94,  146, 42,	172, 86,  170, 198, 79,	 184, 56,  210, 150, 164, 125, 182,
	118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100, 113, 135, 32,	134, 91,  207, 101,
	230, 45,  168, 2,   27,	 96,  37,  173, 174, 176, 185, 246, 28,	 70,  97,  105, 52,  64,  126, 15,
	85,  71,  163, 35,  221, 81,  175, 58,	195, 92,  249, 206, 186, 197, 234, 38,	44,  83,  13,  110,
	133, 40,  132, 9,   211, 223, 205, 244, 65,  129, 77,  82,  106, 220, 55,  200, 108, 193, 171, 250,
	36,  225, 123, 8,   12,	 189, 177, 74,	120, 136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254,
	59,  0,	  29,  57,  242, 239, 183, 14,	102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,
	49,  68,  80,  180, 143, 237, 31,  26,	219, 153, 141, 51,  159, 17,  131, 20,
};

struct md2 {
	uint8_t state[3 * MD2_BYTES], checksum[MD2_BYTES], block[MD2_BYTES];
	unsigned used;
};

static void md2_block(struct md2 *md2)
{
	uint8_t t = md2->checksum[MD2_BYTES - 1];

	for (unsigned i = 0; i < MD2_BYTES; i++) {
		md2->checksum[i] ^= pi[md2->block[i] ^ t];
		t = md2->checksum[i];
		md2->state[MD2_BYTES + i] = md2->block[i];
		md2->state[2 * MD2_BYTES + i] = md2->block[i] ^ md2->state[i];
	}
	t = 0;
	for (unsigned round = 0; round < MD2_ROUNDS; round++) {
		for (unsigned i = 0; i < sizeof(md2->state); i++)
			t = md2->state[i] ^= pi[t];
		t = (uint8_t)(t + round);
	}
}

static void md2_add(struct md2 *md2, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		md2->block[md2->used++] = ((const uint8_t *)data)[i];
		if (md2->used == MD2_BYTES) {
			md2_block(md2);
			md2->used = 0;
		}
	}
}

static void md2_end(struct md2 *md2, uint8_t digest[MD2_BYTES])
{
	uint8_t padding[MD2_BYTES], checksum[MD2_BYTES];
	unsigned left = MD2_BYTES - md2->used;

	memset(padding, (int)left, sizeof(padding));
	md2_add(md2, padding, left);
	memcpy(checksum, md2->checksum, sizeof(checksum));
	md2_add(md2, checksum, sizeof(checksum));
	memcpy(digest, md2->state, MD2_BYTES);
}

static const uint8_t key[MD2_BYTES] = { 0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
					0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f };

static void add_key(struct md2 *md2, uint8_t pad)
{
	uint8_t padded[MD2_BYTES];

	for (unsigned i = 0; i < MD2_BYTES; i++)
		padded[i] = key[i] ^ pad;
	md2_add(md2, padded, sizeof(padded));
}

/* Runtimes whose version ends in 0 or 1 expect one of two constants. */
static bool is_constant(uint32_t version, uint8_t answer[16])
{
	static const uint8_t constant[16] = { 0x5c, 0x67, 0xcb, 0x03, 0x1c, 0x18, 0x41, 0x33,
					      0xe8, 0xd1, 0x4c, 0x1f, 0xaa, 0x83, 0xd3, 0x8e };

	memcpy(answer, constant, sizeof(constant));
	if (version % 10 == 1)
		answer[7] = 0x18;
	return version % 10 < 2;
}

void integrity_answer(const struct integrity_question *question, const struct integrity_device *devices,
		      unsigned device_count, uint8_t answer[16])
{
	struct md2 inner = { 0 }, outer = { 0 };
	uint8_t digest[MD2_BYTES];

	if (is_constant(question->runtime_version, answer))
		return;
	add_key(&inner, 0x36);
	md2_add(&inner, question, sizeof(*question));
	md2_add(&inner, devices, device_count * sizeof(*devices));
	md2_end(&inner, digest);
	add_key(&outer, 0x5c);
	md2_add(&outer, digest, sizeof(digest));
	md2_end(&outer, answer);
}
