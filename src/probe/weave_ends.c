/* The ends of blocks and grids. Threads that end together add their number to a counter of their block in device
 * memory. Those that complete the block run block_exit, and add 1 to a counter of their grid; those that complete
 * the grid run kernel_exit. A slot of the tables belongs to one block or grid at a time. */
#include <inttypes.h>

#include "probe/weave_inside.h"

/* Polls for a slot that other work has. After them the slot is taken away: its owner may be a grid that was killed. */
enum { POLLS = 64 };

static bool has(const struct probe *probe, enum belfry_probe_event event)
{
	const struct probe_program *program;

	for (size_t i = 0; (program = probe_program_at(probe, i)); i++)
		if (program->event == event)
			return true;
	return false;
}

/* Only one lane goes on; $n is the number of threads that end with it. */
static void put_choice(struct weaver *weaver, unsigned name)
{
	site_put(weaver, name, "{");
	site_put(weaver, name, "activemask.b32 $a;\npopc.b32 $n, $a;\nneg.s32 $b, $a;\nand.b32 $b, $b, $a;");
	site_put(weaver, name, "mov.u32 $a, %%lanemask_eq;\nsetp.ne.u32 $p, $a, $b;\n@$p bra #done;");
	site_put(weaver, name, "cvt.u64.u32 $add, $n;\nmov.u64 $grid, %%gridid;");
}

static void put_product(struct weaver *weaver, unsigned name, const char *what)
{
	site_put(weaver, name, "mov.u32 $a, %%%s.x;\ncvt.u64.u32 $all, $a;", what);
	site_put(weaver, name, "mov.u32 $a, %%%s.y;\ncvt.u64.u32 $x, $a;\nmul.lo.u64 $all, $all, $x;", what);
	site_put(weaver, name, "mov.u32 $a, %%%s.z;\ncvt.u64.u32 $x, $a;\nmul.lo.u64 $all, $all, $x;", what);
}

/* The block's number in its grid, into $x. */
static void put_block_number(struct weaver *weaver, unsigned name)
{
	site_put(weaver, name, "mov.u32 $a, %%ctaid.z;\ncvt.u64.u32 $x, $a;");
	site_put(weaver, name, "mov.u32 $a, %%nctaid.y;\ncvt.u64.u32 $y, $a;\nmul.lo.u64 $x, $x, $y;");
	site_put(weaver, name, "mov.u32 $a, %%ctaid.y;\ncvt.u64.u32 $y, $a;\nadd.u64 $x, $x, $y;");
	site_put(weaver, name, "mov.u32 $a, %%nctaid.x;\ncvt.u64.u32 $y, $a;\nmul.lo.u64 $x, $x, $y;");
	site_put(weaver, name, "mov.u32 $a, %%ctaid.x;\ncvt.u64.u32 $y, $a;\nadd.u64 $x, $x, $y;");
}

/* Adds $add to the counter of $owner, in slot number $x of a table. Goes on if the sum is $all, otherwise to the
 * end. The additions are acq_rel, so the last thread sees what the programs of the others have stored. */
static void put_count(struct weaver *weaver, unsigned name, uint64_t table, uint32_t slots, char step)
{
	site_put(weaver, name, "and.b64 $x, $x, %u;\nshl.b64 $x, $x, 4;", slots - 1);
	site_put(weaver, name, "add.u64 $slot, $area, $x;\nadd.u64 $slot, $slot, %" PRIu64 ";", table);
	site_put(weaver, name, "mov.u32 $polls, %d;\n#%ctry:", POLLS, step);
	site_put(weaver, name, "atom.acquire.gpu.global.cas.b64 $old, [$slot], 0, $owner;");
	site_put(weaver, name, "setp.eq.u64 $p, $old, 0;\n@$p bra #%cmine;", step);
	site_put(weaver, name, "setp.eq.u64 $p, $old, $owner;\n@$p bra #%cmine;", step);
	site_put(weaver, name, "sub.u32 $polls, $polls, 1;\nsetp.ne.u32 $p, $polls, 0;\n@$p bra #%ctry;",
		 step);
	site_put(weaver, name, "red.relaxed.gpu.global.add.u64 [$area+%zu], 1;",
		 offsetof(struct probe_area, missed_ends));
	site_put(weaver, name, "atom.acq_rel.gpu.global.exch.b64 $old, [$slot], $owner;");
	site_put(weaver, name, "mov.u64 $old, 0;\nst.relaxed.gpu.global.u64 [$slot+8], $old;");
	site_put(weaver, name, "#%cmine:\natom.acq_rel.gpu.global.add.u64 $old, [$slot+8], $add;", step);
	site_put(weaver, name, "add.u64 $old, $old, $add;\nsetp.ne.u64 $p, $old, $all;\n@$p bra #done;");
	site_put(weaver, name, "mov.u64 $old, 0;\nst.relaxed.gpu.global.u64 [$slot+8], $old;");
	site_put(weaver, name, "st.release.gpu.global.u64 [$slot], $old;");
}

static void put_block_end(struct weaver *weaver, const struct probe *probe, unsigned name)
{
	put_product(weaver, name, "ntid");
	site_put(weaver, name, "setp.eq.u64 $p, $add, $all;\n@$p bra #block;");
	put_block_number(weaver, name);
	site_put(weaver, name, "mul.lo.u64 $owner, $grid, 0x%llx;", HASH_FACTOR);
	site_put(weaver, name, "add.u64 $owner, $owner, $x;\nadd.u64 $owner, $owner, 1;");
	/* Blocks of one grid that run at the same time have numbers close to each other, and so different slots. */
	site_put(weaver, name, "mad.lo.u64 $x, $grid, 7919, $x;");
	put_count(weaver, name, probe->block_ends, ENDS_BLOCKS, 'b');
	site_put(weaver, name, "#block:");
}

static void put_grid_end(struct weaver *weaver, const struct probe *probe, unsigned name)
{
	put_product(weaver, name, "nctaid");
	site_put(weaver, name, "setp.eq.u64 $p, $all, 1;\n@$p bra #grid;");
	site_put(weaver, name, "mov.u64 $add, 1;\nmov.u64 $x, $grid;");
	site_put(weaver, name, "mul.lo.u64 $owner, $grid, 0x%llx;\nadd.u64 $owner, $owner, 1;", HASH_FACTOR);
	put_count(weaver, name, probe->grid_ends, ENDS_GRIDS, 'g');
	site_put(weaver, name, "#grid:");
}

int site_ends(struct weaver *weaver, size_t index, const struct point *point)
{
	const struct probe *probe = weaver->probes[index].probe;
	const struct place place = { .point = point, .is_one = true };
	unsigned name = weaver->names;
	int rc;

	if (!probe->block_ends)
		return 0;
	weaver->names++;
	put_choice(weaver, name);
	site_put(weaver, name, "mov.u64 $area, 0x%" PRIx64 ";", weaver->probes[index].area);
	put_block_end(weaver, probe, name);
	rc = site_programs(weaver, index, BELFRY_PROBE_BLOCK_EXIT, &place);
	if (!rc && has(probe, BELFRY_PROBE_KERNEL_EXIT)) {
		put_grid_end(weaver, probe, name);
		rc = site_programs(weaver, index, BELFRY_PROBE_KERNEL_EXIT, &place);
	}
	site_put(weaver, name, "#done:\n}");
	return rc;
}
