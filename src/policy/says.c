#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "policy/inside.h"

/* The name is used as a file name, as a word of the command line and as a metrics label. */
static bool is_name(const char *name)
{
	size_t length = strnlen(name, BELFRY_NAME_SIZE);

	if (!length || length == BELFRY_NAME_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && !(i && strchr("-_", name[i])))
			return false;
	return true;
}

bool says_is_word(const char *text)
{
	for (const char *at = text; *at; at++)
		if (*at <= ' ' || *at > '~')
			return false;
	return *text;
}

int says_read(const void *bytes, size_t size, struct belfry_policy *says, struct bf_error *err)
{
	size_t section_bytes = 0;
	const void *section = elf_section(bytes, size, ".rodata.belfry", &section_bytes);

	if (!section)
		return bf_fail(err, EINVAL, "it has no policy header; add BELFRY_POLICY(name, what)");
	if (section_bytes < 2 * sizeof(__u32))
		return bf_fail(err, EINVAL, "its policy header is damaged; compile it again");
	*says = (struct belfry_policy){ 0 };
	memcpy(says, section, section_bytes < sizeof(*says) ? section_bytes : sizeof(*says));
	if (says->magic != BELFRY_POLICY_MAGIC)
		return bf_fail(err, EINVAL, "its policy header is damaged; compile it again");
	if (says->abi != BELFRY_POLICY_ABI)
		return bf_fail(
			err, EPROTO,
			"it was compiled for policy ABI %u, and this Belfry has %u; compile it with this release's belfry/policy.h",
			says->abi, BELFRY_POLICY_ABI);
	if (section_bytes < sizeof(*says) || says->vgpu_size != sizeof(struct belfry_vgpu) ||
	    says->head_size != sizeof(struct belfry_head) || says->pick_size != sizeof(struct belfry_pick) ||
	    says->tick_size != sizeof(struct belfry_tick))
		return bf_fail(
			err, EPROTO,
			"the sizes of its structures differ from this Belfry's; compile it with this release's belfry/policy.h");
	if (!is_name(says->name))
		return bf_fail(err, EINVAL,
			       "its name is invalid; use letters, digits, '-' and '_', at most %d of them",
			       BELFRY_NAME_SIZE - 1);
	if (!bf_is_line(says->what, sizeof(says->what)))
		return bf_fail(err, EINVAL, "its description is not one line of printable ASCII");
	return 0;
}
