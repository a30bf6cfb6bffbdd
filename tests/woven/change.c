/* Weaves every probe of probes/ into each text that a test of tests/unit loads. BELFRY_WOVEN: "warp": as they are;
 * "thread": every program runs once for each thread, and accesses are sampled. */
#include <stdlib.h>
#include <string.h>

#include "weave_rig.h"

static struct probe *probes[SHIPPED];

static char *change(struct rig *rig, const char *text)
{
	bool is_thread = !strcmp(getenv("BELFRY_WOVEN"), "thread");
	struct weave_probe list[SHIPPED];
	struct weave_result result;
	struct bf_error err;
	char *woven;

	for (unsigned i = 0; i < SHIPPED; i++) {
		if (!probes[i])
			probes[i] = weave_rig_probe("probes", shipped_names[i]);
		list[i] = (struct weave_probe){ .probe = probes[i],
						.area = weave_rig_area(rig, probes[i]),
						.is_per_thread = is_thread,
						.period = is_thread ? 3 : 1 };
	}
	/* Tests of what the loader refuses: there is nothing to weave. */
	if (weave_text(text, strlen(text), list, SHIPPED, &result, &err))
		return NULL;
	woven = result.text;
	result.text = NULL;
	weave_result_free(&result);
	return woven;
}

__attribute__((constructor)) static void start(void)
{
	if (getenv("BELFRY_WOVEN"))
		rig_change_text = change;
}
