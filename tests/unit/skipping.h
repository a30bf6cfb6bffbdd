/* Cases of cmocka programs that lack something that they need. cmocka counts them and exits with 0; with skipping.c the
 * program exits with 77, as every test does (tests/check.h). */
#ifndef BELFRY_TESTS_SKIPPING_H
#define BELFRY_TESTS_SKIPPING_H

/* Skips the case that calls it. */
__attribute__((noreturn)) void skip_case(const char *why);

#endif
