/* The socket for containers, in the directory "guest" beside the server's own. A process that connects there can
 * open device files and no more: calls on these files are accepted from supervisors only. So the server need not know
 * which processes are in a container, and which process has started them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "soft/driver/server.h"

enum { BACKLOG = 256 };

static int fill_address(const struct server *server, struct sockaddr_un *address)
{
	int length;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	length = snprintf(address->sun_path, sizeof(address->sun_path), "%s/guest/socket",
			  server->options.folder);
	return length < 0 || (size_t)length >= sizeof(address->sun_path) ? -ENAMETOOLONG : 0;
}

/* Any user of a container may connect. The directory above decides which users of the host may. */
static int listen_at(const struct sockaddr_un *address)
{
	cleanup_close int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (sock < 0)
		return -errno;
	if (unlink(address->sun_path) && errno != ENOENT)
		return -errno;
	if (bind(sock, (const struct sockaddr *)address, sizeof(*address)) ||
	    chmod(address->sun_path, 0666) || setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) ||
	    listen(sock, BACKLOG))
		return -errno;
	return bf_take_fd(&sock);
}

static int make_folder(const struct server *server)
{
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];

	snprintf(folder, sizeof(folder), "%s/guest", server->options.folder);
	if (mkdir(folder, 0755) && errno != EEXIST)
		return -errno;
	return chmod(folder, 0755) ? -errno : 0; /* whatever the umask is */
}

void guests_listen(struct server *server)
{
	struct sockaddr_un address;
	int rc = fill_address(server, &address);

	if (!rc)
		rc = make_folder(server);
	if (!rc)
		rc = listen_at(&address);
	server->guests = rc < 0 ? -1 : rc;
	if (rc < 0)
		bf_log(BF_LOG_WARN, "%s/guest: no socket for containers: %s", server->options.folder,
		       strerror(-rc));
}

void guests_end(struct server *server)
{
	struct sockaddr_un address;

	if (server->guests < 0)
		return;
	if (!fill_address(server, &address))
		unlink(address.sun_path);
	close(server->guests);
	server->guests = -1;
}
