/* Quotas of users: memory, time and vGPUs, over all GPUs. The vGPUs of the configuration are always created, and
 * count. */
#include <errno.h>
#include <unistd.h>

#include "base/process.h"
#include "base/units.h"
#include "router/internal.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The quota of the user, or that of [user *], which does not apply to root and the user of belfryd. */
static const struct config_quota *quota_of(const struct router *router, uid_t uid)
{
	const struct config_quota *of_all = NULL;

	for (size_t i = 0; i < router->config.quota_count; i++) {
		const struct config_quota *quota = &router->config.quotas[i];

		if (quota->is_of_all)
			of_all = quota;
		else if (quota->uid == uid)
			return quota;
	}
	return bf_is_admin(uid) ? NULL : of_all;
}

static int check_mem(const struct config_quota *quota, uint64_t others, uint64_t bytes, struct bf_error *err)
{
	char want[24], all[24], used[24];

	if (!quota->mem_bytes)
		return 0;
	bf_format_size(quota->mem_bytes, all, sizeof(all));
	if (!bytes)
		return bf_fail(err, EDQUOT, "a vGPU without --mem: the user may have %s; say how much of it",
			       all);
	if (others <= quota->mem_bytes && bytes <= quota->mem_bytes - others)
		return 0;
	return bf_fail(
		err, EDQUOT, "memory %s: over the quota of %s, of which other vGPUs of the user have %s",
		bf_format_size(bytes, want, sizeof(want)), all, bf_format_size(others, used, sizeof(used)));
}

/* What the vGPU counts for the user. A request for its name counts, too: it may be granted. False: nothing. */
static bool counts(const struct router_vgpu *vgpu, uid_t uid, uint64_t *mem, uint64_t *ppm)
{
	bool is_own = vgpu->uid == uid, is_claimed = vgpu->is_claimed && vgpu->claim_uid == uid;

	*mem = is_own ? larger(vgpu->spec.mem_bytes, vgpu->asked_mem_bytes) : 0;
	*ppm = is_own ? larger(vgpu->spec.request_ppm, vgpu->asked_ppm) : 0;
	if (is_claimed) {
		*mem = larger(*mem, vgpu->claim_spec.mem_bytes);
		*ppm = larger(*ppm, vgpu->claim_spec.request_ppm);
	}
	return is_own || is_claimed;
}

int router_quota_check(const struct router *router, uid_t uid, const struct spec *spec,
		       const struct router_vgpu *instead_of, struct bf_error *err)
{
	const struct config_quota *quota = quota_of(router, uid);
	uint64_t mem = 0, ppm = 0, count = 0, its_mem, its_ppm;
	int rc;

	if (!quota)
		return 0;
	for (const struct router_vgpu *v = router->vgpus; v; v = v->next) {
		if (v == instead_of || !counts(v, uid, &its_mem, &its_ppm))
			continue;
		mem += its_mem;
		ppm += its_ppm;
		count++;
	}
	if (quota->has_vgpus && !instead_of && count >= quota->vgpus)
		return bf_fail(err, EDQUOT, "over the quota: the user has %llu vGPUs and may have %u",
			       (unsigned long long)count, quota->vgpus);
	rc = check_mem(quota, mem, spec->mem_bytes, err);
	if (rc || !quota->has_time || ppm + spec->request_ppm <= quota->request_ppm)
		return rc;
	return bf_fail(
		err, EDQUOT,
		"%.4g %% of the time: over the quota of %.4g %%, of which other vGPUs of the user have %.4g %%",
		spec->request_ppm / 1e4, quota->request_ppm / 1e4, (double)ppm / 1e4);
}

int router_quota_set(struct router *router, struct router_vgpu *vgpu, struct router_ask *ask,
		     struct bf_error *err)
{
	const struct protocol_request *request = &ask->message.request;
	struct spec next = vgpu->spec;
	int rc;

	spec_merge(&next, &request->spec, request->parts);
	rc = router_quota_check(router, vgpu->uid, &next, vgpu, err);
	if (rc)
		return rc;
	ask->serial = vgpu->serial;
	vgpu->sets++;
	vgpu->asked_mem_bytes = larger(vgpu->asked_mem_bytes, next.mem_bytes);
	vgpu->asked_ppm = larger(vgpu->asked_ppm, next.request_ppm);
	vgpu->asked_parts |= request->parts;
	return 0;
}

void router_quota_settled(const struct router *router, const struct router_ask *ask)
{
	struct router_vgpu *vgpu = ask->serial ? router_vgpu_find(router, ask->message.request.name) : NULL;

	if (!vgpu || vgpu->serial != ask->serial || --vgpu->sets)
		return;
	vgpu->asked_mem_bytes = vgpu->asked_ppm = 0;
	vgpu->asked_parts = 0;
}
