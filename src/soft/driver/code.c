/* Programs for the GPU. The text is copied before it is parsed, because the program can change the memory at
 * any time. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/own.h"
#include "soft/driver/state.h"

#define VARIABLES_MAX (1u << 20)
#define LOADING_MAX_BYTES (1ull << 30) /* for all texts being loaded at the same time */

struct source {
	struct hw_memory *memory;
	struct hw_space *space;
};

static uint32_t resolve(struct site *site, const struct soft_code_params *params, struct source *source)
{
	struct client *client = client_of(site, site->rm.client);
	struct object *space;

	if (!client)
		return RM_ERR_INVALID_CLIENT;
	space = space_find(client, params->space ? params->space : site->rm.parent);
	if (!space)
		return ERR_NOT_FOUND;
	source->memory = memory_find(client, params->memory);
	if (!source->memory)
		return ERR_NOT_FOUND;
	source->space = hw_space_get(space->space.hw);
	return RM_OK;
}

static bool is_inside(uint64_t offset, uint64_t bytes, uint64_t all)
{
	return bytes <= all && offset <= all - bytes;
}

static uint32_t check(const struct soft_code_params *params, uint64_t all)
{
	if (!params->text_bytes || params->text_bytes > PTX_TEXT_MAX_BYTES ||
	    params->variable_count > VARIABLES_MAX)
		return ERR_INVALID_LIMIT;
	if (!is_inside(params->text_offset, params->text_bytes, all) ||
	    !is_inside(params->variables_offset, sizeof(uint64_t) * (uint64_t)params->variable_count, all))
		return ERR_INVALID_OFFSET;
	return RM_OK;
}

static uint32_t read_code(const struct soft_code_params *params, const uint8_t *at, struct hw_code **code)
{
	size_t addresses_bytes = sizeof(uint64_t) * (size_t)params->variable_count;
	cleanup_free char *text = malloc(params->text_bytes + 1);
	cleanup_free uint64_t *addresses = malloc(addresses_bytes + 1);
	struct bf_error err = { 0 };
	int rc;

	if (!text || !addresses)
		return RM_ERR_NO_MEMORY;
	memcpy(text, at + params->text_offset, params->text_bytes);
	text[params->text_bytes] = 0;
	memcpy(addresses, at + params->variables_offset, addresses_bytes);
	rc = hw_code_new(text, params->text_bytes, addresses, params->variable_count, code, &err);
	if (!rc)
		return RM_OK;
	bf_log(BF_LOG_DEBUG, "code was refused: %s", err.text);
	return rc == -ENOMEM ? RM_ERR_NO_MEMORY : ERR_INVALID_DATA;
}

/* Limits the memory for copies, so that concurrent loads cannot exhaust the host's memory. */
static bool begin_loading(struct driver *driver, uint64_t bytes)
{
	bool may_begin;

	pthread_mutex_lock(&driver->lock);
	may_begin = driver->loading_bytes + bytes <= LOADING_MAX_BYTES;
	if (may_begin)
		driver->loading_bytes += bytes;
	pthread_mutex_unlock(&driver->lock);
	return may_begin;
}

static void end_loading(struct driver *driver, uint64_t bytes)
{
	pthread_mutex_lock(&driver->lock);
	driver->loading_bytes -= bytes;
	pthread_mutex_unlock(&driver->lock);
}

static uint32_t load(struct driver *driver, const struct soft_code_params *params,
		     const struct hw_memory *memory, struct hw_code **code)
{
	uint32_t status = check(params, hw_memory_bytes(memory));

	if (status)
		return status;
	if (!begin_loading(driver, params->text_bytes))
		return RM_ERR_NO_MEMORY;
	status = read_code(params, hw_memory_at(memory), code);
	end_loading(driver, params->text_bytes);
	return status;
}

uint32_t code_alloc(struct site *site, uint32_t gpu, struct object **made)
{
	struct source source = { 0 };
	struct soft_code_params params;
	struct object *object;
	uint32_t status;

	if (site->call->params_bytes != sizeof(params))
		return RM_ERR_INVALID_ARGUMENT;
	memcpy(&params, site->call->params, sizeof(params));
	object = object_new(site->driver, site->rm.class_id, OBJECT_CODE);
	if (!object)
		return RM_ERR_NO_MEMORY;
	object->gpu = gpu;
	pthread_mutex_lock(&site->driver->lock);
	status = resolve(site, &params, &source);
	pthread_mutex_unlock(&site->driver->lock);
	if (!status)
		status = load(site->driver, &params, source.memory, &object->code.hw);
	object->code.space = source.space;
	if (source.memory)
		hw_memory_put(source.memory);
	if (status)
		object_put(object);
	else
		*made = object;
	return status;
}

uint32_t code_settle(struct object *object)
{
	int rc = hw_space_add_code(object->code.space, object->handle, object->code.hw);

	if (rc)
		return rc == -EEXIST ? ERR_NAME_TAKEN : RM_ERR_NO_MEMORY;
	hw_code_put(object->code.hw); /* the space has its own reference */
	object->code.hw = NULL;
	object->code.is_settled = true;
	return RM_OK;
}
