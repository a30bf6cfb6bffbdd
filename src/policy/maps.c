#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "policy/inside.h"

const char *maps_type_name(enum bpf_map_type type)
{
	switch (type) {
	case BPF_MAP_TYPE_ARRAY:
		return "array";
	case BPF_MAP_TYPE_HASH:
		return "hash";
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return "percpu array";
	case BPF_MAP_TYPE_PERCPU_HASH:
		return "percpu hash";
	case BPF_MAP_TYPE_LRU_HASH:
		return "lru hash";
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
		return "percpu lru hash";
	case BPF_MAP_TYPE_RINGBUF:
		return "ringbuf";
	case BPF_MAP_TYPE_QUEUE:
		return "queue";
	case BPF_MAP_TYPE_STACK:
		return "stack";
	default:
		return NULL;
	}
}

static bool is_percpu(enum bpf_map_type type)
{
	return type == BPF_MAP_TYPE_PERCPU_ARRAY || type == BPF_MAP_TYPE_PERCPU_HASH ||
	       type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

/* An estimate of the memory that the kernel allocates for the map. */
static uint64_t map_bytes(const struct bpf_map *map)
{
	enum { PER_ENTRY = 48 }; /* overhead of a hash map entry */
	uint64_t bytes, value = bpf_map__value_size(map);

	if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF)
		return bpf_map__max_entries(map);
	if (is_percpu(bpf_map__type(map))) {
		int cpus = libbpf_num_possible_cpus();

		value *= cpus > 0 ? (uint64_t)cpus : 1;
	}
	bytes = bpf_map__type(map) == BPF_MAP_TYPE_ARRAY ? 0 : PER_ENTRY;
	if (__builtin_mul_overflow(value + bytes + bpf_map__key_size(map), bpf_map__max_entries(map), &bytes))
		return UINT64_MAX;
	return bytes;
}

static int check_one(const struct bpf_map *map, uint64_t *left, struct bf_error *err)
{
	const char *name = bpf_map__name(map);
	uint64_t bytes = map_bytes(map);

	if (!says_is_word(name))
		return bf_fail(err, EINVAL, "it is damaged: a map's name is invalid; compile it again");
	if (!maps_type_name(bpf_map__type(map)))
		return bf_fail(
			err, EPERM,
			"map %s: type %d is not allowed; use an array, hash, queue, stack or ring buffer",
			name, (int)bpf_map__type(map));
	if (bpf_map__pin_path(map))
		return bf_fail(err, EPERM, "map %s: remove 'pinning'; Belfry pins all maps itself", name);
	if (bpf_map__ifindex(map))
		return bf_fail(err, EPERM, "map %s: it is for a network device", name);
	if (bytes > *left)
		return bf_fail(err, EFBIG,
			       "map %s: the maps are too large; the maximum for all maps is %d MiB", name,
			       POLICY_MAP_BYTES_MAX >> 20);
	*left -= bytes;
	return 0;
}

static int check_table(const struct bpf_map *table, struct bf_error *err)
{
	if (!table || bpf_map__is_internal(table))
		return bf_fail(err, EINVAL, "it has no map belfry_vgpus; include belfry/policy.h");
	if (bpf_map__type(table) != BPF_MAP_TYPE_ARRAY || bpf_map__key_size(table) != sizeof(__u32) ||
	    bpf_map__value_size(table) != sizeof(struct belfry_vgpu) ||
	    bpf_map__max_entries(table) != BELFRY_VGPUS_MAX || bpf_map__map_flags(table) != BPF_F_MMAPABLE)
		return bf_fail(err, EINVAL,
			       "its map belfry_vgpus differs from that of belfry/policy.h; do not change it");
	return 0;
}

int maps_check(struct bpf_object *bpf, struct bpf_map **table, struct bf_error *err)
{
	uint64_t left = POLICY_MAP_BYTES_MAX;
	unsigned count = 0;
	struct bpf_map *map;

	*table = bpf_object__find_map_by_name(bpf, "belfry_vgpus");
	bpf_object__for_each_map(map, bpf)
	{
		int rc = check_one(map, &left, err);

		if (rc)
			return rc;
		count++;
	}
	if (count > POLICY_MAPS_MAX)
		return bf_fail(err, E2BIG, "it has %u maps; the maximum is %d", count, POLICY_MAPS_MAX);
	return check_table(*table, err);
}
