// Integers and bytes: hashes, checksums, search, modular arithmetic, carries.
#include <stdint.h>

__constant__ uint32_t sha_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

__device__ uint32_t rotr(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

// One 64-byte message a thread, already padded.
extern "C" __global__ void sha256(int n, const uint32_t *message, uint32_t *digest)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	uint32_t w[64], v[8];
	for (int t = 0; t < 16; t++)
		w[t] = message[i * 16 + t];
	for (int t = 16; t < 64; t++) {
		uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
		uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
		w[t] = w[t - 16] + s0 + w[t - 7] + s1;
	}
	for (int k = 0; k < 8; k++)
		v[k] = h[k];
	for (int t = 0; t < 64; t++) {
		uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25), ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
		uint32_t t1 = v[7] + s1 + ch + sha_k[t] + w[t];
		uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
		uint32_t maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
		for (int k = 7; k > 0; k--)
			v[k] = v[k - 1];
		v[4] += t1;
		v[0] = t1 + s0 + maj;
	}
	for (int k = 0; k < 8; k++)
		digest[i * 8 + k] = h[k] + v[k];
}

// CRC-32 of `length` bytes a thread.
extern "C" __global__ void crc32(int n, int length, const uint8_t *data, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	uint32_t crc = 0xffffffff;
	for (int k = 0; k < length; k++) {
		crc ^= data[i * length + k];
		for (int b = 0; b < 8; b++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	out[i] = ~crc;
}

extern "C" __global__ void string_search(int n, const char *text, int length, const char *word, int *first, int *count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i + length > n)
		return;
	for (int k = 0; k < length; k++)
		if (text[i + k] != word[k])
			return;
	atomicAdd(count, 1);
	atomicMin(first, i);
}

__device__ uint64_t mulmod(uint64_t a, uint64_t b, uint64_t m)
{
	uint64_t r = 0;
	for (a %= m; b; b >>= 1) {
		if (b & 1)
			r = r >= m - a ? r - (m - a) : r + a;
		a = a >= m - a ? a - (m - a) : a + a;
	}
	return r;
}

extern "C" __global__ void modpow(int n, const uint64_t *base, const uint64_t *exponent, uint64_t m, uint64_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	uint64_t r = 1, b = base[i];
	for (uint64_t e = exponent[i]; e; e >>= 1) {
		if (e & 1)
			r = mulmod(r, b, m);
		b = mulmod(b, b, m);
	}
	out[i] = r;
}

// 128-bit sums and products: carries.
extern "C" __global__ void wide(int n, const uint64_t *x, const uint64_t *y, uint64_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	unsigned __int128 a = (unsigned __int128)x[2 * i + 1] << 64 | x[2 * i];
	unsigned __int128 b = (unsigned __int128)y[2 * i + 1] << 64 | y[2 * i];
	unsigned __int128 s = a * b + (a - b);
	out[2 * i] = (uint64_t)s;
	out[2 * i + 1] = (uint64_t)(s >> 64);
}

// Bytes of words: dot products, permutations, shifts through both halves.
extern "C" __global__ void bytes(int n, const uint32_t *x, const uint32_t *y, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	uint32_t a = x[i], b = y[i], r = 0;
	r += __dp4a((int)a, (int)b, 5);
	r ^= __dp4a(a, b, 7u);
	r += __byte_perm(a, b, 0x5173);
	r ^= __funnelshift_l(a, b, b & 63) + __funnelshift_rc(a, b, a & 63);
	r += __ffs(a) + __ffsll(((uint64_t)a << 32) | b) + __usad(a, b, 3) + __mul24(a, b) + __umul24(a, b);
	r += __hadd((int)a, (int)b) + __rhadd((int)a, (int)b);
	out[i] = r;
}
