/* Woven kernels on the software GPU's PTX interpreter. */
#ifndef BELFRY_TESTS_WEAVE_RIG_H
#define BELFRY_TESTS_WEAVE_RIG_H

#include "probe/weave.h"
#include "ptx_run.h"

enum { SHIPPED = 7 };
extern const char *const shipped_names[SHIPPED];

/* probes/NAME.bpf.o or tests/probes/NAME.bpf.o of the build; fails the test if it is refused. */
struct probe *weave_rig_probe(const char *directory, const char *name);
/* Memory for an area of the probe, initialized; its address. */
uint64_t weave_rig_area(struct rig *rig, const struct probe *probe);
/* Fails the test if the text cannot be woven. */
void weave_rig_text(const char *text, const struct weave_probe *probes, size_t count,
		    struct weave_result *result);
/* Fails the test if runs of the probe have ended early, or ends of blocks were missed. */
void weave_rig_check(const void *area);
/* The file tests/data/ptx/NAME.ptx; the caller frees it. */
char *weave_rig_file(const char *name);

#endif
