/* Executes methods. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/hw/state.h"

enum { CLASS_COMPUTE = 0xcbc0, CLASS_COPY = 0xc8b5 };

/* A method with an effect takes time, so that a program cannot keep the front end busy for free. */
static void pay(struct hw_channel *ch, uint32_t *budget)
{
	ch->time_ns += HW_EFFECT_NS;
	*budget = *budget > 1 ? *budget - 1 : 1;
}

static uint64_t semaphore_address(const struct hw_channel *ch)
{
	return (uint64_t)ch->methods.sem_hi << 32 | ch->methods.sem_lo;
}

static uint64_t payload(const struct hw_channel *ch)
{
	const struct hw_methods *m = &ch->methods;

	return m->sem_execute & SOFT_SEM_64BIT ? (uint64_t)m->payload_hi << 32 | m->payload_lo
					       : m->payload_lo;
}

/* The host address of the semaphore; NULL: the channel has failed. */
static uint8_t *semaphore_at(struct hw_channel *ch, uint32_t bytes, bool is_write)
{
	uint64_t address = semaphore_address(ch), run;
	uint8_t *at;

	if (address % (bytes > 8 ? 8 : bytes)) {
		hw_channel_fail(ch, SOFT_ERROR_METHOD, address, "a misaligned semaphore");
		return NULL;
	}
	at = hw_space_at(ch->space, address, bytes, is_write, &run);
	if (!at || run < bytes) {
		hw_channel_fail(ch, SOFT_ERROR_MMU, address, "a semaphore");
		return NULL;
	}
	return at;
}

/* The address was checked when the channel began to wait, but it may have been unmapped since. */
bool hw_acquire_is_met(struct hw_channel *ch)
{
	bool is_wide = ch->methods.sem_execute & SOFT_SEM_64BIT;
	const uint8_t *at = semaphore_at(ch, is_wide ? 8 : 4, false);
	uint64_t value, want = payload(ch), mask = is_wide ? UINT64_MAX : UINT32_MAX;

	if (!at)
		return false;
	value = is_wide ? __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE)
			: __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
	switch (ch->methods.sem_execute & SOFT_SEM_OPERATION) {
	case SOFT_SEM_ACQUIRE:
		return value == want;
	case SOFT_SEM_ACQUIRE_GEQ:
		return value >= want;
	case SOFT_SEM_ACQUIRE_CIRC_GEQ:
		return !((value - want) & (is_wide ? 1ull << 63 : 1ull << 31));
	case SOFT_SEM_ACQUIRE_AND:
		return value & want;
	default:
		return ~(value | want) & mask;
	}
}

/* The timestamp is written before the payload that announces it. */
static bool release(struct hw_channel *ch)
{
	uint32_t execute = ch->methods.sem_execute;
	bool has_time = execute & SOFT_SEM_TIMESTAMP, is_wide = has_time || execute & SOFT_SEM_64BIT;
	uint8_t *at = semaphore_at(ch, has_time ? 16 : is_wide ? 8 : 4, true);

	if (!at)
		return false;
	hw_done_note(ch);
	if (has_time)
		__atomic_store_n((uint64_t *)(void *)(at + 8), ch->time_ns, __ATOMIC_RELAXED);
	if (is_wide)
		__atomic_store_n((uint64_t *)(void *)at, payload(ch), __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)(void *)at, (uint32_t)payload(ch), __ATOMIC_RELEASE);
	syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return true;
}

static bool execute_semaphore(struct hw_channel *ch, uint32_t value, uint32_t *budget)
{
	ch->methods.sem_execute = value;
	switch (value & SOFT_SEM_OPERATION) {
	case SOFT_SEM_RELEASE:
		if (!release(ch))
			return false;
		pay(ch, budget);
		return false; /* the channel's time has advanced: the next word may have to wait */
	case SOFT_SEM_ACQUIRE:
	case SOFT_SEM_ACQUIRE_GEQ:
	case SOFT_SEM_ACQUIRE_CIRC_GEQ:
	case SOFT_SEM_ACQUIRE_AND:
	case SOFT_SEM_ACQUIRE_NOR:
		pay(ch, budget);
		ch->work = HW_WORK_ACQUIRE;
		return false;
	default:
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, value, "no such semaphore operation");
	}
}

static bool set_object(struct hw_channel *ch, uint32_t subchannel, uint32_t class)
{
	if (class != CLASS_COMPUTE && class != CLASS_COPY)
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, class, "no such class");
	ch->methods.class[subchannel] = class;
	return true;
}

static bool host_method(struct hw_channel *ch, uint32_t subchannel, uint32_t method, uint32_t value,
			uint32_t *budget)
{
	struct hw_methods *m = &ch->methods;

	switch (method) {
	case SOFT_METHOD_SET_OBJECT:
		return set_object(ch, subchannel, value);
	case SOFT_METHOD_NON_STALL_INTERRUPT: /* no interrupts: programs wait on the payload */
	case SOFT_METHOD_WFI:		      /* commands of a channel execute in order anyway */
	case SOFT_METHOD_YIELD:		      /* a turn ends when there is no work */
		return true;
	case SOFT_METHOD_SEM_ADDR_LO:
		m->sem_lo = value;
		return true;
	case SOFT_METHOD_SEM_ADDR_HI:
		m->sem_hi = value;
		return true;
	case SOFT_METHOD_SEM_PAYLOAD_LO:
		m->payload_lo = value;
		return true;
	case SOFT_METHOD_SEM_PAYLOAD_HI:
		m->payload_hi = value;
		return true;
	case SOFT_METHOD_SEM_EXECUTE:
		return execute_semaphore(ch, value, budget);
	default:
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, method, "no such method of the host");
	}
}

/* The register that a copy method sets, or NULL. */
static uint32_t *copy_register(struct hw_methods *m, uint32_t method)
{
	switch (method) {
	case SOFT_COPY_IN_UPPER:
		return &m->in_hi;
	case SOFT_COPY_IN_LOWER:
		return &m->in_lo;
	case SOFT_COPY_OUT_UPPER:
		return &m->out_hi;
	case SOFT_COPY_OUT_LOWER:
		return &m->out_lo;
	case SOFT_COPY_PITCH_IN:
		return &m->pitch_in;
	case SOFT_COPY_PITCH_OUT:
		return &m->pitch_out;
	case SOFT_COPY_LINE_LENGTH:
		return &m->line_length;
	case SOFT_COPY_LINE_COUNT:
		return &m->line_count;
	case SOFT_COPY_REMAP_CONST_A:
		return &m->constant[0];
	case SOFT_COPY_REMAP_CONST_B:
		return &m->constant[1];
	case SOFT_COPY_REMAP_COMPONENTS:
		return &m->components;
	default:
		return NULL;
	}
}

static bool copy_method(struct hw_channel *ch, uint32_t method, uint32_t value, uint32_t *budget)
{
	uint32_t *set = copy_register(&ch->methods, method);

	if (set) {
		*set = value;
		return true;
	}
	if (method != SOFT_COPY_LAUNCH)
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, method, "no such method of a copy engine");
	pay(ch, budget);
	return hw_copy_begin(ch, value);
}

static bool compute_method(struct hw_channel *ch, uint32_t method, uint32_t value, uint32_t *budget)
{
	switch (method) {
	case SOFT_COMPUTE_SEND_A:
		ch->methods.send_a = value;
		return true;
	case SOFT_COMPUTE_SEND_B:
		pay(ch, budget);
		return hw_launch_begin(ch);
	default:
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, method, "no such method of compute");
	}
}

bool hw_method(struct hw_channel *ch, uint32_t subchannel, uint32_t method, uint32_t value, uint32_t *budget)
{
	if (method <= SOFT_METHOD_HOST_LAST)
		return host_method(ch, subchannel, method, value, budget);
	switch (ch->methods.class[subchannel]) {
	case CLASS_COMPUTE:
		return compute_method(ch, method, value, budget);
	case CLASS_COPY:
		return copy_method(ch, method, value, budget);
	default:
		return hw_channel_fail(ch, SOFT_ERROR_METHOD, method, "a method without a class");
	}
}
