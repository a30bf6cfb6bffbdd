/* Checks the policy of the configuration against the object that it names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/policy_file.h"
#include "policy/policy.h"
#include "router/config.h"

/* The object, and the tunables to set. */
struct wanted {
	const struct config *config;
	struct policy_file file;
	char text[sizeof(((struct settings *)0)->policy_set)];
	const char *sets[POLICY_FILE_SETS_MAX];
	size_t set_count;
};

static int fail_policy(const struct wanted *wanted, const struct bf_error *why, struct bf_error *err)
{
	const struct config *config = wanted->config;
	struct bf_error said;

	bf_fail(&said, why->code, "policy %.100s: %.250s", config->sharing.policy, why->text);
	return config_fail_at(config, config->policy_file, config->policy_line, &said, err);
}

static int fail_set(const struct wanted *wanted, const struct bf_error *why, struct bf_error *err)
{
	const struct config *config = wanted->config;
	struct bf_error said;

	bf_fail(&said, why->code, "policy_set: %.300s", why->text);
	return config_fail_at(config, config->policy_set_file, config->policy_set_line, &said, err);
}

/* Whether the kernel's verifier accepts the policy. Not checked if this process may not load eBPF. */
static int check_verified(const struct wanted *wanted, struct bf_error *err)
{
	struct policy_options options = { .sets = wanted->sets, .set_count = wanted->set_count };
	struct bf_error why = { 0 };
	struct policy *policy;

	if (policy_is_possible(NULL))
		return 0;
	policy = policy_load(wanted->file.bytes, wanted->file.size, &options, NULL, &why);
	if (!policy)
		return fail_policy(wanted, &why, err);
	policy_put(policy);
	return 0;
}

static int check_object(const struct wanted *wanted, bool may_load, struct bf_error *err)
{
	struct policy_description description;
	struct bf_error why = { 0 };

	if (policy_describe(wanted->file.bytes, wanted->file.size, NULL, 0, &description, &why))
		return fail_policy(wanted, &why, err);
	if (policy_describe(wanted->file.bytes, wanted->file.size, wanted->sets, wanted->set_count,
			    &description, &why))
		return fail_set(wanted, &why, err);
	return may_load ? check_verified(wanted, err) : 0;
}

int config_check_policy(const struct config *config, bool may_load, struct bf_error *err)
{
	struct wanted wanted = { .config = config };
	struct bf_error why = { 0 }, unread = { 0 };
	int rc;

	memcpy(wanted.text, config->sharing.policy_set, sizeof(wanted.text));
	wanted.set_count = policy_file_sets(wanted.text, " \t", wanted.sets);
	/* A drop-in with policy = built-in overrides policy_set of earlier files. */
	if (!config->sharing.policy[0] &&
	    (!wanted.set_count || config->policy_set_file < config->policy_file))
		return 0;
	if (!config->sharing.policy[0]) {
		bf_fail(&why, EINVAL, "the built-in has nothing to set; write policy = NAME, too");
		return fail_set(&wanted, &why, err);
	}
	if (policy_file_read(config->sharing.policy, &wanted.file, &unread)) {
		bf_fail(&why, unread.code, "policy %.350s", unread.text);
		return config_fail_at(config, config->policy_file, config->policy_line, &why, err);
	}
	rc = check_object(&wanted, may_load, err);
	free(wanted.file.bytes);
	return rc;
}
