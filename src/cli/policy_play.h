/* belfry policy replay: the work of a record, played under two policies, and how that is told. */
#ifndef BELFRY_CLI_POLICY_PLAY_H
#define BELFRY_CLI_POLICY_PLAY_H

#include <json-c/json.h>
#include <stdio.h>

#include "replay/play.h"

struct policy_play {
	char baseline_name[BELFRY_NAME_SIZE], with_name[BELFRY_NAME_SIZE];
	bool has_work;
	char why_not[256]; /* it is too much to be played; "" if not */
	struct workload workload;
	struct play_result baseline, with;
};

/* Policies that were not asked anything yet; NULL: the built-in. */
int policy_play_run(struct policy_play *play, FILE *record, struct policy *against, struct policy *with,
		    struct bf_error *err);
void policy_play_print(const struct policy_play *play);
struct json_object *policy_play_json(const struct policy_play *play); /* NULL: nothing was played */
void policy_play_free(struct policy_play *play);

#endif
