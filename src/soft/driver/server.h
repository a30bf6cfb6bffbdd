/* The driver behind its socket: declarations shared by server.c, worker.c and request.c. Private to the
 * module. */
#ifndef BELFRY_SOFT_DRIVER_SERVER_H
#define BELFRY_SOFT_DRIVER_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "soft/driver/driver.h"
#include "soft/driver/family.h"
#include "soft/driver/list.h"
#include "soft/link/wire.h"

enum { WORKERS_MAX = 64 };

/* The server's end of a device file, or of a connection at the listening socket. */
struct endpoint {
	atomic_uint refs;
	int sock;
	struct file *file;     /* NULL: a connection */
	bool is_guest;	       /* from the socket for containers: only supervisors make calls on it */
	uid_t uid;	       /* of the process that has connected, or has opened the file */
	pid_t supervisor;      /* the sender of SOFT_REQUEST_SUPERVISE, or 0; under server::lock */
	bool is_closed;	       /* under server::lock */
	struct list of_server; /* server::endpoints */
};

struct server {
	struct driver *driver;
	struct family *family;
	struct server_options options;
	dev_t sockets; /* device number of socket inodes */
	int guests;    /* the socket for containers, or -1: guests.c */
	int listening, running, epoll, wake_workers, wake_main;
	int signals;	      /* signalfd, or -1; set by server_run */
	pthread_mutex_t lock; /* protects what follows */
	struct list endpoints;
	unsigned file_count;
	uint64_t deadline_ns, stay_ns; /* it ends after both, if no file is open */
	bool is_stopping;
	pthread_t workers[WORKERS_MAX];
	unsigned worker_count, idle_count;
};

/* worker.c */
int workers_start(struct server *server);
/* False if some workers did not end in time. */
bool workers_end(struct server *server);
struct endpoint *endpoint_add(struct server *server, int sock, struct file *file, bool is_guest,
			      uid_t uid); /* owns both; or NULL */
/* Users and containers can take a part of the descriptors, so that supervisors and other users have some. */
bool endpoints_have_room(struct server *server, bool is_guest, uid_t uid);
void endpoint_close(struct server *server, struct endpoint *endpoint);
void endpoint_put(struct endpoint *endpoint);

/* server.c */
void server_stay(struct server *server); /* a process looked for the server, and may open a file next */

/* guests.c */
void guests_listen(struct server *server); /* a failure is logged: there are no containers then */
void guests_end(struct server *server);

/* request.c: handles one message and answers it. Closes the files. */
struct message {
	uint8_t *bytes;
	size_t count;
	struct wire_files files;
	struct ucred from;
};
enum { MESSAGE_MAX = sizeof(struct soft_request) + SOFT_ARG_MAX + SOFT_PARAMS_MAX };
void request_serve(struct server *server, struct endpoint *endpoint, struct message *message);

#endif
