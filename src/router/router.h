/* router: belfryd's public socket and its GPU servers. Knows which vGPU is on which GPU, hands each connection to the
 * server that it concerns, and keeps the servers running. Never waits for a client or a server, and never accesses a
 * GPU. */
#ifndef BELFRY_ROUTER_H
#define BELFRY_ROUTER_H

#include "gpu/hall.h"
#include "router/config.h"

struct router;

/* How the router accesses the machine. Tests replace it. */
struct router_options {
	const char *socket;
	bool is_private; /* starts GPU servers on demand, and exits when there is nothing to do */
	bool any_driver;
	int signal_fd; /* a signalfd of SIGTERM, SIGINT and SIGHUP, or -1 */
	void *context;
	/* Read the configuration, and apply the command line to it. */
	int (*read_config)(void *context, struct config *config, struct bf_error *err);
	/* List the GPUs of the machine. Returns how many were written to `gpus`. */
	unsigned (*list_gpus)(void *context, struct protocol_gpu *gpus, unsigned room);
	/* Start the software GPU unless it runs, and return its folder. */
	int (*start_soft)(void *context, char *folder, size_t room, struct bf_error *err);
	/* Start a GPU server. Returns a socket connected to it, or -errno. *pid: a child to wait for, or 0. */
	int (*start_server)(void *context, const struct protocol_gpu *gpu, pid_t *pid, struct bf_error *err);
	/* Start the server of config.metrics. Returns the PID of a child, or -errno. NULL: there is none. */
	pid_t (*start_metrics)(void *context, const struct config *config, const char *sock,
			       struct bf_error *err);
	/* Start belfry-oci-listener at `path`, for the belfryd at `sock`. Returns the PID of a child, or -errno. NULL: there
	 * is none. */
	pid_t (*start_oci)(void *context, const struct config *config, const char *path, const char *sock,
			   struct bf_error *err);
	/* Start a process that looks up names of users and groups (names_serve). Returns the end of a pipe with its
	 * answers, which does not block, or -errno. *pid: a child to wait for, or 0. NULL: the router looks them up itself,
	 * and waits. */
	int (*start_names)(void *context, const char *names, pid_t *pid, struct bf_error *err);
	/* Notify systemd: "READY=1". */
	void (*tell)(void *context, const char *text);
};

/* Take the socket, and read the configuration and the saved state. NULL on error. */
struct router *router_new(const struct router_options *options, struct bf_error *err);
/* Serve until a signal, router_stop(), or, if private, until there is nothing to do. */
void router_run(struct router *router);
void router_free(struct router *router);
/* From any thread. */
void router_stop(struct router *router);
void router_reload(struct router *router);

/* oci_start.c: for router_options::start_oci */
pid_t router_start_oci(void *context, const struct config *config, const char *path, const char *sock,
		       struct bf_error *err);

/* What is free on a GPU. */
struct router_room {
	char label[32]; /* "GPU 0" */
	uint64_t mem_bytes, mem_free_bytes;
	uint32_t free_ppm;
};
/* The best GPU for a vGPU of this spec: its index, or -ENOSPC with the arithmetic in err. */
int router_place(const struct router_room *rooms, unsigned count, const struct spec *spec,
		 struct bf_error *err);

#endif
