/* Declarations shared by the files of this module. Everything here is under the lock of the cores unless
 * noted. Workers hold it to choose work and to account for it, never while they run a block or copy. */
#ifndef BELFRY_SOFT_HW_STATE_H
#define BELFRY_SOFT_HW_STATE_H

#include <pthread.h>

#include "soft/hw/clock.h"
#include "soft/hw/hw.h"

enum {
	HW_QUANTUM_NS = 400000,	      /* of model time: a block's quantum on its SM */
	HW_LONG_QUANTUM_NS = 8000000, /* the same if the clock is not paced and no other unit has work */
	HW_LATE_NS = 100000,	      /* how late an SM's work may be before another worker is woken */
	HW_LAG_NS = 10000000,	      /* how far the clock may be ahead of the work done */
	HW_DIVIDE_NS = 4000000,	      /* the shortest part of a turn that is divided among groups */
	HW_SWITCH_NS = 50000,	      /* switch from one unit to another */
	HW_TIMESLICE_US = 2000,	      /* the default */
	HW_EFFECT_NS = 1000,	      /* the front end's time for a method with an effect */
	HW_WORD_NS = 4,		      /* and for a word of commands */
	HW_POLL_NS = 100000,	      /* how often awaited semaphores are read */
	HW_SLACK_NS = 16000,	      /* the front end does not wait for less than this */
	HW_AHEAD_NS = 1000000,	      /* of the clock, if it is not paced */
	HW_BUDGET = 64,		      /* work of the front end before other threads get the lock */
	HW_BUS_COST = 2,	      /* thread-instructions per byte moved over the bus */
	HW_COPY_BYTES = 256 << 10,    /* maximum of one piece */
	HW_FETCH_WORDS = 128,
	HW_SUBCHANNELS = 8,
	HW_SM_THREADS = 2048,
	HW_SM_BLOCKS = 32,
	HW_SM_REGISTERS = 65536,
	HW_SM_SHARED_BYTES = 228 << 10,
	HW_BLOCK_SHARED_BYTES = 1 << 10, /* taken by every block in addition to its own */
};

struct hw_memory {
	uint32_t count;	    /* atomic */
	struct hw_gpu *gpu; /* the GPU whose memory it is, or NULL */
	uint64_t bytes;
	uint8_t *at;
	int file;
};

struct hw_map {
	uint64_t address, bytes, offset;
	struct hw_memory *memory;
	bool is_writable;
};

/* Sorted, and immutable once blocks can see it: a changed copy replaces it. */
struct hw_maps {
	struct hw_maps *next; /* hw_space::old */
	uint32_t count;
	struct hw_map map[];
};

struct hw_coded {
	uint32_t number;
	struct hw_code *code;
};

struct hw_space {
	uint32_t count; /* atomic */
	struct hw_gpu *gpu;
	struct hw_maps *maps;	/* atomic: read by running blocks */
	struct hw_maps *old;	/* replaced while something ran */
	uint32_t running_count; /* blocks and copies that use it now */
	uint32_t hold_count;	/* while not 0, nothing of it is started */
	struct hw_coded *codes;
	uint32_t code_count;
	pthread_mutex_t print_lock; /* protects what follows; last in the lock order */
	struct hw_memory *print_memory;
	uint64_t print_offset;
	uint32_t print_bytes;
	uint64_t print_head, print_lost; /* private; the program gets a copy */
};

struct hw_code {
	uint32_t count; /* atomic */
	struct ptx_module *module;
};

/* A block on an SM, or several one after the other. */
struct hw_resident {
	struct hw_resident *next, *prev; /* hw_seat::residents */
	struct hw_launch *launch;
	struct ptx_block *block; /* created by the worker that first runs it */
	uint64_t index;		 /* in the grid, x fastest */
	uint32_t sm;
	bool is_started;
};

struct hw_launch {
	struct hw_launch *next; /* hw_unit::waiting or hw_cores::dead */
	struct hw_channel *channel;
	struct hw_gpu *gpu; /* for %globaltimer, without the lock */
	struct hw_space *space;
	struct hw_code *code;
	struct ptx_launch ptx;
	struct ptx_host host;
	uint64_t mask[SOFT_SMS_MAX / 64];
	uint64_t block_count, next_block, done_count;
	uint64_t start_ns, end_ns;
	uint32_t threads, shared_bytes, registers; /* of an SM, per block */
	uint64_t host_bytes;			   /* of the host, per block */
	uint32_t resident_count, next_sm;
	uint32_t stop; /* atomic: not 0: its blocks return soon */
	bool is_cooperative, is_dropped;
	struct hw_resident *spare; /* without a block, but may keep what is needed to run one */
	uint8_t params[];
};

struct hw_copy {
	uint64_t in, out;
	int32_t pitch_in, pitch_out;
	uint64_t line_bytes; /* written per line */
	uint32_t line_count;
	uint32_t line; /* progress */
	uint64_t column;
	bool is_remap;
	uint32_t component_bytes, in_count, out_count, from[4], constant[2];
	uint64_t end_ns;
	bool is_done;
};

enum hw_work { HW_WORK_NONE, HW_WORK_LAUNCH, HW_WORK_COPY, HW_WORK_ACQUIRE };

/* A channel's position in its ring. */
struct hw_fetch {
	uint32_t get;	 /* private; USERD gets a copy */
	uint32_t put;	 /* last value read, */
	uint64_t put_ns; /* and when it was read */
	uint64_t address;
	uint32_t segment_words; /* still to fetch */
	uint32_t words[HW_FETCH_WORDS], at, count;
	uint32_t operation, subchannel, method, left; /* the command whose words follow */
};

/* Registers set by methods. */
struct hw_methods {
	uint32_t class[HW_SUBCHANNELS];
	uint32_t sem_lo, sem_hi, payload_lo, payload_hi, sem_execute;
	uint32_t send_a;
	uint32_t in_hi, in_lo, out_hi, out_lo, pitch_in, pitch_out, line_length, line_count;
	uint32_t constant[2], components;
};

struct hw_channel {
	struct hw_channel *next; /* hw_group::channels */
	struct hw_group *group;
	struct hw_space *space;
	struct hw_memory *userd, *notifier;
	uint64_t userd_offset, ring_address;
	uint32_t ring_entries, token;
	bool is_scheduled, is_disabled;
	bool is_ready;	/* at the last look: it could continue */
	bool is_parked; /* its blocks are not counted in hw_seat::used */
	uint64_t mask[SOFT_SMS_MAX / 64];
	uint64_t time_ns; /* completion time of its last command */
	struct hw_fetch fetch;
	struct hw_methods methods;
	enum hw_work work; /* what it waits for */
	bool is_counted;   /* in hw_group::busy_channels */
	struct hw_launch *launch;
	struct hw_copy copy;
};

struct hw_group {
	struct hw_group *next; /* hw_gpu::groups */
	uint32_t count;
	struct hw_gpu *gpu;
	struct hw_unit *unit;
	struct hw_channel *channels;
	uint64_t timeslice_us;
	uint32_t interleave, domain, hold_count;
	bool is_scheduled, has_error;
	bool has_run; /* in this turn */
	uint64_t host_bytes;
	uint64_t work_ns; /* of SMs and of the copy engine, in the part of the turn that is not divided yet */
	struct soft_time_params time;
	/* See done.c. Times are the host's. */
	uint32_t busy_channels; /* with work that was seen in their rings and is not complete */
	uint64_t seen_host_ns;	/* when work was last seen there, */
	uint64_t done_host_ns;	/* and last completed */
	struct soft_done_params done;
};

struct hw_room {
	uint32_t threads, blocks, shared_bytes, registers;
};

/* What a unit has on one SM. Between its turns it stays there, and takes no space from other units. */
struct hw_seat {
	struct hw_resident *residents; /* a ring; the next to run */
	uint32_t count;
	struct hw_room used; /* by the blocks of channels that are not parked */
};

/* What takes turns: a group, or all groups of a domain. */
struct hw_unit {
	struct hw_unit *next; /* hw_gpu::units, in the order of turns */
	uint32_t domain, hold_count;
	uint32_t count;		   /* references: its groups, and threads that wait */
	struct hw_launch *waiting; /* launches with blocks that have no SM yet */
	uint32_t resident_count;   /* blocks on SMs */
	uint32_t turns_left;	   /* in this round */
	uint64_t debt_ns;	   /* time held beyond its timeslices */
	struct hw_seat seats[];
};

struct hw_sm {
	uint64_t time_ns; /* time up to which it has run */
	uint64_t part;	  /* fraction of a ns, in units of 1/rate */
	struct hw_resident *running;
};

struct hw_gpu {
	struct hw_gpu *next; /* hw_cores::gpus */
	struct hw_cores *cores;
	struct hw_options options;
	struct hw_clock clock;
	uint64_t used_bytes; /* atomic */
	uint8_t *bell;
	int bell_file;
	pthread_t front;
	uint32_t front_is_ending; /* atomic */
	struct hw_group *groups;
	struct hw_unit *units;
	struct hw_channel *channels[SOFT_CHANNELS_MAX];
	uint32_t channel_count, next_channel;
	/* turns */
	struct hw_unit *holder, *last_holder; /* NULL: none; the last holder that was not NULL */
	uint64_t turn_start_ns, turn_end_ns, turn_front_ns; /* start, end, charged up to */
	uint64_t undivided_ns; /* charged, but not divided among the groups yet */
	uint64_t free_ns;      /* end of the last turn */
	uint64_t busy_ns;
	/* the engines */
	struct hw_sm *sms;
	uint64_t copy_ns;
	struct hw_channel *copy_running;
	uint32_t next_copy;
	uint32_t copy_count; /* channels with a copy */
	bool has_news;	     /* channels and turns must be updated, */
	uint64_t event_ns;   /* and again at this time */
	bool is_polling;     /* a channel waits for a semaphore, */
	uint64_t poll_ns;    /* which is read at this time */
	/* totals for reports only */
	uint64_t sm_ns, copy_busy_ns;
	uint64_t kernel_moved_bytes, copy_moved_bytes;
};

struct hw_cores {
	pthread_mutex_t lock;
	pthread_cond_t work;  /* idle workers wait for it */
	pthread_cond_t quiet; /* signalled when something stops running */
	struct hw_gpu *gpus, *next_gpu;
	pthread_t *threads;
	uint32_t thread_count, idle_count, waiter_count; /* waiting for work, for quiet */
	uint64_t watched_ns; /* until when the worker that watches the time sleeps; HW_NEVER: there is none */
	bool is_ending;
	struct hw_launch *dead; /* to be freed without the lock */
};

/* cores.c */
void hw_lock(struct hw_cores *cores);
void hw_unlock(struct hw_cores *cores); /* and frees `dead` */
void hw_kick(struct hw_cores *cores);	/* there may be work */

/* memory.c: a sealed memfd and where it is mapped, or -errno. */
int hw_file_new(const char *name, uint64_t bytes, uint8_t **at);

/* space.c. The caller holds the lock, or something of the space runs. */
bool hw_space_translate(struct hw_space *space, uint64_t address, uint64_t bytes, bool is_write,
			struct ptx_span *span);
/* The host address, and in *run the number of contiguous bytes there, at most `bytes`. */
uint8_t *hw_space_at(struct hw_space *space, uint64_t address, uint64_t bytes, bool is_write, uint64_t *run);
bool hw_space_read(struct hw_space *space, uint64_t address, void *to, uint64_t bytes);
bool hw_space_write(struct hw_space *space, uint64_t address, const void *from, uint64_t bytes);
/* code.c: with a reference, or NULL. */
struct hw_code *hw_space_find_code(struct hw_space *space, uint32_t number);
void hw_space_drop_codes(struct hw_space *space);

/* print.c */
int hw_print(struct hw_space *space, const struct ptx_print *print);

/* front.c: executes commands of this channel that need no engine, up to *budget. */
void hw_front_run(struct hw_channel *channel, uint64_t now_ns, uint32_t *budget);
/* Updates whether the channel could do something now: reads the ring and the semaphore it waits for. */
void hw_front_look(struct hw_channel *channel);
/* Nothing is left of what was seen in its ring. */
bool hw_front_is_dry(const struct hw_channel *channel);

/* method.c: returns whether the front end may continue with the next method. */
bool hw_method(struct hw_channel *channel, uint32_t subchannel, uint32_t method, uint32_t value,
	       uint32_t *budget);
bool hw_acquire_is_met(struct hw_channel *channel);

/* copy.c */
bool hw_copy_begin(struct hw_channel *channel, uint32_t launch);
struct hw_copied {
	uint64_t bytes;	      /* to be charged */
	uint64_t moved_bytes; /* read and written */
	uint64_t fault_address;
	bool is_done, is_fault, is_write;
};
void hw_copy_run(struct hw_copy *copy, struct hw_space *space, uint64_t max_bytes, struct hw_copied *copied);

/* launch.c */
bool hw_launch_begin(struct hw_channel *channel);
void hw_launch_drop(struct hw_launch *launch);
void hw_launch_free(struct hw_launch *launch); /* without the lock */
void hw_launch_bury(struct hw_launch *launch);

/* place.c: places blocks on SMs. */
void hw_place(struct hw_gpu *gpu, struct hw_unit *unit);
bool hw_place_could(const struct hw_gpu *gpu, const struct hw_launch *launch); /* on an empty GPU */
void hw_resident_remove(struct hw_resident *resident);
void hw_resident_move(struct hw_resident *resident, struct hw_unit *from, struct hw_unit *to);
/* The channel was stopped or continues: its blocks release or take space on their SMs. Nothing of a stopped
 * channel runs. */
void hw_channel_park(struct hw_channel *channel);

/* sm.c: one piece of work for a worker. */
struct hw_job {
	struct hw_gpu *gpu;
	uint32_t sm;
	struct hw_resident *resident; /* or a copy: */
	struct hw_channel *channel;
	uint64_t max_cost, max_bytes;
	uint64_t taken_ns;
};
/* False: nothing to do before *next_ns (of the GPU's clock). */
bool hw_job_take(struct hw_gpu *gpu, uint64_t now_ns, struct hw_job *job, uint64_t *next_ns);
/* Whether another job is so late that waking a second worker pays; the GPU has a holder. */
bool hw_job_is_waiting(struct hw_gpu *gpu, uint64_t now_ns);
void hw_job_run(struct hw_job *job); /* called without the lock, which it takes to account */
/* The time of the engine that is furthest behind, of those that run or could run. */
uint64_t hw_lowest_time_ns(struct hw_gpu *gpu);
void hw_hold_clock(struct hw_gpu *gpu); /* limits the clock to HW_LAG_NS beyond that */
bool hw_unit_is_running(const struct hw_gpu *gpu, const struct hw_unit *unit);
bool hw_channel_is_live(const struct hw_channel *channel); /* enabled and scheduled, */
bool hw_channel_may_run(const struct hw_channel *channel); /* and not held for the moment */

/* turns.c */
bool hw_update(struct hw_gpu *gpu);  /* channels, turns, clock; returns whether anything changed */
bool hw_advance(struct hw_gpu *gpu); /* advances an unpaced clock if nothing is due before */
bool hw_may_run(
	struct hw_gpu *gpu); /* whether the holder has work that may run, in this turn or a next one */
bool hw_others_wait(const struct hw_gpu *gpu); /* other units wait for the end of the turn */
void hw_charge_now(struct hw_gpu *gpu);	       /* charges the holder for its turn so far */
void hw_divide_now(struct hw_gpu *gpu);	       /* and divides that among its groups */
void hw_end_turn(struct hw_gpu *gpu);	       /* call it when nothing of the holder runs */
void hw_unit_forget(struct hw_gpu *gpu, struct hw_unit *unit);
bool hw_group_is_ready(const struct hw_group *group); /* at the last look, a channel of it could continue */

/* group.c */
void hw_group_release(struct hw_group *group); /* drops a reference; call with the lock held */

/* quiet.c: waits until nothing of the object runs. The caller ensures that nothing is started. */
enum hw_whose { HW_WHOSE_CHANNEL, HW_WHOSE_GROUP, HW_WHOSE_UNIT, HW_WHOSE_SPACE };
void hw_wait_quiet(struct hw_gpu *gpu, enum hw_whose whose, const void *object);

/* done.c: records of when a group had completed all its work. */
void hw_done_saw(struct hw_channel *channel);
void hw_done_note(struct hw_channel *channel);
void hw_done_dry(struct hw_channel *channel);

/* fault.c: ends a group and those of its domain. */
struct hw_fault {
	uint32_t error;			 /* SOFT_ERROR_* */
	const struct ptx_fault *ptx;	 /* or NULL */
	const struct ptx_kernel *kernel; /* or NULL */
	uint64_t address;
	const char *text; /* or NULL */
};
void hw_group_fail(struct hw_group *group, const struct hw_fault *fault);
/* Reports a fault of the front end; always returns false. */
bool hw_channel_fail(struct hw_channel *channel, uint32_t error, uint64_t address, const char *text);

#endif
