/* Maps of a policy that have what probes have counted. The object names them in section .rodata.belfry_maps. */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/file.h"
#include "policy/inside.h"

enum { KEY_BYTES_MAX = 64, VALUE_BYTES_MAX = 512, VGPU_BYTES = sizeof(__u64) };

static bool is_word(const char *text, size_t room)
{
	return strnlen(text, room) < room && says_is_word(text);
}

static int check(const struct policy_binding *binding, const struct bpf_map *map, struct bf_error *err)
{
	if (!map || bpf_map__is_internal(map) || bpf_map__type(map) != BPF_MAP_TYPE_HASH)
		return bf_fail(err, EINVAL, "map %s: it is not a hash; use BELFRY_PROBE_MAP", binding->map);
	if (bpf_map__key_size(map) <= VGPU_BYTES || bpf_map__key_size(map) > VGPU_BYTES + KEY_BYTES_MAX ||
	    !bpf_map__value_size(map) || bpf_map__value_size(map) % sizeof(__u64) ||
	    bpf_map__value_size(map) > VALUE_BYTES_MAX)
		return bf_fail(err, EINVAL,
			       "map %s: a map of a probe has keys of at most %d bytes, and values that are "
			       "arrays of __u64, of at most %d bytes",
			       binding->map, KEY_BYTES_MAX, VALUE_BYTES_MAX);
	if (bpf_map__max_entries(map) > POLICY_BOUND_MAX)
		return bf_fail(err, EFBIG, "map %s: a map of a probe has at most %d entries", binding->map,
			       POLICY_BOUND_MAX);
	return 0;
}

int bindings_read(struct object *object, const void *bytes, size_t size, struct bf_error *err)
{
	size_t section_bytes = 0;
	const char *section = elf_section(bytes, size, ".rodata.belfry_maps", &section_bytes);
	size_t count = section ? section_bytes / sizeof(struct belfry_probe_map) : 0;

	if (section_bytes % sizeof(struct belfry_probe_map) || count > POLICY_BINDINGS_MAX)
		return bf_fail(err, EINVAL, "it has more than %d maps of probes, or is damaged",
			       POLICY_BINDINGS_MAX);
	for (size_t i = 0; i < count; i++) {
		struct policy_binding *binding = &object->bindings[i];
		struct belfry_probe_map is;
		struct bpf_map *map;
		int rc;

		memcpy(&is, section + i * sizeof(is), sizeof(is));
		if (!is_word(is.map, sizeof(is.map)) || !is_word(is.probe, sizeof(is.probe)) ||
		    !is_word(is.probe_map, sizeof(is.probe_map)))
			return bf_fail(err, EINVAL, "the name of a map of a probe is damaged");
		memcpy(binding->map, is.map, sizeof(is.map));
		memcpy(binding->probe, is.probe, sizeof(is.probe));
		memcpy(binding->probe_map, is.probe_map, sizeof(is.probe_map));
		map = bpf_object__find_map_by_name(object->bpf, binding->map);
		rc = check(binding, map, err);
		if (rc)
			return rc;
		binding->key_bytes = bpf_map__key_size(map) - VGPU_BYTES;
		binding->value_bytes = bpf_map__value_size(map);
		binding->max_entries = bpf_map__max_entries(map);
		object->bound[i] = map;
	}
	object->binding_count = count;
	return 0;
}

const struct policy_binding *policy_bindings(const struct policy *policy, size_t *count)
{
	*count = policy->object.binding_count;
	return policy->object.bindings;
}

struct wanted {
	const char *entries;
	size_t count, stride, key_bytes;
};

static bool is_wanted(const struct wanted *wanted, const void *key)
{
	size_t low = 0, high = wanted->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = memcmp(key, wanted->entries + middle * wanted->stride, wanted->key_bytes);

		if (!order)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

/* Deletes entries of the vGPU that are not wanted. Programs of the policy can change the map meanwhile, which may begin the
 * walk again, so its length is limited. */
static void delete_others(int map, uint64_t vgpu, const struct wanted *wanted)
{
	char key[VGPU_BYTES + KEY_BYTES_MAX], next[sizeof(key)];
	bool has_next = !bpf_map_get_next_key(map, NULL, next);

	for (unsigned i = 0; has_next && i < 2 * POLICY_BOUND_MAX; i++) {
		memcpy(key, next, VGPU_BYTES + wanted->key_bytes);
		has_next = !bpf_map_get_next_key(map, key, next);
		if (!memcmp(key, &vgpu, VGPU_BYTES) && !is_wanted(wanted, key + VGPU_BYTES))
			bpf_map_delete_elem(map, key);
	}
}

size_t policy_bound_set(struct policy *policy, size_t binding, uint64_t vgpu, const void *entries,
			size_t count)
{
	const struct policy_binding *is = &policy->object.bindings[binding];
	const struct wanted wanted = { entries, count, is->key_bytes + is->value_bytes, is->key_bytes };
	int map = bpf_map__fd(policy->object.bound[binding]);
	char key[VGPU_BYTES + KEY_BYTES_MAX];
	size_t there = 0;

	delete_others(map, vgpu, &wanted);
	for (size_t i = 0; i < count; i++) {
		const char *entry = wanted.entries + i * wanted.stride;

		memcpy(key, &vgpu, VGPU_BYTES);
		memcpy(key + VGPU_BYTES, entry, is->key_bytes);
		there += !bpf_map_update_elem(map, key, entry + is->key_bytes, BPF_ANY);
	}
	return there;
}
