#include "router/promises.h"

#include <errno.h>

#include "base/units.h"

static int refuse(const struct router_room *room, const struct spec *spec, struct bf_error *err)
{
	char want[24], left[24], all[24];

	if (spec->mem_bytes > room->mem_bytes)
		return bf_fail(err, ERANGE, "memory %s: larger than %s, which has %s",
			       bf_format_size(spec->mem_bytes, want, sizeof(want)), room->label,
			       bf_format_size(room->mem_bytes, all, sizeof(all)));
	if (spec->mem_bytes > room->mem_free_bytes)
		return bf_fail(
			err, ENOSPC,
			"memory %s cannot be reserved: of the %s of %s, %s are not reserved for other vGPUs",
			bf_format_size(spec->mem_bytes, want, sizeof(want)),
			bf_format_size(room->mem_bytes, all, sizeof(all)), room->label,
			bf_format_size(room->mem_free_bytes, left, sizeof(left)));
	return bf_fail(
		err, ENOSPC,
		"a requested share of %.4g %% of the time of %s does not fit: %.4g %% are left by other vGPUs",
		spec->request_ppm / 1e4, room->label, room->free_ppm / 1e4);
}

static int take(struct router_room *rooms, unsigned count, int at, const struct spec *spec,
		struct bf_error *err)
{
	if (at == PROMISES_ANYWHERE)
		at = router_place(rooms, count, spec, err);
	if (at < 0)
		return at;
	if (spec->mem_bytes > rooms[at].mem_free_bytes || spec->request_ppm > rooms[at].free_ppm)
		return refuse(&rooms[at], spec, err);
	rooms[at].mem_free_bytes -= spec->mem_bytes;
	rooms[at].free_ppm -= spec->request_ppm;
	return 0;
}

int promises_check(const struct config *config, struct router_room *rooms, unsigned count,
		   promises_where where, void *context, struct bf_error *err)
{
	/* vGPUs that may be on any GPU come last. */
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < config->vgpu_count; i++) {
			const struct config_vgpu *vgpu = &config->vgpus[i];
			struct spec spec = vgpu->spec;
			struct bf_error why = { 0 }, named = { 0 };
			int at = where(context, vgpu, &spec);

			if (at == PROMISES_UNKNOWN || (at == PROMISES_ANYWHERE) != (pass == 1) ||
			    take(rooms, count, at, &spec, &why) >= 0)
				continue;
			bf_fail(&named, why.code, "vgpu '%s': %.400s", vgpu->name, why.text);
			return config_fail_at(config, vgpu->file, vgpu->line, &named, err);
		}
	return 0;
}
