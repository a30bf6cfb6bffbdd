/* Tunables are `const volatile` integers, bools and enums in .rodata, located through the object's BTF. They
 * are set before the object is loaded, so that the verifier treats them as constants. */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/inside.h"

struct tunable {
	const char *name;
	uint8_t *at; /* first byte, little-endian */
	unsigned bytes;
	bool is_signed, is_bool;
};

/* The type behind typedefs and qualifiers; NULL unless it is volatile, because the compiler may have folded
 * other constants into the code. */
static const struct btf_type *behind(const struct btf *btf, __u32 id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);
	bool is_volatile = false;

	/* The limit ends the loop on cyclic types. */
	for (int i = 0; type && i < 16; i++) {
		if (!btf_is_mod(type) && !btf_is_typedef(type))
			return is_volatile ? type : NULL;
		is_volatile |= btf_is_volatile(type);
		type = btf__type_by_id(btf, type->type);
	}
	return NULL;
}

static bool read_type(const struct btf_type *type, struct tunable *tunable)
{
	if (btf_is_int(type)) {
		tunable->is_bool = btf_int_encoding(type) & BTF_INT_BOOL;
		tunable->is_signed = btf_int_encoding(type) & BTF_INT_SIGNED;
	} else if (btf_is_any_enum(type)) {
		tunable->is_signed = btf_kflag(type);
	} else {
		return false;
	}
	tunable->bytes = type->size;
	return type->size == 1 || type->size == 2 || type->size == 4 || type->size == 8;
}

struct rodata {
	const struct btf *btf;
	const struct btf_type *section;
	uint8_t *bytes;
	size_t size;
};

static bool find_rodata(struct bpf_object *bpf, struct rodata *rodata)
{
	struct bpf_map *map = bpf_object__find_map_by_name(bpf, ".rodata");
	int id;

	rodata->btf = bpf_object__btf(bpf);
	if (!map || !rodata->btf)
		return false;
	id = btf__find_by_name_kind(rodata->btf, ".rodata", BTF_KIND_DATASEC);
	/* It is writable until the object is loaded. */
	rodata->bytes = (uint8_t *)bpf_map__initial_value(map, &rodata->size);
	if (id < 0 || !rodata->bytes)
		return false;
	rodata->section = btf__type_by_id(rodata->btf, (__u32)id);
	return true;
}

/* Reads the section's i'th variable; false: it cannot be set. */
static bool tunable_at(const struct rodata *rodata, unsigned i, struct tunable *tunable)
{
	const struct btf_var_secinfo *place = btf_var_secinfos(rodata->section) + i;
	const struct btf_type *variable = btf__type_by_id(rodata->btf, place->type), *type;

	if (!variable || !btf_is_var(variable))
		return false;
	type = behind(rodata->btf, variable->type);
	*tunable = (struct tunable){ .name = btf__name_by_offset(rodata->btf, variable->name_off) };
	if (!type || !tunable->name || !says_is_word(tunable->name) || !read_type(type, tunable))
		return false;
	if (place->offset > rodata->size || tunable->bytes > rodata->size - place->offset)
		return false;
	tunable->at = rodata->bytes + place->offset;
	return true;
}

static int64_t value_of(const struct tunable *tunable)
{
	unsigned unused = 64 - 8 * tunable->bytes;
	uint64_t raw = 0;

	memcpy(&raw, tunable->at, tunable->bytes);
	return tunable->is_signed ? (int64_t)(raw << unused) >> unused : (int64_t)raw;
}

/* The base of a number: 10, or 16 after 0x. 0: invalid. A leading 0 is refused, because some readers take it
 * for octal. */
static int base_of(const char *text)
{
	text += *text == '-';
	if (text[0] != '0' || !text[1])
		return 10;
	return text[1] == 'x' || text[1] == 'X' ? 16 : 0;
}

static int parse_signed(const struct tunable *tunable, const char *text, uint64_t *raw)
{
	int64_t most = (int64_t)(~0ull >> (65 - 8 * tunable->bytes));
	long long value;
	char *end;

	errno = 0;
	value = strtoll(text, &end, base_of(text));
	if (end == text || *end)
		return -EINVAL;
	if (errno || value > most || value < -most - 1)
		return -ERANGE;
	*raw = (uint64_t)value;
	return 0;
}

static int parse_unsigned(const struct tunable *tunable, const char *text, uint64_t *raw)
{
	uint64_t most = tunable->is_bool ? 1 : ~0ull >> (64 - 8 * tunable->bytes);
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, base_of(text));
	if (end == text || *end)
		return -EINVAL;
	if (errno || value > most || *text == '-')
		return -ERANGE;
	*raw = value;
	return 0;
}

static int parse_value(const struct tunable *tunable, const char *text, uint64_t *raw)
{
	if (tunable->is_bool && (!strcmp(text, "true") || !strcmp(text, "false"))) {
		*raw = *text == 't';
		return 0;
	}
	if (strchr(" \t\n+", *text) || !base_of(text)) /* strtoll accepts leading blanks and '+' */
		return -EINVAL;
	return tunable->is_signed ? parse_signed(tunable, text, raw) : parse_unsigned(tunable, text, raw);
}

static void list_names(const struct rodata *rodata, char *to, size_t room)
{
	struct tunable tunable;
	size_t used = 0;

	to[0] = 0;
	for (unsigned i = 0; rodata->section && i < btf_vlen(rodata->section) && used < room; i++)
		if (tunable_at(rodata, i, &tunable))
			used += (size_t)snprintf(to + used, room - used, "%s%s", used ? ", " : "",
						 tunable.name);
}

static bool find_tunable(const struct rodata *rodata, const char *name, size_t length,
			 struct tunable *tunable)
{
	for (unsigned i = 0; rodata->section && i < btf_vlen(rodata->section); i++)
		if (tunable_at(rodata, i, tunable) && strlen(tunable->name) == length &&
		    !memcmp(tunable->name, name, length))
			return true;
	return false;
}

static int refuse_name(const struct rodata *rodata, const char *set, size_t length, struct bf_error *err)
{
	char known[256];

	list_names(rodata, known, sizeof(known));
	if (!known[0])
		return bf_fail(err, ENOENT, "'%.*s' cannot be set: this policy has no tunables", (int)length,
			       set);
	return bf_fail(err, ENOENT, "'%.*s' cannot be set: this policy has %s", (int)length, set, known);
}

static int set_one(const struct rodata *rodata, const char *set, struct bf_error *err)
{
	const char *equals = strchr(set, '=');
	struct tunable tunable;
	uint64_t raw = 0;
	int rc;

	if (!equals || equals == set)
		return bf_fail(err, EINVAL, "'%.64s': not NAME=VALUE", set);
	if (!find_tunable(rodata, set, (size_t)(equals - set), &tunable))
		return refuse_name(rodata, set, equals - set > 64 ? 64 : (size_t)(equals - set), err);
	rc = parse_value(&tunable, equals + 1, &raw);
	if (rc == -ERANGE)
		return bf_fail(err, ERANGE, "'%.64s': %s is %s of %u bits; the value does not fit", set,
			       tunable.name, tunable.is_signed ? "a signed number" : "a number",
			       tunable.is_bool ? 1 : 8 * tunable.bytes);
	if (rc)
		return bf_fail(err, EINVAL, "'%.64s': not a whole number, such as 10 or 0xa%s", set,
			       tunable.is_bool ? ", nor true or false" : "");
	memcpy(tunable.at, &raw, tunable.bytes);
	return 0;
}

/* More tunables could be set, but policy_tunables could not list them. */
static int check_count(const struct rodata *rodata, struct bf_error *err)
{
	struct tunable tunable;
	unsigned count = 0;

	for (unsigned i = 0; rodata->section && i < btf_vlen(rodata->section); i++)
		count += tunable_at(rodata, i, &tunable);
	if (count > POLICY_TUNABLES_MAX)
		return bf_fail(err, E2BIG, "it has %u tunables; the maximum is %d", count,
			       POLICY_TUNABLES_MAX);
	return 0;
}

int tunables_set(struct bpf_object *bpf, const char *const *sets, size_t count, struct bf_error *err)
{
	struct rodata rodata = { 0 };
	int rc;

	if (!find_rodata(bpf, &rodata))
		rodata.section = NULL;
	rc = check_count(&rodata, err);
	for (size_t i = 0; i < count && !rc; i++)
		rc = set_one(&rodata, sets[i], err);
	return rc;
}

size_t tunables_list(struct bpf_object *bpf, struct policy_tunable *to, size_t room)
{
	struct rodata rodata = { 0 };
	struct tunable tunable;
	size_t count = 0;

	if (!find_rodata(bpf, &rodata))
		return 0;
	for (unsigned i = 0; i < btf_vlen(rodata.section) && count < room; i++) {
		if (!tunable_at(&rodata, i, &tunable))
			continue;
		to[count] = (struct policy_tunable){ .bytes = tunable.bytes,
						     .is_signed = tunable.is_signed,
						     .value = value_of(&tunable) };
		snprintf(to[count].name, sizeof(to[count].name), "%s", tunable.name);
		count++;
	}
	return count;
}
