/* SPDX-License-Identifier: MIT */
/* kernels: the tests' GPU code as PTX text. Written for sm_80 so that any GPU since Ampere takes it.
 * Checked with `ptxas -arch=sm_90`; `build.sh --ptx` does it where the toolkit is. */
#ifndef TESTS_GPU_KERNELS_H
#define TESTS_GPU_KERNELS_H

/* saxpy(u64 x, u64 y, f32 a, u32 n): y[i] = a * x[i] + y[i] */
extern const char kernel_saxpy[];

/* nop(): nothing. tick(u64 at, u64 ns): stores its start (%globaltimer) at `at`, then spins for ns.
 * flag(u64 at, u64 ns): stores 1 at `at` at once, then spins for ns. */
extern const char kernel_time[];

/* work(u64 out, u64 done, u64 beat, u32 rounds): block 0 stores %globaltimer to `beat` again and again
 * until all other blocks have counted themselves in `done`; those run `rounds` of integer arithmetic per
 * thread and store the result in out[(block - 1) * threads + thread]. See work_reference() for the same on
 * the CPU. */
extern const char kernel_work[];

/* illegal(): stores to address 64. trap(): PTX trap. assert(): what assert(0) in CUDA C compiles to. */
extern const char kernel_illegal[];
extern const char kernel_trap[];
extern const char kernel_assert[];

/* steady(u64 in, u64 out, u32 step, u32 mask): out[i] = mix of in[i], in[(i * 5 + step) & mask] and step */
extern const char kernel_steady[];

/* add(u64 at, u32 value, u32 n): at[i] = at[i] * 3 + value */
extern const char kernel_add[];

/* One saxpy over n floats, checked on the CPU. 0, or 1 after saying what was wrong. */
int saxpy_check(unsigned n);

#endif
