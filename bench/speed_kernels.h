/* The kernels whose speed is measured, by kind: those of the tests, with sizes that take a while. */
#ifndef BELFRY_BENCH_SPEED_KERNELS_H
#define BELFRY_BENCH_SPEED_KERNELS_H

#include <stdint.h>

struct bench {
	const char *file; /* of tests/data/ptx, or NULL: the text below */
	const char *kernel;
	const char *kind;
	uint32_t grid[3];
	uint32_t threads[3];
	uint32_t dynamic_bytes;
	/* parameters: numbers, then 0x8000000000000000 | offset for device addresses; sizes as in the kernel */
	uint64_t params[10];
};

#define AT(megabytes) (0x8000000000000000ull | (uint64_t)(megabytes) << 20)

static const char loop_text[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry loop(.param .u32 n, .param .u64 out)\n{\n"
	".reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n.reg .pred %p;\n"
	"ld.param.u32 %r0, [n];\nld.param.u64 %rd0, [out];\nmov.u32 %r1, %tid.x;\n"
	"mov.u32 %r2, 0;\nmov.u32 %r3, 1;\n"
	"again:\nadd.s32 %r3, %r3, %r1;\nxor.b32 %r4, %r3, %r2;\nshl.b32 %r5, %r4, 3;\n"
	"mad.lo.s32 %r3, %r5, 5, %r4;\nshr.u32 %r6, %r3, 7;\nsub.s32 %r3, %r3, %r6;\n"
	"add.s32 %r2, %r2, 1;\nsetp.lt.u32 %p, %r2, %r0;\n@%p bra again;\n"
	"mad.wide.u32 %rd1, %r1, 4, %rd0;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";

static const struct bench benches[] = {
	{ NULL, "loop", "integer loop", { 64 }, { 256 }, 0, { 1000, AT(0) } },
	{ "vector", "saxpy", "saxpy", { 4096 }, { 256 }, 0, { 1 << 20, 0x40200000, AT(0), AT(16) } },
	{ "vector", "half_axpy", "half axpy", { 1024 }, { 256 }, 0, { 1 << 18, 0x3c00, AT(0), AT(16) } },
	{ "matrix",
	  "gemm",
	  "tiled GEMM f32",
	  { 8, 8 },
	  { 16, 16 },
	  0,
	  { 128, 128, 128, AT(0), AT(8), AT(16) } },
	{ "matrix", "matvec", "matrix-vector f64", { 16 }, { 64 }, 0, { 1024, 512, AT(0), AT(16), AT(24) } },
	{ "matrix", "transpose", "transpose", { 16, 16 }, { 32, 8 }, 0, { 512, 512, AT(0), AT(16) } },
	{ "block", "reduce_shared", "reduction, shared", { 1024 }, { 256 }, 0, { 1 << 18, AT(0), AT(32) } },
	{ "block",
	  "reduce_shuffle",
	  "reduction, shuffles",
	  { 1024 },
	  { 256 },
	  0,
	  { 1 << 18, AT(0), AT(32) } },
	{ "block", "bitonic", "bitonic sort", { 64 }, { 128 }, 0, { AT(0) } },
	{ "block", "histogram", "histogram, atomics", { 64 }, { 256 }, 0, { 1 << 20, AT(0), AT(32) } },
	{ "block", "fft", "FFT", { 512 }, { 128 }, 0, { AT(32), AT(0) } },
	{ "words", "sha256", "SHA-256", { 64 }, { 128 }, 0, { 8192, AT(0), AT(16) } },
	{ "words", "crc32", "CRC-32", { 32 }, { 128 }, 0, { 4096, 64, AT(0), AT(16) } },
	{ "words",
	  "modpow",
	  "64-bit modular power",
	  { 4 },
	  { 128 },
	  0,
	  { 512, AT(1), AT(2), 1000000007, AT(16) } },
	{ "grid",
	  "mandelbrot",
	  "Mandelbrot (divergent)",
	  { 16, 16 },
	  { 16, 16 },
	  0,
	  { 256, 256, 200, AT(0) } },
	{ "grid", "stencil2d", "stencil f32", { 32, 64 }, { 32, 8 }, 0, { 1024, 512, AT(0), AT(16) } },
	{ "grid", "nbody", "n-body", { 16 }, { 64 }, 0, { 1024, AT(0), AT(16) } },
	{ "grid", "monte_carlo", "Monte Carlo", { 64 }, { 256 }, 0, { 200, AT(0) } },
	{ "net",
	  "attention",
	  "attention f32",
	  { 4, 64 },
	  { 64 },
	  0,
	  { 64, 4, AT(0), AT(8), AT(16), AT(24) } },
	{ "net", "softmax", "softmax", { 256 }, { 128 }, 0, { 1024, 128, AT(0), AT(16) } },
};

#endif
