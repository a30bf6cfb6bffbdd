/* Modules: loading, freeing and queries. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/ptx/load.h"

static const struct {
	const char *name;
	uint32_t bytes;
} types[PTX_TYPE_COUNT] = {
	[PTX_TYPE_B8] = { "b8", 1 },	   [PTX_TYPE_U8] = { "u8", 1 },
	[PTX_TYPE_S8] = { "s8", 1 },	   [PTX_TYPE_B16] = { "b16", 2 },
	[PTX_TYPE_U16] = { "u16", 2 },	   [PTX_TYPE_S16] = { "s16", 2 },
	[PTX_TYPE_B32] = { "b32", 4 },	   [PTX_TYPE_U32] = { "u32", 4 },
	[PTX_TYPE_S32] = { "s32", 4 },	   [PTX_TYPE_B64] = { "b64", 8 },
	[PTX_TYPE_U64] = { "u64", 8 },	   [PTX_TYPE_S64] = { "s64", 8 },
	[PTX_TYPE_F16] = { "f16", 2 },	   [PTX_TYPE_BF16] = { "bf16", 2 },
	[PTX_TYPE_F16X2] = { "f16x2", 4 }, [PTX_TYPE_BF16X2] = { "bf16x2", 4 },
	[PTX_TYPE_U16X2] = { "u16x2", 4 }, [PTX_TYPE_S16X2] = { "s16x2", 4 },
	[PTX_TYPE_F32] = { "f32", 4 },	   [PTX_TYPE_F64] = { "f64", 8 },
	[PTX_TYPE_PRED] = { "pred", 0 },   [PTX_TYPE_F32Z] = { NULL, 4 },
};

uint32_t ptx_type_bytes(enum ptx_type type)
{
	return types[type].bytes;
}

const char *ptx_type_name(enum ptx_type type)
{
	return types[type].name ? types[type].name : "";
}

enum ptx_type ptx_type_parse(const char *name, size_t length)
{
	for (unsigned i = 1; i < PTX_TYPE_COUNT; i++)
		if (types[i].name && strlen(types[i].name) == length && !memcmp(types[i].name, name, length))
			return (enum ptx_type)i;
	return PTX_TYPE_NONE;
}

void ptx_complain(struct ptx_loader *loader, uint32_t line, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* the text of a fat binary is not visible: the name of the function says more than the line */
	if (loader->body && loader->body->function && loader->body->function->kernel.name)
		bf_fail(loader->err, EINVAL, "PTX line %u: %s (in %.128s)", line, text,
			loader->body->function->kernel.name);
	else
		bf_fail(loader->err, EINVAL, "PTX line %u: %s", line, text);
}

bool ptx_accept(struct ptx_loader *loader, const char *text)
{
	if (!ptx_token_is(ptx_tok(loader), text))
		return false;
	ptx_lex_next(&loader->lex);
	return true;
}

int ptx_expect(struct ptx_loader *loader, const char *text)
{
	const struct ptx_token *t = ptx_tok(loader);

	if (ptx_accept(loader, text))
		return 0;
	if (t->kind == PTX_TOKEN_END)
		return ptx_refuse(loader, t->line, "the text ends where '%s' must follow", text);
	return ptx_refuse(loader, t->line, "'%s' expected, not '%.*s'", text,
			  (int)(t->length < 40 ? t->length : 40), t->text);
}

static void body_free(struct ptx_body *body)
{
	free(body->ops);
	free(body->regs);
	free(body->calls);
	free(body->labels);
	free(body->refs);
	free(body->params);
}

static void loader_free(struct ptx_loader *loader)
{
	for (uint32_t i = 0; i < loader->body_count; i++)
		body_free(loader->bodies[i]);
	free(loader->bodies);
	free(loader->copy_refs);
	free(loader->constant_index);
	ptx_arena_free(&loader->scratch);
}

/* Function addresses of different texts differ, so that a pointer from another module is not mistaken for one
 * of this module: 16 bits of a hash, 20 of a number, in units of 16 bytes. */
static uint64_t code_base(const char *text, size_t length)
{
	uint64_t h = 14695981039346656037ull;

	for (size_t i = 0; i < length; i++)
		h = (h ^ (uint8_t)text[i]) * 1099511628211ull;
	return PTX_CODE_WINDOW +
	       ((h ^ h >> 32) & 0xffff) * ((uint64_t)PTX_FUNCTIONS_MAX * PTX_FUNCTION_BYTES);
}

uint64_t ptx_function_address(struct ptx_loader *loader, struct ptx_body *body)
{
	body->function->is_taken = true;
	return loader->module->code_base + (uint64_t)body->number * PTX_FUNCTION_BYTES;
}

int ptx_module_load(const char *text, size_t length, struct ptx_module **module, struct bf_error *err)
{
	struct ptx_loader loader = { .err = err };
	int rc;

	*module = NULL;
	if (length > PTX_TEXT_MAX_BYTES)
		return bf_fail(err, EFBIG, "loading PTX: the text has %zu bytes, more than %u", length,
			       PTX_TEXT_MAX_BYTES);
	loader.module = calloc(1, sizeof(*loader.module));
	if (!loader.module)
		return ptx_no_memory(&loader);
	loader.module->code_base = code_base(text, length);
	ptx_lex_start(&loader.lex, text, length);
	rc = ptx_parse_module(&loader);
	if (!rc)
		rc = ptx_link(&loader);
	loader_free(&loader);
	if (rc) {
		ptx_module_free(loader.module);
		return rc;
	}
	*module = loader.module;
	return 0;
}

void ptx_module_free(struct ptx_module *module)
{
	if (!module)
		return;
	free(module->code);
	free(module->constants);
	free(module->patches);
	free(module->targets);
	free(module->copies);
	free(module->sites);
	free(module->numbered);
	free(module->variables);
	free(module->functions);
	ptx_arena_free(&module->arena);
	free(module);
}

const struct ptx_kernel *ptx_kernel_at(const struct ptx_module *module, uint32_t index)
{
	return index < module->function_count ? &module->functions[index]->kernel : NULL;
}

const struct ptx_kernel *ptx_kernel_find(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->function_count; i++)
		if (!strcmp(module->functions[i]->kernel.name, name))
			return &module->functions[i]->kernel;
	return NULL;
}

const struct ptx_variable *ptx_variable_at(const struct ptx_module *module, uint32_t index)
{
	return index < module->variable_count ? &module->variables[index] : NULL;
}

const struct ptx_variable *ptx_variable_find(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->variable_count; i++)
		if (!strcmp(module->variables[i].name, name))
			return &module->variables[i];
	return NULL;
}

uint32_t ptx_variable_count(const struct ptx_module *module)
{
	return module->variable_count;
}

uint32_t ptx_module_target(const struct ptx_module *module)
{
	return module->target;
}

uint32_t ptx_module_version(const struct ptx_module *module)
{
	return module->version;
}

void ptx_module_place(struct ptx_module *module, const uint64_t *addresses)
{
	for (uint32_t i = 0; i < module->patch_count; i++) {
		const struct ptx_patch *patch = &module->patches[i];
		uint64_t value = addresses[patch->variable] + (uint64_t)patch->addend;

		for (uint32_t lane = 0; lane < PTX_LANES; lane++)
			memcpy(module->constants + patch->at + (size_t)lane * patch->bytes, &value,
			       patch->bytes);
	}
}
