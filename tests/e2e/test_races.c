/* Races: a program changes a call, or the file behind it, after it was looked at, and gains nothing. docs/security.md
 * names these tests. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

#include "managed_file.h"
#include "stage.h"

#define MIB CARD_MIB
#define NO_MEMORY RM_ERR_NO_MEMORY

/* One thread changes what another has just asked for, as fast as it can. */

struct flipper {
	uint8_t *at;
	uint64_t one, two;
	size_t bytes;
	_Atomic bool is_over;
};

static void *flip(void *arg)
{
	struct flipper *f = arg;

	while (!atomic_load_explicit(&f->is_over, memory_order_relaxed))
		for (int i = 0; i < 100; i++)
			if (f->bytes == 8)
				__atomic_store_n((uint64_t *)(void *)f->at, i % 2 ? f->one : f->two,
						 __ATOMIC_RELAXED);
			else
				__atomic_store_n((uint32_t *)(void *)f->at,
						 (uint32_t)(i % 2 ? f->one : f->two), __ATOMIC_RELAXED);
	return NULL;
}

/* ALLOC with everything in memory that the flipper can reach. Read and written like the kernel does. */
static int alloc_raced(struct actor *a, struct rm_arg_alloc *arg, const struct rm_arg_alloc *from)
{
	for (size_t i = 0; i < sizeof(*arg) / 4; i++)
		if (i != offsetof(struct rm_arg_alloc, class_id) / 4)
			__atomic_store_n((uint32_t *)(void *)arg + i,
					 ((const uint32_t *)(const void *)from)[i], __ATOMIC_RELAXED);
	if (ioctl(a->control, _IOC(3u, 'F', RM_ESC_ALLOC, sizeof(*arg)), arg) < 0)
		return -errno;
	return (int)__atomic_load_n(&arg->status, __ATOMIC_RELAXED);
}

enum { RACES = 5000, OF_A_DEVICE = 2 }; /* objects of actor_new_device */

static void program_races_the_size(struct actor *a)
{
	static _Alignas(8) uint8_t params[128];
	struct rm_arg_alloc arg = { 0 }, from = { .parent = STAGE_DEVICE,
						  .object = STAGE_MEMORY,
						  .class_id = 0x40,
						  .params = (uintptr_t)params,
						  .size = sizeof(params) };
	struct flipper f = { .at = params + 64, .one = 2 * MIB, .two = 64 * MIB, .bytes = 8 };
	unsigned refused = 0, given = 0;
	pthread_t thread;

	actor_new_device(a);
	memcpy(params + 64, &f.one, sizeof(f.one));
	from.client = a->client;
	arg.class_id = 0x40;
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++) {
		int status = alloc_raced(a, &arg, &from);

		if (status != NO_MEMORY)
			CHECK_EQUAL(status, 0);
		refused += status != 0;
		given += status == 0;
		if (!status)
			CHECK_EQUAL(actor_free(a, STAGE_DEVICE, STAGE_MEMORY), 0);
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(refused && given); /* there was a race */
	actor_say(a, 'r');
}

static void racing_the_size_gives_no_byte_more(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_size, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.most_bytes, 2 * MIB);
	CHECK_EQUAL(card_used_bytes(&s.card), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void free_client(const struct actor *a, uint32_t client)
{
	struct actor own = *a;

	own.client = client;
	CHECK_EQUAL(actor_free(&own, client, client), 0);
}

/* The class flips between device memory and a client. Each call makes what it was looked at for, or nothing. */
static void program_races_the_class(struct actor *a)
{
	static _Alignas(8) uint8_t params[128];
	static struct rm_arg_alloc arg;
	struct rm_arg_alloc from = { .parent = STAGE_DEVICE,
				     .object = STAGE_MEMORY,
				     .params = (uintptr_t)params,
				     .size = sizeof(params) };
	struct flipper f = { .at = (uint8_t *)&arg.class_id, .one = 0x41, .two = 0x40, .bytes = 4 };
	uint64_t bytes = 64 * MIB;
	unsigned seen[2] = { 0 };
	pthread_t thread;

	actor_new_device(a);
	from.client = a->client;
	memcpy(params + 64, &bytes, sizeof(bytes));
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++) {
		int status = alloc_raced(a, &arg, &from);

		CHECK(status == NO_MEMORY || status == 0);
		seen[status == NO_MEMORY]++;
		if (!status)
			free_client(a, __atomic_load_n(&arg.object, __ATOMIC_RELAXED));
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(seen[0] && seen[1]);
	actor_say(a, 'r');
}

static void racing_the_class_makes_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_class, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.most_bytes, 0);
	CHECK_EQUAL(card_count(&s.card, 0), OF_A_DEVICE);
	CHECK_EQUAL(card_clients(&s.card), 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* USERD flips between the program's memory and an object that is none: the GPU reads our page in every case. */
static void program_races_userd(struct actor *a)
{
	const struct rm_layout *l = rm_layout_find(SOFT_DRIVER_VERSION);
	static _Alignas(8) uint8_t params[368];
	struct rm_arg_alloc arg = { 0 }, from = { .parent = STAGE_GROUP,
						  .object = STAGE_CHANNEL + 1,
						  .class_id = 0xc86f,
						  .params = (uintptr_t)params,
						  .size = sizeof(params) };
	struct flipper f = { .one = STAGE_USERD, .two = STAGE_DEVICE, .bytes = 4 };
	unsigned seen[2] = { 0 };
	pthread_t thread;

	actor_context(a);
	actor_channel_params(a, STAGE_CHANNEL + 1, STAGE_USERD, STAGE_USERD_AT(1), params);
	from.client = a->client;
	arg.class_id = 0xc86f;
	f.at = params + l->channel_userd_memory;
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES / 5; i++) {
		int status = alloc_raced(a, &arg, &from);

		seen[status == 0]++;
		if (!status) {
			if (seen[1] == 1)
				actor_say(a, 'c');
			CHECK_EQUAL(actor_free(a, STAGE_GROUP, STAGE_CHANNEL + 1), 0);
		}
	}
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	CHECK(seen[0] && seen[1]);
	actor_say(a, 'r');
}

static void racing_userd_leaves_the_gpu_at_our_page(void)
{
	struct card_channel channel;
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_userd, 0);
	stage_until(&s, 'c');
	CHECK(card_channel(&s.card, STAGE_CHANNEL + 1, &channel) && !channel.is_nameable);
	CHECK_EQUAL(card_pages(&s.card), 2);
	stage_go_on(&s);
	stage_until(&s, 'r');
	CHECK_EQUAL(card_count(&s.card, 0xc86f), 1);
	CHECK_EQUAL(card_pages(&s.card), 1);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The old heap call names its function in memory too. */
static void program_races_the_heap(struct actor *a)
{
	static _Alignas(8) uint8_t arg[184];
	struct flipper f = {
		.at = arg + 8, .one = RM_HEAP_ALLOC_OS_DESCRIPTOR, .two = RM_HEAP_ALLOC_SIZE, .bytes = 4
	};
	uint32_t device = STAGE_DEVICE;
	uint64_t bytes = 64 * MIB;
	pthread_t thread;

	actor_new_device(a);
	memcpy(arg, &a->client, 4);
	memcpy(arg + 4, &device, 4);
	memcpy(arg + 88, &bytes, 8);
	CHECK(!pthread_create(&thread, NULL, flip, &f));
	for (int i = 0; i < RACES; i++)
		CHECK_EQUAL(actor_call(a->control, RM_ESC_VID_HEAP_CONTROL, arg, sizeof(arg)), 0);
	atomic_store(&f.is_over, true);
	pthread_join(thread, NULL);
	actor_say(a, 'r');
}

static void racing_the_old_heap_makes_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_races_the_heap, 0);
	stage_until(&s, 'r');
	CHECK_EQUAL(s.most_bytes, 0);
	CHECK_EQUAL(card_count(&s.card, 0), OF_A_DEVICE);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Between the look and the call another thread puts a file in its place whose client is known, and changes the class.
 * Whatever comes of it is in the ledger. */
struct swapper {
	int files[2], as;
	struct rm_arg_alloc *arg;
	_Atomic bool is_over;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	for (int i = 0; !atomic_load_explicit(&s->is_over, memory_order_relaxed); i++) {
		dup2(s->files[i % 2], s->as);
		__atomic_store_n(&s->arg->class_id, i % 2 ? 0x40 : 0x41, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void program_swaps_its_files(struct actor *a)
{
	static uint8_t params[128];
	static struct rm_arg_alloc arg;
	struct rm_arg_alloc from = { .parent = STAGE_DEVICE,
				     .params = (uintptr_t)params,
				     .size = sizeof(params) };
	struct swapper s = { .arg = &arg };
	struct actor raced = *a;
	uint64_t bytes = CARD_ROUND;
	int status, first = 0;
	unsigned others = 0;
	pthread_t thread;

	actor_new_device(a);
	memcpy(params + 64, &bytes, sizeof(bytes));
	from.client = a->client;
	s.files[0] = actor_open(a, SOFT_FILE_CONTROL);
	s.files[1] = a->control;
	s.as = raced.control = dup(s.files[0]);
	CHECK(!pthread_create(&thread, NULL, swap, &s));
	for (uint32_t i = 0; i < RACES / 5; i++) {
		from.object = STAGE_MEMORY + i;
		status = alloc_raced(&raced, &arg, &from);
		first = i ? first : status;
		others += status != first;
	}
	atomic_store(&s.is_over, true);
	pthread_join(thread, NULL);
	CHECK(others); /* there was a race */
	actor_say(a, 's');
}

static void racing_the_client_makes_nothing_uncounted(void)
{
	static struct warden_report report;
	struct stage s;

	stage_start(&s, 8 * MIB, program_swaps_its_files, 0);
	stage_until(&s, 's');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, card_used_bytes(&s.card));
	CHECK_EQUAL(report.mem_driver_bytes, report.mem_used_bytes);
	CHECK(s.most_bytes <= 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Between our look and the kernel's another thread can put a device file where there was none. So calls that the
 * driver would take do not go on, whatever the file was. */
static void program_calls_other_files(struct actor *a)
{
	struct rm_arg_alloc arg = { .parent = STAGE_DEVICE, .object = STAGE_MEMORY, .class_id = 0x40 };
	struct rm_arg_control control = { .cmd = RM_CTRL_DISABLE_CHANNELS };
	struct rm_xfer xfer = { .nr = RM_ESC_ALLOC, .size = sizeof(arg), .address = (uintptr_t)&arg };
	int pair[2], other = open("/dev/null", O_RDWR | O_CLOEXEC), uvm = managed_file_open(a->folder);

	CHECK(other >= 0 && uvm >= 0 && !pipe2(pair, O_CLOEXEC));
	actor_new_device(a);
	CHECK_EQUAL(actor_call(other, RM_ESC_ALLOC, &arg, sizeof(arg)), -ENOTTY);
	CHECK_EQUAL(actor_call(pair[0], RM_ESC_CONTROL, &control, sizeof(control)), -ENOTTY);
	CHECK_EQUAL(actor_call(other, RM_ESC_XFER_CMD, &xfer, sizeof(xfer)), -ENOTTY);
	CHECK_EQUAL(actor_call(uvm, RM_ESC_ALLOC, &arg, sizeof(arg)),
		    -EINVAL); /* a device's, but not this one's */
	CHECK_EQUAL(actor_call(1234, RM_ESC_ALLOC, &arg, sizeof(arg)), -EBADF); /* not even a file, yet */
	actor_say(a, 'o');
}

static void driver_calls_on_other_files_do_not_go_on(void)
{
	struct warden_options options = { .mem_bytes = 8 * MIB, .interleave = -1 };
	static struct warden_report report;
	struct stage s;

	stage_start_changed(&s, &options, managed_file_add, program_calls_other_files, 0);
	stage_until(&s, 'o');
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.refusals, 3); /* what is no file is refused by nobody */
	stage_go_on(&s);
	stage_end_well(&s);
}

int main(void)
{
	STAGE_TEST(racing_the_size_gives_no_byte_more);
	STAGE_TEST(racing_the_class_makes_nothing);
	STAGE_TEST(racing_userd_leaves_the_gpu_at_our_page);
	STAGE_TEST(racing_the_old_heap_makes_nothing);
	STAGE_TEST(racing_the_client_makes_nothing_uncounted);
	STAGE_TEST(driver_calls_on_other_files_do_not_go_on);
	return check_status();
}
