/* Code: PTX text, loaded once, identified by a number in an address space. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/hw/state.h"

int hw_code_new(const char *text, size_t length, const uint64_t *addresses, uint32_t count,
		struct hw_code **code, struct bf_error *err)
{
	struct hw_code *c = calloc(1, sizeof(*c));
	int rc;

	*code = NULL;
	if (!c)
		return bf_fail(err, ENOMEM, "loading code: not enough memory");
	c->count = 1;
	rc = ptx_module_load(text, length, &c->module, err);
	if (rc) {
		free(c);
		return rc;
	}
	if (count != ptx_variable_count(c->module)) {
		rc = bf_fail(err, EINVAL, "loading code: %u variable addresses instead of %u", count,
			     ptx_variable_count(c->module));
		hw_code_put(c);
		return rc;
	}
	ptx_module_place(c->module, addresses);
	*code = c;
	return 0;
}

void hw_code_put(struct hw_code *code)
{
	if (!code || __atomic_sub_fetch(&code->count, 1, __ATOMIC_ACQ_REL))
		return;
	ptx_module_free(code->module);
	free(code);
}

static struct hw_coded *find_code(struct hw_space *space, uint32_t number)
{
	for (uint32_t i = 0; i < space->code_count; i++)
		if (space->codes[i].number == number)
			return &space->codes[i];
	return NULL;
}

struct hw_code *hw_space_find_code(struct hw_space *space, uint32_t number)
{
	struct hw_coded *found = find_code(space, number);

	if (!found)
		return NULL;
	__atomic_fetch_add(&found->code->count, 1, __ATOMIC_RELAXED);
	return found->code;
}

static int add_code(struct hw_space *space, uint32_t number, struct hw_code *code)
{
	struct hw_coded *codes;

	if (find_code(space, number))
		return -EEXIST;
	codes = realloc(space->codes, (space->code_count + 1) * sizeof(*codes));
	if (!codes)
		return -ENOMEM;
	__atomic_fetch_add(&code->count, 1, __ATOMIC_RELAXED);
	codes[space->code_count++] = (struct hw_coded){ .number = number, .code = code };
	space->codes = codes;
	return 0;
}

int hw_space_add_code(struct hw_space *space, uint32_t number, struct hw_code *code)
{
	int rc;

	hw_lock(space->gpu->cores);
	rc = add_code(space, number, code);
	hw_unlock(space->gpu->cores);
	return rc;
}

void hw_space_remove_code(struct hw_space *space, uint32_t number)
{
	struct hw_code *code = NULL;
	struct hw_coded *found;

	hw_lock(space->gpu->cores);
	found = find_code(space, number);
	if (found) {
		code = found->code;
		*found = space->codes[--space->code_count];
	}
	hw_unlock(space->gpu->cores);
	hw_code_put(code); /* launches have references of their own */
}

void hw_space_drop_codes(struct hw_space *space)
{
	for (uint32_t i = 0; i < space->code_count; i++)
		hw_code_put(space->codes[i].code);
	free(space->codes);
	space->codes = NULL;
	space->code_count = 0;
}
