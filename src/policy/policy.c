#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "policy/inside.h"

enum { BUDGET_NS = 200000 };

static const struct policy_options no_options;

static size_t table_bytes(void)
{
	return BELFRY_VGPUS_MAX * sizeof(struct belfry_vgpu);
}

static int map_table(struct policy *policy, struct bf_error *err)
{
	void *table = mmap(NULL, table_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
			   bpf_map__fd(policy->object.table), 0);

	if (table == MAP_FAILED)
		return bf_fail(err, errno, "its map belfry_vgpus cannot be mapped: %s", strerror(errno));
	policy->table = table;
	return 0;
}

static int load(struct policy *policy, const void *bytes, size_t size, const struct policy_options *options,
		char **log, struct bf_error *err)
{
	int rc = object_open(&policy->object, bytes, size, err);

	if (!rc)
		rc = tunables_set(policy->object.bpf, options->sets, options->set_count, err);
	if (!rc) { /* after loading, the values cannot change */
		policy->tunable_count =
			tunables_list(policy->object.bpf, policy->tunables, POLICY_TUNABLES_MAX);
		rc = object_load(&policy->object, log, err);
	}
	if (!rc)
		rc = map_table(policy, err);
	if (rc)
		return rc;
	for (int hook = 0; hook < BELFRY_HOOKS; hook++)
		policy->programs[hook] =
			policy->object.programs[hook] ? bpf_program__fd(policy->object.programs[hook]) : -1;
	policy->budget_ns = options->budget_ns ? options->budget_ns : BUDGET_NS;
	return 0;
}

static void destroy(struct policy *policy)
{
	if (policy->is_pinned)
		pin_remove(policy->object.bpf, policy->pinned);
	if (policy->table)
		munmap(policy->table, table_bytes());
	object_close(&policy->object);
	pthread_mutex_destroy(&policy->lock);
	free(policy);
}

struct policy *policy_load(const void *object, size_t bytes, const struct policy_options *options, char **log,
			   struct bf_error *err)
{
	struct policy *policy = calloc(1, sizeof(*policy));

	if (log)
		*log = NULL;
	if (!policy) {
		bf_fail(err, ENOMEM, "not enough memory");
		return NULL;
	}
	atomic_init(&policy->users, 1);
	pthread_mutex_init(&policy->lock, NULL);
	if (load(policy, object, bytes, options ? options : &no_options, log, err)) {
		destroy(policy);
		return NULL;
	}
	return policy;
}

void policy_pin(struct policy *policy, const char *folder)
{
	struct bf_error why;

	policy->is_pinned = !pin_maps(policy->object.bpf, folder, &why);
	if (policy->is_pinned)
		snprintf(policy->pinned, sizeof(policy->pinned), "%s", folder);
	else
		snprintf(policy->pinned, sizeof(policy->pinned), "not pinned: %.256s", why.text);
}

struct policy *policy_get(struct policy *policy)
{
	atomic_fetch_add_explicit(&policy->users, 1, memory_order_relaxed);
	return policy;
}

void policy_put(struct policy *policy)
{
	/* Release: this user's accesses come before destroy(). Acquire: the last user sees the accesses of
	 * all others. */
	if (policy && atomic_fetch_sub_explicit(&policy->users, 1, memory_order_acq_rel) == 1)
		destroy(policy);
}

const char *policy_name(const struct policy *policy)
{
	return policy->object.says.name;
}

const char *policy_what(const struct policy *policy)
{
	return policy->object.says.what;
}

bool policy_has(const struct policy *policy, enum belfry_hook hook)
{
	return (unsigned)hook < BELFRY_HOOKS && policy->programs[hook] >= 0;
}

struct belfry_vgpu *policy_table(const struct policy *policy)
{
	return policy->table;
}

const struct policy_tunable *policy_tunables(const struct policy *policy, size_t *count)
{
	*count = policy->tunable_count;
	return policy->tunables;
}

const char *policy_pinned(const struct policy *policy)
{
	return policy->pinned;
}
