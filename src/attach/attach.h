/* attach: containers on vGPUs. Edits the configuration of a container (config.json of the OCI runtime specification) so
 * that the runtime sends the listener of its seccomp filter to belfryd, and reads what the runtime sends. Decides nothing:
 * what names the vGPU is a file that only root can write. Never prints. */
#ifndef BELFRY_ATTACH_H
#define BELFRY_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "client/protocol.h"

struct json_object;

/* The kind of the CDI devices, the default folder of the marks, and where a container has its mark. */
#define ATTACH_KIND "belfry.dev/vgpu"
#define ATTACH_MARKS "/run/belfry/vgpus"
#define ATTACH_MARK "/run/belfry/vgpu"

enum { ATTACH_CONFIG_MAX = 16 << 20, ATTACH_STATE_MAX = 1 << 20, ATTACH_DEPTH_MAX = 64, ATTACH_FDS_MAX = 4 };

/* mark.c: a vGPU is named by a mount at ATTACH_MARK. Its source, the mark, is the file with the name of the vGPU in the
 * folder of marks. Users of containers can set variables and annotations, but not mounts of files of the host. */
/* Make the marks of these vGPUs, and remove those of others. */
int attach_write_marks(const char *folder, const char *const *names, size_t count, struct bf_error *err);
/* The vGPU that the configuration names; an empty name: none. */
int attach_find_vgpu(struct json_object *config, const char *folder, char name[SPEC_NAME_MAX + 1],
		     struct bf_error *err);

/* Make the folder of marks if it does not exist, and check that only its owner can write it. */
int attach_make_folder(const char *folder, struct bf_error *err);
int attach_write_mark(int folder, const char *name, struct bf_error *err);
/* The name of the mark that is mounted at `at`; an empty name: none. */
int attach_find_mark(struct json_object *config, const char *at, const char *folder,
		     char name[SPEC_NAME_MAX + 1], struct bf_error *err);

/* share.c: a container may have parts of a GPU instead of a vGPU by name. Then belfry-oci makes a vGPU for it, which is
 * removed with the container. The parts are mounts of further marks: "memory@GPU@GIB" at ATTACH_MEMORY, and
 * "time@REQUEST:LIMIT" at ATTACH_TIME. No vGPU has such a name. */
#define ATTACH_MEMORY "/run/belfry/memory"
#define ATTACH_TIME "/run/belfry/time"
struct attach_share {
	char gpu[24]; /* "0", "soft:0"; empty: the container has no parts */
	struct spec spec;
	uint32_t parts; /* of spec */
};
int attach_find_share(struct json_object *config, const char *folder, struct attach_share *share,
		      struct bf_error *err);
const char *attach_memory_mark(const char *gpu, unsigned gib, char *to, size_t room);
const char *attach_time_mark(unsigned percent, bool is_limit, char *to, size_t room);
/* Make the marks of a GPU with this memory, so that every container finds its own. */
int attach_write_shares(const char *folder, const char *gpu, unsigned gib, struct bf_error *err);
/* The name of the vGPU of a container: "POD.pod-HASH", or "container.pod-HASH" if it belongs to no pod. */
void attach_share_name(struct json_object *config, const char *id, char name[SPEC_NAME_MAX + 1]);
/* Whether a vGPU was made for the parts of a container; of that container, unless id is NULL. */
bool attach_is_share_name(const char *name, const char *id);

/* Whether a vGPU was made for a claim of Kubernetes: "claim-UID-NUMBER". */
bool attach_is_claim_name(const char *name);

/* cdi.c: the CDI specification of these vGPUs, to be released; `kind` is ATTACH_KIND or another. NULL: out of memory. */
struct json_object *attach_cdi(const char *kind, const char *folder, const char *const *names, size_t count);

/* profile.c: add Belfry's filter to a seccomp profile, linux.seccomp of the configuration. *profile NULL: there was none.
 * Refuses profiles that cannot be combined with it. */
struct attach_listener {
	const char *path; /* of the socket to which the runtime sends the listener */
	const char *metadata;
	bool waits_killable; /* the runtime knows SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV */
};
int attach_edit_profile(struct json_object **profile, const struct attach_listener *listener,
			struct bf_error *err);

/* config.c */
struct attach_edit {
	const char *vgpu;
	const char *socket;	 /* of belfryd, for listeners */
	struct protocol_gpu gpu; /* of the vGPU */
	const char *library;	 /* the folder of libcuda.so.1 for the software GPU */
	bool waits_killable;
};
/* Edit a configuration for the vGPU. A configuration that was edited for it before is left as it is. */
int attach_edit_config(struct json_object *config, const struct attach_edit *edit, struct bf_error *err);
/* Parse a whole configuration. NULL: *err says why. */
struct json_object *attach_parse(const char *text, size_t bytes, struct bf_error *err);

/* state.c: the container process state that a runtime sends with the listener. */
struct attach_state {
	char vgpu[SPEC_NAME_MAX + 1];
	char id[PROTOCOL_ID_MAX + 1];
	char name[64];			    /* of the container */
	char pod[PROTOCOL_POD_MAX + 1];	    /* empty: the container belongs to no pod */
	char space[PROTOCOL_SPACE_MAX + 1]; /* the namespace of the pod */
	pid_t pid;			    /* 0: not known */
	unsigned listener_at;		    /* which of the descriptors is the listener */
};
/* Add bytes that were received. 1: the message is complete, and *state is filled; 0: it is not; or -errno. */
struct attach_reader;
struct attach_reader *attach_reader_new(void);
void attach_reader_free(struct attach_reader *reader);
int attach_read(struct attach_reader *reader, const char *bytes, size_t count, struct attach_state *state,
		struct bf_error *err);

/* The name of the pod in the annotations of a container; NULL: none. */
const char *attach_pod_of(struct json_object *annotations);

/* Refuses a container without a mark whose seccomp profile, which its user may have written, names a vGPU. */
int attach_refuse_listener(struct json_object *config, struct bf_error *err);

/* What the metadata of a listener says: the vGPU. */
#define ATTACH_METADATA "belfry:vgpu="

#endif
