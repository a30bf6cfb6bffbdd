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
