// A program of the runtime whose kernel is refused: the error is a number, the reason is a line on stderr.
#include "check.h"
#include <cstring>
#include <unistd.h>

__global__ void kernel_of_mine(unsigned *out)
{
	unsigned v;

	asm volatile("vadd.u32.u32.u32 %0, %1, %2;" : "=r"(v) : "r"(out[0]), "r"(out[1]));
	out[2] = v;
}

int main()
{
	char path[] = "/tmp/belfry-refused.XXXXXX", text[2048];
	int file = mkstemp(path), before = dup(STDERR_FILENO);
	cudaError_t error;
	ssize_t length;

	WANT(file >= 0 && before >= 0);
	unlink(path);
	dup2(file, STDERR_FILENO);
	kernel_of_mine<<<1, 1>>>(nullptr);
	error = cudaGetLastError();
	dup2(before, STDERR_FILENO);
	WANT(error == cudaErrorInvalidPtx);
	length = pread(file, text, sizeof(text) - 1, 0);
	WANT(length > 0);
	text[length] = 0;
	WANT(strstr(text, "belfry: refused: the software GPU refused device code"));
	WANT(strstr(text, "instruction vadd.u32.u32.u32 is not supported (in _Z14kernel_of_mine"));
	WANT(strstr(text, "docs/ptx.md"));
	return 0;
}
