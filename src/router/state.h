/* What belfryd remembers of its vGPUs from one life to the next: a file beside its socket, in the words of the
 * configuration. */
#ifndef BELFRY_ROUTER_STATE_H
#define BELFRY_ROUTER_STATE_H

#include "router/config.h"

/* Replace what is at `path`, so that there is always one or the other, whole; with nothing to remember there is no
 * file. */
int state_save(const char *path, const struct config_vgpu *vgpus, size_t count, struct bf_error *err);
/* Into config->vgpus. No file: nothing to remember. After an error *config has what could be read, and the file was set
 * aside as PATH.bad. */
int state_read(const char *path, struct config *config, struct bf_error *err);

#endif
