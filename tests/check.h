/* Checks and the exit status of test programs. Every test, in whatever language, exits with 0 if it passed, with 77 if it
 * lacked something that it needs, and with another status if it failed. A program of which one test lacked something
 * exits with 77 as a whole. */
#ifndef BELFRY_TESTS_CHECK_H
#define BELFRY_TESTS_CHECK_H

#include <stdio.h>
#include <unistd.h>

enum { CHECK_SKIPPED = 77 };

/* Ends the process if a condition does not hold. Threads and forked processes use these, too, so that no exit handlers run. */
#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #what); \
			_exit(1); \
		} \
	} while (0)
#define CHECK_EQUAL(got, wanted) \
	do { \
		long long check_got = (long long)(got), check_wanted = (long long)(wanted); \
\
		if (check_got != check_wanted) { \
			fprintf(stderr, "%s:%d: %s: %s is %lld (0x%llx), not %lld (0x%llx)\n", __FILE__, \
				__LINE__, __func__, #got, check_got, (unsigned long long)check_got, \
				check_wanted, (unsigned long long)check_wanted); \
			_exit(1); \
		} \
	} while (0)

/* Something is missing that this test needs. Works in forked processes, too. */
void check_skip(const char *why);
/* What main returns if no test has failed: 0 or CHECK_SKIPPED. */
int check_status(void);

#endif
