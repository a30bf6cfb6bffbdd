#include "ptx_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/own.h"

char *(*rig_change_text)(struct rig *rig, const char *text);

static bool translate(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span)
{
	struct rig *rig = ctx;

	(void)is_write;
	for (unsigned i = 0; i < rig->span_count; i++) {
		if (address - rig->spans[i].base >= rig->spans[i].bytes ||
		    rig->spans[i].bytes - (address - rig->spans[i].base) < bytes)
			continue;
		*span = rig->spans[i];
		return true;
	}
	return false;
}

/* %d, %f and %s only, into rig->printed. */
static int print(void *ctx, const struct ptx_print *p)
{
	struct rig *rig = ctx;
	size_t used = strlen(rig->printed), at = 0;
	int count = 0;

	for (const char *f = p->format; *f && used + 64 < sizeof(rig->printed); f++) {
		size_t size = f[0] == '%' && f[1] == 'd' ? 4 : 8;

		if (*f != '%') {
			rig->printed[used++] = *f;
			continue;
		}
		at = (at + size - 1) & ~(size - 1);
		if (*++f == 'd') {
			int v;

			memcpy(&v, p->args + at, sizeof(v));
			used += (size_t)sprintf(rig->printed + used, "%d", v);
		} else if (*f == 'f') {
			double v;

			memcpy(&v, p->args + at, sizeof(v));
			used += (size_t)sprintf(rig->printed + used, "%f", v);
		} else {
			uint64_t v;

			memcpy(&v, p->args + at, sizeof(v));
			used += (size_t)sprintf(rig->printed + used, "%s", (const char *)rig_host(rig, v));
		}
		at += size;
		count++;
	}
	rig->printed[used] = '\0';
	return count;
}

uint64_t rig_alloc(struct rig *rig, size_t bytes, const void *data)
{
	struct ptx_span *s = &rig->spans[rig->span_count++];

	assert_true(rig->span_count <= RIG_SPANS);
	s->base = 0x7f0000000000 + (uint64_t)rig->span_count * 0x10000000;
	s->bytes = bytes;
	s->host = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
	s->is_writable = true;
	assert_non_null(s->host);
	memset(s->host, 0, bytes);
	if (data)
		memcpy(s->host, data, bytes);
	return s->base;
}

void *rig_host(struct rig *rig, uint64_t address)
{
	struct ptx_span span = { 0 };

	assert_true(translate(rig, address, 1, false, &span));
	return span.host + (address - span.base);
}

static void place_variables(struct rig *rig)
{
	const struct ptx_variable *v;

	for (uint32_t i = 0; (v = ptx_variable_at(rig->module, i)); i++) {
		rig->addresses[i] = rig_alloc(rig, v->bytes ? v->bytes : 1, NULL);
		if (v->data_bytes)
			memcpy(rig_host(rig, rig->addresses[i]), v->data, v->data_bytes);
	}
	for (uint32_t i = 0; (v = ptx_variable_at(rig->module, i)); i++) {
		for (uint32_t k = 0; k < v->reloc_count; k++) {
			const struct ptx_reloc *r = &v->relocs[k];
			uint64_t value = (rig->addresses[r->variable] + (uint64_t)r->addend) >> r->shift;

			memcpy((uint8_t *)rig_host(rig, rig->addresses[i]) + r->offset, &value, r->bytes);
		}
	}
	ptx_module_place(rig->module, rig->addresses);
}

void rig_open_text(struct rig *rig, const char *text)
{
	struct bf_error err = { 0 };
	cleanup_free char *changed = NULL, *copy = NULL;
	size_t length;

	memset(rig, 0, sizeof(*rig));
	rig->host = (struct ptx_host){ .ctx = rig, .translate = translate, .print = print };
	changed = rig_change_text ? rig_change_text(rig, text) : NULL;
	if (changed)
		text = changed;
	/* exactly as long as it is, so that a sanitizer sees the first byte past it */
	length = strlen(text);
	copy = malloc(length ? length : 1);
	assert_non_null(copy);
	memcpy(copy, text, length); /* NOLINT(bugprone-not-null-terminated-result) */
	if (ptx_module_load(copy, length, &rig->module, &err))
		fail_msg("%s in\n%s", err.text, text);
	place_variables(rig);
}

void rig_open(struct rig *rig, const char *name)
{
	char path[256];
	cleanup_free char *text = NULL;
	cleanup_file FILE *file = NULL;
	size_t length;

	snprintf(path, sizeof(path), "%s/ptx/%s.ptx", BELFRY_TEST_DATA, name);
	file = fopen(path, "r");
	assert_non_null(file);
	text = calloc(1, 1 << 20);
	assert_non_null(text);
	length = fread(text, 1, (1 << 20) - 1, file);
	assert_true(length > 0);
	rig_open_text(rig, text);
}

void rig_close(struct rig *rig)
{
	for (unsigned i = 0; i < rig->span_count; i++)
		free(rig->spans[i].host);
	ptx_module_free(rig->module);
}

uint64_t rig_variable(struct rig *rig, const char *name)
{
	const struct ptx_variable *v = ptx_variable_find(rig->module, name);

	assert_non_null(v);
	return rig->addresses[v - ptx_variable_at(rig->module, 0)];
}

static enum ptx_state run_blocks(struct rig *rig, struct ptx_block *block, const uint32_t grid[3])
{
	uint32_t at[3];

	for (at[2] = 0; at[2] < grid[2]; at[2]++)
		for (at[1] = 0; at[1] < grid[1]; at[1]++)
			for (at[0] = 0; at[0] < grid[0]; at[0]++) {
				enum ptx_state state;

				ptx_block_start(block, at, at[0] % 4);
				while ((state = ptx_block_run(block, 100000, NULL, &rig->cost)) ==
				       PTX_STATE_RUNNING)
					assert_true(rig->cost < 2000000000u); /* a test that does not end */
				if (state != PTX_STATE_DONE)
					return state;
			}
	return PTX_STATE_DONE;
}

enum ptx_state rig_run(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params,
		       size_t bytes)
{
	struct bf_error err = { 0 };
	struct ptx_launch launch = { .module = rig->module,
				     .kernel = ptx_kernel_find(rig->module, kernel),
				     .dynamic_shared_bytes = shape.dynamic_bytes,
				     .params = params,
				     .grid_id = ++rig->launches,
				     .sm_count = 4 };
	struct ptx_block *block;
	enum ptx_state state;

	assert_non_null(launch.kernel);
	if (launch.kernel->param_bytes > bytes)
		fail_msg("%s takes %u bytes of parameters, not %zu", kernel, launch.kernel->param_bytes,
			 bytes);
	for (unsigned i = 0; i < 3; i++) {
		launch.grid[i] = shape.grid[i] ? shape.grid[i] : 1;
		launch.threads[i] = shape.threads[i] ? shape.threads[i] : 1;
	}
	if (ptx_block_create(&launch, &rig->host, &block, &err))
		fail_msg("%s", err.text);
	state = run_blocks(rig, block, launch.grid);
	rig->fault = *ptx_block_fault(block);
	ptx_block_free(block);
	return state;
}

void rig_launch(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params, size_t bytes)
{
	if (rig_run(rig, kernel, shape, params, bytes) != PTX_STATE_DONE)
		fail_msg("%s: %s at line %u, address %#llx %s", kernel, ptx_fault_name(rig->fault.kind),
			 rig->fault.line, (unsigned long long)rig->fault.address, rig->fault.text);
}
