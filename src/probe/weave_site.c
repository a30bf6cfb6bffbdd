/* The text of an insertion: what surrounds the programs of a probe at one place. All insertions of a function share
 * their registers, which no insertion expects to be unchanged since another one, except those that put_begin and
 * put_counters set. Labels start with the weaver's base and the number of the insertion. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "probe/weave_inside.h"

/* '$' stands for the start of a register, '#' for that of a label of this insertion, '&' for the base. */
void site_put(struct weaver *weaver, unsigned name, const char *format, ...)
{
	char line[256];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	for (const char *c = line; *c; c++)
		if (*c == '$')
			fprintf(weaver->file, "%%%s_", weaver->base);
		else if (*c == '#')
			fprintf(weaver->file, "%s%u_", weaver->base, name);
		else if (*c == '&')
			fputs(weaver->base, weaver->file);
		else
			putc_unlocked(*c, weaver->file);
	putc_unlocked('\n', weaver->file);
}

static bool is_active(const struct weaver *weaver, size_t probe)
{
	return weaver->active >> probe & 1;
}

static bool probe_wants(const struct probe *probe, enum belfry_probe_event event)
{
	const struct probe_program *program;

	for (size_t i = 0; (program = probe_program_at(probe, i)); i++)
		if (program->event == event)
			return true;
	return false;
}

bool weaver_wants(const struct weaver *weaver, enum belfry_probe_event event)
{
	for (size_t i = 0; i < weaver->probe_count; i++)
		if (is_active(weaver, i) && probe_wants(weaver->probes[i].probe, event))
			return true;
	return false;
}

static unsigned field_index(uint32_t offset)
{
	unsigned index = 0;

	while (probe_field_at(index)->offset != offset)
		index++;
	return index;
}
#define FIELD(name) field_index((uint32_t)offsetof(struct belfry_probe_ctx, name))

/* Whether a program that is woven into the function reads a field. */
static bool is_read(const struct weaver *weaver, unsigned field)
{
	const struct probe_program *program;

	for (size_t i = 0; i < weaver->probe_count; i++)
		for (size_t k = 0;
		     is_active(weaver, i) && (program = probe_program_at(weaver->probes[i].probe, k)); k++)
			if (program->fields >> field & 1)
				return true;
	return false;
}

bool site_needs_time(const struct weaver *weaver)
{
	const struct probe_program *program;

	for (size_t i = 0; i < weaver->probe_count; i++)
		for (size_t k = 0; is_active(weaver, i) && weaver->probes[i].has_times &&
				   (program = probe_program_at(weaver->probes[i].probe, k));
		     k++)
			if (program->fields >> FIELD(submitted_ns) & 1)
				return true;
	return false;
}

/* ---- operands of a program */

struct operands {
	char area[24], kernel[24], submitted[64], begin_ns[48], begin_clock[48];
	char numbers[6][16];
};

static void set_number(struct probe_site *site, struct operands *operands, unsigned at, unsigned field,
		       uint32_t number)
{
	snprintf(operands->numbers[at], sizeof(operands->numbers[at]), "%u", number);
	site->operands[field] = operands->numbers[at];
}

static void set_point(const struct weave_probe *probe, const struct place *place, struct probe_site *site,
		      struct operands *operands)
{
	const struct point *point = place->point;

	set_number(site, operands, 0, FIELD(site), point->index);
	if (point->kind == POINT_SECTION) {
		set_number(site, operands, 1, FIELD(instructions), point->instructions);
		set_number(site, operands, 2, FIELD(flops), point->flops);
		set_number(site, operands, 3, FIELD(read_bytes), point->read_bytes);
		set_number(site, operands, 4, FIELD(write_bytes), point->write_bytes);
	}
	if (point->kind != POINT_ACCESS)
		return;
	site->operands[FIELD(address)] = place->address;
	set_number(site, operands, 1, FIELD(is_write), point->how);
	if (place->size)
		site->operands[FIELD(size)] = place->size;
	else
		set_number(site, operands, 2, FIELD(size), point->bytes);
	set_number(site, operands, 3, FIELD(period), probe->period ? probe->period : 1);
}

static void set_operands(struct weaver *weaver, const struct weave_probe *probe, const struct place *place,
			 struct probe_site *site, struct operands *operands)
{
	snprintf(operands->area, sizeof(operands->area), "0x%" PRIx64, probe->area);
	snprintf(operands->kernel, sizeof(operands->kernel), "0x%" PRIx64, weaver->kernel);
	site->area = operands->area;
	site->operands[FIELD(kernel)] = operands->kernel;
	site->operands[FIELD(launch)] = probe->launch;
	if (weaver->function->is_entry) {
		snprintf(operands->begin_ns, sizeof(operands->begin_ns), "%%%s_begin_ns", weaver->base);
		snprintf(operands->begin_clock, sizeof(operands->begin_clock), "%%%s_begin_clock",
			 weaver->base);
		site->operands[FIELD(begin_ns)] = operands->begin_ns;
		site->operands[FIELD(begin_clock)] = operands->begin_clock;
	}
	snprintf(operands->submitted, sizeof(operands->submitted), "%%%s_submitted", weaver->base);
	site->operands[FIELD(submitted_ns)] = operands->submitted;
	if (place->point)
		set_point(probe, place, site, operands);
}

/* The time of the submission, into $submitted. The host writes a time at an address with an operation of the stream. */
static void put_submitted(struct weaver *weaver, const struct weave_probe *probe, unsigned name)
{
	if (!weaver->is_timed || !probe->has_times) {
		site_put(weaver, name, "mov.u64 $submitted, 0;");
		return;
	}
	site_put(weaver, name, "ld.param.u64 $submitted, [&_time];");
	site_put(weaver, name, "setp.lt.s64 $p, $submitted, 0;\nand.b64 $from, $submitted, 0x%llx;",
		 WEAVE_TIME_IS_ADDRESS - 1);
	site_put(weaver, name, "@$p ld.relaxed.sys.global.u64 $submitted, [$from];");
}

static int put_program(struct weaver *weaver, const struct weave_probe *probe, size_t index,
		       const struct place *place)
{
	const struct probe_program *program = probe_program_at(probe->probe, index);
	unsigned name = weaver->names++;
	char prefix[32], registers[32], stack[32];
	struct probe_site site = { .prefix = prefix,
				   .registers = registers,
				   .is_per_thread = place->is_one || probe->is_per_thread };
	struct operands operands = { 0 };
	cleanup_free char *text = NULL;
	int rc;

	snprintf(prefix, sizeof(prefix), "%s%u", weaver->base, name);
	snprintf(registers, sizeof(registers), "%sb", weaver->base);
	snprintf(stack, sizeof(stack), "%s_stack", weaver->base);
	site.stack = program->stack_bytes ? stack : NULL;
	set_operands(weaver, probe, place, &site, &operands);
	rc = probe_write_body(probe->probe, index, &site, &text, weaver->err);
	if (rc)
		return rc;
	if (program->fields >> FIELD(submitted_ns) & 1)
		put_submitted(weaver, probe, name);
	fputs(text, weaver->file);
	return 0;
}

int site_programs(struct weaver *weaver, size_t probe, enum belfry_probe_event event,
		  const struct place *place)
{
	const struct probe_program *program;
	int rc = 0;

	for (size_t i = 0; !rc && (program = probe_program_at(weaver->probes[probe].probe, i)); i++) {
		if (program->event != event)
			continue;
		rc = put_program(weaver, &weaver->probes[probe], i, place);
		weaver->report->probes |= 1u << probe;
	}
	return rc;
}

static int all_programs(struct weaver *weaver, enum belfry_probe_event event, const struct place *place)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < weaver->probe_count; i++)
		if (is_active(weaver, i))
			rc = site_programs(weaver, i, event, place);
	return rc;
}

/* ---- the beginning of a function */

static void put_registers(struct weaver *weaver)
{
	char bodies[32];

	snprintf(bodies, sizeof(bodies), "%sb", weaver->base);
	probe_write_registers(weaver->file, bodies);
	site_put(weaver, 0, ".reg .pred $p;\n.reg .b32 $a, $b, $c, $n, $polls, $mask, $size;");
	site_put(weaver, 0, ".reg .b64 $area, $grid, $owner, $slot, $add, $all, $old, $x, $y;");
	site_put(weaver, 0, ".reg .b64 $address, $submitted, $from;");
}

static void put_stack(struct weaver *weaver)
{
	const struct probe_program *program;
	uint32_t bytes = 0;

	for (size_t i = 0; i < weaver->probe_count; i++)
		for (size_t k = 0;
		     is_active(weaver, i) && (program = probe_program_at(weaver->probes[i].probe, k)); k++)
			if (program->stack_bytes > bytes)
				bytes = program->stack_bytes;
	if (bytes)
		site_put(weaver, 0, ".local .align 8 .b8 &_stack[%u];", bytes);
}

static void put_begin(struct weaver *weaver)
{
	if (is_read(weaver, FIELD(begin_ns)))
		site_put(weaver, 0, ".reg .b64 %%&_begin_ns;\nmov.u64 %%&_begin_ns, %%globaltimer;");
	if (is_read(weaver, FIELD(begin_clock)))
		site_put(weaver, 0, ".reg .b64 %%&_begin_clock;\nmov.u64 %%&_begin_clock, %%clock64;");
}

static bool is_sampled(const struct weaver *weaver, size_t probe)
{
	return is_active(weaver, probe) && weaver->probes[probe].period > 1 &&
	       probe_wants(weaver->probes[probe].probe, BELFRY_PROBE_MEM_ACCESS);
}

/* The counter of a thread's accesses starts at a number below the period that depends on the block and the warp,
 * so kernels whose threads have few accesses are sampled too. A device function has no number of its own for each
 * call, and takes the clock. */
static void put_counters(struct weaver *weaver)
{
	for (size_t i = 0; i < weaver->probe_count; i++) {
		unsigned name = weaver->names++;

		if (!is_sampled(weaver, i))
			continue;
		site_put(weaver, name, ".reg .b32 %%&_count%zu;", i);
		site_put(weaver, name, "mov.u32 $a, %%tid.z;\nmov.u32 $b, %%ntid.y;\nmov.u32 $c, %%tid.y;");
		site_put(weaver, name,
			 "mad.lo.u32 $a, $a, $b, $c;\nmov.u32 $b, %%ntid.x;\nmov.u32 $c, %%tid.x;");
		site_put(weaver, name, "mad.lo.u32 $a, $a, $b, $c;\nshr.u32 $a, $a, 5;");
		site_put(weaver, name, "mov.u32 $b, %%ctaid.x;\nmad.lo.u32 $a, $b, 40503, $a;");
		site_put(weaver, name, "mov.u32 $b, %%ctaid.y;\nmad.lo.u32 $a, $b, 30011, $a;");
		site_put(weaver, name, "mov.u32 $b, %%ctaid.z;\nmad.lo.u32 $a, $b, 20011, $a;");
		if (!weaver->function->is_entry)
			site_put(weaver, name, "mov.u32 $b, %%clock;\nadd.u32 $a, $a, $b;");
		site_put(weaver, name, "mul.lo.u32 $a, $a, 0x9e3779b1;\nshr.u32 $a, $a, 8;");
		site_put(weaver, name, "rem.u32 %%&_count%zu, $a, %u;", i, weaver->probes[i].period);
	}
}

/* For the first thread of a block, or of the grid. */
static int put_once(struct weaver *weaver, enum belfry_probe_event event)
{
	unsigned name = weaver->names++;
	const struct place place = { .is_one = true };
	int rc;

	if (!weaver_wants(weaver, event))
		return 0;
	site_put(weaver, name, "{\nactivemask.b32 $mask;");
	site_put(weaver, name, "mov.u32 $a, %%tid.x;\nmov.u32 $b, %%tid.y;\nor.b32 $a, $a, $b;");
	site_put(weaver, name, "mov.u32 $b, %%tid.z;\nor.b32 $a, $a, $b;");
	if (event == BELFRY_PROBE_KERNEL_ENTER)
		for (const char *axis = "xyz"; *axis; axis++)
			site_put(weaver, name, "mov.u32 $b, %%ctaid.%c;\nor.b32 $a, $a, $b;", *axis);
	site_put(weaver, name, "setp.ne.u32 $p, $a, 0;\n@$p bra #skip;");
	rc = all_programs(weaver, event, &place);
	site_put(weaver, name, "#skip:\nbar.warp.sync $mask;\n}");
	weaver->report->enters++;
	return rc;
}

static int put_warp_enter(struct weaver *weaver)
{
	unsigned name = weaver->names++;
	const struct place place = { 0 };
	int rc;

	if (!weaver_wants(weaver, BELFRY_PROBE_WARP_ENTER))
		return 0;
	site_put(weaver, name, "{\nactivemask.b32 $mask;");
	rc = all_programs(weaver, BELFRY_PROBE_WARP_ENTER, &place);
	site_put(weaver, name, "bar.warp.sync $mask;\n}");
	weaver->report->enters++;
	return rc;
}

int site_enter(struct weaver *weaver)
{
	int rc = 0;

	fputc('\n', weaver->file);
	put_registers(weaver);
	put_stack(weaver);
	put_counters(weaver);
	if (!weaver->function->is_entry)
		return 0;
	put_begin(weaver);
	rc = put_once(weaver, BELFRY_PROBE_KERNEL_ENTER);
	if (!rc)
		rc = put_once(weaver, BELFRY_PROBE_BLOCK_ENTER);
	return rc ? rc : put_warp_enter(weaver);
}

/* ---- points inside a function */

static const struct {
	enum belfry_probe_event event;
} events[] = { [POINT_SECTION] = { BELFRY_PROBE_SECTION },
	       [POINT_ACCESS] = { BELFRY_PROBE_MEM_ACCESS },
	       [POINT_LOOP] = { BELFRY_PROBE_LOOP },
	       [POINT_EXIT] = { BELFRY_PROBE_WARP_EXIT } };

/* All lanes that come here together leave together, also if the code between depends on the lane: instructions
 * such as bar.sync and mma.sync need that. Lanes whose predicate is false skip the programs. */
static void put_open(struct weaver *weaver, const struct point *point, unsigned name)
{
	site_put(weaver, name, "\n{\nactivemask.b32 $mask;");
	if (point->guard.length)
		fprintf(weaver->file, "@%s%.*s bra %s%u_skip;\n", point->is_guard_negated ? "" : "!",
			(int)point->guard.length, point->guard.text, weaver->base, name);
}

static void put_close(struct weaver *weaver, unsigned name)
{
	site_put(weaver, name, "#skip:\nbar.warp.sync $mask;\n}");
}

/* The address into $address, and lanes that access other memory to the end. */
static void put_address(struct weaver *weaver, const struct point *point, unsigned name)
{
	fprintf(weaver->file, "mov.b64 %%%s_address, %.*s;\n", weaver->base, (int)point->base.length,
		point->base.text);
	if (point->offset)
		site_put(weaver, name, "add.s64 $address, $address, %lld;", (long long)point->offset);
	if (point->is_generic)
		site_put(weaver, name, "isspacep.global $p, $address;\n@!$p bra #skip;");
	if (point->size.length)
		fprintf(weaver->file, "mov.b32 %%%s_size, %.*s;\n", weaver->base, (int)point->size.length,
			point->size.text);
}

static int put_access(struct weaver *weaver, const struct point *point, unsigned name)
{
	char address[48], size[48];
	struct place place = { .point = point, .address = address, .size = point->size.length ? size : NULL };
	int rc = 0;

	snprintf(address, sizeof(address), "%%%s_address", weaver->base);
	snprintf(size, sizeof(size), "%%%s_size", weaver->base);
	put_address(weaver, point, name);
	for (size_t i = 0; !rc && i < weaver->probe_count; i++) {
		if (!is_active(weaver, i) || !probe_wants(weaver->probes[i].probe, BELFRY_PROBE_MEM_ACCESS))
			continue;
		if (is_sampled(weaver, i)) {
			site_put(weaver, name, "add.u32 %%&_count%zu, %%&_count%zu, 1;", i, i);
			site_put(weaver, name, "setp.lt.u32 $p, %%&_count%zu, %u;\n@$p bra #next%zu;", i,
				 weaver->probes[i].period, i);
			site_put(weaver, name, "mov.u32 %%&_count%zu, 0;", i);
		}
		rc = site_programs(weaver, i, BELFRY_PROBE_MEM_ACCESS, &place);
		if (is_sampled(weaver, i))
			site_put(weaver, name, "#next%zu:", i);
	}
	weaver->report->accesses++;
	return rc;
}

static int put_exit(struct weaver *weaver, const struct point *point)
{
	const struct place place = { .point = point };
	int rc = all_programs(weaver, BELFRY_PROBE_WARP_EXIT, &place);

	for (size_t i = 0; !rc && i < weaver->probe_count; i++)
		if (is_active(weaver, i))
			rc = site_ends(weaver, i, point);
	weaver->report->exits++;
	return rc;
}

static bool is_wanted(const struct weaver *weaver, const struct point *point)
{
	if (point->kind == POINT_LOOP && !point->label.length)
		return false;
	if (weaver_wants(weaver, events[point->kind].event))
		return true;
	return point->kind == POINT_EXIT && (weaver_wants(weaver, BELFRY_PROBE_BLOCK_EXIT) ||
					     weaver_wants(weaver, BELFRY_PROBE_KERNEL_EXIT));
}

int site_point(struct weaver *weaver, const struct point *point)
{
	const struct place place = { .point = point };
	unsigned name = weaver->names;
	int rc;

	if (!is_wanted(weaver, point))
		return 0;
	weaver->names++;
	put_open(weaver, point, name);
	switch (point->kind) {
	case POINT_ACCESS:
		rc = put_access(weaver, point, name);
		break;
	case POINT_EXIT:
		rc = put_exit(weaver, point);
		break;
	case POINT_LOOP:
		rc = all_programs(weaver, BELFRY_PROBE_LOOP, &place);
		weaver->report->loops++;
		break;
	default:
		rc = all_programs(weaver, BELFRY_PROBE_SECTION, &place);
		weaver->report->sections++;
	}
	put_close(weaver, name);
	return rc;
}
