/* What a rig can do whatever device is under it: single instructions, random numbers. */
#include "ptx_op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/own.h"

static const char *register_type(char type)
{
	return type == 'h' ? "b16" : type == 'w' ? "b32" : type == 'd' ? "b64" : "pred";
}

static size_t load_operand(char *to, size_t room, char name, char type, unsigned at)
{
	if (type == '-')
		return 0;
	if (type == 'p')
		return (size_t)snprintf(
			to, room,
			"ld.global.u64 %%w, [%%rd+%u];\nand.b64 %%w, %%w, 1;\nsetp.ne.u64 %%%c, %%w, 0;\n",
			at, name);
	return (size_t)snprintf(to, room, "ld.global.%s %%%c, [%%rd+%u];\n", register_type(type), name, at);
}

static void write_text(char *to, size_t room, const char *text, const char *types)
{
	size_t n = (size_t)snprintf(
		to, room,
		".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry op(.param .u64 p)\n{\n"
		".reg .b64 %%rd, %%w;\n.reg .b32 %%t, %%n;\n");

	for (unsigned i = 0; types[i]; i++)
		if (types[i] != '-')
			n += (size_t)snprintf(to + n, room - n, ".reg .%s %%%c;\n", register_type(types[i]),
					      "dabc"[i]);
	n += (size_t)snprintf(
		to + n, room - n,
		"ld.param.u64 %%rd, [p];\nmov.u32 %%t, %%tid.x;\nmad.wide.u32 %%rd, %%t, 32, %%rd;\n");
	for (unsigned i = 1; types[i]; i++)
		n += load_operand(to + n, room - n, "dabc"[i], types[i], 8 * i);
	n += (size_t)snprintf(to + n, room - n, "%s\n", text);
	if (types[0] == 'p')
		n += (size_t)snprintf(to + n, room - n,
				      "selp.b64 %%w, 1, 0, %%d;\nst.global.u64 [%%rd], %%w;\n");
	else
		n += (size_t)snprintf(to + n, room - n, "st.global.%s [%%rd], %%d;\n",
				      register_type(types[0]));
	snprintf(to + n, room - n, "ret;\n}\n");
}

static unsigned long long at_or_zero(const uint64_t *row, unsigned i)
{
	return row ? row[i] : 0;
}

/* For tests/kernels/compare.py, where the environment asks for it: one line a result. */
static void dump_results(const char *text, const char *types, unsigned count, const uint64_t *const rows[3],
			 const uint64_t *d)
{
	const char *path = getenv("RIG_DUMP");
	cleanup_file FILE *file = path ? fopen(path, "a") : NULL;

	if (!path)
		return;
	if (!file)
		fail_msg("RIG_DUMP: cannot append to %s", path);
	for (unsigned i = 0; i < count; i++)
		fprintf(file, "%s|%s|%llx %llx %llx|%llx\n", text, types, at_or_zero(rows[0], i),
			at_or_zero(rows[1], i), at_or_zero(rows[2], i), at_or_zero(d, i));
	if (fflush(file) || ferror(file))
		fail_msg("RIG_DUMP: cannot write to %s", path);
}

void rig_op(const char *text, const char *types, unsigned count, const uint64_t *a, const uint64_t *b,
	    const uint64_t *c, uint64_t *d)
{
	char ptx[4096];
	struct rig rig;
	uint64_t at, *memory;

	write_text(ptx, sizeof(ptx), text, types);
	rig_open_text(&rig, ptx);
	at = rig_alloc(&rig, (size_t)count * 32, NULL);
	memory = rig_host(&rig, at);
	for (unsigned i = 0; i < count; i++) {
		memory[(size_t)4 * i + 1] = a ? a[i] : 0;
		memory[(size_t)4 * i + 2] = b ? b[i] : 0;
		memory[(size_t)4 * i + 3] = c ? c[i] : 0;
	}
	rig_launch(&rig, "op", (struct rig_shape){ .threads = { count } }, &at, sizeof(at));
	for (unsigned i = 0; i < count; i++)
		d[i] = memory[(size_t)4 * i];
	rig_close(&rig);
	dump_results(text, types, count, (const uint64_t *const[]){ a, b, c }, d);
}

uint64_t rig_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dull;
}

float rig_random_float(uint64_t *state)
{
	return (float)((double)(int64_t)(rig_random(state) >> 40) * 0x1p-23 - 1.0);
}
