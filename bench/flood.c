/* SPDX-License-Identifier: MIT */
/* Two programs that bench/flood.sh runs side by side, each on a vGPU of its own.
 *
 *   flood --measure --secs 5     launch an empty kernel and wait for it, every --gap-us: one line of JSON
 *   flood --ring 60 --secs 5     map so many doorbells and ring them without pause
 *   flood --ring 0 --secs 5      use as much CPU time, but ring nothing: what the flood costs without the gate
 *
 * With --ring, --strange rings tokens that no channel has; otherwise the token is that of a channel of the program, which
 * costs the gate a read of GP_PUT for each ring. --ready FILE is created when the program can start; it starts when
 * --start FILE exists.
 * Exit status: 0, 1 if something failed, 2 wrong usage, 77 no GPU. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cu.h"
#include "gate/gate.h"
#include "kernels.h"
#include "rm/rm.h"
#include "soft/link/link.h"
#include "util.h"

enum {
	DOORBELLS_MAX = 60,
	SAMPLES_MAX = 1 << 20,
	PATIENCE_S = 10,
	CLASS_CLIENT = 0x41,
	CLASS_DEVICE = 0x80,
	CLASS_SUBDEVICE = 0x2080,
	CLASS_DOORBELL = 0xc661,
	FIRST_HANDLE = 0x7c000000,
	STRANGE_TOKEN = 0x7ffffff0,
	DOORBELL_MAP_FLAGS = 0x80002, /* as libcuda asks for it */
};

/* Where the device files are: the software GPU hands them out, the driver has them in /dev. */
struct road {
	char folder[PATH_MAX]; /* of the software GPU; empty: /dev */
	int control;
	uint32_t client, device, subdevice, next_handle;
};

static bool has_option(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

static void start_when_told(int argc, char **argv)
{
	const char *ready = option_text(argc, argv, "ready", NULL);
	const char *start = option_text(argc, argv, "start", NULL);
	int fd;

	if (ready) {
		fd = open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0)
			fail("flood: %s: %s", ready, strerror(errno));
		close(fd);
	}
	while (start && access(start, F_OK))
		sleep_us(1000);
}

/* ---- the program that measures ---- */

static void measure(int argc, char **argv, void *kernel, void *stream)
{
	uint64_t gap_us = option_number(argc, argv, "gap-us", 500), end;
	double *took = malloc(SAMPLES_MAX * sizeof(*took)), p50, p99;
	size_t count = 0;

	if (!took)
		abort();
	start_when_told(argc, argv);
	end = now_ns() + option_number(argc, argv, "secs", 5) * 1000000000ull;
	while (now_ns() < end && count < SAMPLES_MAX) {
		uint64_t start;

		sleep_us(gap_us);
		start = now_ns();
		CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
		CU_MUST(cu.StreamSynchronize(stream));
		took[count++] = (double)(now_ns() - start) / 1e3;
	}
	p50 = percentile(took, count, 50);
	p99 = percentile(took, count, 99);
	printf("{\"launches\":%zu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"wrong\":0}\n", count, p50, p99);
	free(took);
}

/* ---- the program that rings ---- */

static int road_open(const struct road *road, bool is_control)
{
	int fd = road->folder[0] ? link_open(road->folder, is_control ? SOFT_FILE_CONTROL : SOFT_FILE_GPU_0)
				 : open(is_control ? "/dev/nvidiactl" : "/dev/nvidia0", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fail("flood: cannot open a device file: %s", strerror(road->folder[0] ? -fd : errno));
	return fd;
}

/* Under `belfry run` a call to the software GPU is an ioctl, too. */
static void road_call(int fd, uint32_t nr, void *arg, uint32_t size, const uint32_t *status)
{
	if (ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size), arg) < 0)
		fail("flood: driver call 0x%x: %s", nr, strerror(errno));
	if (status && *status)
		fail("flood: driver call 0x%x: status 0x%x", nr, *status);
}

static uint32_t road_alloc(struct road *road, uint32_t parent, uint32_t class_id, void *params, uint32_t size)
{
	struct rm_arg_alloc arg = { .client = road->client,
				    .parent = parent,
				    .object = road->client ? ++road->next_handle : 0,
				    .class_id = class_id,
				    .params = (uintptr_t)params,
				    .size = size };

	road_call(road->control, RM_ESC_ALLOC, &arg, sizeof(arg), &arg.status);
	return arg.object;
}

/* A client beside libcuda's, with a device. */
static void road_begin(struct road *road)
{
	const char *given = getenv("BELFRY_SOFT_DIR");
	uint8_t device[56] = { 0 };
	uint32_t subdevice = 0;
	int gpu;

	*road = (struct road){ .next_handle = FIRST_HANDLE };
	if (given)
		snprintf(road->folder, sizeof(road->folder), "%s", given);
	road->control = road_open(road, true);
	gpu = road_open(road, false); /* stays open: the device lasts as long */
	road_call(gpu, RM_ESC_REGISTER_FD, &road->control, sizeof(road->control), NULL);
	road->client = road_alloc(road, 0, CLASS_CLIENT, NULL, 0);
	road->device = road_alloc(road, road->client, CLASS_DEVICE, device, sizeof(device));
	road->subdevice = road_alloc(road, road->device, CLASS_SUBDEVICE, &subdevice, sizeof(subdevice));
}

static _Atomic uint32_t *map_doorbell(struct road *road)
{
	uint8_t params[2] = { 0 };
	uint32_t handle = road_alloc(road, road->subdevice, CLASS_DOORBELL, params, sizeof(params));
	int gpu = road_open(road, false);
	struct rm_arg_map map = { .client = road->client,
				  .device = road->subdevice,
				  .memory = handle,
				  .length = SOFT_BELL_BYTES,
				  .flags = DOORBELL_MAP_FLAGS,
				  .fd = gpu };
	void *page;

	road_call(road->control, RM_ESC_MAP_MEMORY, &map, sizeof(map), &map.status);
	page = mmap(NULL, SOFT_BELL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0);
	if (page == MAP_FAILED)
		fail("flood: cannot map a doorbell: %s", strerror(errno));
	close(gpu);
	return (_Atomic uint32_t *)page + GATE_BELL_WORD;
}

/* The doorbell that libcuda has mapped, by the name of its memory. */
static _Atomic uint32_t *find_doorbell(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long at = 0;
	char line[512];

	while (maps && !at && fgets(line, sizeof(line), maps))
		if (strstr(line, "belfry-doorbell"))
			at = strtoul(line, NULL, 16);
	if (maps)
		fclose(maps);
	return at ? (_Atomic uint32_t *)at + GATE_BELL_WORD : NULL;
}

struct watch {
	_Atomic uint32_t *word;
	_Atomic uint32_t token;
	_Atomic bool is_over;
};

static void *watch_main(void *arg)
{
	struct watch *watch = arg;

	while (!atomic_load(&watch->is_over)) {
		uint32_t token = atomic_load(watch->word);

		if (token != GATE_NO_TOKEN)
			atomic_store(&watch->token, token);
	}
	return NULL;
}

/* A token of this program: seen in the doorbell page between a launch's ring and the gate's taking of it. */
static uint32_t find_token(void *kernel, void *stream)
{
	struct watch watch = { .word = find_doorbell(), .token = GATE_NO_TOKEN };
	uint64_t give_up = now_ns() + PATIENCE_S * 1000000000ull;
	pthread_t thread;

	if (!watch.word)
		fail("flood: no doorbell of Belfry's is mapped; run it with belfry run");
	if (pthread_create(&thread, NULL, watch_main, &watch))
		fail("flood: no thread");
	while (atomic_load(&watch.token) == GATE_NO_TOKEN && now_ns() < give_up) {
		CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
		CU_MUST(cu.StreamSynchronize(stream));
	}
	atomic_store(&watch.is_over, true);
	pthread_join(thread, NULL);
	if (atomic_load(&watch.token) == GATE_NO_TOKEN)
		fail("flood: no ring of this program was seen in %d s", PATIENCE_S);
	return atomic_load(&watch.token);
}

/* As many stores in either case; with no doorbell they go to memory of the program's own. */
static void ring(int argc, char **argv, void *kernel, void *stream)
{
	uint64_t doorbells = option_number(argc, argv, "ring", DOORBELLS_MAX), end, rings = 0;
	static _Atomic uint32_t own[DOORBELLS_MAX];
	_Atomic uint32_t *words[DOORBELLS_MAX];
	uint32_t token = STRANGE_TOKEN;
	struct road road;

	if (doorbells > DOORBELLS_MAX)
		fail("flood: --ring is at most %d", DOORBELLS_MAX);
	if (doorbells && !has_option(argc, argv, "--strange"))
		token = find_token(kernel, stream);
	if (doorbells)
		road_begin(&road);
	for (unsigned i = 0; i < DOORBELLS_MAX; i++)
		words[i] = i < doorbells ? map_doorbell(&road) : &own[i];
	start_when_told(argc, argv);
	end = now_ns() + option_number(argc, argv, "secs", 5) * 1000000000ull;
	for (; now_ns() < end; rings += doorbells)
		for (unsigned i = 0; i < DOORBELLS_MAX; i++)
			atomic_store_explicit(words[i], token, memory_order_relaxed);
	printf("{\"doorbells\":%llu,\"rings\":%llu,\"wrong\":0}\n", (unsigned long long)doorbells,
	       (unsigned long long)rings);
}

int main(int argc, char **argv)
{
	void *kernel, *stream;

	cu_open();
	kernel = cu_kernel(kernel_time, "nop");
	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 64; i++) {
		CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
		CU_MUST(cu.StreamSynchronize(stream));
	}
	if (has_option(argc, argv, "--measure"))
		measure(argc, argv, kernel, stream);
	else
		ring(argc, argv, kernel, stream);
	return 0;
}
