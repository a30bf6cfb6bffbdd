/* base: errors, logging, clocks, owned descriptors and memory, units. Nothing about GPUs. */
#ifndef BELFRY_BASE_ERROR_H
#define BELFRY_BASE_ERROR_H

/* The message for the user: what was tried, on what, why it failed, and what to do. */
struct bf_error {
	int code; /* positive errno */
	char text[384];
};

/* Fills *err (which may be NULL) and returns -code, so that a caller can `return bf_fail(...)`. */
int bf_fail(struct bf_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
