/* Put before a test of single instructions (-include): what it expects is not asserted, so that every instruction
 * runs whatever the GPU answers, and rig_op() writes the answers to the file that RIG_DUMP names. The rig's own
 * assertions, in rig.c and ptx_op.c, stay. */
#ifndef BELFRY_TESTS_DUMP_H
#define BELFRY_TESTS_DUMP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#undef assert_true
#define assert_true(a) ((void)(a))
#undef assert_int_equal
#define assert_int_equal(a, b) ((void)(a), (void)(b))
#undef assert_memory_equal
#define assert_memory_equal(a, b, bytes) ((void)(a), (void)(b), (void)(bytes))
#undef fail_msg
/* its arguments are used, but not evaluated */
#define fail_msg(...) ((void)sizeof(snprintf(NULL, 0, __VA_ARGS__)))

#endif
