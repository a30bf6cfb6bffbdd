/* The card's memory: promises to vGPUs with a limit, and what those without one share. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "warden/ledger.h"

#define MIB (1ull << 20)
#define MEMORY_CLASS 0x40

static int promise(struct pool *pool, uint64_t before, uint64_t after, struct bf_error *err)
{
	struct pool_change change = { .promised_before = before, .promised_after = after };

	return pool_promise(pool, &change, err);
}

static struct ledger *ledger_of(struct pool *pool, uint64_t limit)
{
	struct ledger *ledger = ledger_new(limit, NULL, NULL);

	assert_non_null(ledger);
	ledger_set_pool(ledger, pool);
	return ledger;
}

static bool take(struct ledger *ledger, uint32_t handle, uint64_t bytes)
{
	if (!ledger_claim(ledger, bytes))
		return false;
	assert_non_null(ledger_add(ledger, 1, 1, handle, MEMORY_CLASS, RM_KIND_VIDMEM, bytes));
	ledger_unclaim(ledger);
	return true;
}

static void what_is_promised_is_not_shared(void **state)
{
	struct pool *pool = pool_new(100 * MIB);
	struct ledger *ledger = ledger_of(pool, 0);

	(void)state;
	assert_int_equal(promise(pool, 0, 60 * MIB, NULL), 0);
	assert_int_equal(ledger_limit(ledger), 40 * MIB);
	assert_int_equal(ledger_room(ledger), 40 * MIB);
	assert_false(take(ledger, 2, 40 * MIB + 1));
	assert_true(take(ledger, 2, 40 * MIB));
	assert_false(take(ledger, 3, 1));
	ledger_remove(ledger, 1, 2);
	assert_int_equal(ledger_room(ledger), 40 * MIB);
	ledger_free(ledger);
	assert_int_equal(pool_use(pool).shared_bytes, 0);
	pool_free(pool);
}

static void what_is_shared_is_not_promised(void **state)
{
	struct pool *pool = pool_new(100 * MIB);
	struct ledger *ledger = ledger_of(pool, 0);
	struct bf_error err = { 0 };

	(void)state;
	assert_true(take(ledger, 2, 70 * MIB));
	assert_int_equal(promise(pool, 0, 30 * MIB + 1, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "70 MiB are in use on vGPUs without a limit, 30 MiB are left"));
	assert_int_equal(promise(pool, 0, 30 * MIB, NULL), 0);
	assert_int_equal(promise(pool, 30 * MIB, 31 * MIB, NULL), -ENOSPC);
	assert_int_equal(promise(pool, 30 * MIB, 10 * MIB, NULL), 0);
	assert_int_equal(ledger_room(ledger), 20 * MIB);
	ledger_free(ledger);
	pool_free(pool);
}

static void a_limit_that_comes_or_goes_takes_the_use_along(void **state)
{
	struct pool *pool = pool_new(100 * MIB);
	struct ledger *ledger = ledger_of(pool, 0), *other = ledger_of(pool, 0);

	(void)state;
	assert_true(take(ledger, 2, 50 * MIB));
	assert_true(take(other, 2, 20 * MIB));
	assert_int_equal(ledger_set_limit(ledger, 81 * MIB, NULL), -ENOSPC);
	assert_int_equal(ledger_set_limit(ledger, 80 * MIB, NULL), 0);
	assert_int_equal(ledger_room(other), 0);
	assert_int_equal(ledger_room(ledger), 30 * MIB);
	assert_int_equal(ledger_set_limit(ledger, 0, NULL), 0);
	assert_int_equal(ledger_room(ledger), 30 * MIB);
	assert_int_equal(ledger_room(other), 30 * MIB);
	ledger_free(ledger);
	ledger_free(other);
	assert_int_equal(pool_use(pool).promised_bytes, 0);
	assert_int_equal(pool_use(pool).shared_bytes, 0);
	pool_free(pool);
}

static void memory_that_moves_is_not_shared_on_the_way(void **state)
{
	struct pool *pool = pool_new(100 * MIB);
	struct ledger *ledger = ledger_of(pool, 0);

	(void)state;
	assert_int_equal(promise(pool, 0, 60 * MIB, NULL), 0);
	assert_int_equal(promise(pool, 0, 40 * MIB, NULL), 0);
	pool_begin_move(pool);
	assert_int_equal(promise(pool, 60 * MIB, 50 * MIB, NULL), 0);
	assert_int_equal(ledger_room(ledger), 0);
	assert_int_equal(promise(pool, 40 * MIB, 50 * MIB, NULL), 0);
	pool_end_move(pool);
	assert_int_equal(ledger_room(ledger), 0);
	assert_int_equal(pool_use(pool).promised_bytes, 100 * MIB);
	ledger_free(ledger);
	pool_free(pool);
}

static void managed_memory_that_was_not_asked_for_is_seen(void **state)
{
	struct pool *pool = pool_new(10 * MIB);
	struct ledger *ledger = ledger_of(pool, 0), *other = ledger_of(pool, 0);

	(void)state;
	assert_true(take(other, 2, 8 * MIB));
	ledger_set_managed(ledger, 4 * MIB);
	assert_true(ledger_is_over(ledger));
	assert_false(ledger_is_over(other));
	assert_int_equal(ledger_room(other), 0);
	ledger_set_managed(ledger, 2 * MIB);
	assert_false(ledger_is_over(ledger));
	ledger_free(ledger);
	ledger_free(other);
	pool_free(pool);
}

enum { THREADS = 4, PIECES = 20000 };

static void *take_and_leave(void *context)
{
	struct pool *pool = context;
	struct ledger *ledger = ledger_of(pool, 0);

	for (uint32_t i = 0; i < PIECES; i++) {
		struct pool_use use;

		if (take(ledger, 2 + i, MIB / 2 + i))
			ledger_remove(ledger, 1, 2 + i);
		use = pool_use(pool);
		if (use.promised_bytes + use.shared_bytes > use.total_bytes)
			return context;
	}
	ledger_free(ledger);
	return NULL;
}

static void threads_never_have_a_byte_more_together(void **state)
{
	struct pool *pool = pool_new(2 * MIB);
	pthread_t threads[THREADS];
	void *over = NULL;

	(void)state;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_and_leave, pool), 0);
	for (unsigned i = 0; i < PIECES; i++)
		if (!promise(pool, 0, MIB, NULL))
			promise(pool, MIB, 0, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &over);
		assert_null(over);
	}
	assert_int_equal(pool_use(pool).shared_bytes, 0);
	pool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_promised_is_not_shared),
		cmocka_unit_test(what_is_shared_is_not_promised),
		cmocka_unit_test(a_limit_that_comes_or_goes_takes_the_use_along),
		cmocka_unit_test(memory_that_moves_is_not_shared_on_the_way),
		cmocka_unit_test(managed_memory_that_was_not_asked_for_is_seen),
		cmocka_unit_test(threads_never_have_a_byte_more_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
