/* The configuration of belfryd, belfryd.conf(5): sections, `key = value`, comments. The saved state has the same
 * format. */
#ifndef BELFRY_ROUTER_CONFIG_H
#define BELFRY_ROUTER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/log.h"
#include "client/protocol.h"
#include "gpu/settings.h"
#include "router/names.h"

#define CONFIG_DEFAULT "/etc/belfry/belfryd.conf"

enum {
	CONFIG_LINE_MAX = 1024,
	CONFIG_FILE_MAX = 1 << 20,
	CONFIG_STATE_MAX = 8 << 20,
	CONFIG_VGPUS_MAX = 4096,
	CONFIG_STATE_VGPUS_MAX = 2 * CONFIG_VGPUS_MAX, /* with those that clients have created */
	CONFIG_GPUS_MAX = 64,
	CONFIG_FILES_MAX = 256,
	CONFIG_NV_MAX = 253, /* the last minor number of a GPU in the driver */
};
#define CONFIG_LINGER_US 5000000u

enum config_access { CONFIG_OWNER = 0, CONFIG_EVERYONE, CONFIG_GROUP };

struct config_vgpu {
	char name[SPEC_NAME_MAX + 1];
	struct spec spec;
	uint32_t parts;		 /* enum spec_part: the parts that are set */
	struct protocol_gpu gpu; /* PROTOCOL_GPU_ANY: any GPU with enough room */
	uid_t owner;
	bool has_owner;
	bool is_from_config; /* in the saved state: it came from the configuration */
	unsigned file, line; /* where it was last mentioned: config.files */
	bool is_due;	     /* the router is about to create it */
};

/* The quota of one user over all GPUs: a section [user NAME], or [user *] for all users without one. */
struct config_quota {
	uid_t uid;
	bool is_of_all;
	uint64_t mem_bytes; /* 0: no quota */
	bool has_time, has_vgpus;
	uint32_t request_ppm, vgpus;
	unsigned file, line; /* where it was last mentioned: config.files */
};

/* [events]: the command that is run for events. */
struct config_events {
	char command[256]; /* a program; empty: none */
	uint32_t kinds;	   /* 1 << enum event_kind */
	uid_t uid;	   /* the user of the command if belfryd is root */
	gid_t gid;
	uint64_t timeout_us;
	unsigned file, line; /* of the command */
};

struct config {
	bool is_all; /* every GPU of the machine; otherwise those of `gpus` */
	struct protocol_gpu gpus[CONFIG_GPUS_MAX];
	unsigned gpu_count;
	unsigned gpus_file, gpus_line; /* line 0: not of a file */
	enum config_access access;
	gid_t group;
	char metrics[64]; /* ADDR:PORT; empty: off */
	bool metrics_is_public;
	char oci_socket
		[108]; /* for listeners of containers; "off": none; empty: the system's belfryd has one */
	char accounting[256]; /* a file; empty: none */
	unsigned accounting_file, accounting_line;
	struct config_events events;
	enum bf_log_level log;
	uint64_t linger_us;
	struct settings sharing;
	unsigned sharing_file, sharing_line;
	unsigned policy_file, policy_line, policy_set_file, policy_set_line;
	struct config_vgpu *vgpus;
	size_t vgpu_count;
	struct config_quota *quotas;
	size_t quota_count;
	char *files[CONFIG_FILES_MAX];
	unsigned file_count;
	struct names *names; /* for names of users and groups; NULL: they are looked up at once. Not owned */
};

void config_init(struct config *config);
void config_free(struct config *config);
/* Read the file at `path` (NULL: CONFIG_DEFAULT, which may be missing) and its drop-ins, PATH.d/NAME.conf in the
 * order of their names. *config must be empty before, and must be freed also after an error. Errors begin with
 * FILE:LINE. */
int config_read(struct config *config, const char *path, struct bf_error *err);
/* Parse the text of one file, in addition to the files before. `is_state`: it is the saved state. */
int config_parse(struct config *config, const char *file, const char *text, size_t length, bool is_state,
		 struct bf_error *err);
/* Check the configuration as a whole. */
int config_check(const struct config *config, struct bf_error *err);

/* config_policy.c: whether the policy exists, is valid, and has its tunables; and, if `may_load` and this process may
 * load eBPF, whether the kernel's verifier accepts it. An invalid policy does not prevent the start: the built-in
 * decides then. */
int config_check_policy(const struct config *config, bool may_load, struct bf_error *err);
/* config_events.c: the defaults of [events], its keys, and whether the command can be run. A command that cannot be
 * run prevents neither the start of belfryd nor reading the rest. */
extern const struct config_events config_events_default;
int config_take_events(struct config *config, const char *key, const char *value, unsigned line,
		       struct bf_error *err);
int config_check_events(const struct config *config, struct bf_error *err);
/* config_machine.c: whether this process can write the accounting file; and whether the NVIDIA GPUs of the configuration
 * are among those of the machine, if any is there. Like the above, for --check and a reload only. */
int config_check_accounting(const struct config *config, struct bf_error *err);
int config_check_gpus(const struct config *config, const struct protocol_gpu *there, unsigned count,
		      struct bf_error *err);
/* Whether the GPUs of the configuration are there and served, for --check only: `there` are the GPUs of the machine, and
 * `soft_count` that of the software GPU. A machine without any NVIDIA GPU may be one whose driver is loaded later, so
 * `warning` gets a line for each of its GPUs; empty: there is none. */
int config_check_served(const struct config *config, const struct protocol_gpu *there, unsigned count,
			unsigned soft_count, char *warning, size_t room, struct bf_error *err);
/* Put "FILE:LINE: " before an error. */
int config_fail_at(const struct config *config, unsigned file, unsigned line, const struct bf_error *why,
		   struct bf_error *err);

/* "all", "0 1", "soft", "soft:0 soft:1"; replaces the previous value. */
int config_parse_gpus(struct config *config, const char *text, struct bf_error *err);
/* "0", "soft", "soft:1" */
int config_parse_gpu(const char *text, struct protocol_gpu *gpu, struct bf_error *err);
/* "off", "127.0.0.1:9835", "[::1]:9835"; " public" must follow an address that other machines can reach. */
int config_parse_metrics(struct config *config, const char *text, struct bf_error *err);
/* NULL if there is no vGPU of this name. */
struct config_vgpu *config_find(const struct config *config, const char *name);

#endif
