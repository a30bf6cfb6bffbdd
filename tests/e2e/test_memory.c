/* The limit of device memory, against a program that makes the calls of libcuda: what is counted, refused and given back. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "managed_file.h"
#include "soft/link/link.h"
#include "stage.h"

#define NO_MEMORY RM_ERR_NO_MEMORY
#define MIB CARD_MIB

static void program_fills_its_memory(struct actor *a)
{
	actor_new_device(a);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + i, 2 * MIB), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
	actor_say(a, 'f');
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 1ull << 40), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, UINT64_MAX), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
}

static void memory_is_refused_at_the_exact_byte(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_fills_its_memory, 0);
	stage_until(&s, 'f');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 8 * MIB);
	CHECK_EQUAL(report.mem_driver_bytes, 8 * MIB);
	CHECK_EQUAL(card_used_bytes(&s.card), 8 * MIB);
	stage_go_on(&s);
	while (!s.has_ended)
		stage_serve(&s, 1);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_end_well(&s);
}

/* The driver rounds up: what would not fit as rounded is taken back. */
static void program_meets_rounding(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 1), 0);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 1), NO_MEMORY);
	actor_say(a, 'r');
}

static void memory_is_counted_as_the_driver_rounds_it(void)
{
	struct stage s;

	stage_start(&s, 2 * CARD_ROUND - 1, program_meets_rounding, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(card_used_bytes(&s.card), CARD_ROUND);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_frees_in_every_way(struct actor *a)
{
	for (int way = 0; way < 5; way++) {
		struct actor other = *a;

		actor_new_device(a);
		for (uint32_t i = 0; i < 4; i++)
			CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + i, 2 * MIB), 0);
		CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 4, 1), NO_MEMORY);
		if (way == 0) /* one by one */
			for (uint32_t i = 0; i < 4; i++)
				CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY + i), 0);
		if (way == 1) /* with an ancestor */
			CHECK_EQUAL(actor_free(a, a->client, STAGE_DEVICE), 0);
		if (way == 2) /* with the client */
			CHECK_EQUAL(actor_free(a, a->client, a->client), 0);
		if (way == 3) { /* with the file */
			close(a->control);
			a->control = -1;
		}
		if (way == 4) { /* with a file that had been duplicated: only the last one counts */
			int copy = dup(a->control);

			close(a->control);
			actor_new_device(&other);
			CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 1), NO_MEMORY);
			close(copy);
			a->control = -1;
			close(other.control);
		}
		/* Another client can allocate all of it at once. */
		actor_new_device(&other);
		CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
		close(other.control);
		close(a->control);
	}
}

static void freed_memory_is_there_again_however_it_was_freed(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_frees_in_every_way, 0);
	stage_end_well(&s);
}

static void program_duplicates(struct actor *a)
{
	struct actor second = *a;

	actor_new_device(a);
	actor_new_device(&second);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY + 1, a->client, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_dup(&second, STAGE_MEMORY, a->client, STAGE_MEMORY), 0);
	actor_say(a, 'd');
	/* The memory lives as long as one name of it does. */
	CHECK_EQUAL(actor_free(a, a->client, a->client), 0);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_free(&second, STAGE_DEVICE, STAGE_MEMORY), 0);
	CHECK_EQUAL(actor_memory(&second, STAGE_DEVICE, STAGE_MEMORY + 1, 8 * MIB), 0);
	CHECK_EQUAL(actor_dup(&second, STAGE_MEMORY + 7, 0xc1d0ffff, 1), RM_ERR_INVALID_CLIENT);
}

static void duplicates_in_two_clients_are_counted_once(void)
{
	struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_duplicates, 0);
	stage_until(&s, 'd');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 6 * MIB);
	warden_audit(s.warden);
	warden_audit(s.warden);
	warden_audit(s.warden); /* nobody is ended for it */
	stage_go_on(&s);
	stage_end_well(&s);
}

/* What a program was given behind the warden's back is found by the audit, and the program ended. Only the driver's own
 * file takes calls, and no program has it; so the test notes which it is and makes such a call itself. */
static struct {
	const struct device_ops *before;
	int control;
	uint32_t client;
} noted;

static int note_file(struct device *device, int fd, uint32_t nr, void *arg, uint32_t size)
{
	const struct rm_arg_alloc *alloc = arg;

	if (nr == RM_ESC_ALLOC && size == sizeof(*alloc) && alloc->class_id == 0x40) {
		noted.control = fd;
		noted.client = alloc->client;
	}
	return noted.before->call(device, fd, nr, arg, size);
}

static void note_files(struct card *card)
{
	static struct device_ops ops;

	noted.before = card->device->ops;
	ops = *noted.before;
	ops.call = note_file;
	card->device->ops = &ops;
}

static void program_waits(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	actor_say(a, 'w');
	actor_tell(a, 'x');
	pause();
}

static void give_memory(uint64_t bytes)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = noted.client,
				    .parent = STAGE_DEVICE,
				    .object = STAGE_MEMORY + 1,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params) };

	memcpy(params + 64, &bytes, sizeof(bytes));
	CHECK_EQUAL(link_call_for(noted.control, 0, RM_ESC_ALLOC, &arg, sizeof(arg)), 0);
	CHECK_EQUAL(arg.status, 0);
}

static void program_with_more_than_it_was_given_is_ended(void)
{
	const struct warden_options options = { .mem_bytes = 8 * MIB, .interleave = -1 };
	struct stage s;

	stage_start_changed(&s, &options, note_files, program_waits, 0);
	stage_until(&s, 'w');
	warden_audit(s.warden);
	warden_audit(s.warden);
	stage_go_on(&s);
	stage_until(&s, 'x'); /* still there: it did nothing wrong */
	give_memory(1);
	warden_audit(s.warden);
	warden_audit(s.warden);
	CHECK_EQUAL(stage_end(&s) & 0x7f, SIGKILL);
}

static void program_changes_its_limit(struct actor *a)
{
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 4 * MIB), 0);
	actor_say(a, '1');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), NO_MEMORY);
	actor_say(a, '2');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), 0);
}

static void limit_can_be_changed_but_not_below_what_is_used(void)
{
	struct bf_error err = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_changes_its_limit, 0);
	stage_until(&s, '1');
	CHECK_EQUAL(warden_set_mem(s.warden, 4 * MIB - 1, &err), -EBUSY);
	CHECK_EQUAL(warden_set_mem(s.warden, CARD_BYTES + 1, &err), -ERANGE);
	CHECK_EQUAL(warden_set_mem(s.warden, 4 * MIB, &err), 0);
	stage_go_on(&s);
	stage_until(&s, '2');
	CHECK_EQUAL(warden_set_mem(s.warden, 6 * MIB, &err), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_uses_managed_memory(struct actor *a)
{
	int uvm = managed_file_open(a->folder);
	char *first, *second;

	CHECK(uvm >= 0);
	first = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(first != MAP_FAILED);
	actor_new_device(a);
	actor_say(a, 'm');
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB + 1), NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB), 0);
	CHECK_EQUAL(munmap(first, 2 * MIB), 0);
	/* What was unmapped is there again, for the one kind and the other. */
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 2 * MIB), 0);
	CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY + 1), 0);
	second = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(second != MAP_FAILED);
	actor_say(a, 'n');
	/* Over the limit: whatever the program gets, it is not the device. */
	second = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, uvm, 0);
	CHECK(second != MAP_FAILED || errno == ENOMEM);
	actor_say(a, 'o');
}

static void managed_memory_is_bounded_by_what_is_mapped(void)
{
	struct warden_options options = { .mem_bytes = 4 * MIB, .interleave = -1 };
	struct warden_report report;
	struct stage s;

	stage_start_changed(&s, &options, managed_file_add, program_uses_managed_memory, 0);
	stage_until(&s, 'm');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_managed_bytes, 2 * MIB);
	stage_go_on(&s);
	stage_until(&s, 'n');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_managed_bytes, 2 * MIB);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	stage_go_on(&s);
	stage_until(&s, 'o');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(memory_is_refused_at_the_exact_byte);
	STAGE_TEST(memory_is_counted_as_the_driver_rounds_it);
	STAGE_TEST(freed_memory_is_there_again_however_it_was_freed);
	STAGE_TEST(duplicates_in_two_clients_are_counted_once);
	STAGE_TEST(program_with_more_than_it_was_given_is_ended);
	STAGE_TEST(limit_can_be_changed_but_not_below_what_is_used);
	STAGE_TEST(managed_memory_is_bounded_by_what_is_mapped);
	return check_status();
}
