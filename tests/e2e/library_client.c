/* library_client WHAT [ARG...]: a client of belfryd that uses belfry.h, and prints the first thing that is not as it should be.
 *   all [SOCKET]             everything, alone, after fork() and in several threads
 *   busy NAME                remove a vGPU on which a program runs
 *   owner UID                make the vGPU "theirs" for that user
 *   blocked PID              belfryd is stopped
 *   partial PID              stop this GPU server, and let it go on
 *   restarted PID FILE       end belfryd; another one runs when FILE exists */
#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/belfry.h"

enum { THREADS = 4, ROUNDS = 8 };
static const char *path;

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	exit(1);
}

static void expect(const struct belfry *b, const char *what, int wanted, int got)
{
	if (wanted != got)
		fail("%s: %d (%s) and not %d", what, got, belfry_error(b), wanted);
}

/* The value at "vgpus", 0, KEY of the report on one vGPU, as text. */
static void expect_figure(struct belfry *b, const char *name, const char *key, const char *wanted)
{
	struct json_object *top, *at = NULL;
	char *json = NULL;

	expect(b, "report", 0, belfry_report(b, name, &json));
	top = json_tokener_parse(json);
	if (json_object_object_get_ex(top, "vgpus", &at) && json_object_array_length(at) == 1 &&
	    json_pointer_get(json_object_array_get_idx(at, 0), key, &at))
		at = NULL;
	if (json_object_is_type(at, json_type_double)
		    ? fabs(json_object_get_double(at) - atof(wanted)) > 1e-9
		    : !at || strcmp(json_object_get_string(at), wanted) != 0)
		fail("%s of %s is not %s: %s", key, name, wanted, json);
	json_object_put(top);
	belfry_free(json);
}

static void make_and_change(struct belfry *b)
{
	static const char *const options[] = { "mem", "64M", "time", "20:50", "class", "latency", NULL };
	static const char *const change[] = { "time", "10:40", "objective", "p99=2ms", NULL };
	static const char *const too_much[] = { "mem", "8000T", NULL };
	char *json = NULL;

	expect(b, "create", 0, belfry_vgpu_create(b, "one", options, &json));
	if (strcmp(json, "{\"name\":\"one\",\"gpu\":\"soft:0\"}") != 0)
		fail("create said %s", json);
	belfry_free(json);
	expect(b, "create again", -EEXIST, belfry_vgpu_create(b, "one", options, &json));
	expect_figure(b, "one", "/mem/limit", "67108864");
	expect(b, "set", 0, belfry_vgpu_set(b, "one", change));
	if (!belfry_took_ns(b))
		fail("set took no time");
	expect_figure(b, "one", "/time/request", "0.1");
	expect_figure(b, "one", "/time/limit", "0.4");
	expect_figure(b, "one", "/class", "latency");
	if (belfry_vgpu_set(b, "one", too_much) >= 0 || !*belfry_error(b))
		fail("8000T were given");
	expect_figure(b, "one", "/mem/limit", "67108864");
}

static void control(struct belfry *b)
{
	char *json = NULL;

	expect(b, "hold", 0, belfry_vgpu_hold(b, "one", 0));
	expect_figure(b, "one", "/gate", "held");
	expect(b, "open", 0, belfry_vgpu_open(b, "one"));
	expect_figure(b, "one", "/gate", "open");
	expect(b, "stop", 0, belfry_vgpu_stop(b, "one"));
	expect_figure(b, "one", "/gate", "stopped");
	expect(b, "resume", 0, belfry_vgpu_resume(b, "one"));
	expect_figure(b, "one", "/gate", "open");
	expect(b, "hold for an hour", 0, belfry_vgpu_hold(b, "one", 3600000000u));
	expect(b, "open", 0, belfry_vgpu_open(b, "one"));
	expect(b, "explain", 0, belfry_vgpu_explain(b, "one", &json));
	if (!strstr(json, "\"text\""))
		fail("explain said %s", json);
	belfry_free(json);
	expect(b, "info", 0, belfry_info(b, &json));
	if (!strstr(json, "\"daemon\"") || !strstr(json, "\"gpus\""))
		fail("info said %s", json);
	belfry_free(json);
	expect(b, "reload", 0, belfry_reload(b));
}

static void remove_it(struct belfry *b)
{
	char *json = (char *)1;

	expect(b, "remove", 0, belfry_vgpu_remove(b, "one", 0));
	expect(b, "remove again", -ENOENT, belfry_vgpu_remove(b, "one", BELFRY_FORCE));
	expect(b, "stop what is gone", -ENOENT, belfry_vgpu_stop(b, "one"));
	expect(b, "report what is gone", -ENOENT, belfry_report(b, "one", &json));
	if (json)
		fail("there is a report on what is gone");
}

/* The handle of another process: it has no connection that both would use. */
static void use_after_fork(struct belfry *b)
{
	int status = 1;
	pid_t child = fork();

	if (!child) {
		expect(b, "create after fork", 0, belfry_vgpu_create(b, "forked", NULL, NULL));
		exit(0);
	}
	waitpid(child, &status, 0);
	if (status)
		exit(1);
	expect(b, "remove after fork", 0, belfry_vgpu_remove(b, "forked", 0));
}

static void *work(void *context)
{
	struct belfry *b;
	char name[32], *json = NULL;

	expect(NULL, "open", 0, belfry_open(&b, path));
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(name, sizeof(name), "thread-%d", *(int *)context);
		expect(b, "create in a thread", 0, belfry_vgpu_create(b, name, NULL, NULL));
		expect(b, "report in a thread", 0, belfry_report(b, NULL, &json));
		if (!strstr(json, name))
			fail("%s is not in the report", name);
		belfry_free(json);
		expect(b, "remove in a thread", 0, belfry_vgpu_remove(b, name, 0));
	}
	belfry_close(b);
	return NULL;
}

static void use_in_threads(void)
{
	pthread_t threads[THREADS];
	int numbers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, work, &numbers[i]))
			fail("no thread");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void do_all(struct belfry *b)
{
	make_and_change(b);
	control(b);
	remove_it(b);
	use_after_fork(b);
	use_in_threads();
}

/* A vGPU on which a program runs. */
static void remove_busy(struct belfry *b, const char *name)
{
	expect(b, "remove what is busy", -EBUSY, belfry_vgpu_remove(b, name, 0));
	expect(b, "remove by force", 0, belfry_vgpu_remove(b, name, BELFRY_FORCE));
}

static void create_for(struct belfry *b, const char *owner)
{
	const char *const options[] = { "owner", owner, "public", "yes", NULL };

	expect(b, "create for another owner", 0, belfry_vgpu_create(b, "theirs", options, NULL));
}

/* belfryd is stopped, and goes on once a request to it has failed. */
static void wait_for_blocked(struct belfry *b, pid_t daemon)
{
	char *json = NULL;
	int rc;

	expect(b, "time limit", 0, belfry_set_timeout(b, 200));
	expect(b, "ask a belfryd that is stopped", -ETIMEDOUT, belfry_info(b, &json));
	expect(b, "create at a belfryd that is stopped", -ETIMEDOUT,
	       belfry_vgpu_create(b, "late", NULL, &json));
	kill(daemon, SIGCONT);
	expect(b, "time limit", 0, belfry_set_timeout(b, 0));
	expect(b, "ask it again", 0, belfry_info(b, &json));
	belfry_free(json);
	/* The request without an answer may have been carried out. */
	rc = belfry_vgpu_remove(b, "late", 0);
	if (rc && rc != -ENOENT)
		fail("remove what was asked for: %s", belfry_error(b));
}

/* The server of the only GPU is stopped: belfryd itself still reports. */
static void report_without_gpu(struct belfry *b, pid_t server)
{
	char *json = NULL;

	expect(b, "time limit", 0, belfry_set_timeout(b, 200));
	kill(server, SIGSTOP);
	expect(b, "report without its GPU", -ETIMEDOUT, belfry_report(b, NULL, &json));
	kill(server, SIGCONT);
	if (!json || !strstr(json, "\"daemon\"") || !strstr(belfry_error(b), "its server, process"))
		fail("a GPU server that does not answer: %s; %s", belfry_error(b), json ? json : "no report");
	belfry_free(json);
}

/* End belfryd; once `again` is there, another one runs. */
static void outlive(struct belfry *b, pid_t daemon, const char *again)
{
	char *json = NULL;

	expect(b, "ask the first", 0, belfry_info(b, &json));
	belfry_free(json);
	kill(daemon, SIGTERM);
	while (access(again, F_OK))
		usleep(10000);
	expect(b, "ask the next", 0, belfry_info(b, &json));
	belfry_free(json);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : NULL;
	struct belfry *b;

	path = strcmp(what, "all") ? NULL : more;
	expect(NULL, "open", 0, belfry_open(&b, path));
	if (!strcmp(what, "all"))
		do_all(b);
	else if (!strcmp(what, "busy") && more)
		remove_busy(b, more);
	else if (!strcmp(what, "owner") && more)
		create_for(b, more);
	else if (!strcmp(what, "blocked") && more)
		wait_for_blocked(b, atoi(more));
	else if (!strcmp(what, "partial") && more)
		report_without_gpu(b, atoi(more));
	else if (!strcmp(what, "restarted") && argc > 3)
		outlive(b, atoi(more), argv[3]);
	else
		fail("'%s': unknown", what);
	belfry_close(b);
	return 0;
}
