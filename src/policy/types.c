/* libbpf 1.1 follows BTF type references without checking them: an invalid type ID crashes it, and a cycle of
 * qualifiers makes it loop forever. So every reference is checked first. */
#include <bpf/btf.h>
#include <errno.h>

#include "policy/inside.h"

enum { CHAIN_MOST = 32 };

static bool is_there(const struct btf *btf, __u32 id)
{
	return id < btf__type_cnt(btf);
}

static bool is_name_there(const struct btf *btf, __u32 offset)
{
	return btf__str_by_offset(btf, offset) != NULL;
}

static bool are_members_sane(const struct btf *btf, const struct btf_type *type)
{
	const struct btf_member *member = btf_members(type);

	for (int i = 0; i < btf_vlen(type); i++)
		if (!is_there(btf, member[i].type) || !is_name_there(btf, member[i].name_off))
			return false;
	return true;
}

static bool are_params_sane(const struct btf *btf, const struct btf_type *type)
{
	const struct btf_param *param = btf_params(type);

	for (int i = 0; i < btf_vlen(type); i++)
		if (!is_there(btf, param[i].type) || !is_name_there(btf, param[i].name_off))
			return false;
	return is_there(btf, type->type);
}

static bool are_places_sane(const struct btf *btf, const struct btf_type *type)
{
	const struct btf_var_secinfo *place = btf_var_secinfos(type);

	for (int i = 0; i < btf_vlen(type); i++)
		if (!is_there(btf, place[i].type))
			return false;
	return true;
}

/* Whether a chain of qualifiers and typedefs ends. */
static bool does_end(const struct btf *btf, const struct btf_type *type)
{
	for (int i = 0; i < CHAIN_MOST; i++) {
		if (!btf_is_mod(type) && !btf_is_typedef(type))
			return true;
		if (!is_there(btf, type->type))
			return false;
		type = btf__type_by_id(btf, type->type);
	}
	return false;
}

static bool is_sane(const struct btf *btf, const struct btf_type *type)
{
	if (!is_name_there(btf, type->name_off))
		return false;
	switch (btf_kind(type)) {
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return are_members_sane(btf, type);
	case BTF_KIND_FUNC_PROTO:
		return are_params_sane(btf, type);
	case BTF_KIND_DATASEC:
		return are_places_sane(btf, type);
	case BTF_KIND_ARRAY:
		return is_there(btf, btf_array(type)->type) && is_there(btf, btf_array(type)->index_type);
	case BTF_KIND_PTR:
	case BTF_KIND_VAR:
	case BTF_KIND_FUNC:
	case BTF_KIND_DECL_TAG:
		return is_there(btf, type->type);
	default:
		return does_end(btf, type);
	}
}

static bool are_all_sane(const struct btf *btf)
{
	for (__u32 id = 1; id < btf__type_cnt(btf); id++)
		if (!is_sane(btf, btf__type_by_id(btf, id)))
			return false;
	return true;
}

int types_check(const void *bytes, size_t size, struct bf_error *err)
{
	size_t section_bytes = 0;
	const void *section = elf_section(bytes, size, ".BTF", &section_bytes);
	struct log_kept kept;
	struct btf *btf;
	bool is_fine;

	if (!section)
		return bf_fail(err, EINVAL, "it has no types (BTF); compile it with clang -g");
	log_keep(&kept);
	btf = btf__new(section, (__u32)section_bytes);
	log_keep(NULL);
	is_fine = btf && are_all_sane(btf);
	btf__free(btf);
	if (!is_fine)
		return bf_fail(err, EINVAL, "it is damaged: its types (BTF) are invalid; compile it again");
	return 0;
}
