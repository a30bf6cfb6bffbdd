/* Shared domains in the driver of the software GPU: which client may join which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rm/rm.h"
#include "soft/driver/driver.h"

enum { DEVICE = 0x5c000001, GROUP, ERR_INVALID_STATE = 0x40 };

/* A program: a control file with a client and a device. */
struct program {
	struct file *file;
	uid_t uid;
	uint32_t client;
};

static struct driver *driver;

static int begin(void **state)
{
	struct link_config config = link_default;
	struct bf_error err = { 0 };

	(void)state;
	config.cores = 1;
	driver = driver_new(&config, &err);
	return driver ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	driver_free(driver);
	return 0;
}

static void make_call(const struct program *p, uint32_t nr, void *arg, uint32_t bytes, void *params,
		      uint32_t params_bytes)
{
	struct call call = { .file = p->file,
			     .pid = 1000,
			     .uid = p->uid,
			     .nr = nr,
			     .arg = arg,
			     .arg_bytes = bytes,
			     .params = params,
			     .params_bytes = params_bytes };

	assert_int_equal(driver_call(driver, &call), 0);
}

static uint32_t alloc(const struct program *p, uint32_t parent, uint32_t *handle, uint32_t class_id,
		      void *params, uint32_t size)
{
	struct rm_arg_alloc arg = {
		.client = p->client, .parent = parent, .object = *handle, .class_id = class_id, .size = size
	};

	make_call(p, RM_ESC_ALLOC, &arg, sizeof(arg), params, size);
	*handle = arg.object;
	return arg.status;
}

static void open_as(struct program *p, uid_t uid)
{
	uint32_t device[14] = { 0 }, handle = DEVICE;
	static uint64_t inode;
	int rc = 0;

	*p = (struct program){ .uid = uid, .file = file_new(driver, SOFT_FILE_CONTROL, ++inode, &rc) };
	assert_non_null(p->file);
	assert_int_equal(alloc(p, 0, &p->client, 0x41, NULL, 0), 0);
	assert_int_equal(alloc(p, p->client, &handle, 0x80, device, sizeof(device)), 0);
}

static void close_it(struct program *p)
{
	file_close(p->file);
	file_put(p->file);
}

static uint32_t make_group(struct program *p)
{
	uint32_t handle = GROUP;

	return alloc(p, DEVICE, &handle, 0xa06c, NULL, 0);
}

static uint32_t join_with(const struct program *p, uint32_t object, void *params, uint32_t size)
{
	struct rm_arg_control arg = {
		.client = p->client, .object = object, .cmd = SOFT_CTRL_ROOT_JOIN_DOMAIN, .size = size
	};

	make_call(p, RM_ESC_CONTROL, &arg, sizeof(arg), params, size);
	return arg.status;
}

static uint32_t join(const struct program *p, const char *name)
{
	struct soft_join_params params = { 0 };

	strcpy(params.name, name);
	return join_with(p, p->client, &params, sizeof(params));
}

static void client_joins_once_and_before_its_first_group(void **state)
{
	struct program a, b;

	(void)state;
	open_as(&a, 1000);
	open_as(&b, 1000);
	assert_int_equal(join(&a, "/run/pool"), 0);
	assert_int_equal(join(&a, "/run/pool"), ERR_INVALID_STATE);
	assert_int_equal(join(&a, "/run/other"), ERR_INVALID_STATE);
	assert_int_equal(make_group(&a), 0);
	assert_int_equal(make_group(&b), 0);
	assert_int_equal(join(&b, "/run/pool"), ERR_INVALID_STATE);
	close_it(&a);
	close_it(&b);
}

static void domain_belongs_to_the_user_of_its_first_client(void **state)
{
	struct program a, b, other;

	(void)state;
	open_as(&a, 1000);
	open_as(&b, 1000);
	open_as(&other, 1001);
	assert_int_equal(join(&a, "/run/pool"), 0);
	assert_int_equal(join(&other, "/run/pool"), RM_ERR_INSUFFICIENT_PERMISSIONS);
	assert_int_equal(join(&b, "/run/pool"), 0);
	close_it(&a);
	/* It has a client still. */
	assert_int_equal(join(&other, "/run/pool"), RM_ERR_INSUFFICIENT_PERMISSIONS);
	close_it(&b);
	/* Now it has none, and the name is free. */
	assert_int_equal(join(&other, "/run/pool"), 0);
	open_as(&a, 1000);
	assert_int_equal(join(&a, "/run/pool"), RM_ERR_INSUFFICIENT_PERMISSIONS);
	assert_int_equal(join(&a, "/run/pool2"), 0);
	close_it(&a);
	close_it(&other);
}

static void names_and_objects_are_checked(void **state)
{
	struct soft_join_params params = { 0 };
	struct program a;

	(void)state;
	open_as(&a, 1000);
	assert_int_equal(join(&a, ""), RM_ERR_INVALID_ARGUMENT);
	memset(params.name, 'x', sizeof(params.name));
	assert_int_equal(join_with(&a, a.client, &params, sizeof(params)), RM_ERR_INVALID_ARGUMENT);
	params.name[sizeof(params.name) - 1] = '\0';
	assert_int_equal(join_with(&a, a.client, &params, sizeof(params) - 1), RM_ERR_INVALID_ARGUMENT);
	assert_int_equal(join_with(&a, DEVICE, &params, sizeof(params)), RM_ERR_NOT_SUPPORTED);
	assert_int_equal(join_with(&a, a.client, &params, sizeof(params)), 0);
	close_it(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_joins_once_and_before_its_first_group),
		cmocka_unit_test(domain_belongs_to_the_user_of_its_first_client),
		cmocka_unit_test(names_and_objects_are_checked),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
