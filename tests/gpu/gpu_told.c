/* SPDX-License-Identifier: MIT */
/* programs_are_told_the_vgpu: CUDA, NVML and nvidia-smi show the limit as the card's memory, and no
 * process but this one. Run it with a neighbour on the GPU, so that there is something to hide. `--limit
 * BYTES`. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_process {
	unsigned pid;
	unsigned long long used_bytes;
	unsigned gpu_instance, compute_instance;
};

static unsigned wrong;
static bool has_nvml = true;

static void expect(const char *who, unsigned long long told, unsigned long long right)
{
	bool ok = told == right;

	printf("%-34s %14llu  %s\n", who, told, ok ? "ok" : "WRONG");
	wrong += !ok;
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		fail("libnvidia-ml.so.1 has no %s", name);
	return found;
}

static void check_cuda(uint64_t limit)
{
	size_t total, left, of;

	CU_MUST(cu.DeviceTotalMem(&total, 0));
	expect("cuDeviceTotalMem", total, limit);
	CU_MUST(cu.MemGetInfo(&left, &of));
	expect("cuMemGetInfo total", of, limit);
	if (left >= limit) {
		printf("cuMemGetInfo free %zu: not less than the limit\n", left);
		wrong++;
	}
}

static void check_processes(void *library, void *device)
{
	int (*processes)(void *, unsigned *, struct nvml_process *);
	struct nvml_process list[64];
	unsigned count = 64, own = 0, others = 0;
	void *found = symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3");
	int result;

	memcpy(&processes, &found, sizeof(found));
	result = processes(device, &count, list);
	if (result)
		fail("nvmlDeviceGetComputeRunningProcesses_v3: %d", result);
	for (unsigned i = 0; i < count && i < 64; i++) {
		if (list[i].pid == (unsigned)getpid())
			own++;
		else
			others++;
	}
	expect("NVML own process", own, 1);
	expect("NVML other processes", others, 0);
}

static void check_nvml(uint64_t limit)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device, *found;
	int (*init)(void), (*handle)(unsigned, void **), (*memory)(void *, struct nvml_memory *);
	struct nvml_memory info;
	int result;

	if (!library) {
		has_nvml = false;
		return;
	}
	found = symbol(library, "nvmlInit_v2");
	memcpy(&init, &found, sizeof(found));
	found = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
	memcpy(&handle, &found, sizeof(found));
	found = symbol(library, "nvmlDeviceGetMemoryInfo");
	memcpy(&memory, &found, sizeof(found));
	result = init();
	if (!result)
		result = handle(0, &device);
	if (!result)
		result = memory(device, &info);
	if (result)
		fail("NVML: error %d", result);
	expect("nvmlDeviceGetMemoryInfo total", info.total, limit);
	check_processes(library, device);
}

static bool run_line(const char *command, char *line, size_t size)
{
	FILE *pipe = popen(command, "r");
	bool got = pipe && fgets(line, (int)size, pipe);

	return pipe && !pclose(pipe) && got;
}

static void check_smi(uint64_t limit)
{
	char line[128];

	if (system("command -v nvidia-smi >/dev/null 2>&1")) {
		printf("%-34s %14s  %s\n", "nvidia-smi", "-", "no such program");
		return;
	}
	if (!run_line("nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits", line,
		      sizeof(line)))
		fail("nvidia-smi --query-gpu=memory.total failed");
	expect("nvidia-smi memory.total, MiB", strtoull(line, NULL, 10), limit / MIB);
	if (!run_line("nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l", line,
		      sizeof(line)))
		fail("nvidia-smi --query-compute-apps failed");
	expect("nvidia-smi compute processes", strtoull(line, NULL, 10), 1);
}

int main(int argc, char **argv)
{
	uint64_t limit = option_number(argc, argv, "limit", 0);

	if (!limit)
		fail("usage: gpu_told --limit BYTES");
	cu_open();
	if (saxpy_check(1 << 16))
		return 1;
	check_cuda(limit);
	check_nvml(limit);
	check_smi(limit);
	if (!wrong && !has_nvml) {
		printf("skipped: no libnvidia-ml.so.1; what CUDA says is right\n");
		return 77;
	}
	printf("%s\n", wrong ? "FAILED" : "ok");
	return wrong != 0;
}
