#include "policy_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"
#include "skipping.h"

struct bytes read_object(const char *name)
{
	struct bytes bytes = { .at = malloc(1 << 20) };
	cleanup_file FILE *file = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/policies/%s.bpf.o", BELFRY_BUILD_DIR, name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	bytes.size = fread(bytes.at, 1, 1 << 20, file);
	assert_in_range(bytes.size, 1, (1 << 20) - 1);
	return bytes;
}

void need_ebpf(void)
{
	struct bf_error err;

	if (!policy_is_possible(&err))
		return;
	skip_case(err.text);
}

struct policy *load_object(const char *name, const struct policy_options *options)
{
	struct bytes bytes = read_object(name);
	struct policy *policy;
	struct bf_error err;
	char *log = NULL;

	policy = policy_load(bytes.at, bytes.size, options, &log, &err);
	free(bytes.at);
	if (!policy)
		fail_msg("%s: %s\n%s", name, err.text, log ? log : "");
	assert_null(log);
	return policy;
}

void assert_text_has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' does not say '%s'", text, words);
}

struct belfry_pick pick_of(uint32_t count)
{
	return (struct belfry_pick){
		.head = { .hook = BELFRY_HOOK_PICK,
			  .size = sizeof(struct belfry_pick),
			  .count = count,
			  .vgpu = BELFRY_NOBODY },
		.last = BELFRY_NOBODY,
		.choice = BELFRY_NOBODY,
	};
}

void fill_table(struct policy *policy, uint32_t count, uint32_t least)
{
	struct belfry_vgpu *table = policy_table(policy);

	for (uint32_t i = 0; i < count; i++)
		table[i] = (struct belfry_vgpu){ .id = i + 1,
						 .flags = BELFRY_MAY_HAVE,
						 .pass_ns = i == least ? -5 : 5 };
}

int call_pick(struct policy *policy, struct belfry_pick *pick)
{
	*pick = pick_of(pick->head.count);
	return policy_call(policy, BELFRY_HOOK_PICK, pick, sizeof(*pick));
}
