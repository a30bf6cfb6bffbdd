#include "cli/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/report.h"

/* The sizes apply to a terminal that does not report its size, and to output that is not a terminal. */
enum {
	DELAY_LEAST_US = 100000,
	PLAIN_COLUMNS = 132,
	SCREEN_COLUMNS = 80,
	SCREEN_ROWS = 24,
	SIZE_MOST = 10000
};
static const char enter_text[] = "\033[?1049h\033[?25l", leave_text[] = "\033[?25h\033[?1049l";

static const int end_signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };

struct top {
	uint64_t delay_us;
	long count;			     /* reports left to show; 0: no limit */
	bool is_terminal, is_screen, is_raw; /* is_screen: a terminal that can place the cursor */
	struct termios before;
	int signals;
	int why; /* errno of a failed write; 0: none */
	struct top_view view;
};

static void put(struct top *top, const char *text, size_t bytes)
{
	while (bytes && !top->why) {
		ssize_t done = write(STDOUT_FILENO, text, bytes);

		if (done < 0 && errno != EINTR)
			top->why = errno;
		if (done > 0) {
			text += done;
			bytes -= (size_t)done;
		}
	}
}

/* The value of COLUMNS or LINES, for a terminal that does not report its size. */
static unsigned size_from(const char *variable, unsigned otherwise)
{
	const char *text = getenv(variable);
	long size;

	if (!text || bf_parse_number(variable, text, 1, SIZE_MOST, &size, NULL))
		return otherwise;
	return (unsigned)size;
}

static void measure(struct top *top)
{
	struct winsize size = { 0 };

	if (top->is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		size = (struct winsize){ 0 };
	top->view.columns = size.ws_col
				    ? size.ws_col
				    : size_from("COLUMNS", top->is_terminal ? SCREEN_COLUMNS : PLAIN_COLUMNS);
	if (top->is_screen)
		top->view.rows = size.ws_row ? size.ws_row : size_from("LINES", SCREEN_ROWS);
}

/* Without TERM, or with TERM=dumb, the output is plain text. */
static bool can_place_cursor(void)
{
	const char *kind = getenv("TERM");

	return kind && *kind && strcmp(kind, "dumb") != 0;
}

/* Switch to unbuffered keys and to the alternate screen. */
static void enter(struct top *top)
{
	struct termios raw;

	measure(top);
	if (!top->is_screen)
		return;
	top->is_raw = !tcgetattr(STDIN_FILENO, &top->before);
	if (top->is_raw) {
		raw = top->before;
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		raw.c_cc[VMIN] = raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	put(top, enter_text, sizeof(enter_text) - 1);
}

static void leave(struct top *top)
{
	if (!top->is_screen)
		return;
	put(top, leave_text, sizeof(leave_text) - 1);
	if (top->is_raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
}

/* Erase each line before it is written: with the cursor after the last column, an erase afterwards would
 * remove that column. */
static void show_screen(struct top *top, const char *frame)
{
	cleanup_free char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);
	unsigned row = 0;

	if (!to)
		return;
	fputs("\033[H", to);
	for (; *frame && row < top->view.rows; row++) {
		size_t length = strcspn(frame, "\n");
		bool is_selected = (int)row == top->view.selected_line;

		fprintf(to, "%s\033[K%s%.*s%s", row ? "\n" : "", is_selected ? "\033[7m" : "",
			(int)(length < top->view.columns ? length : top->view.columns), frame,
			is_selected ? "\033[0m" : "");
		frame += length + (frame[length] == '\n');
	}
	if (row < top->view.rows)
		fputs("\n\033[J", to);
	if (!fclose(to))
		put(top, text, bytes);
}

static void show(struct top *top, struct json_object *before, struct json_object *now)
{
	cleanup_free char *frame = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&frame, &bytes);

	if (!to)
		return;
	top_draw(to, before, now, &top->view);
	if (fclose(to))
		return;
	if (top->is_screen)
		show_screen(top, bf_plain(frame));
	else
		put(top, bf_plain(frame), bytes);
}

static void suspend(struct top *top)
{
	leave(top);
	raise(SIGSTOP);
	enter(top);
}

/* Returns true to quit. */
static bool heed_signals(struct top *top)
{
	struct signalfd_siginfo info;
	bool is_end = false;

	while (read(top->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGWINCH)
			measure(top);
		else if (info.ssi_signo == SIGTSTP)
			suspend(top);
		else
			is_end = true;
	}
	return is_end;
}

/* Returns true to quit. */
static bool heed_keys(struct top *top)
{
	char bytes[64];
	ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
	bool is_end = false;

	for (ssize_t i = 0; i < got && !is_end; i++)
		is_end = !top_view_key(&top->view, top_view_byte(&top->view, bytes[i]));
	return is_end;
}

/* Wait for the next report; returns true to quit. The screen is redrawn after a change of its size or a
 * key. */
static bool rest(struct top *top, struct json_object *before, struct json_object *now)
{
	uint64_t until_ns = bf_now_ns() + top->delay_us * 1000, now_ns;
	struct pollfd fds[] = { { top->signals, POLLIN, 0 }, { top->is_raw ? STDIN_FILENO : -1, POLLIN, 0 } };

	while ((now_ns = bf_now_ns()) < until_ns) {
		if (poll(fds, 2, (int)((until_ns - now_ns) / 1000000 + 1)) <= 0)
			continue;
		if (fds[0].revents && heed_signals(top))
			return true;
		if (fds[1].revents & (POLLHUP | POLLERR) || (fds[1].revents && heed_keys(top)))
			return true;
		if (top->is_screen)
			show(top, before, now);
	}
	return false;
}

static struct top *asking; /* for end_at_once() */

static void end_at_once(int signal)
{
	(void)signal;
	leave(asking);
	_exit(CLI_OK);
}

/* Get a report, which can take long. top->signals is not read meanwhile, so the signals that quit are
 * unblocked. */
static int look(struct top *top, struct json_object **now, struct bf_error *err)
{
	sigset_t end, before;
	int rc;

	asking = top;
	sigemptyset(&end);
	for (size_t i = 0; i < sizeof(end_signals) / sizeof(end_signals[0]); i++)
		sigaddset(&end, end_signals[i]);
	sigprocmask(SIG_UNBLOCK, &end, &before);
	rc = report_gather(NULL, now, err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int watch(struct top *top, struct bf_error *err)
{
	struct json_object *before = NULL, *now = NULL;
	bool is_last = false;
	int rc = 0;

	while (!is_last) {
		json_object_put(before);
		before = now;
		rc = look(top, &now, err);
		/* The other GPUs are still shown if one GPU does not answer. */
		if (rc && !json_object_array_length(report_at(now, "gpus")))
			break;
		rc = 0;
		show(top, before, now);
		if (top->why || (top->count && !--top->count))
			break;
		is_last = rest(top, before, now);
		if (!top->is_screen && !is_last)
			put(top, "\n", 1);
	}
	json_object_put(before);
	json_object_put(now);
	return rc;
}

static int take_delay(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	uint64_t *us = member;
	char with_unit[64];
	size_t length = strlen(text);
	int rc;

	snprintf(with_unit, sizeof(with_unit), "%s%s", text,
		 length && strchr("0123456789", text[length - 1]) ? "s" : "");
	rc = bf_parse_time(with_unit, us, err);
	if (rc)
		return rc;
	return *us < DELAY_LEAST_US
		       ? bf_fail(err, ERANGE, "-%c '%s': less than 0.1 seconds", option->letter, text)
		       : 0;
}

static int take_count(void *member, const struct bf_option *option, const char *text, struct bf_error *err)
{
	(void)option;
	return bf_parse_number("-n", text, 0, 1000000000, member, err);
}

static const struct bf_option options[] = {
	BF_OPTION("delay", 'd', "SECONDS", "time between two updates (default: 1)", take_delay, struct top,
		  delay_us),
	BF_OPTION("count", 'n', "COUNT",
		  "number of updates; 0: no limit (default: 0 on a terminal, otherwise 1)", take_count,
		  struct top, count),
	BF_OPTIONS_END,
};
static const struct bf_command command = {
	.name = "top",
	.about =
		"usage: belfry top [-d SECONDS] [-n COUNT]\n"
		"\n"
		"Show the vGPUs: the share of the GPU's time that each had since the last update, and which vGPU\n"
		"it waits for. In a bar, | is the requested share and ! the limit. On a terminal, up, down, page\n"
		"up, page down, home and end select and scroll, h lists the keys, and q quits.\n",
	.options = options,
};

static int take_signals(void)
{
	struct sigaction action = { .sa_handler = end_at_once };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGTSTP);
	for (size_t i = 0; i < sizeof(end_signals) / sizeof(end_signals[0]); i++) {
		sigaddset(&set, end_signals[i]);
		sigaction(end_signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int cli_top(int argc, char **argv)
{
	struct top top = { .delay_us = 1000000, .is_terminal = isatty(STDOUT_FILENO) };
	struct bf_error err = { 0 };
	int status, rc;

	top.is_screen = top.is_terminal && can_place_cursor();
	top.count = top.is_terminal ? 0 : 1;
	if (!cli_parse(&command, argc, argv, &top, &status))
		return status;
	top.signals = take_signals();
	if (top.signals < 0) {
		bf_fail(&err, errno, "no descriptors: %s", strerror(errno));
		return cli_fail(&err);
	}
	enter(&top);
	rc = watch(&top, &err);
	leave(&top);
	close(top.signals);
	if (!rc && top.why)
		rc = bf_fail(&err, top.why, "cannot write: %s", strerror(top.why));
	return rc ? cli_fail(&err) : CLI_OK;
}
