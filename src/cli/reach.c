/* Connect to belfryd, and select the GPU for a request. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"
#include "base/users.h"
#include "cli/cli.h"
#include "cli/keeper.h"

/* belfryd is in the folder of belfry: in the build folder, in the portable folder and where it is
 * installed. */
static int find_daemon(char *path, size_t room, struct bf_error *err)
{
	ssize_t length = readlink("/proc/self/exe", path, room - 1);
	char *slash;

	path[length > 0 ? length : 0] = 0;
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + sizeof("/belfryd") > room)
		return bf_fail(err, ENOENT, "belfryd: cannot tell where it is; is /proc mounted?");
	memcpy(slash, "/belfryd", sizeof("/belfryd"));
	if (access(path, X_OK))
		return bf_fail(err, errno, "%s: %s; it belongs beside belfry", path, strerror(errno));
	return 0;
}

/* Each belfryd keeps the promises to its own vGPUs only. */
static void say_two_run(const struct talk_place *place)
{
	char user[BF_USER_ROOM];

	if (place->is_barred)
		fprintf(stderr,
			"belfry: the belfryd of user %s does not admit this user: started a private one; reserved "
			"memory, requested shares and limits do not hold between the two\n",
			bf_user_text(place->barred_by, user, sizeof(user)));
}

int cli_reach(struct talk_place *place, struct bf_error *err)
{
	char daemon[PATH_MAX];
	int rc = talk_find(place, err), sock;

	if (rc)
		return rc;
	sock = talk_connect(place, err);
	if (!place->is_private || (sock != -ENOENT && sock != -ECONNREFUSED))
		return sock;
	rc = find_daemon(daemon, sizeof(daemon), err);
	/* A belfryd started inside a run could not supervise programs. */
	if (!rc)
		rc = keeper_check_free(err);
	if (!rc)
		rc = talk_start(place, daemon, err);
	if (!rc)
		say_two_run(place);
	return rc ? rc : talk_connect(place, err);
}

int cli_ask(int *sock, struct talk_place *place, const struct protocol_request *request,
	    struct protocol_reply *reply, struct bf_error *err)
{
	enum { TIMES = 5 };
	int rc = talk_ask(*sock, request, reply, NULL, err);

	for (int i = 1; i < TIMES && rc == -EAGAIN && place->is_private; i++) {
		bf_close_fd(sock);
		*sock = cli_reach(place, err);
		rc = *sock < 0 ? *sock : talk_ask(*sock, request, reply, NULL, err);
	}
	return rc;
}

/* True if the software GPU has a configuration or a name other than the default. */
static bool is_described(const struct link_config *soft)
{
	return soft->is_given || strcmp(soft->name, link_default.name) != 0;
}

int cli_gpu_request(struct cli_gpu *which, const struct talk_place *place, struct protocol_gpu *gpu,
		    struct bf_error *err)
{
	*gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_ANY };
	/* A shared belfryd selects one of its own GPUs, and has its own software GPU. */
	if (!place->is_private && !which->is_said)
		return 0;
	cli_gpu_settle(which);
	gpu->kind = which->is_soft ? PROTOCOL_GPU_SOFT : PROTOCOL_GPU_NV;
	gpu->index = which->index;
	if (!which->is_soft || (!place->is_private && !is_described(&which->soft)))
		return 0;
	return cli_gpu_start(which, gpu->folder, sizeof(gpu->folder), err);
}
