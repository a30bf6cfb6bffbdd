/* The internal interface of the router. Included by its files only. */
#ifndef BELFRY_ROUTER_INTERNAL_H
#define BELFRY_ROUTER_INTERNAL_H

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "router/router.h"

#define ROUTER_MS 1000000ull
#define ROUTER_S 1000000000ull
#define ROUTER_NEVER UINT64_MAX

enum {
	ROUTER_CLIENTS_MAX = 1024,
	ROUTER_CLIENTS_OF_ONE = 64, /* of one user other than root and the user of belfryd */
	ROUTER_ASKS_MAX = 1024,	    /* waiting for one GPU server */
	ROUTER_SERVERS_MAX = 64,
	ROUTER_VGPUS_MAX = 2 * CONFIG_VGPUS_MAX,
	ROUTER_STARTS = 5,    /* of one server within a minute */
	ROUTER_RESERVE_S = 5, /* how long a name is reserved after its request was sent */
	ROUTER_ALL_PARTS = 2 * SPEC_PUBLIC - 1,
	ROUTER_EVENTS_KEPT = 1024,
	ROUTER_FOLLOWERS_MAX = 64,
	ROUTER_FOLLOWERS_OF_ONE = 8, /* of one user other than root and the user of belfryd */
	ROUTER_COMMANDS_MAX = 4,     /* running at once */
	ROUTER_COMMANDS_WAIT = 64,
	ROUTER_TOTALS_MAX = 1024,
};

/* A request in progress: a client's, with its connection, or one of belfryd's own. */
struct router_ask {
	struct router_ask *next; /* router_server.first */
	struct hall_message message;
	int fd;		  /* the client's connection, owned; -1: belfryd's own request */
	bool holds_name;  /* the name was reserved for it */
	bool is_awaiting; /* it waits for this server, and may still go to another */
};

enum router_phase {
	ROUTER_OFF,	 /* no process */
	ROUTER_FINDING,	 /* connected to a server that was left running; no HALL_READY yet */
	ROUTER_STARTING, /* started; no HALL_READY yet */
	ROUTER_HEARING,	 /* left running; not all of its vGPUs are received yet */
	ROUTER_READY,
	ROUTER_LEAVING, /* it has closed the connection; its process is about to end */
};

/* The times of the last starts. */
struct router_starts {
	uint64_t at_ns[ROUTER_STARTS];
	unsigned next;
};

struct router_server {
	struct router_server *next; /* router.servers */
	struct protocol_gpu gpu;
	char label[32];	 /* "GPU 0", "GPU soft:0" */
	char path[108];	 /* where the next belfryd finds it */
	bool is_listed;	 /* the configuration names it: it always runs (unless private) */
	bool has_soft;	 /* belfryd starts its software GPU */
	bool any_driver; /* a request has asked for it */
	enum router_phase phase;
	int sock, pidfd; /* -1: none */
	pid_t pid;	 /* a child of this process; 0: not a child */
	bool was_ready, has_failed;
	uint32_t to_hear;     /* vGPUs that it has not reported yet */
	uint64_t deadline_ns; /* of the phase */
	uint64_t retry_ns;    /* when to start it again; ROUTER_NEVER: when it is asked for */
	uint64_t failed_ns;
	struct router_starts starts;
	struct hall_gpu use;
	struct router_ask *first, **last;
	unsigned asks;
	unsigned own_asks; /* sent and not answered yet */
	uint32_t *tickets; /* of HALL_SAVE, answered when the state is saved */
	unsigned ticket_count, ticket_room;
	char failure[512]; /* why it does not run */
};

enum router_vgpu_phase {
	ROUTER_LOST, /* to be created again */
	ROUTER_RESERVED,
	ROUTER_THERE,
};

struct router_vgpu {
	struct router_vgpu *next; /* router.vgpus */
	char name[SPEC_NAME_MAX + 1];
	enum router_vgpu_phase phase;
	struct router_server *server; /* NULL: its GPU is not served now */
	struct protocol_gpu gpu;
	struct spec spec;
	uid_t uid;
	bool is_ephemeral, is_from_config;
	bool is_kept;		/* saved, and created again if its server dies */
	struct spec asked_spec; /* until asked_until_ns: the spec that its owner has requested */
	uint32_t asked_parts;	/* the parts of it */
	uint64_t asked_until_ns;
	bool is_asked;	   /* its server has a request for the same name, and may grant it: see who_knows() */
	uint64_t until_ns; /* ROUTER_RESERVED: when it expires, once the request was sent */
};

/* A change of the configuration that was refused. It is tried again until it succeeds or is no longer wanted. */
struct router_pending {
	struct router_pending *next; /* router.pending */
	char name[SPEC_NAME_MAX + 1];
	enum protocol_op op; /* PROTOCOL_CREATE, PROTOCOL_SET or PROTOCOL_REMOVE */
	struct spec spec;    /* PROTOCOL_SET: the values of these parts */
	uint32_t parts;
	char why[384]; /* the last refusal */
};

struct router_client {
	int fd; /* -1: closed, to be removed */
	struct ucred who;
	uint64_t deadline_ns;
	bool is_parting; /* it has received its last answer; further messages are ignored */
};

/* A client that receives events. */
struct router_follower {
	int fd; /* -1: closed, to be removed */
	uid_t uid;
	char name[SPEC_NAME_MAX + 1], gpu[24]; /* empty: all */
	uint64_t lost;			       /* events dropped and not reported to it yet */
};

/* A running command of the configuration, for one event. */
struct router_command {
	pid_t pid; /* 0: not running */
	int pidfd;
	uint64_t until_ns;
};

/* Complaints about commands. */
enum router_complaint {
	ROUTER_IS_FULL,
	ROUTER_HAS_FAILED,
	ROUTER_CANNOT_START,
	ROUTER_IS_LATE,
	ROUTER_COMPLAINTS,
};

struct router_commands {
	struct router_command running[ROUTER_COMMANDS_MAX];
	struct event *queue; /* ROUTER_COMMANDS_WAIT; allocated with the first event */
	unsigned first, waiting;
	uint64_t started, failed, dropped;
	uint64_t complained_ns[ROUTER_COMPLAINTS]; /* when each was last logged */
};

/* What removed vGPUs of one owner and name have used. */
struct router_total {
	uid_t uid;
	char name[SPEC_NAME_MAX + 1];
	uint64_t gpu_ns, waited_ns, mem_most_bytes, runs, vgpus;
};

struct router_totals {
	struct router_total *list; /* ROUTER_TOTALS_MAX; allocated with the first entry */
	unsigned count;
	char path[256];		/* the accounting file; empty: none */
	uint64_t inode, offset; /* the part of it that is counted */
	uint64_t save_ns;	/* ROUTER_NEVER: nothing to save */
	int failed;		/* -errno of the last failure that was logged */
};

struct router {
	struct router_options options;
	struct config config;
	char socket[108], state_path[128];
	int lock_fd, listen_fd, wake_fd;
	bool is_settled; /* every server of the start is ready or has failed */
	bool is_ending, is_reload_due;
	bool is_making; /* create vGPUs of the configuration once the servers have made the other changes */
	bool was_asked; /* a client has made a request */
	unsigned filters_floor; /* see inside_floor() */
	struct router_server *servers;
	struct router_vgpu *vgpus;
	unsigned vgpu_count;
	/* Twice the maximum: an answered client is appended while the list is walked. */
	struct router_client clients[2 * ROUTER_CLIENTS_MAX];
	unsigned client_count;
	uint64_t accept_after_ns; /* out of descriptors until then */
	uint64_t save_ns;	  /* ROUTER_NEVER: nothing to save */
	int save_errno;		  /* of the last failure that was logged */
	struct {
		struct router_ask *ask; /* the request that waits for the end; NULL: none */
		uint64_t until_ns;
		unsigned refused; /* changes since the configuration was read */
		char why[512];	  /* the first refusal */
	} reloading;
	struct router_pending *pending;
	uint64_t pending_ns; /* when to try again */
	uint64_t idle_since_ns;
	pid_t metrics_pid; /* 0: not running */
	int metrics_pidfd;
	uint64_t metrics_ns; /* when to start belfry-metrics */
	struct router_starts metrics_starts;
	struct {
		struct event *ring;   /* ROUTER_EVENTS_KEPT, by number; allocated with the first event */
		uint64_t count, lost; /* totals; lost: by GPU servers */
		uint64_t of_kind[EVENT_KINDS];
		struct router_follower followers[ROUTER_FOLLOWERS_MAX];
		unsigned follower_count;
	} events;
	struct router_commands commands;
	struct router_totals totals;
	struct pollfd *polls;
	unsigned poll_count, poll_room;
};

/* router.c: the start is over once no server is starting any more. */
void router_check_settled(struct router *router);
/* router_config_reload() and everything around it. */
int router_reload_now(struct router *router, struct bf_error *err);

/* socket.c: the path, the lock, the listening socket. */
int router_socket_name(struct router *router, struct bf_error *err);
int router_socket_take(struct router *router, struct bf_error *err);
/* Set its mode and group according to config.access. */
int router_socket_access(const struct router *router, struct bf_error *err);
/* Likewise for belfryd's own software GPU, whose files the programs of other users open. */
void router_soft_access(const struct router *router, const struct router_server *server);
/* Accept no more clients. Clients in the queue receive EAGAIN. */
void router_socket_close(struct router *router);

/* clients.c */
void router_clients_accept(struct router *router);
void router_client_hear(struct router *router, struct router_client *client);
void router_clients_sweep(struct router *router, uint64_t now_ns);
/* Send a last answer. The connection stays until the client closes it, for a short time: if it were closed with an
 * unread request, the answer would be lost. */
void router_client_part(struct router *router, int fd, int code, const char *text);
void router_reply(int fd, int code, const char *text, const char *name, const char *body);
/* End a request that was not sent to a server: with an answer, or a line in the log. Frees it. */
void router_refuse(struct router *router, struct router_ask *ask, const struct bf_error *why);
void router_answer(struct router *router, struct router_ask *ask, const char *body);

/* dispatch.c: decides what happens to a request. Takes the ask, as do the functions below. */
void router_dispatch(struct router *router, struct router_ask *ask);
struct router_ask *router_ask_new(const struct protocol_request *request, const struct ucred *who, int fd);
/* Make a request of belfryd's own about a vGPU. */
void router_ask_own(struct router *router, enum protocol_op op, const struct router_vgpu *vgpu,
		    uint32_t parts);
char *router_hello(const struct router *router);

/* servers.c */
bool router_server_is_of(const struct router_server *server, const struct protocol_gpu *gpu);
struct router_server *router_server_find(struct router *router, const struct protocol_gpu *gpu);
struct router_server *router_server_add(struct router *router, const struct protocol_gpu *gpu,
					struct bf_error *err);
/* Find the server running, or start it. False: not now; server->failure says why. */
bool router_server_begin(struct router *router, struct router_server *server);
bool router_server_is_coming(const struct router_server *server);
void router_server_hear(struct router *router, struct router_server *server);
void router_server_exited(struct router *router, struct router_server *server);
void router_server_tick(struct router *router, struct router_server *server, uint64_t now_ns);
uint64_t router_server_due(const struct router_server *server);
/* Send the request, now or when the server is ready. */
void router_server_ask(struct router *router, struct router_server *server, struct router_ask *ask);
/* Dispatch the request again once the server is ready or has failed. */
void router_server_await(struct router *router, struct router_server *server, struct router_ask *ask);
int router_server_send(struct router_server *server, const struct hall_message *message);
struct hall_message router_message(const struct router *router, enum hall_kind kind);
void router_servers_adopt(struct router *router);
/* Free the servers that are not needed any more. */
void router_servers_sweep(struct router *router, uint64_t now_ns);
void router_server_free(struct router *router, struct router_server *server);
/* Whether another start is allowed now, which is then counted. Otherwise *again_ns is the time of the next one. */
bool router_may_start(struct router_starts *starts, uint64_t now_ns, uint64_t *again_ns);

/* vgpus.c: the table. */
struct router_vgpu *router_vgpu_find(const struct router *router, const char *name);
struct router_vgpu *router_vgpu_add(struct router *router, const char *name, struct bf_error *err);
void router_vgpu_drop(struct router *router, struct router_vgpu *vgpu);
void router_vgpu_told(struct router *router, struct router_server *server,
		      const struct hall_message *message);
void router_vgpu_gone(struct router *router, struct router_server *server, const char *name);
void router_vgpu_refused(struct router *router, struct router_server *server,
			 const struct hall_message *message);
/* Its server has died. */
void router_vgpus_lost(struct router *router, const struct router_server *server);
void router_vgpus_remake(struct router *router, struct router_server *server);
bool router_vgpus_any(const struct router *router, const struct router_server *server);
/* Whether any vGPU must be created again on this server. */
bool router_vgpus_wait(const struct router *router, const struct router_server *server);
void router_vgpus_expire(struct router *router, uint64_t now_ns);
struct router_room router_server_room(const struct router *router, const struct router_server *server);

/* configure.c: the configuration. */
int router_config_start(struct router *router, struct bf_error *err);
/* Called once this process has the socket: start servers, and read the saved state. */
void router_config_begin(struct router *router);
void router_config_settled(struct router *router);
void router_config_tick(struct router *router);
int router_config_reload(struct router *router, struct bf_error *err);
/* Answer once the GPU servers have applied the new configuration. Takes the ask. */
void router_reload_await(struct router *router, struct router_ask *ask);
void router_reload_refused(struct router *router, const char *name, const char *why);
void router_reload_tick(struct router *router, uint64_t now_ns);
/* Whether requests of belfryd's own are in progress. */
bool router_is_asking(const struct router *router);
/* Requests of belfryd's own: create a vGPU of the configuration, and change one. */
void router_config_make(struct router *router, const struct config_vgpu *from);
void router_config_set(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec);

/* pending.c: refused changes of the configuration, which are tried again. */
/* A request of belfryd's own was refused: log it, note it for a waiting reload, and add it to the pending changes.
 * `vgpu` may be NULL. */
void router_pending_refused(struct router *router, const struct router_vgpu *vgpu, const char *name,
			    const char *label, const char *why);
/* The server reports that a vGPU exists or has changed. Called before vgpu->spec changes. */
void router_pending_told(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec);
/* The configuration was read again: drop the changes that it does not want any more. `before` may be NULL. */
void router_pending_renew(struct router *router, const struct config *before);
/* Apply the pending change of the vGPU to *spec. */
void router_pending_merge(const struct router *router, const char *name, struct spec *spec);
void router_pending_tick(struct router *router, uint64_t now_ns);
uint64_t router_pending_due(const struct router *router);
struct json_object;
struct json_object *router_pending_json(const struct router *router);
void router_pending_free(struct router *router);

/* save.c: the saved state. */
void router_state_changed(struct router *router);
int router_state_save(struct router *router, struct bf_error *err);
/* Save if a client waits for it, and answer HALL_SAVE. */
void router_state_settle(struct router *router);

/* quota.c: whether the user may have a vGPU of this spec, in addition or instead of another; and whether one may be
 * changed. */
int router_quota_check(const struct router *router, uid_t uid, const struct spec *spec,
		       const struct router_vgpu *instead_of, struct bf_error *err);
int router_quota_set(struct router *router, struct router_vgpu *vgpu, const struct protocol_request *request,
		     struct bf_error *err);

/* account.c: a vGPU is removed, and the message says what it has used. */
void router_account(struct router *router, const struct router_server *server,
		    const struct hall_message *message);

/* totals.c */
void router_totals_count(struct router *router, const struct hall_message *message, bool is_ephemeral);
/* A line was appended to the accounting file. st: its status now. */
void router_totals_written(struct router *router, const struct stat *st);
/* Use the accounting file of the configuration. */
void router_totals_follow(struct router *router);
void router_totals_save(struct router *router); /* if there is anything to save */
char *router_totals_text(const struct router *router);
void router_totals_end(struct router *router);

/* events.c */
void router_event(struct router *router, const struct event *event);
void router_event_server(struct router *router, enum event_kind kind, const struct router_server *server,
			 const char *text);
void router_event_config(struct router *router, const struct bf_error *why); /* NULL: it was read */
void router_event_vgpu(struct router *router, enum event_kind kind, const struct router_vgpu *vgpu,
		       const char *text);
/* A vGPU was changed from `before`; NULL: it was created. */
void router_event_spec(struct router *router, const struct router_vgpu *vgpu, const struct spec *before);
void router_event_gone(struct router *router, const struct router_server *server,
		       const struct hall_message *message);
/* PROTOCOL_EVENTS. Takes the ask. */
void router_events_follow(struct router *router, struct router_ask *ask);
short router_follower_polls(const struct router_follower *follower);
void router_follower_hear(struct router_follower *follower, short revents);
void router_followers_sweep(struct router *router);
void router_events_end(struct router *router);

/* commands.c: the command that the configuration names for events. */
void router_commands_begin(struct router *router);
void router_command_add(struct router *router, const struct event *event);
void router_commands_hear(struct router *router, unsigned i); /* its pidfd is ready */
void router_commands_tick(struct router *router, uint64_t now_ns);
uint64_t router_commands_due(const struct router *router);
void router_commands_end(struct router *router);

/* metrics.c */
void router_metrics_tick(struct router *router, uint64_t now_ns);
void router_metrics_exited(struct router *router);
void router_metrics_end(struct router *router);

#endif
