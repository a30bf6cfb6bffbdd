/* The one allocation that must pass. An RM client belongs to the process that makes it: the driver books its
 * memory there, and lets only that process map. So the call goes on into the kernel with the program's own
 * argument and file, and another thread may change both on the way. What is looked for here is that it was what
 * it said: a client must come of it. A program that makes other objects this way is found out. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/own.h"
#include "warden/state.h"

enum {
	SOON_NS = 1000000000, /* a library uses its new client at once */
	UNANSWERED_MAX =
		1, /* one may be of a program that stands still; a channel of use takes two objects */
};

struct answer site_alloc_root(struct site *site)
{
	cleanup_close int file = site_take_file(site, site->fd);
	struct passed_root *root;

	if (file < 0)
		return RETURN(file);
	/* Libraries open a control file for each client. */
	for (struct client *c = site->warden->clients; c; c = c->next)
		if (client_owns_file(site->warden, c, file))
			return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a second client on one control file");
	root = calloc(1, sizeof(*root));
	if (!root)
		return RETURN(-ENOMEM);
	root->pid = site->process->pid;
	root->since_ns = bf_now_ns();
	root->next = site->warden->roots;
	site->warden->roots = root;
	return PASS;
}

/* The root that a client of this process is the answer to: its own, else one of another process that may have
 * left it its control file. */
static struct passed_root **root_of(struct warden *warden, pid_t pid)
{
	struct passed_root **at, **other = NULL;

	for (at = &warden->roots; *at; at = &(*at)->next) {
		if ((*at)->pid == pid)
			return at;
		other = at;
	}
	return other;
}

pid_t root_answered(struct warden *warden, pid_t pid)
{
	struct passed_root **at = root_of(warden, pid), *found = at ? *at : NULL;

	if (found) {
		pid = found->pid;
		*at = found->next;
		free(found);
	}
	return pid;
}

void site_meet_client(struct site *site)
{
	const struct client unknown = { .handle = site->call.client };
	cleanup_close int file = -1;
	struct client *client;

	if (!site->call.client || site->file != DEVICE_FILE_CONTROL ||
	    client_find(site->warden, site->call.client))
		return;
	file = site_take_file(site, site->fd);
	if (file < 0 || !client_owns_file(site->warden, &unknown, file))
		return;
	client = client_seen(site);
	if (client) /* the driver counts its memory for who made it */
		client->pid = root_answered(site->warden, site->process->pid);
}

/* Those of processes that have ended stay: what they made may live on in a file that another holds. */
void roots_audit(struct warden *warden)
{
	static const char why[] = "it made something other than a client where only a client may be made";
	uint64_t now_ns = bf_now_ns();
	unsigned unanswered = 0, alive = 0;

	for (struct passed_root *r = warden->roots; r; r = r->next)
		if (now_ns - r->since_ns > SOON_NS) {
			unanswered++;
			alive += process_by_pid(warden, r->pid) != NULL;
		}
	if (unanswered <= UNANSWERED_MAX)
		return;
	for (struct process *p = warden->processes; p; p = p->next)
		for (struct passed_root *r = warden->roots; r; r = r->next)
			if (!alive || (r->pid == p->pid && now_ns - r->since_ns > SOON_NS))
				process_end(p, why);
	roots_gone(warden);
}

void roots_gone(struct warden *warden)
{
	for (struct passed_root *r = warden->roots, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	warden->roots = NULL;
}
