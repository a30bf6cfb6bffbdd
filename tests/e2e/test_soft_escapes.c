/* Ways around that exist only on the software GPU, whose driver is a process and whose device files are sockets: a
 * supervised program can send what it likes to them. They take it from its supervisor only. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/process.h"
#include "soft/link/ask.h"
#include "soft/link/link.h"
#include "soft/link/wire.h"
#include "stage.h"

#define MIB CARD_MIB

static void run_well(stage_program program)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program, 0);
	stage_end_well(&s);
}

/* Memory for a client, asked for in a message. */
static int ask_memory(int file, pid_t on_behalf, uint32_t client, uint64_t bytes)
{
	uint8_t params[128] = { 0 };
	struct rm_arg_alloc arg = { .client = client,
				    .parent = STAGE_DEVICE,
				    .object = STAGE_MEMORY,
				    .class_id = 0x40,
				    .params = (uintptr_t)params,
				    .size = sizeof(params) };
	int rc;

	memcpy(params + 64, &bytes, sizeof(bytes));
	rc = link_call_for(file, on_behalf, RM_ESC_ALLOC, &arg, sizeof(arg));
	return rc ? rc : (int)arg.status;
}

static int ask_kind(int sock, uint32_t kind)
{
	struct ask a = { .request = { .kind = kind, .nr = RM_ESC_SYS_PARAMS } };
	int rc = ask(sock, &a);

	CHECK(a.reply_file < 0);
	return rc;
}

/* A file that the program has opened and made no call on is still the driver's socket. */
static void check_no_message_is_taken(struct actor *a, int control, pid_t on_behalf)
{
	struct ask map = { .request = { .kind = SOFT_REQUEST_MAP, .on_behalf = on_behalf, .bytes = 4096 } };

	CHECK_EQUAL(ask_memory(control, on_behalf, a->client, 64 * MIB), -EPERM);
	CHECK_EQUAL(ask(a->gpu, &map), -EPERM);
	CHECK_EQUAL(ask_kind(control, SOFT_REQUEST_SUPERVISE), -EPERM);
	CHECK_EQUAL(ask_kind(control, SOFT_REQUEST_STATUS), -EPERM);
	CHECK_EQUAL(ask_kind(control, SOFT_REQUEST_STOP), -EPERM);
}

static void program_sends_to_its_files(struct actor *a)
{
	int control = actor_open(a, SOFT_FILE_CONTROL);

	actor_context(a);
	check_no_message_is_taken(a, control, 0);
	check_no_message_is_taken(a, control, getpid());
	check_no_message_is_taken(a, control, getppid()); /* its supervisor */
	check_no_message_is_taken(a, control, 1);
	CHECK_EQUAL(ask_memory(a->control, 0, a->client, 64 * MIB), -ENOTSOCK); /* used: a pipe */
	actor_say(a, 'm');
}

static void messages_to_a_device_file_are_refused(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_sends_to_its_files, 0);
	stage_until(&s, 'm');
	CHECK_EQUAL(s.most_bytes, 2 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_sends_to_the_listening_socket(struct actor *a)
{
	int sock = ask_connect(a->folder);
	struct bf_error err = { 0 };
	struct soft_status status;

	CHECK(sock >= 0);
	CHECK_EQUAL(ask_memory(sock, 0, 1, MIB), -EPERM);
	CHECK_EQUAL(ask_kind(sock, SOFT_REQUEST_MAP), -EPERM);
	CHECK_EQUAL(ask_kind(sock, SOFT_REQUEST_SUPERVISE), -EPERM);
	CHECK_EQUAL(link_status(a->folder, &status, &err), -EPERM);
	CHECK_EQUAL(link_stop(a->folder, &err), -EPERM);
	close(sock);
	actor_new_device(a); /* it is still there */
}

static void messages_to_the_listening_socket_are_refused(void)
{
	run_well(program_sends_to_the_listening_socket);
}

/* Its parent has ended, and it is in another session. Its supervisor is the subreaper of orphans. */
static void program_sends_as_an_orphan(struct actor *a)
{
	int status;
	pid_t first;

	actor_context(a);
	first = fork();
	if (!first) {
		if (fork())
			_exit(0);
		CHECK(setsid() > 0 && !prctl(PR_SET_CHILD_SUBREAPER, 1));
		if (fork())
			pause();
		check_no_message_is_taken(a, actor_open(a, SOFT_FILE_CONTROL), 0);
		actor_say(a, 'o');
		kill(getppid(), SIGKILL);
		_exit(0);
	}
	CHECK(waitpid(first, &status, 0) == first && !status);
	actor_say(a, 'p');
}

static void orphans_are_refused_as_well(void)
{
	char said[2] = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_sends_as_an_orphan, 0);
	/* Both speak, in either order. */
	for (int i = 0; i < 2; i++) {
		struct pollfd hears = { s.hear, POLLIN, 0 };

		while (poll(&hears, 1, 0) <= 0)
			stage_serve(&s, 1);
		CHECK(read(s.hear, &said[i], 1) == 1);
	}
	CHECK_EQUAL(said[0] + said[1], 'o' + 'p');
	stage_go_on(&s);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* Root may name another user as the sender of a message. The kernel refuses such a message of other users. */
static int send_as(int file, pid_t pid)
{
	struct soft_request request = { .magic = SOFT_MAGIC, .kind = SOFT_REQUEST_STOP };
	struct ucred cred = { .pid = pid, .uid = getuid(), .gid = getgid() };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(cred))];
	} control = { 0 };
	struct iovec part = { &request, sizeof(request) };
	struct msghdr msg = { .msg_iov = &part,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	struct soft_reply reply = { 0 };
	int pair[2];
	ssize_t got;

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	*head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &pair[1], sizeof(int));
	head = CMSG_NXTHDR(&msg, head);
	*head = (struct cmsghdr){ CMSG_LEN(sizeof(cred)), SOL_SOCKET, SCM_CREDENTIALS };
	memcpy(CMSG_DATA(head), &cred, sizeof(cred));
	got = sendmsg(file, &msg, MSG_NOSIGNAL);
	close(pair[1]);
	if (got > 0 && recv(pair[0], &reply, sizeof(reply), 0) != sizeof(reply))
		reply.rc = -ENODEV;
	close(pair[0]);
	return got < 0 ? -errno : reply.rc;
}

static void program_says_it_is_its_supervisor(struct actor *a)
{
	int control = actor_open(a, SOFT_FILE_CONTROL);

	actor_new_device(a);
	CHECK_EQUAL(send_as(control, getpid()), -EPERM);
	CHECK_EQUAL(send_as(control, getppid()), -EPERM);
	CHECK_EQUAL(send_as(control, 1), -EPERM);
}

static void false_names_are_refused(void)
{
	run_well(program_says_it_is_its_supervisor);
}

static void program_forgets_its_environment(struct actor *a)
{
	actor_new_device(a);
	CHECK(!clearenv());
	actor_new_device(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB + 1), RM_ERR_NO_MEMORY);
	CHECK_EQUAL(ask_memory(actor_open(a, SOFT_FILE_CONTROL), 0, a->client, MIB), -EPERM);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
}

static void program_without_environment_is_still_supervised(void)
{
	run_well(program_forgets_its_environment);
}

/* A helper from before supervision, which the program gives its file to. The helper is not of the vGPU and may use the
 * card; but what it was given is a pipe. */
struct gift {
	uint32_t client;
	int ioctl_rc, message_rc; /* what the helper got */
};

static void program_gives_its_file_away(struct actor *a)
{
	struct gift gift;
	int sock = (int)a->arg;

	actor_new_device(a);
	gift.client = a->client;
	CHECK(!bf_send_fd(sock, a->control));
	CHECK(write(sock, &gift, sizeof(gift)) == sizeof(gift));
	CHECK(read(sock, &gift, sizeof(gift)) == sizeof(gift));
	CHECK_EQUAL(gift.ioctl_rc, -ENOTTY);
	CHECK_EQUAL(gift.message_rc, -ENOTSOCK);
	actor_say(a, 'g');
}

static void __attribute__((noreturn)) supervise_giver(int sock)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_gives_its_file_away, sock);
	stage_until(&s, 'g');
	CHECK_EQUAL(card_used_bytes(&s.card), 0);
	stage_go_on(&s);
	stage_end_well(&s);
	_exit(0);
}

static void file_given_to_a_helper_outside_takes_no_call(void)
{
	struct rm_arg_alloc arg = { .class_id = 0x41 };
	struct gift gift;
	int socks[2], file, status;
	pid_t supervisor;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	fflush(NULL);
	supervisor = fork();
	CHECK(supervisor >= 0);
	if (!supervisor) {
		close(socks[0]);
		supervise_giver(socks[1]);
	}
	close(socks[1]);
	file = bf_recv_fd(socks[0]);
	CHECK(file >= 0 && read(socks[0], &gift, sizeof(gift)) == sizeof(gift));
	gift.ioctl_rc = actor_call(file, RM_ESC_ALLOC, &arg, sizeof(arg));
	gift.message_rc = ask_memory(file, 0, gift.client, 64 * MIB);
	CHECK(write(socks[0], &gift, sizeof(gift)) == sizeof(gift));
	close(file);
	CHECK(waitpid(supervisor, &status, 0) == supervisor);
	CHECK_EQUAL(status, 0);
	close(socks[0]);
}

/* Memory of clients that are not the program's. */
static int map_anothers(struct actor *a, uint32_t client, uint32_t memory)
{
	struct rm_arg_map map = { .client = client,
				  .device = STAGE_SUBDEVICE,
				  .memory = memory,
				  .length = 4096,
				  .fd = actor_open(a, SOFT_FILE_GPU_0),
				  .status = 0x77 };

	CHECK_EQUAL(actor_call(a->control, RM_ESC_MAP_MEMORY, &map, sizeof(map)), 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, map.fd, 0) == MAP_FAILED);
	close(map.fd);
	return (int)map.status;
}

static int share_anothers(struct actor *a, uint32_t client, uint32_t memory)
{
	struct rm_arg_share share = { .client = client,
				      .object = memory,
				      .target = a->client,
				      .access_mask = 1,
				      .type = 3,
				      .action = 4,
				      .status = 0x77 };

	CHECK_EQUAL(actor_call(a->control, RM_ESC_SHARE, &share, sizeof(share)), 0);
	return (int)share.status;
}

static uint32_t *other_client; /* memory that the test and its programs share */

static void program_has_memory(struct actor *a)
{
	actor_context(a);
	*other_client = a->client;
	actor_say(a, 'h');
}

static void program_wants_anothers_memory(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'c');
	CHECK_EQUAL(map_anothers(a, *other_client, STAGE_USERD), RM_ERR_INVALID_CLIENT);
	CHECK_EQUAL(share_anothers(a, *other_client, STAGE_USERD), RM_ERR_INVALID_CLIENT);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, *other_client, STAGE_USERD), (unsigned)a->arg);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY + 1, 8 * MIB), RM_ERR_NO_MEMORY);
	actor_say(a, 'a');
}

/* is_lent: of two vGPUs, the second one is the MPS server's. */
static void start_two_with(struct stage *s, uint64_t mem_bytes, bool has_two_wardens, bool is_lent,
			   uint32_t dup_status)
{
	struct stage_setup setup = { .options = { .mem_bytes = mem_bytes, .interleave = -1 },
				     .second = program_has_memory,
				     .has_two_wardens = has_two_wardens };

	other_client = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(other_client != MAP_FAILED);
	stage_start_as(s, &setup, program_wants_anothers_memory, dup_status);
	stage_until(s, 'c');
	stage_until_second(s, 'h');
	if (is_lent)
		warden_set_lender(s->warden, s->second.warden);
	stage_go_on(s);
	stage_until(s, 'a');
}

static void start_two(struct stage *s, bool has_two_wardens, uint32_t dup_status)
{
	start_two_with(s, 8 * MIB, has_two_wardens, false, dup_status);
}

static void end_two(struct stage *s)
{
	warden_set_lender(s->warden, NULL);
	stage_go_on(s);
	stage_second_goes_on(s);
	stage_end_well(s);
	CHECK_EQUAL(s->second.status, 0);
	munmap(other_client, 4096);
}

static void memory_of_another_vgpu_is_not_to_be_had(void)
{
	static struct warden_report report;
	struct stage s;

	start_two(&s, true, RM_ERR_INVALID_CLIENT);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_driver_bytes, 2 * MIB);
	end_two(&s);
}

static void memory_of_the_same_vgpu_can_be_named_and_is_counted_once(void)
{
	static struct warden_report report;
	struct stage s;

	start_two(&s, false, RM_OK);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	CHECK_EQUAL(s.most_bytes, 4 * MIB);
	for (int i = 0; i < 3; i++)
		warden_audit(s.warden);
	end_two(&s);
}

static void memory_of_the_mps_server_can_be_named_and_is_charged(void)
{
	static struct warden_report report;
	struct stage s;

	start_two_with(&s, 8 * MIB, true, true, RM_OK);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 4 * MIB);
	CHECK_EQUAL(report.mem_driver_bytes, 4 * MIB);
	for (int i = 0; i < 3; i++)
		warden_audit(s.warden);
	warden_report(s.second.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 2 * MIB);
	end_two(&s);
}

static void memory_of_the_mps_server_has_to_fit(void)
{
	static struct warden_report report;
	struct stage s;

	start_two_with(&s, 3 * MIB, true, true, RM_ERR_NO_MEMORY);
	warden_report(s.warden, &report);
	CHECK_EQUAL(report.mem_used_bytes, 2 * MIB);
	CHECK_EQUAL(report.mem_driver_bytes, 2 * MIB);
	end_two(&s);
}

static void program_wants_the_servers_channel(struct actor *a)
{
	actor_context(a);
	actor_say(a, 'c');
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, *other_client, STAGE_CHANNEL), RM_ERR_NOT_SUPPORTED);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, *other_client, STAGE_BELL), RM_ERR_NOT_SUPPORTED);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, *other_client, STAGE_MEMORY + 99),
		    RM_ERR_INVALID_OBJECT_HANDLE);
	CHECK_EQUAL(actor_dup(a, STAGE_USERD, *other_client, STAGE_USERD), RM_ERR_INSERT_DUPLICATE_NAME);
	CHECK_EQUAL(actor_dup(a, STAGE_MEMORY, *other_client ^ 0x800000, STAGE_USERD), RM_ERR_INVALID_CLIENT);
	actor_say(a, 'a');
}

static void nothing_but_memory_of_the_mps_server_is_to_be_had(void)
{
	struct stage_setup setup = { .options = { .mem_bytes = 8 * MIB, .interleave = -1 },
				     .second = program_has_memory,
				     .has_two_wardens = true };
	struct stage s;

	other_client = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(other_client != MAP_FAILED);
	stage_start_as(&s, &setup, program_wants_the_servers_channel, 0);
	stage_until(&s, 'c');
	stage_until_second(&s, 'h');
	warden_set_lender(s.warden, s.second.warden);
	stage_go_on(&s);
	stage_until(&s, 'a');
	end_two(&s);
}

/* A control file that the program of another vGPU is given. */
static int gift_socks[2];

static void program_gives_its_file_to_another_vgpu(struct actor *a)
{
	char byte;

	actor_new_device(a);
	CHECK(!bf_send_fd(gift_socks[0], a->control));
	CHECK(write(gift_socks[0], &a->client, 4) == 4);
	CHECK(read(gift_socks[0], &byte, 1) == 1);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, MIB), 0);
}

static void program_is_given_a_file(struct actor *a)
{
	struct actor gift = *a;

	actor_new_device(a);
	gift.control = bf_recv_fd(gift_socks[1]);
	CHECK(gift.control >= 0 && read(gift_socks[1], &gift.client, 4) == 4);
	CHECK_EQUAL(actor_memory(&gift, STAGE_DEVICE, STAGE_MEMORY, MIB), -ENOTTY);
	gift.client = a->client;
	CHECK_EQUAL(actor_memory(&gift, STAGE_DEVICE, STAGE_MEMORY, MIB), -ENOTTY);
	close(gift.control);
	CHECK(write(gift_socks[1], "g", 1) == 1);
}

static void file_given_to_another_vgpu_takes_no_call_there(void)
{
	struct stage_setup setup = { .options = { .mem_bytes = 8 * MIB, .interleave = -1 },
				     .second = program_is_given_a_file,
				     .has_two_wardens = true };
	struct stage s;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gift_socks));
	stage_start_as(&s, &setup, program_gives_its_file_to_another_vgpu, 0);
	stage_end_well(&s);
	CHECK_EQUAL(s.second.status, 0);
	close(gift_socks[0]);
	close(gift_socks[1]);
}

/* The page that the GPU reads GP_PUT from was shared with the program's client while the channel was made. Handles are
 * easily guessed: with a name for the page the program could submit past the gate. */
static void program_wants_the_wardens_page(struct actor *a)
{
	enum { CLIENTS = 16, PAGES = 16 };
	uint32_t first_client, first_page = 0xbe200000u;

	actor_context(a);
	first_client = a->client & ~(uint32_t)(CLIENTS - 1);
	for (uint32_t client = first_client; client < first_client + CLIENTS; client++)
		for (uint32_t page = first_page; page < first_page + PAGES && client != a->client; page++) {
			CHECK(actor_dup(a, STAGE_MEMORY, client, page) != 0);
			CHECK(map_anothers(a, client, page) != 0);
		}
	actor_say(a, 'p');
}

static void page_of_the_wardens_cannot_be_named(void)
{
	struct card_channel channel;
	struct stage s;

	stage_start(&s, 8 * MIB, program_wants_the_wardens_page, 0);
	stage_until(&s, 'p');
	CHECK(card_channel(&s.card, STAGE_CHANNEL, &channel) && !channel.is_nameable);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The driver sends an answer wherever the request says, in its own name; a request in its name would be taken. */
static void ask_for_answer_at(int sock, uint32_t kind, uint64_t inode, int at)
{
	struct soft_request bytes[4] = { { .magic = SOFT_MAGIC, .kind = kind, .nr = SOFT_FILE_CONTROL } };
	struct iovec part = { bytes, sizeof(bytes) };
	struct wire_files files = { .fd = { at }, .count = 1 };

	bytes[0].inode = inode;
	bytes[0].arg_bytes = sizeof(bytes) - sizeof(bytes[0]); /* comes back behind the answer's head */
	CHECK_EQUAL(wire_send(sock, &part, 1, &files, 0), 0);
}

static void program_wants_answers_at_its_files(struct actor *a)
{
	int sock = ask_connect(a->folder), other = actor_open(a, SOFT_FILE_GPU_0 + 1);
	int control = actor_open(a, SOFT_FILE_CONTROL);
	struct stat st;

	actor_context(a);
	actor_say(a, 'c');
	CHECK(sock >= 0 && control >= 0 && other >= 0 && !fstat(other, &st));
	for (int i = 0; i < 100; i++) {
		ask_for_answer_at(sock, SOFT_REQUEST_OPEN, 0, control);
		ask_for_answer_at(sock, SOFT_REQUEST_OPEN, 0, sock);
		ask_for_answer_at(control, SOFT_REQUEST_WHAT_IS, st.st_ino, control);
		ask_for_answer_at(control, SOFT_REQUEST_WHAT_IS, st.st_ino, sock);
	}
	close(sock);
	close(control);
	close(other);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	actor_say(a, 'a');
}

static void answers_are_not_taken_for_requests(void)
{
	unsigned of_a_context;
	struct stage s;

	stage_start(&s, 8 * MIB, program_wants_answers_at_its_files, 0);
	stage_until(&s, 'c');
	of_a_context = card_count(&s.card, 0);
	stage_go_on(&s);
	stage_until(&s, 'a');
	CHECK_EQUAL(card_count(&s.card, 0), of_a_context + 1);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void send_garbage(int sock, unsigned seed)
{
	enum { MOST = sizeof(struct soft_request) + SOFT_ARG_MAX + SOFT_PARAMS_MAX + 4096 };
	static uint8_t bytes[MOST];
	struct soft_request request = { .magic = SOFT_MAGIC };
	size_t count = (unsigned)rand_r(&seed) % MOST + 1;
	struct wire_files files = { .fd = { sock, STDERR_FILENO, sock, sock, sock },
				    .count = seed % (WIRE_FILES_MAX + 1) };
	struct iovec part = { bytes, count };

	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)rand_r(&seed);
	request.kind = (uint32_t)rand_r(&seed) % 10;
	request.nr = (uint32_t)rand_r(&seed) % 256;
	request.arg_bytes = (uint32_t)rand_r(&seed) % 64;
	request.params_bytes = seed % 2 ? (uint32_t)(count - sizeof(request)) - request.arg_bytes : ~0u;
	if (seed % 3 && count >= sizeof(request))
		memcpy(bytes, &request, sizeof(request));
	wire_send(sock, &part, 1, &files, MSG_DONTWAIT); /* may be too much for it: then it goes without */
	if (seed % 7 == 0)
		send(sock, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL); /* nothing at all is a message too */
}

static void program_sends_garbage(struct actor *a)
{
	int sock = ask_connect(a->folder), control = actor_open(a, SOFT_FILE_CONTROL);

	actor_context(a);
	for (unsigned i = 0; i < 500; i++) {
		send_garbage(control, 3 * i + 1);
		send_garbage(a->gpu, 3 * i + 2);
		send_garbage(sock, 3 * i + 3);
	}
	close(sock);
	actor_ring(a);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB + 1), RM_ERR_NO_MEMORY);
	CHECK_EQUAL(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 6 * MIB), 0);
	actor_say(a, 'g');
}

static void garbage_on_the_socket_changes_nothing(void)
{
	struct stage s;

	stage_start(&s, 8 * MIB, program_sends_garbage, 0);
	stage_until(&s, 'g');
	stage_until_done(&s, 0, 1);
	CHECK_EQUAL(s.most_bytes, 8 * MIB);
	stage_go_on(&s);
	stage_end_well(&s);
}

static int join(struct actor *a, const char *name, uint32_t size)
{
	struct soft_join_params params = { 0 };

	memcpy(params.name, name, strlen(name));
	return actor_control(a, a->client, SOFT_CTRL_ROOT_JOIN_DOMAIN, &params, size);
}

static void program_joins_domains(struct actor *a)
{
	const uint32_t size = sizeof(struct soft_join_params);
	char long_name[SOFT_DOMAIN_BYTES + 1] = { 0 };

	actor_new_client(a);
	CHECK_EQUAL(join(a, "/run/pool", size), RM_ERR_INSUFFICIENT_PERMISSIONS);
	actor_say(a, 'n');
	/* Now it may join /run/pool, and nothing else. */
	memset(long_name, '/', SOFT_DOMAIN_BYTES);
	CHECK_EQUAL(join(a, "/run/other", size), RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(join(a, "/run/pool/", size), RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(join(a, "", size), RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(join(a, long_name, size), RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(join(a, "/run/pool", size - 1), RM_ERR_INSUFFICIENT_PERMISSIONS);
	CHECK_EQUAL(join(a, "/run/pool", size), 0);
	actor_say(a, 'j');
	/* Another client: it may not any more. */
	actor_new_client(a);
	CHECK_EQUAL(join(a, "/run/pool", size), RM_ERR_INSUFFICIENT_PERMISSIONS);
}

static void only_the_domain_of_the_vgpu_can_be_joined(void)
{
	char long_name[WARDEN_DOMAIN_BYTES + 1] = { 0 };
	struct bf_error err = { 0 };
	struct stage s;

	stage_start(&s, 8 * MIB, program_joins_domains, 0);
	stage_until(&s, 'n');
	memset(long_name, '/', WARDEN_DOMAIN_BYTES);
	CHECK_EQUAL(warden_set_domain_folder(s.warden, long_name, &err), -ENAMETOOLONG);
	CHECK_EQUAL(warden_set_domain_folder(s.warden, "/run/pool", &err), 0);
	stage_go_on(&s);
	stage_until(&s, 'j');
	CHECK_EQUAL(warden_set_domain_folder(s.warden, "", &err), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

static void program_asks_for_counters(struct actor *a)
{
	struct soft_counters_params counters = { 0 };

	actor_context(a);
	CHECK_EQUAL(
		actor_control(a, STAGE_SUBDEVICE, SOFT_CTRL_GPU_GET_COUNTERS, &counters, sizeof(counters)),
		RM_ERR_NOT_SUPPORTED);
	CHECK_EQUAL(counters.gpu_ns, 0);
}

static void what_others_do_cannot_be_counted(void)
{
	run_well(program_asks_for_counters);
}

/* While the vGPU is stopped a call waits: so it is surely under way when the file is closed. */
static void *call_and_wait(void *arg)
{
	struct actor *a = arg;

	actor_tell(a, 'c');
	CHECK(actor_memory(a, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB) < 0);
	return NULL;
}

static void program_closes_its_file_in_a_call(struct actor *a)
{
	struct actor other = *a;
	pthread_t thread;

	actor_context(a);
	actor_say(a, 's');
	CHECK(!pthread_create(&thread, NULL, call_and_wait, a));
	actor_say(a, 'w');
	close(a->control);
	actor_say(a, 'x');
	pthread_join(thread, NULL);
	actor_new_device(&other);
	CHECK_EQUAL(actor_memory(&other, STAGE_DEVICE, STAGE_MEMORY, 8 * MIB), 0);
}

static uint64_t calls_of(struct stage *s)
{
	static struct warden_report report;

	warden_report(s->warden, &report);
	return report.calls;
}

static void file_can_be_closed_while_a_call_is_under_way(void)
{
	struct bf_error err = { 0 };
	char said[2] = { 0 };
	struct stage s;
	uint64_t calls;

	stage_start(&s, 8 * MIB, program_closes_its_file_in_a_call, 0);
	stage_until(&s, 's');
	CHECK_EQUAL(warden_stop(s.warden, &err), 0);
	calls = calls_of(&s);
	stage_go_on(&s);
	while (calls_of(&s) == calls)
		stage_serve(&s, 1);
	CHECK(read(s.hear, &said[0], 1) == 1 && read(s.hear, &said[1], 1) == 1);
	CHECK_EQUAL(said[0] + said[1], 'c' + 'w');
	stage_go_on(&s);
	stage_until(&s, 'x');
	CHECK_EQUAL(warden_resume(s.warden, &err), 0);
	stage_go_on(&s);
	stage_end_well(&s);
}

/* The same without a stop, at any moment of a call. */
static void *close_soon(void *arg)
{
	const struct actor *a = arg;

	for (volatile long i = 0; i < a->arg; i++)
		;
	close(a->control);
	return NULL;
}

static void program_closes_its_files_at_random(struct actor *a)
{
	srand(4711);
	for (int i = 0; i < 100; i++) {
		struct actor own = *a;
		pthread_t thread;
		int rc;

		actor_new_device(&own);
		own.arg = rand() % 100000;
		CHECK(!pthread_create(&thread, NULL, close_soon, &own));
		do
			rc = actor_memory(&own, STAGE_DEVICE, STAGE_MEMORY, 2 * MIB);
		while (!rc && !actor_free(&own, STAGE_DEVICE, STAGE_MEMORY));
		CHECK(rc <= 0); /* -EBADF, -ENOTTY: no longer; never that there was no room */
		pthread_join(thread, NULL);
	}
}

static void files_closed_at_random_leave_nothing(void)
{
	run_well(program_closes_its_files_at_random);
}

int main(void)
{
	STAGE_TEST(file_given_to_a_helper_outside_takes_no_call);
	STAGE_TEST(messages_to_a_device_file_are_refused);
	STAGE_TEST(messages_to_the_listening_socket_are_refused);
	STAGE_TEST(orphans_are_refused_as_well);
	STAGE_TEST(false_names_are_refused);
	STAGE_TEST(program_without_environment_is_still_supervised);
	STAGE_TEST(memory_of_another_vgpu_is_not_to_be_had);
	STAGE_TEST(memory_of_the_same_vgpu_can_be_named_and_is_counted_once);
	STAGE_TEST(memory_of_the_mps_server_can_be_named_and_is_charged);
	STAGE_TEST(memory_of_the_mps_server_has_to_fit);
	STAGE_TEST(nothing_but_memory_of_the_mps_server_is_to_be_had);
	STAGE_TEST(file_given_to_another_vgpu_takes_no_call_there);
	STAGE_TEST(page_of_the_wardens_cannot_be_named);
	STAGE_TEST(answers_are_not_taken_for_requests);
	STAGE_TEST(garbage_on_the_socket_changes_nothing);
	STAGE_TEST(only_the_domain_of_the_vgpu_can_be_joined);
	STAGE_TEST(what_others_do_cannot_be_counted);
	STAGE_TEST(file_can_be_closed_while_a_call_is_under_way);
	STAGE_TEST(files_closed_at_random_leave_nothing);
	return check_status();
}
