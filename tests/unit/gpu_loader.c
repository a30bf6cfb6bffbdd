/* loader: the order in which policies and probes of users are verified. */
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/policy.h"

/* In place of load.c and server.c. */
static sem_t may_verify;
static char order[16]; /* the first letters of the files, as they are settled */

void load_verify(struct load *load)
{
	(void)load;
	sem_wait(&may_verify);
}

void load_settle(struct load *load)
{
	if (!load->is_dropped)
		order[strlen(order)] = load->file[0];
	free(load);
}

void gpu_wake(struct gpu *gpu)
{
	(void)gpu;
}

static struct talker a_talker;

static int add(struct gpu *gpu, const char *file, uid_t uid, struct talker *talker)
{
	struct load *load = calloc(1, sizeof(*load));
	struct bf_error err = { 0 };
	int rc;

	snprintf(load->file, sizeof(load->file), "%s", file);
	load->gpu = gpu;
	load->talker = talker;
	load->uid = uid;
	load->is_admins = !uid;
	rc = loader_add(gpu, load, &err);
	if (rc) {
		assert_non_null(strstr(err.text, "another policy or probe of yours is being verified"));
		free(load);
	}
	return rc;
}

static void end(struct gpu *gpu, unsigned loads)
{
	while (loads--)
		sem_post(&may_verify);
	loader_wait(gpu);
	assert_null(gpu->loads);
	free(gpu);
}

static struct gpu *begin(void)
{
	memset(order, 0, sizeof(order));
	return calloc(1, sizeof(struct gpu));
}

static void user_has_one_load_at_a_time(void **state)
{
	struct gpu *gpu = begin();

	(void)state;
	assert_int_equal(add(gpu, "a", 1000, &a_talker), 0);
	assert_int_equal(add(gpu, "b", 1000, &a_talker), -EBUSY);
	assert_int_equal(add(gpu, "c", 1001, &a_talker), 0);
	assert_int_equal(add(gpu, "d", 1001, &a_talker), -EBUSY);
	end(gpu, 2);
	assert_string_equal(order, "ac");
}

static void loads_of_root_come_first(void **state)
{
	struct gpu *gpu = begin();

	(void)state;
	assert_int_equal(add(gpu, "a", 1000, &a_talker), 0);
	assert_int_equal(add(gpu, "b", 1001, &a_talker), 0);
	assert_int_equal(add(gpu, "r", 0, &a_talker), 0);
	assert_int_equal(add(gpu, "s", 0, &a_talker), 0);
	end(gpu, 4);
	assert_string_equal(order, "arsb");
}

/* The load that is being verified counts until it is done; one that waits does not. */
static void dropped_load_that_waits_is_freed(void **state)
{
	struct gpu *gpu = begin();
	struct talker gone;

	(void)state;
	assert_int_equal(add(gpu, "a", 1000, &gone), 0);
	assert_int_equal(add(gpu, "b", 1001, &gone), 0);
	assert_int_equal(add(gpu, "c", 1002, &a_talker), 0);
	loader_drop(gpu, &gone);
	assert_int_equal(add(gpu, "d", 1000, &a_talker), -EBUSY);
	assert_int_equal(add(gpu, "e", 1001, &a_talker), 0);
	end(gpu, 3);
	assert_string_equal(order, "ce");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(user_has_one_load_at_a_time),
		cmocka_unit_test(loads_of_root_come_first),
		cmocka_unit_test(dropped_load_that_waits_is_freed),
	};

	sem_init(&may_verify, 0, 0);
	return cmocka_run_group_tests_name("gpu_loader", tests, NULL, NULL);
}
