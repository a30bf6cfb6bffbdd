/* Random calls into the driver of the software GPU, without sockets: whatever they are, no crash, no leak, and when
 * the files are closed nothing is left. Arguments are mostly well formed and name objects that mostly exist, so that
 * a fuzzer gets past the first check. */
#include "soft/driver/driver.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "rm/rm.h"

enum { FILES = 3, HANDLES = 11, STEP_BYTES = 8 };
enum { HANDLE_DEVICE = 1, HANDLE_SPACE, HANDLE_SUBDEVICE, HANDLE_GROUP, HANDLE_CHANNEL, HANDLE_FIRST };

struct machine {
	struct driver *driver;
	struct file *files[FILES];
	uint32_t clients[FILES];
};

static const uint32_t classes[] = {
	0x41,	0x80,	0x2080,		 0x40, 0x3e,   0x90f1, 0x50a0, 0xa06c, 0xc86f,
	0xcbc0, 0xc661, SOFT_CLASS_CODE, 0x79, 0x9067, 0x1234,
};
static const uint32_t controls[] = {
	0x201,
	0x202,
	0x204,
	0x205,
	0x214,
	0x215,
	0x21b,
	0x20800110,
	0x2080014a,
	0x2080018d,
	0x2080018e,
	0x2080110b,
	0x20801303,
	0x20801823,
	0xa06c0101,
	0xa06c0103,
	0xa06c0104,
	0xa06c0105,
	0xa06c0107,
	0xa06f0103,
	0xc36f0108,
	0xa06f0109,
	0x800280,
	0x20800403,
	SOFT_CTRL_CHANNEL_SET_SMS,
	SOFT_CTRL_ROOT_JOIN_DOMAIN,
	SOFT_CTRL_GROUP_GET_TIME,
	SOFT_CTRL_GROUP_GET_DONE,
	SOFT_CTRL_SPACE_SET_PRINT,
	SOFT_CTRL_GPU_GET_SHAPE,
	SOFT_CTRL_GPU_GET_COUNTERS,
	0x20801301,
};
static const uint16_t sizes[] = {
	128, 40, 4,  32, 384, 132, 12, 132, 268, 3812, 14408, 536, 1028, 420,
	3,   8,	 8,  8,	 4,   3,   4,  4,   4,	 8,    32,    256, 56,	 sizeof(struct soft_done_params),
	24,  32, 40, 16,
};
static_assert(sizeof(sizes) / sizeof(sizes[0]) == sizeof(controls) / sizeof(controls[0]),
	      "a size for each control");
static_assert(sizeof(struct soft_done_params) <= UINT16_MAX, "sizes are 16 bits wide");

static const char text[] =
	".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n";

/* The file's client itself, one of a few handles, or one that is nobody's. */
static uint32_t handle_of(const struct machine *m, unsigned file, uint8_t byte)
{
	return byte < 12 ? m->clients[file] : byte > 250 ? byte : 1u + byte % HANDLES;
}

static int call(struct machine *m, unsigned file, uint32_t nr, uint8_t *arg, uint32_t size, uint8_t *params,
		uint32_t params_bytes, struct file *named)
{
	/* Copies of just the size, so that a sanitizer sees the first byte past them. */
	struct call c = { .file = m->files[file],
			  .pid = 1000 + (int)file / 2,
			  .named = named,
			  .nr = nr,
			  .arg = malloc(size ? size : 1),
			  .params = malloc(params_bytes ? params_bytes : 1),
			  .arg_bytes = size,
			  .params_bytes = params_bytes };
	uint8_t *arg_copy = c.arg, *params_copy = c.params;
	int rc;

	if (!c.arg || !c.params)
		abort();
	memcpy(c.arg, arg, size);
	if (params_bytes)
		memcpy(c.params, params, params_bytes);
	rc = driver_call(m->driver, &c);
	memcpy(arg, arg_copy, size);
	free(arg_copy);
	free(params_copy);
	return rc;
}

static uint32_t fill_params(const struct machine *m, unsigned file, uint32_t class_id, const uint8_t *in,
			    uint8_t *params)
{
	memset(params, 0, 512);
	switch (class_id) {
	case 0x80:
		bf_put32(params, in[4] % 3);
		return in[4] > 250 ? 8 : 56;
	case 0x2080:
		return 4;
	case 0x40:
	case 0x3e:
	case 0x50a0:
		bf_put32(params + 8, in[4] & 0x10);
		bf_put32(params + 24, in[4] & 1 ? 1u << 25 : 0);
		bf_put64(params + 64, (uint64_t)in[5] << (in[4] >> 2));
		bf_put64(params + 80, (uint64_t)in[6] << 16);
		bf_put32(params + 108, handle_of(m, file, in[7]));
		return 128;
	case 0xa06c:
		bf_put32(params + 0, in[4] & 1 ? handle_of(m, file, in[5]) : 0);
		bf_put32(params + 8, in[4] & 2 ? handle_of(m, file, in[6]) : 0);
		return 20;
	case 0xc86f:
		bf_put32(params + 0, in[4] & 1 ? handle_of(m, file, in[5]) : 0);
		bf_put64(params + 8, (uint64_t)in[7] << 16);
		bf_put32(params + 16, 1u << in[4] % 24);
		bf_put32(params + 28, in[4] & 2 ? handle_of(m, file, in[6]) : 0);
		bf_put32(params + 32, handle_of(m, file, in[7]));
		bf_put64(params + 64, (uint64_t)in[5] << 8);
		return 368;
	case SOFT_CLASS_CODE:
		bf_put32(params, in[4] & 1 ? handle_of(m, file, in[5]) : 0);
		bf_put32(params + 4, handle_of(m, file, in[6]));
		bf_put64(params + 16, in[7] & 1 ? sizeof(text) - 1 : (uint64_t)in[7] << 9);
		return sizeof(struct soft_code_params);
	default:
		return in[4] > 200 ? in[5] : 0;
	}
}

/* Where an object of this class belongs, if the program keeps to some order. */
static uint32_t parent_of(const struct machine *m, unsigned file, uint32_t class_id, uint8_t byte)
{
	if (byte > 220)
		return handle_of(m, file, byte ^ 0xff);
	switch (class_id) {
	case 0x80:
		return m->clients[file];
	case 0xc661:
		return HANDLE_SUBDEVICE;
	case 0xc86f:
		return byte & 1 ? HANDLE_GROUP : HANDLE_DEVICE;
	case 0xcbc0:
		return HANDLE_CHANNEL;
	case 0x9067:
		return HANDLE_GROUP;
	default:
		return HANDLE_DEVICE;
	}
}

static uint32_t name_of(uint32_t class_id, uint8_t byte)
{
	if (byte > 128)
		return byte > 240 ? 0 : 1u + byte % HANDLES;
	return class_id == 0xa06c   ? HANDLE_GROUP
	       : class_id == 0xc86f ? HANDLE_CHANNEL
				    : HANDLE_FIRST + byte % 6;
}

static void do_alloc(struct machine *m, unsigned file, const uint8_t *in)
{
	uint32_t class_id = classes[in[1] % (sizeof(classes) / sizeof(classes[0]))];
	struct rm_arg_alloc arg = { .client = m->clients[in[7] == 7 ? in[0] % FILES : file],
				    .parent = parent_of(m, file, class_id, in[2]),
				    .object = name_of(class_id, in[3]),
				    .class_id = class_id };
	uint8_t params[512];
	uint32_t bytes = fill_params(m, file, class_id, in, params);

	call(m, file, RM_ESC_ALLOC, (uint8_t *)&arg, sizeof(arg), params, bytes, NULL);
	if (class_id == 0x41 && !arg.status)
		m->clients[file] = arg.object;
}

static void do_control(struct machine *m, unsigned file, const uint8_t *in)
{
	static uint8_t params[16384];
	unsigned which = in[1] % (sizeof(controls) / sizeof(controls[0]));
	struct rm_arg_control arg = { .client = m->clients[file],
				      .object = handle_of(m, file, in[2]),
				      .cmd = controls[which] };
	uint32_t bytes = in[3] > 240 ? in[3] : sizes[which];

	memset(params, in[4] > 128 ? 0 : in[5], sizeof(params));
	bf_put32(params, in[6] % 4 ? in[6] % 8 : in[6]);
	bf_put32(params + 4, in[7] % 8);
	bf_put32(params + 24, m->clients[file]);
	bf_put32(params + 280, handle_of(m, file, in[7]));
	call(m, file, RM_ESC_CONTROL, (uint8_t *)&arg, sizeof(arg), params, bytes, NULL);
}

static void do_dma(struct machine *m, unsigned file, const uint8_t *in)
{
	uint8_t arg[64] = { 0 };
	bool is_unmap = in[1] & 1;

	bf_put32(arg, m->clients[file]);
	bf_put32(arg + 4, in[2] > 128 ? handle_of(m, file, in[2]) : HANDLE_DEVICE);
	bf_put32(arg + 8, in[3] > 128 ? handle_of(m, file, in[3]) : HANDLE_SPACE);
	bf_put32(arg + 12, handle_of(m, file, in[4]));
	if (is_unmap) {
		bf_put64(arg + 24, (uint64_t)in[5] << 16);
		call(m, file, RM_ESC_UNMAP_MEMORY_DMA, arg, 48, arg, 0, NULL);
		return;
	}
	bf_put64(arg + 16, (uint64_t)in[6] << 12);
	bf_put64(arg + 24, (uint64_t)(in[7] >> 4) << (12 + in[7] % 16));
	bf_put32(arg + 32, (in[1] & 2 ? 1u << 15 : 0) | (in[1] & 4 ? 1 : 0));
	bf_put64(arg + 48, (uint64_t)in[5] << 16);
	call(m, file, RM_ESC_MAP_MEMORY_DMA, arg, 64, arg, 0, NULL);
}

static void do_map(struct machine *m, unsigned file, const uint8_t *in)
{
	struct rm_arg_map arg = { .client = m->clients[file],
				  .device = in[2] > 128 ? handle_of(m, file, in[2]) : HANDLE_DEVICE,
				  .memory = handle_of(m, file, in[3]),
				  .offset = (uint64_t)in[4] << 12,
				  .length = (uint64_t)in[5] << 10 };
	struct file *named = in[6] > 200 ? NULL : m->files[in[6] % FILES];
	uint64_t base;
	int fd;

	call(m, file, RM_ESC_MAP_MEMORY, (uint8_t *)&arg, sizeof(arg), NULL, 0, named);
	fd = driver_map(m->driver, m->files[in[7] % FILES], arg.length, (uint64_t)(in[7] >> 6) << 12, &base);
	if (fd < 0)
		return;
	if (pwrite(fd, text, sizeof(text) - 1, 0) < 0) /* for a program that is loaded from there */
		abort();
	close(fd);
}

static void do_share(struct machine *m, unsigned file, const uint8_t *in)
{
	struct rm_arg_share share = { .client = m->clients[file],
				      .object = handle_of(m, file, in[2]),
				      .target = m->clients[in[3] % FILES],
				      .access_mask = 1,
				      .type = in[4] > 240 ? in[4] : 3,
				      .action = in[5] & 5 };
	struct rm_arg_dup dup = { .client = m->clients[file],
				  .parent = in[2] > 200 ? handle_of(m, file, in[2]) : HANDLE_DEVICE,
				  .object = in[3] > 240 ? 0 : 1u + in[3] % HANDLES,
				  .source_client = m->clients[in[4] % FILES],
				  .source_object = 1u + in[5] % HANDLES };

	if (in[1] & 1)
		call(m, file, RM_ESC_SHARE, (uint8_t *)&share, sizeof(share), NULL, 0, NULL);
	else
		call(m, file, RM_ESC_DUP_OBJECT, (uint8_t *)&dup, sizeof(dup), NULL, 0, NULL);
}

static void do_free(struct machine *m, unsigned file, const uint8_t *in)
{
	struct rm_arg_free arg = { .client = m->clients[file],
				   .object = in[2] == 255  ? m->clients[file]
					     : in[2] > 240 ? HANDLE_DEVICE
							   : 2u + in[2] % (HANDLES - 1) };

	call(m, file, RM_ESC_FREE, (uint8_t *)&arg, sizeof(arg), NULL, 0, NULL);
}

static void do_idle(struct machine *m, unsigned file, const uint8_t *in)
{
	struct rm_arg_idle arg = { .client = m->clients[in[7] == 7 ? in[0] % FILES : file],
				   .device = in[2] > 128 ? handle_of(m, file, in[2]) : HANDLE_DEVICE,
				   .channel = in[3] > 128 ? handle_of(m, file, in[3]) : HANDLE_CHANNEL,
				   .flags = in[4] > 200 ? in[5] : RM_IDLE_ASK };

	call(m, file, RM_ESC_IDLE_CHANNELS, (uint8_t *)&arg, sizeof(arg), NULL, 0, NULL);
}

/* Any number with any bytes. */
static void do_any(struct machine *m, unsigned file, const uint8_t *in)
{
	static const uint16_t arg_sizes[] = { 4, 8, 12, 16, 24, 28, 32, 48, 56, 64, 72, 184, 560 };
	uint8_t arg[560];
	uint32_t size = in[2] & 1 ? arg_sizes[in[2] % 13] : in[2];

	for (size_t i = 0; i < sizeof(arg); i++)
		arg[i] = in[4 + i % 4] & (i % 4 ? 0 : 0xff);
	bf_put32(arg, m->clients[file]);
	bf_put32(arg + 4, handle_of(m, file, in[4]));
	bf_put32(arg + 8, in[3] % 32);
	call(m, file, in[1], arg, size, arg, in[3] > 128 ? in[3] : 0, m->files[in[5] % FILES]);
}

static void make(struct machine *m, unsigned file, uint32_t parent, uint32_t handle, uint32_t class_id)
{
	struct rm_arg_alloc arg = {
		.client = m->clients[file], .parent = parent, .object = handle, .class_id = class_id
	};

	call(m, file, RM_ESC_ALLOC, (uint8_t *)&arg, sizeof(arg), NULL, 0, NULL);
	if (arg.status)
		abort();
	if (class_id == 0x41)
		m->clients[file] = arg.object;
}

/* A client with a device and a space, so that what follows finds something. */
static void prepare(struct machine *m, unsigned file)
{
	make(m, file, 0, 0, 0x41);
	make(m, file, m->clients[file], HANDLE_DEVICE, 0x80);
	make(m, file, HANDLE_DEVICE, HANDLE_SPACE, 0x90f1);
	make(m, file, HANDLE_DEVICE, HANDLE_SUBDEVICE, 0x2080);
}

static void reopen(struct machine *m, unsigned file)
{
	int rc;

	if (m->files[file]) {
		file_close(m->files[file]);
		file_put(m->files[file]);
	}
	m->files[file] = file_new(m->driver, file == FILES - 1 ? 0 : SOFT_FILE_CONTROL, 100 + file, &rc);
	m->clients[file] = 0;
	if (!m->files[file])
		abort();
	if (file < FILES - 1)
		prepare(m, file);
}

static void step(struct machine *m, const uint8_t *in)
{
	unsigned file = in[0] >> 4 == 15 ? FILES - 1 : in[0] >> 4 & 1; /* the last one is a GPU's */

	switch (in[0] % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
	case 5:
		do_alloc(m, file, in);
		break;
	case 6:
	case 7:
	case 8:
		do_control(m, file, in);
		break;
	case 9:
	case 10:
		do_dma(m, file, in);
		break;
	case 11:
		do_map(m, file, in);
		break;
	case 12:
		do_share(m, file, in);
		break;
	case 13:
		do_free(m, file, in);
		if (file < FILES - 1 && in[2] > 240) /* the device or all of it: begin again */
			reopen(m, file);
		break;
	case 14:
		if (in[1] < 32) /* no call has such a number */
			do_idle(m, file, in);
		else
			do_any(m, file, in);
		break;
	default:
		if (in[1] < 20)
			reopen(m, file);
		else
			do_free(m, file, in);
	}
}

static struct driver *driver_get(void)
{
	static struct driver *driver;
	struct link_config config;
	struct bf_error err = { 0 };

	if (driver)
		return driver;
	if (link_config_parse("gpus=2,sms=2,mem=64M,pace=off,cores=1", &config, &err))
		abort();
	driver = driver_new(&config, &err);
	if (!driver) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	return driver;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct machine m = { .driver = driver_get() };
	struct soft_status status;

	for (unsigned i = 0; i < FILES; i++)
		reopen(&m, i);
	for (size_t at = 0; at + STEP_BYTES <= size; at += STEP_BYTES)
		step(&m, data + at);
	for (unsigned i = 0; i < FILES; i++) {
		file_close(m.files[i]);
		file_put(m.files[i]);
	}
	driver_status(m.driver, &status);
	if (status.file_count || status.client_count || status.channel_count || status.used_bytes[0] ||
	    status.used_bytes[1])
		abort();
	return 0;
}

#ifdef FUZZ_STANDALONE
int main(int argc, char **argv)
{
	enum { STEPS = 200 };
	unsigned inputs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1500;
	uint8_t data[STEP_BYTES * STEPS];
	uint64_t seed = 88172645463325252ull;

	for (unsigned i = 0; i < inputs; i++) {
		for (size_t k = 0; k < sizeof(data); k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			data[k] = (uint8_t)seed;
		}
		LLVMFuzzerTestOneInput(data, sizeof(data));
	}
	driver_free(driver_get());
	printf("%u sequences of %d calls\n", inputs, STEPS);
	return 0;
}
#endif
