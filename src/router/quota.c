/* Quotas of users: memory, time and vGPUs, over all GPUs. The vGPUs of the configuration are always created, and
 * count. */
#include <errno.h>
#include <unistd.h>

#include "base/units.h"
#include "router/internal.h"

enum { ASKED_S = 5 };

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
	return uid && uid != geteuid() ? of_all : NULL;
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

int router_quota_check(const struct router *router, uid_t uid, const struct spec *spec,
		       const struct router_vgpu *instead_of, struct bf_error *err)
{
	const struct config_quota *quota = quota_of(router, uid);
	uint64_t mem = 0, ppm = 0, count = 0, now_ns = bf_now_ns();
	int rc;

	if (!quota)
		return 0;
	for (const struct router_vgpu *v = router->vgpus; v; v = v->next) {
		bool is_asked = v->asked_until_ns > now_ns;

		if (v == instead_of || v->uid != uid)
			continue;
		mem += is_asked ? larger(v->spec.mem_bytes, v->asked_spec.mem_bytes) : v->spec.mem_bytes;
		ppm += is_asked ? larger(v->spec.request_ppm, v->asked_spec.request_ppm)
				: v->spec.request_ppm;
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

int router_quota_set(struct router *router, struct router_vgpu *vgpu, const struct protocol_request *request,
		     struct bf_error *err)
{
	struct spec next = vgpu->spec;
	int rc;

	spec_merge(&next, &request->spec, request->parts);
	rc = router_quota_check(router, vgpu->uid, &next, vgpu, err);
	if (rc)
		return rc;
	/* The change counts before its server reports it. */
	vgpu->asked_spec = next;
	vgpu->asked_parts = request->parts;
	vgpu->asked_until_ns = bf_now_ns() + ASKED_S * ROUTER_S;
	return 0;
}
