/* SPDX-License-Identifier: MIT */
/* util: clocks, options, figures and the belfry command for the GPU tests. */
#ifndef TESTS_GPU_UTIL_H
#define TESTS_GPU_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB (1ull << 20)

/* The same in every process of the machine, and not slewed by NTP, which the GPU's clock does not follow
 * either. */
uint64_t now_ns(void);
void sleep_us(uint64_t us);

/* The value after `--name`, or the fallback. A value may end in K, M or G; a bad one ends the program (2). */
uint64_t option_number(int argc, char **argv, const char *name, uint64_t fallback);
const char *option_text(int argc, char **argv, const char *name, const char *fallback);

/* Sorts in place, then the value below which `percent` of them lie; 0 of none. */
double percentile(double *values, size_t count, double percent);

/* Say why, exit 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A program beside this one. */
void sibling_path(char *path, size_t size, const char *name);

/* Start a program (PATH is searched); its pid, or the test fails. With `out`, a pipe to its stdout. */
pid_t spawn(const char *const argv[], int *out);

/* Wait for a process at most this long, then kill it. Its exit status, 128 + signal, or -1 when it was
 * killed. */
int wait_for(pid_t pid, uint64_t timeout_ms);

/* Run $BELFRY (or "belfry") with up to five arguments, the first NULL ends them. What it printed goes to
 * `out`. Its exit status. */
int belfry(char *out, size_t size, const char *const args[]);

/* Run a command that answers {"us": N}; ends the test when it fails. The figure, or -1 when it gave none. */
double belfry_us(const char *verb, const char *name);

#endif
