/* Domains. A domain belongs to the owner of its vGPUs: the same name used by two users means two domains, unless
 * public_domains in the configuration lists the name. All functions are called with the lock held. */
#include <errno.h>
#include <string.h>

#include "gpu/gpu.h"

static bool is_public(const struct gpu *gpu, const char *domain)
{
	const char *at = gpu->settings.public_domains;
	size_t length = strlen(domain);

	while (*at) {
		size_t word = strcspn(at, " ");

		if (word == length && !memcmp(at, domain, word))
			return true;
		at += word;
		at += strspn(at, " ");
	}
	return false;
}

int domain_check(const struct gpu *gpu, const char *domain, uid_t owner, struct bf_error *err)
{
	if (!domain[0] || is_public(gpu, domain))
		return 0;
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->owner != owner && !strcmp(v->spec.domain, domain))
			return bf_fail(
				err, EPERM,
				"domain '%s': belongs to user %u; choose another name, or have it listed in "
				"public_domains of belfryd.conf",
				domain, v->owner);
	return 0;
}

static bool is_taken(const struct gpu *gpu, uint32_t number)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->domain == number)
			return true;
	return false;
}

/* Numbers are assigned, not computed: two names with the same hash would be one domain. */
uint32_t domain_number(struct gpu *gpu, const struct vgpu *self, const char *domain, uid_t owner)
{
	if (!domain[0])
		return 0;
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v != self && v->domain && !strcmp(v->spec.domain, domain) &&
		    (v->owner == owner || is_public(gpu, domain)))
			return v->domain;
	do
		gpu->next_domain++;
	while (!gpu->next_domain || is_taken(gpu, gpu->next_domain));
	return gpu->next_domain;
}

void domains_renumber(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		v->domain = 0;
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		struct sched_share share;

		v->domain = domain_number(gpu, v, v->spec.domain, v->owner);
		if (!v->domain)
			continue;
		share = gpu_sched_share(&v->spec, v->domain);
		sched_set(gpu->sched, v->sched, &share, bf_now_ns());
		work_share(v);
	}
}

static bool is_of(const struct vgpu *vgpu, const char *domain, uid_t owner)
{
	return domain[0] && vgpu->owner == owner && !strcmp(vgpu->spec.domain, domain);
}

bool domain_is_shared(const struct gpu *gpu, const char *domain, uid_t owner)
{
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (is_of(v, domain, owner) && spec_has_sm(&v->spec))
			return true;
	return false;
}

bool vgpu_is_shared(const struct vgpu *vgpu)
{
	return domain_is_shared(vgpu->gpu, vgpu->spec.domain, vgpu->owner);
}

int domain_check_sm(const struct gpu *gpu, const struct vgpu *self, const struct spec *spec, uid_t owner,
		    struct bf_error *err)
{
	uint64_t others_ppm = 0, sum_ppm;

	if (!spec->sm_request_ppm)
		return 0;
	for (const struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v != self && is_of(v, spec->domain, owner))
			others_ppm += v->spec.sm_request_ppm;
	sum_ppm = others_ppm + spec->sm_request_ppm;
	if (sum_ppm <= SPEC_WHOLE_PPM)
		return 0;
	return bf_fail(
		err, ENOSPC,
		"%.7g %% of the SMs cannot be reserved: the other vGPUs of domain '%s' request %.7g %%, and "
		"%.7g %% is more than 100 %%",
		spec->sm_request_ppm / 1e4, spec->domain, (double)others_ppm / 1e4, (double)sum_ppm / 1e4);
}
