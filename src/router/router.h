/* router: belfryd's public socket and its GPU servers. Knows which vGPU is where, hands each connection to the server
 * that it is about, and keeps the servers running. Never waits for a client or a server, and never touches a GPU. */
#ifndef BELFRY_ROUTER_H
#define BELFRY_ROUTER_H

#include "gpu/hall.h"
#include "router/config.h"

struct router;

/* How the router reaches the machine; tests stand in for it. */
struct router_options {
	const char *socket;
	bool is_private; /* GPU servers when they are asked for; ends by itself when there is nothing to do */
	bool any_driver;
	int signal_fd;		 /* a signalfd of SIGTERM, SIGINT and SIGHUP, or -1 */
	const char *config_path; /* for people; NULL: none */
	void *context;
	/* The configuration, with what the command line says on top. */
	int (*read_config)(void *context, struct config *config, struct bf_error *err);
	/* The GPUs of the machine: how many were written to `gpus`. */
	unsigned (*list_gpus)(void *context, struct protocol_gpu *gpus, unsigned room);
	/* Start the software GPU unless it runs, and name its folder. */
	int (*start_soft)(void *context, char *folder, size_t room, struct bf_error *err);
	/* Start a GPU server: our end of its hall, or -errno. *pid is that of a child, to be waited for, or 0. */
	int (*start_server)(void *context, const struct protocol_gpu *gpu, pid_t *pid, struct bf_error *err);
	/* Start what answers at config.metrics: a child, or -errno. NULL: nothing does. */
	pid_t (*start_metrics)(void *context, const struct config *config, const char *sock,
			       struct bf_error *err);
	/* What systemd is to know: "READY=1". */
	void (*tell)(void *context, const char *text);
};

/* Take the socket and read what is configured and remembered. NULL and a reason. */
struct router *router_new(const struct router_options *options, struct bf_error *err);
/* Serve until a signal, router_stop, or, if private, until there is nothing to do. */
void router_run(struct router *router);
void router_free(struct router *router);
/* From any thread. */
void router_stop(struct router *router);
void router_reload(struct router *router);

/* What is free on a GPU. */
struct router_room {
	char label[32]; /* "GPU 0" */
	uint64_t mem_bytes, mem_free_bytes;
	uint32_t free_ppm;
};
/* Which of them is best for a vGPU like this: its index, or -ENOSPC and the arithmetic. */
int router_place(const struct router_room *rooms, unsigned count, const struct spec *spec,
		 struct bf_error *err);

#endif
