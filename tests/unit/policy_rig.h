/* Objects of tests/policies, loaded and called, for the policy tests. */
#ifndef BELFRY_TESTS_POLICY_RIG_H
#define BELFRY_TESTS_POLICY_RIG_H

#include "policy/policy.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct bytes {
	uint8_t *at;
	size_t size;
};

struct bytes read_object(const char *name);
/* Skips the test where the kernel takes no eBPF from us. */
void need_ebpf(void);
/* Loaded, or the test fails with the reason. */
struct policy *load_object(const char *name, const struct policy_options *options);
void assert_text_has(const char *text, const char *words);

struct belfry_pick pick_of(uint32_t count);
/* All may have the token, and this one is furthest behind. */
void fill_table(struct policy *policy, uint32_t count, uint32_t least);
int call_pick(struct policy *policy, struct belfry_pick *pick);

#endif
