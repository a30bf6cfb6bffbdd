/* Print what belfryd reports about a policy besides its hooks. Fields that an older belfryd does not send are
 * left out. */
#include <stdio.h>

#include "cli/policy.h"
#include "cli/report.h"

static void tell_tunables(struct json_object *tunables)
{
	struct json_object_iterator at, end;

	if (!json_object_is_type(tunables, json_type_object) || !json_object_object_length(tunables))
		return;
	printf("  tunables:");
	at = json_object_iter_begin(tunables);
	end = json_object_iter_end(tunables);
	for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
		printf(" %s=%s", json_object_iter_peek_name(&at),
		       json_object_get_string(json_object_iter_peek_value(&at)));
	printf("\n");
}

static void tell_unasked(struct json_object *hooks)
{
	if (!json_object_is_type(hooks, json_type_array) || !json_object_array_length(hooks))
		return;
	printf("  never asked of a vGPU's own policy:");
	for (size_t i = 0; i < json_object_array_length(hooks); i++)
		printf(" %s", report_text(json_object_array_get_idx(hooks, i), "", "?"));
	printf("\n");
}

void policy_about(struct json_object *policy)
{
	const char *pinned = report_text(policy, "pinned", "");

	tell_unasked(report_at(policy, "unasked"));
	tell_tunables(report_at(policy, "tunables"));
	if (pinned[0])
		printf("  maps: %s\n", pinned);
}
