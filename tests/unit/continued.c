/* continued: which calls the kernel may make itself, and that each entry says why. */
#include "warden/continued.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define CALL(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', (nr), (size))
#define OTHER_CALL 0x5401u /* TCGETS, which no file of the driver's takes */

static const struct rm_layout *layout(void)
{
	return rm_layout_at(0);
}

static bool is_listed(struct continued_call call)
{
	return continued_find(layout(), &call);
}

static bool is_ioctl_listed(uint32_t cmd, enum device_file kind)
{
	return is_listed(
		(struct continued_call){ .nr = SYS_ioctl, .cmd = cmd, .is_seen = true, .kind = kind });
}

static bool is_mmap_listed(enum device_file kind, bool is_prepared)
{
	return is_listed((struct continued_call){
		.nr = SYS_mmap, .is_seen = true, .kind = kind, .is_prepared = is_prepared });
}

static void every_entry_says_why(void **state)
{
	const struct continued_entry *entry;

	(void)state;
	for (unsigned i = 0; (entry = continued_at(i)); i++) {
		assert_true(strlen(entry->name) > 3);
		assert_true(strlen(entry->reason) > 6);
		assert_true(entry->files);
	}
}

static void a_device_file_is_mapped_only_if_it_is_prepared(void **state)
{
	static const enum device_file kinds[] = { DEVICE_FILE_CONTROL, DEVICE_FILE_GPU, DEVICE_FILE_MANAGED };

	(void)state;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		assert_true(is_mmap_listed(kinds[i], true));
		assert_false(is_mmap_listed(kinds[i], false));
	}
	assert_false(is_mmap_listed(DEVICE_FILE_OTHER_GPU, true));
	assert_true(is_mmap_listed(DEVICE_FILE_NONE, false));
}

static void no_driver_call_goes_on_but_pages_of_the_programs_own(void **state)
{
	const uint32_t pages = CALL(RM_ESC_ALLOC_MEMORY, sizeof(struct rm_arg_alloc_memory));

	(void)state;
	for (int kind = DEVICE_FILE_NONE; kind <= DEVICE_FILE_MANAGED; kind++) {
		assert_true(is_ioctl_listed(pages, kind) == (kind == DEVICE_FILE_GPU));
		for (uint32_t nr = 0; nr < 256; nr++)
			for (uint32_t size = 0; size < 1 << 14; size++)
				if (rm_is_call(nr, size) && CALL(nr, size) != pages)
					assert_false(is_ioctl_listed(CALL(nr, size), kind));
		for (unsigned i = 0; rm_uvm_at(i); i++)
			if (rm_uvm_find(layout(), rm_uvm_at(i)->cmd))
				assert_false(is_ioctl_listed(rm_uvm_at(i)->cmd, kind));
	}
}

/* The driver does not look at the magic byte. */
static void the_magic_byte_changes_nothing(void **state)
{
	(void)state;
	for (uint32_t magic = 0; magic < 256; magic++)
		assert_false(is_ioctl_listed(
			_IOC(_IOC_READ, magic, RM_ESC_ALLOC, sizeof(struct rm_arg_alloc)), DEVICE_FILE_NONE));
}

static void display_calls_that_make_memory_do_not_go_on(void **state)
{
	(void)state;
	assert_false(is_ioctl_listed(_IOC(_IOC_READ | _IOC_WRITE, 'd', 0x40, 24), DEVICE_FILE_NONE));
	assert_false(is_ioctl_listed(_IOC(_IOC_READ | _IOC_WRITE, 'd', 0xb2, 32), DEVICE_FILE_NONE));
	assert_true(is_ioctl_listed(_IOC(_IOC_READ | _IOC_WRITE, 'd', 0x00, 64), DEVICE_FILE_NONE));
}

static void other_calls_go_on_where_no_device_file_is(void **state)
{
	(void)state;
	assert_true(is_ioctl_listed(OTHER_CALL, DEVICE_FILE_NONE));
	for (int kind = DEVICE_FILE_CONTROL; kind <= DEVICE_FILE_MANAGED; kind++)
		assert_false(is_ioctl_listed(OTHER_CALL, kind));
}

static void a_file_that_cannot_be_looked_at_may_be_the_devices(void **state)
{
	struct continued_call call = { .nr = SYS_ioctl, .cmd = OTHER_CALL };

	(void)state;
	assert_true(is_listed(call));
	call.cmd = CALL(RM_ESC_FREE, sizeof(struct rm_arg_free));
	assert_false(is_listed(call));
	assert_false(is_listed((struct continued_call){ .nr = SYS_mmap, .is_prepared = true }));
}

static void other_system_calls_are_not_on_the_list(void **state)
{
	(void)state;
	for (int nr = 0; nr < 512; nr++)
		if (nr != SYS_ioctl && nr != SYS_mmap && nr != SYS_open && nr != SYS_openat) {
			assert_false(is_listed((struct continued_call){ .nr = nr }));
			assert_false(is_listed((struct continued_call){ .nr = nr, .is_seen = true }));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_entry_says_why),
		cmocka_unit_test(a_device_file_is_mapped_only_if_it_is_prepared),
		cmocka_unit_test(no_driver_call_goes_on_but_pages_of_the_programs_own),
		cmocka_unit_test(the_magic_byte_changes_nothing),
		cmocka_unit_test(display_calls_that_make_memory_do_not_go_on),
		cmocka_unit_test(other_calls_go_on_where_no_device_file_is),
		cmocka_unit_test(a_file_that_cannot_be_looked_at_may_be_the_devices),
		cmocka_unit_test(other_system_calls_are_not_on_the_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
