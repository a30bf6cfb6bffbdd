/* Objects of the MPS server of the domain. Its programs are on a vGPU of their own, the lender, and programs of the domain
 * duplicate objects of theirs. Nothing else crosses from one vGPU to another. */
#include <errno.h>

#include "base/log.h"
#include "warden/state.h"

/* The driver lets a process duplicate only objects of its own clients, and each vGPU has a process of its own. The owner of an
 * object can share it with one client. */
static uint32_t share(struct warden *lender, struct client *owner, const struct rm_call *call, uint8_t action)
{
	struct rm_arg_share arg = { .client = owner->handle,
				    .object = call->source_object,
				    .target = call->client,
				    .access_mask = RM_SHARE_DUP,
				    .type = RM_SHARE_WITH_CLIENT,
				    .action = action };
	int rc = client_call(lender, owner, RM_ESC_SHARE, &arg, sizeof(arg), &arg.status);

	return rc < 0 ? RM_ERR_INVALID_CLIENT : (uint32_t)rc;
}

/* Share it for this one call. */
static int perform_shared(struct site *site, struct client *owner, uint32_t *status)
{
	struct warden *lender = site->warden->lender;
	int rc;

	*status = share(lender, owner, &site->call, RM_SHARE_COMPOSE);
	if (*status)
		return 0;
	rc = site_perform(site);
	*status = rc ? 0 : (uint32_t)site_status_of(site);
	if (share(lender, owner, &site->call, RM_SHARE_COMPOSE | RM_SHARE_REVOKE))
		bf_log(BF_LOG_WARN, "object %x of client %x is still shared with client %x",
		       site->call.source_object, owner->handle, site->call.client);
	return rc;
}

/* Memory is charged to this vGPU, too, because the duplicate keeps it allocated. */
static struct answer duplicate(struct site *site, struct client *owner, const struct ledger_object *source)
{
	struct ledger *ledger = site->warden->ledger;
	const struct rm_call *call = &site->call;
	uint64_t bytes = source->block ? source->block->bytes : 0;
	struct ledger_object *object;
	uint32_t status;
	int rc;

	if (!ledger_claim(ledger, bytes)) {
		site_tell_refused(site, bytes);
		return site_status(site, RM_ERR_NO_MEMORY);
	}
	rc = perform_shared(site, owner, &status);
	if (rc || status) {
		ledger_unclaim(ledger);
		return rc ? RETURN(rc) : site_status(site, status);
	}
	object = ledger_add(ledger, call->client, call->parent, call->object, source->class_id, source->kind,
			    bytes);
	ledger_unclaim(ledger);
	if (!object) {
		site_undo(site);
		return RETURN(-ENOMEM);
	}
	object->bytes = source->bytes; /* as the driver counts it */
	return RETURN(0);
}

static struct answer borrow(struct site *site)
{
	const struct rm_call *call = &site->call;
	struct warden *lender = site->warden->lender;
	struct client *owner = client_find(lender, call->source_client);
	const struct ledger_object *source =
		ledger_find(lender->ledger, call->source_client, call->source_object);

	if (!owner || owner->uid != site->process->uid)
		return site_refuse(site, RM_ERR_INVALID_CLIENT, "the object belongs to another vGPU or user");
	if (call->object && ledger_find(site->warden->ledger, call->client, call->object))
		return site_refuse(site, RM_ERR_INSERT_DUPLICATE_NAME, "a handle that is in use");
	if (!source)
		return site_refuse(site, RM_ERR_INVALID_OBJECT_HANDLE, "a duplicate of an unknown object");
	if (source->kind == RM_KIND_CHANNEL || source->kind == RM_KIND_DOORBELL)
		return site_refuse(site, RM_ERR_NOT_SUPPORTED, "a duplicate of a channel or a doorbell");
	return duplicate(site, owner, source);
}

/* The lender's lock keeps the object what it is until the driver has duplicated it. A lender has no lender, so locks are taken
 * in one order only. */
struct answer site_borrow(struct site *site)
{
	struct warden *lender = site->warden->lender;
	struct answer answer;

	pthread_mutex_lock(&lender->lock);
	answer = borrow(site);
	pthread_mutex_unlock(&lender->lock);
	return answer;
}

void warden_set_lender(struct warden *warden, struct warden *lender)
{
	pthread_mutex_lock(&warden->lock);
	warden->lender = lender;
	pthread_mutex_unlock(&warden->lock);
}
