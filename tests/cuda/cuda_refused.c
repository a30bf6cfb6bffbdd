/* cuda: what a person sees of device code that is refused, and what the program sees of that: nothing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"

static const char refused[] = PTX_HEAD ".visible .entry kernel_of_mine()\n{\n.reg .b32 %r<4>;\n"
				       "vadd.u32.u32.u32 %r1, %r2, %r3;\nret;\n}\n";

/* stderr goes to a file meanwhile; what was written there. */
static const char *capture(CUresult (*act)(void), CUresult wanted)
{
	static char text[4096];
	char path[] = "/tmp/belfry-refused.XXXXXX";
	int file = mkstemp(path), before = dup(STDERR_FILENO);
	CUresult got;
	ssize_t length;

	CHECK(file >= 0 && before >= 0);
	unlink(path);
	dup2(file, STDERR_FILENO);
	errno = 4242;
	got = act();
	CHECK_EQUAL(errno, 4242);
	dup2(before, STDERR_FILENO);
	close(before);
	length = pread(file, text, sizeof(text) - 1, 0);
	CHECK(length >= 0);
	text[length] = '\0';
	close(file);
	CHECK_EQUAL(got, wanted);
	return text;
}

static CUresult load_data(void)
{
	CUmodule module;

	return cuModuleLoadData(&module, refused);
}

static CUresult load_with_log(void)
{
	char log[512] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	CUmodule module;
	CUresult result = cuModuleLoadDataEx(&module, refused, 2, options, values);

	return strstr(log, "vadd") && strstr(log, "line 7") ? result : CUDA_ERROR_UNKNOWN;
}

static char file_path[] = "/tmp/belfry-refused-module.XXXXXX";

static CUresult load_file(void)
{
	CUmodule module;

	return cuModuleLoad(&module, file_path);
}

static CUresult load_library(void)
{
	CUlibrary library;

	return cuLibraryLoadData(&library, refused, NULL, NULL, 0, NULL, NULL, 0);
}

static unsigned lines_of(const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

static void one_line_names_program_line_instruction_and_document(void)
{
	const char *text;

	check_context();
	text = capture(load_data, CUDA_ERROR_INVALID_PTX);
	CHECK_EQUAL(lines_of(text), 1);
	CHECK(strstr(text, "belfry: cuda_refused: "));
	CHECK(strstr(text, "PTX line 7: instruction vadd.u32.u32.u32 is not supported (in kernel_of_mine)"));
	CHECK(strstr(text, "docs/ptx.md"));
	CHECK_EQUAL(lines_of(capture(load_library, CUDA_ERROR_INVALID_PTX)), 1);
}

static void the_line_names_the_file(void)
{
	int file = mkstemp(file_path);

	check_context();
	CHECK(file >= 0 && write(file, refused, sizeof(refused)) == (ssize_t)sizeof(refused));
	close(file);
	CHECK(strstr(capture(load_file, CUDA_ERROR_INVALID_PTX), file_path));
	unlink(file_path);
	CHECK_EQUAL(*capture(load_file, CUDA_ERROR_FILE_NOT_FOUND), 0);
}

static void a_program_with_its_own_log_gets_no_line(void)
{
	check_context();
	CHECK_EQUAL(*capture(load_with_log, CUDA_ERROR_INVALID_PTX), 0);
}

static void quiet_is_quiet(void)
{
	check_context();
	setenv("BELFRY_SOFT_QUIET", "1", 1);
	CHECK_EQUAL(*capture(load_data, CUDA_ERROR_INVALID_PTX), 0);
	setenv("BELFRY_SOFT_QUIET", "0", 1);
	CHECK_EQUAL(lines_of(capture(load_data, CUDA_ERROR_INVALID_PTX)), 1);
	unsetenv("BELFRY_SOFT_QUIET");
}

/* stderr is a pipe that is closed at the other end, or that is full: the program continues. */
static void a_broken_or_full_pipe_does_not_matter(void)
{
	int ends[2], before = dup(STDERR_FILENO);
	sigset_t pending;
	char byte = 0;

	check_context();
	CHECK(!pipe2(ends, O_CLOEXEC));
	dup2(ends[1], STDERR_FILENO);
	fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
	while (write(STDERR_FILENO, &byte, 1) == 1)
		;
	fcntl(STDERR_FILENO, F_SETFL, 0);
	CHECK_EQUAL(load_data(), CUDA_ERROR_INVALID_PTX);
	close(ends[0]);
	close(ends[1]);
	CHECK_EQUAL(load_data(), CUDA_ERROR_INVALID_PTX);
	dup2(before, STDERR_FILENO);
	close(before);
	sigpending(&pending);
	CHECK(!sigismember(&pending, SIGPIPE));
}

TESTS(TEST(one_line_names_program_line_instruction_and_document), TEST(the_line_names_the_file),
      TEST(a_program_with_its_own_log_gets_no_line), TEST(quiet_is_quiet),
      TEST(a_broken_or_full_pipe_does_not_matter))
