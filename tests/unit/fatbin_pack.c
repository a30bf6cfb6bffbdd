/* fatbin: what fatbin_pack writes, and what belfry-ptxas makes of a command line and of a list of mapped files. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/own.h"
#include "cuda/fatbin.h"
#include "policy_rig.h"
#include "ptxas/ptxas.h"
#include "skipping.h"

/* fatbinary removes blanks at the start of a line, so there are none. */
static const char text[] =
	".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
static const char machine[100] = "\177ELF\2\1\1\x33\7";
static const struct fatbin_target sm_90a = { 90, 'a' };

static void packed_text_and_machine_code_are_read_again(void **state)
{
	cleanup_free uint8_t *image = NULL;
	cleanup_free char *again = NULL;
	struct fatbin_choices choices;
	struct bf_error err = { 0 };
	size_t length, again_length;

	(void)state;
	assert_int_equal(
		fatbin_pack(machine, sizeof(machine), sm_90a, text, strlen(text), &image, &length, &err), 0);
	assert_int_equal(fatbin_length(image), length);
	assert_int_equal(fatbin_choose(image, length, 90, &choices, &err), 0);
	assert_int_equal(choices.count, 1);
	assert_int_equal(choices.machine_target, 90);
	assert_int_equal(choices.list[0].target, 90);
	assert_int_equal(fatbin_text(&choices.list[0], &again, &again_length, &err), 0);
	assert_string_equal(again, text);
	assert_int_equal(again_length, strlen(text));
}

static void what_cannot_be_packed_is_refused(void **state)
{
	static const char *const bad[] = { "", "text", ".version 8.4\n", ".version x\n.target sm_90\n",
					   ".version 8.4\n.target gpu\n" };
	struct bf_error err = { 0 };
	uint8_t *image = NULL;
	size_t length;

	(void)state;
	for (unsigned i = 0; i < COUNT(bad); i++)
		assert_int_equal(fatbin_pack(machine, sizeof(machine), sm_90a, bad[i], strlen(bad[i]), &image,
					     &length, &err),
				 -EINVAL);
	assert_int_equal(fatbin_pack(text, sizeof(text), sm_90a, text, strlen(text), &image, &length, &err),
			 -EINVAL);
	assert_int_equal(fatbin_pack(machine, 8, sm_90a, text, strlen(text), &image, &length, &err), -EINVAL);
	assert_int_equal(fatbin_pack(machine, sizeof(machine), (struct fatbin_target){ 100, 'a' }, text,
				     strlen(text), &image, &length, &err),
			 -ENOTSUP);
	assert_null(image);
}

static size_t read_all(const char *path, void *to, size_t room)
{
	cleanup_file FILE *file = fopen(path, "re");

	assert_non_null(file);
	return fread(to, 1, room, file);
}

/* The driver reads what CUDA's own tool writes. */
static void the_image_is_the_one_that_fatbinary_writes(void **state)
{
	static const char *const targets[] = { "80", "90", "90a" };
	char folder[] = "/tmp/belfry-fatbin.XXXXXX", command[1024], path[64];

	(void)state;
	if (system("export PATH=$PATH:/usr/local/cuda/bin; ptxas --version >/dev/null 2>&1 && "
		   "fatbinary --version >/dev/null 2>&1"))
		skip_case("there is no ptxas or no fatbinary");
	assert_non_null(mkdtemp(folder));
	for (unsigned i = 0; i < COUNT(targets); i++) {
		cleanup_free char *code = malloc(1 << 16), *wanted = malloc(1 << 16);
		cleanup_free uint8_t *image = NULL;
		struct fatbin_target target;
		struct bf_error err = { 0 };
		char ptx[256], name[8];
		size_t code_bytes, wanted_bytes, length;

		snprintf(ptx, sizeof(ptx),
			 ".version 8.4\n.target sm_%s\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n",
			 targets[i]);
		snprintf(
			command, sizeof(command),
			"export PATH=$PATH:/usr/local/cuda/bin; cd %s && printf '%%s' '%s' >k.ptx && "
			"ptxas -arch=sm_%s k.ptx -o k.cubin && fatbinary --create=k.fatbin --compress=false -64 "
			"--image3=kind=elf,sm=%s,file=k.cubin --image3=kind=ptx,sm=%s,file=k.ptx",
			folder, ptx, targets[i], targets[i], targets[i]);
		assert_int_equal(system(command), 0);
		snprintf(path, sizeof(path), "%s/k.cubin", folder);
		code_bytes = read_all(path, code, 1 << 16);
		snprintf(path, sizeof(path), "%s/k.fatbin", folder);
		wanted_bytes = read_all(path, wanted, 1 << 16);
		snprintf(name, sizeof(name), "sm_%s", targets[i]);
		assert_true(fatbin_target_read(name, strlen(name), &target));
		assert_int_equal(
			fatbin_pack(code, code_bytes, target, ptx, strlen(ptx), &image, &length, &err), 0);
		assert_int_equal(length, wanted_bytes);
		assert_memory_equal(image, wanted, length);
	}
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
}

/* ---- belfry-ptxas */

static bool ends_with_ptx(const char *path)
{
	return strlen(path) > 4 && !strcmp(path + strlen(path) - 4, ".ptx");
}

#define READ(...) ptxas_read_arguments((char *[]){ "ptxas", __VA_ARGS__, NULL }, ends_with_ptx, &job)

static void a_command_line_of_triton_is_understood(void **state)
{
	struct ptxas_job job;

	(void)state;
	READ("-lineinfo", "-v", "--gpu-name=sm_90a", "/tmp/a.ptx", "-o", "/tmp/a.ptx.o");
	assert_null(job.why_not);
	assert_string_equal(job.input, "/tmp/a.ptx");
	assert_string_equal(job.output, "/tmp/a.ptx.o");
	assert_int_equal(job.target.number, 90);
	assert_int_equal(job.target.suffix, 'a');
	READ("-o", "b.ptx", "-arch", "sm_80", "a.ptx");
	assert_null(job.why_not);
	assert_string_equal(job.input, "a.ptx");
	assert_string_equal(job.output, "b.ptx");
	READ("--version");
	assert_true(job.is_version);
}

static void other_command_lines_leave_the_output_alone(void **state)
{
	struct ptxas_job job;

	(void)state;
	READ("--gpu-name=sm_90a", "a.ptx", "-o", "o", "--fmad=false");
	assert_text_has(job.why_not, "fused");
	READ("--gpu-name=sm_90a", "a.ptx", "-o", "o", "--opt-level", "0");
	assert_text_has(job.why_not, "optimization");
	READ("--gpu-name=sm_90a", "a.ptx", "-o", "o", "-c");
	assert_text_has(job.why_not, "not a module");
	READ("--gpu-name=sm_90a", "a.ptx", "b.ptx", "-o", "o");
	assert_text_has(job.why_not, "several");
	READ("--gpu-name=sm_90a", "a.cubin", "-o", "o");
	assert_text_has(job.why_not, "no input");
	READ("--gpu-name=sm_90a", "a.ptx");
	assert_text_has(job.why_not, "no output");
	READ("a.ptx", "-o", "o");
	assert_text_has(job.why_not, "no GPU");
	READ("a.ptx", "-o");
	assert_non_null(job.why_not);
}

static void the_package_is_found_by_its_mapped_library(void **state)
{
	char folder[] = "/tmp/belfry-package.XXXXXX", maps[512], path[256], wanted[256], command[1024];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(maps, sizeof(maps),
		 "7f00-7f01 r--p 00000000 fe:00 1 /usr/lib/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0\n"
		 "7f04-7f05 r-xp 00001000 fe:00 2    %s/triton/_C/libtriton.so\n",
		 folder);
	assert_false(ptxas_find_mapped(maps, path, sizeof(path)));
	assert_false(ptxas_find_mapped("", path, sizeof(path)));
	snprintf(wanted, sizeof(wanted), "%s/triton/backends/nvidia/bin/ptxas", folder);
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s) && cp /bin/true %s", wanted, wanted);
	assert_int_equal(system(command), 0);
	assert_true(ptxas_find_mapped(maps, path, sizeof(path)));
	assert_string_equal(path, wanted);
	assert_false(ptxas_find_mapped(maps, path, 16));
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packed_text_and_machine_code_are_read_again),
		cmocka_unit_test(what_cannot_be_packed_is_refused),
		cmocka_unit_test(the_image_is_the_one_that_fatbinary_writes),
		cmocka_unit_test(a_command_line_of_triton_is_understood),
		cmocka_unit_test(other_command_lines_leave_the_output_alone),
		cmocka_unit_test(the_package_is_found_by_its_mapped_library),
	};

	return cmocka_run_group_tests_name("fatbin_pack", tests, NULL, NULL);
}
