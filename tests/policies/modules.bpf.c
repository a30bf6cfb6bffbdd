/* SPDX-License-Identifier: MIT */
/* Counts the modules that programs load. */
#include <belfry/policy.h>

BELFRY_POLICY("modules", "counts modules");

static __u64 modules, kernels, bytes, texts, woven, lost;

BELFRY_HOOK(module_load)
int module_load(struct belfry_module_load *ctx)
{
	modules++;
	kernels += ctx->kernels;
	bytes += ctx->bytes;
	texts += !!(ctx->flags & BELFRY_MODULE_IS_TEXT);
	woven += !!(ctx->flags & BELFRY_MODULE_IS_WOVEN);
	lost += ctx->lost;
	return ctx->id && ctx->pid ? BELFRY_DEFAULT : 7;
}

BELFRY_HOOK(dump)
int dump(struct belfry_dump *ctx)
{
	static const char format[] = "modules %llu kernels %llu bytes %llu texts %llu woven %llu lost %llu";
	__u64 values[] = { modules, kernels, bytes, texts, woven, lost };

	char text[128] = "";

	bpf_snprintf(text, sizeof(text), format, values, sizeof(values));
	__builtin_memcpy(ctx->text, text, sizeof(text));
	return BELFRY_PROPOSE;
}
