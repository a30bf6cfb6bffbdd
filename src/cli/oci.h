/* The configuration of a container, edited for its vGPU. */
#ifndef BELFRY_CLI_OCI_H
#define BELFRY_CLI_OCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "client/spec.h"

struct attach_share;
struct json_object;

struct oci_options {
	const char *marks;   /* the folder of marks */
	const char *runtime; /* the path or the name of the runtime */
	const char *id;	     /* of the container; NULL: not known */
};
/* *is_ours: whether the container has a vGPU. If not, the configuration is unchanged. */
int oci_edit(struct json_object *config, const struct oci_options *options, bool *is_ours,
	     struct bf_error *err);
/* All of a file, to be freed. NULL: *err says why. */
char *oci_read(FILE *from, size_t *bytes, struct bf_error *err);

/* oci_share.c: the vGPU of a container that has parts of a GPU. */
int oci_make_vgpu(struct json_object *config, const struct attach_share *share, const char *id,
		  char name[SPEC_NAME_MAX + 1], struct bf_error *err);
/* Remove it, unless programs run on it: then it is removed with the last of them. */
void oci_drop_vgpu(const char *id);

/* oci_log.c: write an error to the file of the option --log, which is before the command. */
void oci_log(int command, char **argv, const char *text);

/* belfry-oci: a runtime in front of another. argv[0] is the command. */
int oci_runtime_main(int argc, char **argv);

#endif
