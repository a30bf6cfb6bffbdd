/* Shared domains. The real library becomes a client of the MPS server whose control daemon has a socket `control` in
 * the folder CUDA_MPS_PIPE_DIRECTORY. This one joins the domain that is named by the real path of that folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/cuda/port.h"

/* The folder's real path; false if there is no such folder, or no `control` in it. */
static bool find_domain(const char *folder, char path[PATH_MAX])
{
	char control[PATH_MAX + sizeof("/control")];

	if (!folder || !*folder || !realpath(folder, path))
		return false;
	snprintf(control, sizeof(control), "%s/control", path);
	return !access(control, F_OK);
}

CUresult port_join_domain(void)
{
	struct soft_join_params params = { 0 };
	char path[PATH_MAX];

	port.is_shared = find_domain(getenv("CUDA_MPS_PIPE_DIRECTORY"), path);
	if (!port.is_shared)
		return CUDA_SUCCESS;
	if (strlen(path) >= sizeof(params.name))
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	memcpy(params.name, path, strlen(path));
	return port_control(port.client, SOFT_CTRL_ROOT_JOIN_DOMAIN, &params, sizeof(params))
		       ? CUDA_ERROR_MPS_CONNECTION_FAILED
		       : CUDA_SUCCESS;
}
