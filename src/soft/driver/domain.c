/* Shared domains. A domain is known by its name, exists while it has a client, and belongs to the user of its
 * first client. The groups of its clients are on the GPU together. */
#include <stdlib.h>

#include "base/log.h"
#include "soft/driver/state.h"

struct domain {
	struct list of_driver; /* driver::domains */
	uint32_t number;       /* hw's */
	uint32_t client_count;
	uid_t owner;
	char name[SOFT_DOMAIN_BYTES];
};

static struct domain *find_name(const struct driver *driver, const char *name)
{
	list_each(link, &driver->domains)
	{
		struct domain *domain = list_of(link, struct domain, of_driver);

		if (!strcmp(domain->name, name))
			return domain;
	}
	return NULL;
}

static bool is_taken(const struct driver *driver, uint32_t number)
{
	list_each(link, &driver->domains)
	{
		if (list_of(link, struct domain, of_driver)->number == number)
			return true;
	}
	return false;
}

static struct domain *domain_new(struct driver *driver, const char *name, uid_t owner)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	do
		driver->next_domain++;
	while (!driver->next_domain || is_taken(driver, driver->next_domain));
	domain->number = driver->next_domain;
	domain->owner = owner;
	memcpy(domain->name, name, strlen(name) + 1);
	list_add(&driver->domains, &domain->of_driver);
	return domain;
}

static uint32_t join(struct client *client, const char *name, uid_t owner)
{
	struct domain *domain;

	if (client->is_dead)
		return RM_ERR_INVALID_CLIENT;
	if (client->domain || client->has_groups)
		return ERR_INVALID_STATE;
	domain = find_name(client->driver, name);
	if (domain && domain->owner != owner)
		return RM_ERR_INSUFFICIENT_PERMISSIONS;
	if (!domain)
		domain = domain_new(client->driver, name, owner);
	if (!domain)
		return RM_ERR_NO_MEMORY;
	domain->client_count++;
	client->domain = domain;
	return RM_OK;
}

uint32_t domain_join(struct control_site *site)
{
	struct soft_join_params params;
	uid_t owner = site->site->call->uid;
	uint32_t status;

	memcpy(&params, site->params, sizeof(params));
	if (!params.name[0] || !memchr(params.name, 0, sizeof(params.name)))
		return RM_ERR_INVALID_ARGUMENT;
	pthread_mutex_lock(&site->driver->lock);
	status = join(site->client, params.name, owner);
	pthread_mutex_unlock(&site->driver->lock);
	if (status == RM_ERR_INSUFFICIENT_PERMISSIONS)
		bf_log(BF_LOG_WARN, "process %d of user %u: the shared domain belongs to another user",
		       site->site->call->pid, owner);
	return status;
}

void domain_leave(struct client *client)
{
	struct domain *domain = client->domain;

	client->domain = NULL;
	if (!domain || --domain->client_count)
		return;
	list_remove(&domain->of_driver);
	free(domain);
}

uint32_t domain_of_group(struct site *site)
{
	struct client *client;
	uint32_t number = 0;

	pthread_mutex_lock(&site->driver->lock);
	client = client_of(site, site->rm.client);
	if (client) {
		client->has_groups = true;
		number = client->domain ? client->domain->number : 0;
	}
	pthread_mutex_unlock(&site->driver->lock);
	return number;
}
