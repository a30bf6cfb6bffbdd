/* The kernel's verifier. BPF_PROG_TYPE_SYSCALL is the type whose programs may read a context of any layout. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/file.h"
#include "probe/inside.h"

enum { LOG_BYTES = 1 << 20 };

static int set_types(struct bpf_object *bpf, struct bf_error *err)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, bpf)
	{
		if (bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL) ||
		    bpf_program__set_flags(program, BPF_F_SLEEPABLE))
			return bf_fail(err, EINVAL, "program %.64s cannot be verified",
				       bpf_program__name(program));
	}
	return 0;
}

static int explain(struct bpf_object *bpf, int code, const char *complaint, char **log, struct bf_error *err)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, bpf)
	{
		size_t size = 0;
		const char *text = bpf_program__log_buf(program, &size);
		char reason[192] = "";

		if (text && *text)
			log_reason(text, reason, sizeof(reason));
		if (!reason[0])
			continue;
		if (log)
			*log = log_readable(bpf_program__name(program), text);
		return bf_fail(err, code, "the kernel's verifier refuses program %.64s: %s",
			       bpf_program__name(program), reason);
	}
	return bf_fail(err, code, "the kernel cannot verify it: %s",
		       complaint[0] ? complaint : strerror(code));
}

/* Programs are loaded one after the other, and the first that fails ends the loading: one buffer is enough,
 * but each program needs its own to tell which one failed. */
static int give_logs(struct bpf_object *bpf, char *logs[PROBE_PROGRAMS_MAX], struct bf_error *err)
{
	struct bpf_program *program;
	unsigned count = 0;

	bpf_object__for_each_program(program, bpf)
	{
		if (count == PROBE_PROGRAMS_MAX)
			break;
		logs[count] = calloc(1, LOG_BYTES);
		if (!logs[count] || bpf_program__set_log_buf(program, logs[count], LOG_BYTES))
			return bf_fail(err, ENOMEM, "not enough memory for the verifier's log");
		count++;
	}
	return 0;
}

static int load(struct bpf_object *bpf, char **log, struct bf_error *err)
{
	char *logs[PROBE_PROGRAMS_MAX] = { NULL };
	struct log_kept kept = { "" };
	int rc = set_types(bpf, err);

	if (!rc)
		rc = give_logs(bpf, logs, err);
	if (!rc) {
		log_keep(&kept);
		rc = bpf_object__load(bpf);
		log_keep(NULL);
		if (rc)
			rc = explain(bpf, -rc, kept.text, log, err);
	}
	bpf_object__close(bpf);
	for (unsigned i = 0; i < PROBE_PROGRAMS_MAX; i++)
		free(logs[i]);
	return rc;
}

int probe_verify(const void *object, size_t bytes, char **log, struct bf_error *err)
{
	struct bpf_object_open_opts options = { .sz = sizeof(options), .object_name = "probe" };
	struct log_kept kept;
	struct bpf_object *bpf;
	struct probe *probe;
	int rc = probe_open(object, bytes, &(struct probe_options){ .is_checked_only = true }, &probe, err);

	if (log)
		*log = NULL;
	if (rc)
		return rc;
	log_keep(&kept);
	bpf = bpf_object__open_mem(probe->code.bytes, probe->code.size, &options);
	log_keep(NULL);
	rc = bpf ? load(bpf, log, err) : bf_fail(err, EINVAL, "it cannot be read: %s", kept.text);
	probe_free(probe);
	return rc;
}
