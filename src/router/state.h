/* The vGPUs that belfryd saves for its next start: a file beside its socket, in the format of the configuration. */
#ifndef BELFRY_ROUTER_STATE_H
#define BELFRY_ROUTER_STATE_H

#include "router/config.h"

/* Replace the file at `path` atomically. Without vGPUs there is no file. */
int state_save(const char *path, const struct config_vgpu *vgpus, size_t count, struct bf_error *err);
/* Read into config->vgpus. A missing file is not an error. After an error *config has what could be read, and the
 * file is renamed to PATH.bad. */
int state_read(const char *path, struct config *config, struct bf_error *err);

#endif
