#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/own.h"
#include "base/text.h"
#include "base/users.h"
#include "cli/cli.h"
#include "cli/report.h"

static const struct bf_command command = {
	.name = "explain",
	.about = "usage: belfry explain [--json] NAME\n"
		 "\n"
		 "Explain what vGPU NAME does, and why it waits.\n",
	.options = cli_json_options,
	.least = 1,
	.most = 1,
	.wrong_count = "give the name of one vGPU",
};

/* The text of a GPU server contains names of programs: control characters are removed. */
static void print_text(const char *text)
{
	cleanup_free char *copy = strdup(text);
	size_t length = strlen(text);

	printf("%s%s", copy ? bf_plain(copy) : "", length && text[length - 1] == '\n' ? "" : "\n");
}

/* Add what the GPU server does not know: the name of the owner, and the changes pending in belfryd. */
static void add_more(struct json_object *answer, const char *name)
{
	struct json_object *hello = NULL, *pending;
	struct bf_error err = { 0 };

	json_add_text(answer, "owner_name", bf_user_name((uid_t)report_number(answer, "owner")));
	report_hello(&hello, &err); /* without an answer, `hello` is NULL and the fields are left out */
	pending = report_pending(hello, name);
	json_add(answer, "pending", pending ? json_object_get(pending) : NULL);
	json_object_put(hello);
}

static void print(struct json_object *answer)
{
	const char *why = report_text(answer, "pending.why", NULL);
	char user[BF_USER_ROOM];

	printf("It belongs to user %s.\n", report_user(answer, user, sizeof(user)));
	print_text(report_text(answer, "text", ""));
	if (!why)
		return;
	printf("A change of the configuration is pending, and belfryd tries it again by itself: ");
	print_text(why);
}

static int show(const char *body, const char *name, bool is_json)
{
	struct json_object *answer = json_tokener_parse(body);
	struct bf_error err = { 0 };

	if (!json_object_is_type(report_at(answer, "text"), json_type_string)) {
		json_object_put(answer);
		bf_fail(&err, EPROTO, "belfryd's answer makes no sense; restart it");
		return cli_fail(&err);
	}
	add_more(answer, name);
	if (is_json)
		report_print(answer);
	else
		print(answer);
	json_object_put(answer);
	return CLI_OK;
}

int cli_explain(int argc, char **argv)
{
	cleanup_belfry struct belfry *b = NULL;
	char *body = NULL;
	bool is_json = false;
	int status, first = cli_parse(&command, argc, argv, &is_json, &status);

	if (!first)
		return status;
	if (belfry_open(&b, NULL) || belfry_vgpu_explain(b, argv[first], &body))
		return cli_fail_library(b);
	status = show(body, argv[first], is_json);
	belfry_free(body);
	return status;
}
