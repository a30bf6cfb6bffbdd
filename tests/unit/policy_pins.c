/* A policy beside others: maps that are pinned for bpftool, and threads that call one while it goes. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "policy_rig.h"
#include "skipping.h"

struct caller {
	pthread_t thread;
	struct policy *policy;
	_Atomic uint64_t calls;
	int last;
};

static void *call_until_it_is_out(void *data)
{
	struct caller *caller = data;
	struct belfry_pick pick = pick_of(8);

	do {
		caller->last = call_pick(caller->policy, &pick);
		atomic_fetch_add(&caller->calls, 1);
	} while (caller->last >= 0);
	policy_put(caller->policy);
	return NULL;
}

static void policy_may_go_while_it_is_called(void **state)
{
	const struct policy_options patient = { .budget_ns = 10000000000 };

	(void)state;
	need_ebpf();
	for (int i = 0; i < 20; i++) {
		struct caller callers[2] = { 0 };
		struct policy *policy = load_object("least", &patient);

		fill_table(policy, 8, 3);
		for (size_t j = 0; j < COUNT(callers); j++) {
			callers[j].policy = policy_get(policy);
			assert_int_equal(
				pthread_create(&callers[j].thread, NULL, call_until_it_is_out, &callers[j]),
				0);
		}
		for (size_t j = 0; j < COUNT(callers); j++)
			while (atomic_load(&callers[j].calls) < 20)
				sched_yield();
		policy_fail(policy, "the test is over");
		policy_put(policy);
		for (size_t j = 0; j < COUNT(callers); j++) {
			pthread_join(callers[j].thread, NULL);
			assert_int_equal(callers[j].last, -ENOENT);
		}
	}
}

static char bpffs_folder[32];

/* A bpffs of this process alone, in a folder that is removed again; skips the test where that is not allowed. */
static const char *private_bpffs(void)
{
	char *folder = bpffs_folder;

	if (folder[0])
		return folder;
	need_ebpf();
	snprintf(folder, sizeof(bpffs_folder), "/tmp/belfry-pin-XXXXXX");
	if (!mkdtemp(folder))
		fail_msg("%s: %s", folder, strerror(errno));
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("bpf", folder, "bpf", 0, NULL)) {
		rmdir(folder);
		folder[0] = 0;
		skip_case("no bpffs can be mounted");
	}
	return folder;
}

static unsigned count_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	unsigned count = 0;

	if (!folder)
		return 0;
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

static void remove_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
	closedir(folder);
}

static bool has_entry(const char *folder, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !access(path, F_OK);
}

static struct policy *load_pinned(const char *folder)
{
	struct policy *policy = load_object("least", NULL);

	policy_pin(policy, folder);
	return policy;
}

static void maps_are_pinned_as_long_as_the_policy_is_there(void **state)
{
	const char *bpffs = private_bpffs();
	char pins[128];
	struct policy *policy;
	struct stat st;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/belfry/gpu0/least", bpffs);
	policy = load_pinned(pins);
	assert_string_equal(policy_pinned(policy), pins);
	assert_true(has_entry(pins, "belfry_vgpus"));
	assert_true(has_entry(pins, "picked"));
	assert_true(has_entry(pins, "rodata"));
	assert_true(has_entry(pins, "rodata_belfry"));
	assert_true(has_entry(pins, "bss"));
	assert_int_equal(stat(pins, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	policy_put(policy);
	assert_false(has_entry(bpffs, "belfry"));
}

static void maps_of_one_pin_are_named(void **state)
{
	struct policy *policy;
	char pins[128];

	(void)state;
	snprintf(pins, sizeof(pins), "%s/belfry/map_bss", private_bpffs());
	policy = load_object("map_bss", NULL);
	policy_pin(policy, pins);
	assert_text_has(policy_pinned(policy),
			"not pinned: maps bss and map_bss.bss would both be pinned at /");
	assert_text_has(policy_pinned(policy), "/belfry/map_bss/bss; rename one");
	policy_put(policy);
}

static void pins_that_are_removed_from_outside_stop_nothing(void **state)
{
	const char *bpffs = private_bpffs();
	struct belfry_pick pick = pick_of(4);
	char pins[128];
	struct policy *policy;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/least", bpffs);
	policy = load_pinned(pins);
	remove_entries(pins);
	assert_int_equal(rmdir(pins), 0);
	fill_table(policy, 4, 2);
	assert_int_equal(call_pick(policy, &pick), BELFRY_PROPOSE);
	assert_int_equal(pick.choice, 2);
	policy_put(policy);
	assert_false(has_entry(bpffs, "least"));
}

static void pins_of_the_dead_are_replaced_and_those_of_the_next_kept(void **state)
{
	const char *bpffs = private_bpffs();
	char pins[128];
	struct policy *old, *next;
	unsigned left;
	int status = 0;
	pid_t pid;

	(void)state;
	snprintf(pins, sizeof(pins), "%s/belfry/least", bpffs);
	pid = fork();
	if (!pid) {
		load_pinned(pins);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	left = count_entries(pins);
	assert_in_range(left, 5, 16);
	old = load_pinned(pins);
	assert_string_equal(policy_pinned(old), pins);
	next = load_pinned(pins);
	assert_string_equal(policy_pinned(next), pins);
	policy_put(old);
	assert_int_equal(count_entries(pins), left);
	policy_put(next);
	assert_false(has_entry(bpffs, "belfry"));
}

/* In a process that is killed before it can remove anything. */
static void leave_pins(const char *pins)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		load_pinned(pins);
		raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_in_range(count_entries(pins), 5, 16);
}

static void what_a_gpu_server_that_was_killed_has_pinned_is_removed_and_nothing_else(void **state)
{
	const char *bpffs = private_bpffs();
	char own[128], of_gpu[160], of_vgpu[160], others[160], outside[64], link[160], linked[160];

	(void)state;
	snprintf(own, sizeof(own), "%s/belfry/gpu0", bpffs);
	snprintf(of_gpu, sizeof(of_gpu), "%s/least", own);
	snprintf(of_vgpu, sizeof(of_vgpu), "%s/vgpu3/least", own);
	snprintf(others, sizeof(others), "%s/belfry/gpu01/least", bpffs);
	snprintf(outside, sizeof(outside), "%s/outside", bpffs);
	snprintf(link, sizeof(link), "%s/link", own);
	leave_pins(of_gpu);
	leave_pins(of_vgpu);
	leave_pins(others);
	leave_pins(outside);
	assert_int_equal(symlink(outside, link), 0);
	policy_clear_pins(own);
	assert_false(has_entry(bpffs, "belfry/gpu0"));
	assert_in_range(count_entries(others), 5, 16);
	assert_in_range(count_entries(outside), 5, 16);

	/* Not through a link, not outside of a bpffs, and not the bpffs itself. */
	snprintf(linked, sizeof(linked), "%s/linked", bpffs);
	assert_int_equal(symlink(outside, linked), 0);
	policy_clear_pins(linked);
	policy_clear_pins(bpffs);
	assert_in_range(count_entries(outside), 5, 16);
	assert_true(has_entry(bpffs, "linked"));
	assert_int_equal(unlink(linked), 0);
	policy_clear_pins("/no/such/folder");

	snprintf(own, sizeof(own), "%s/belfry/gpu01", bpffs);
	policy_clear_pins(own);
	assert_false(has_entry(bpffs, "belfry"));
	policy_clear_pins(outside);
	assert_false(has_entry(bpffs, "outside"));
}

static void folders_outside_of_a_bpffs_are_left_alone(void **state)
{
	char folder[32] = "/tmp/belfry-pin-XXXXXX", file[64];
	FILE *made;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file", folder);
	made = fopen(file, "we");
	assert_non_null(made);
	fclose(made);
	policy_clear_pins(folder);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void assert_is_not_pinned(const char *folder, const char *words)
{
	struct belfry_pick pick = pick_of(0);
	struct policy *policy = load_pinned(folder);

	assert_ptr_equal(strstr(policy_pinned(policy), "not pinned: "), policy_pinned(policy));
	assert_text_has(policy_pinned(policy), words);
	assert_int_equal(call_pick(policy, &pick), BELFRY_DEFAULT);
	policy_put(policy);
}

static void where_nothing_can_be_pinned_a_policy_works_without(void **state)
{
	const char *bpffs = private_bpffs();
	char long_path[400];

	(void)state;
	assert_is_not_pinned("/tmp/belfry-no-bpffs/gpu0", "is not in a bpffs");
	assert_int_not_equal(access("/tmp/belfry-no-bpffs", F_OK), 0);
	assert_is_not_pinned("relative", "not an absolute path");
	memset(long_path, 'x', sizeof(long_path));
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = 0;
	assert_is_not_pinned(long_path, "not an absolute path");
	/* The bpffs itself is everybody's. */
	assert_is_not_pinned(bpffs, "not a directory in a bpffs that only this user can write");
	assert_int_equal(access(bpffs, F_OK), 0);
}

static int remove_bpffs(void **state)
{
	(void)state;
	if (bpffs_folder[0] && (umount(bpffs_folder) || rmdir(bpffs_folder)))
		return -1;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_may_go_while_it_is_called),
		cmocka_unit_test(maps_are_pinned_as_long_as_the_policy_is_there),
		cmocka_unit_test(maps_of_one_pin_are_named),
		cmocka_unit_test(pins_that_are_removed_from_outside_stop_nothing),
		cmocka_unit_test(pins_of_the_dead_are_replaced_and_those_of_the_next_kept),
		cmocka_unit_test(what_a_gpu_server_that_was_killed_has_pinned_is_removed_and_nothing_else),
		cmocka_unit_test(folders_outside_of_a_bpffs_are_left_alone),
		cmocka_unit_test(where_nothing_can_be_pinned_a_policy_works_without),
	};

	return cmocka_run_group_tests_name("policy_pins", tests, NULL, remove_bpffs);
}
