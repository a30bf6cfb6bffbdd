/* belfry policy replay: simulate the work of a record under two policies, and print the results. */
#ifndef BELFRY_CLI_POLICY_PLAY_H
#define BELFRY_CLI_POLICY_PLAY_H

#include <json-c/json.h>
#include <stdio.h>

#include "replay/play.h"

struct policy_play {
	char baseline_name[BELFRY_NAME_SIZE], with_name[BELFRY_NAME_SIZE];
	bool has_work;
	char why_not[256]; /* why the record is too large to simulate; "": it is not */
	struct workload workload;
	struct play_result baseline, with;
};

/* The policies must not have been called before. NULL: the built-in policy. */
int policy_play_run(struct policy_play *play, FILE *record, struct policy *against, struct policy *with,
		    struct bf_error *err);
void policy_play_print(const struct policy_play *play);
struct json_object *policy_play_json(const struct policy_play *play); /* NULL: nothing was simulated */
void policy_play_free(struct policy_play *play);

#endif
