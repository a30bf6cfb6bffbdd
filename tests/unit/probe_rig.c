#include "probe_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"

extern char **environ;

void probe_rig_open(struct probe_rig *rig, const struct probe *probe, size_t program, bool is_per_thread,
		    unsigned room)
{
	cleanup_free char *text = NULL;
	struct bf_error err;

	if (probe_write_module(probe, program, is_per_thread, &text, &err))
		fail_msg("%s", err.text);
	rig_open_text(&rig->rig, text);
	rig->probe = probe;
	rig->room = room;
	rig->area = rig_alloc(&rig->rig, probe_area_bytes(probe), NULL);
	rig->contexts = rig_alloc(&rig->rig, room * sizeof(struct belfry_probe_ctx), NULL);
	rig->results = rig_alloc(&rig->rig, room * sizeof(uint64_t), NULL);
	probe_area_init(probe, probe_rig_area(rig));
}

void probe_rig_close(struct probe_rig *rig)
{
	rig_close(&rig->rig);
}

void *probe_rig_area(struct probe_rig *rig)
{
	return rig_host(&rig->rig, rig->area);
}

void probe_rig_run(struct probe_rig *rig, const struct belfry_probe_ctx *contexts, uint64_t *results,
		   unsigned count, unsigned threads)
{
	struct {
		uint64_t area, contexts, results;
		uint32_t count;
	} params = { rig->area, rig->contexts, rig->results, count };
	struct rig_shape shape = { .grid = { (count + threads - 1) / threads }, .threads = { threads } };

	assert_true(count <= rig->room);
	memcpy(rig_host(&rig->rig, rig->contexts), contexts, count * sizeof(*contexts));
	memset(rig_host(&rig->rig, rig->results), 0xff, count * sizeof(*results));
	rig->rig.cost = 0;
	rig_launch(&rig->rig, "probe", shape, &params, sizeof(params));
	memcpy(results, rig_host(&rig->rig, rig->results), count * sizeof(*results));
}

/* Half of the words are small, so that comparisons of fields are true now and then. */
struct belfry_probe_ctx probe_random_context(uint64_t *seed)
{
	struct belfry_probe_ctx ctx;
	uint32_t *words = (uint32_t *)(void *)&ctx;

	for (size_t i = 0; i < sizeof(ctx) / sizeof(*words); i++) {
		uint64_t drawn = rig_random(seed);

		words[i] = (uint32_t)(drawn >> 32) >> (drawn % 2 ? 0 : drawn / 2 % 32);
	}
	return ctx;
}

void *probe_bytes(const char *name, size_t *size)
{
	uint8_t *data = malloc(1 << 20);
	cleanup_file FILE *file = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/probes/%s.bpf.o", BELFRY_BUILD_DIR, name);
	file = fopen(path, "re");
	if (!file || !data)
		fail_msg("%s: %s", path, strerror(errno));
	*size = fread(data, 1, 1 << 20, file);
	return data;
}

struct probe *probe_read(const char *name, const struct probe_options *options)
{
	size_t size = 0;
	cleanup_free void *data = probe_bytes(name, &size);
	struct probe *probe;
	struct bf_error err;

	if (probe_open(data, size, options, &probe, &err))
		fail_msg("%s: %s", name, err.text);
	return probe;
}

static const char *ptxas_path(void)
{
	static const char usual[] = "/usr/local/cuda/bin/ptxas";

	return access(usual, X_OK) ? "ptxas" : usual;
}

static int run_ptxas(const char *arch, const char *file)
{
	char *arguments[] = {
		(char *)ptxas_path(), (char *)arch, "-O1", "-o", "/dev/null", (char *)file, NULL
	};
	int status = -1;
	pid_t pid;

	if (posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ))
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int assemble(const char *arch, const char *text)
{
	char path[] = "/tmp/probe-XXXXXX.ptx";
	cleanup_close int fd = mkstemps(path, 4);
	size_t length = strlen(text);
	int status;

	assert_true(fd >= 0 && write(fd, text, length) == (ssize_t)length);
	status = run_ptxas(arch, path);
	unlink(path);
	return status;
}

bool probe_can_assemble(void)
{
	return !assemble("-arch=sm_80", ".version 7.0\n.target sm_80\n.address_size 64\n");
}

void probe_assemble_for(const char *arch, const char *text)
{
	if (assemble(arch, text))
		fail_msg("ptxas %s refuses\n%.2000s", arch, text);
}

void probe_assemble(const char *text)
{
	probe_assemble_for("-arch=sm_80", text);
	probe_assemble_for("-arch=sm_90", text);
}

bool probe_has_variable(const struct probe *probe, void *area, uint64_t wanted)
{
	const struct probe_map *map = probe_map_find(probe, ".bss");
	const uint64_t *values;

	assert_non_null(map);
	values = probe_value(map, area, NULL, 0);
	for (uint32_t i = 0; i < map->value_bytes / sizeof(*values); i++)
		if (values[i] == wanted)
			return true;
	return false;
}
