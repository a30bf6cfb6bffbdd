/* warden: stands between the programs of one vGPU and the kernel driver. Their driver calls arrive as seccomp
 * notifications; what matters is done here, on a private copy of the arguments, and answered; the rest passes.
 * It never decides who runs when: it makes the channels known to the gate, and does as it is told. */
#ifndef BELFRY_WARDEN_H
#define BELFRY_WARDEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "gate/gate.h"
#include "warden/device.h"

struct warden;

struct warden_options {
	uint64_t mem_bytes;    /* 0: the whole card */
	uint64_t timeslice_us; /* 0: as the program asks */
	int interleave;	       /* 0..2; -1: as the program asks */
};

/* Takes over `listener`. The device and the gate outlive the warden. */
struct warden *warden_new(int listener, struct device *device, struct gate *gate,
			  const struct warden_options *options, struct bf_error *err);
void warden_free(struct warden *warden);

/* Poll this for reading (an epoll descriptor), then call warden_work. */
int warden_fd(const struct warden *warden);
/* Handle what is there. False once no supervised process is left. */
bool warden_work(struct warden *warden);
/* Compare the ledger with the driver's figures, and end who has more than it was given. Once a second. */
void warden_audit(struct warden *warden);

/* Close the gate; open it. */
void warden_hold(struct warden *warden);
void warden_open(struct warden *warden);
/* Stop what runs, in mid-kernel; let it run again. While stopped, driver calls wait. */
int warden_stop(struct warden *warden, struct bf_error *err);
int warden_resume(struct warden *warden, struct bf_error *err);
int warden_set_timeslice(struct warden *warden, uint64_t us, struct bf_error *err);
int warden_set_interleave(struct warden *warden, int level, struct bf_error *err);
int warden_set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err);

enum warden_gate { WARDEN_OPEN, WARDEN_HELD, WARDEN_STOPPED };
#define WARDEN_REPORT_PROCESSES 64
struct warden_report {
	uint64_t mem_limit_bytes, mem_used_bytes, mem_most_bytes, mem_managed_bytes, mem_driver_bytes;
	uint64_t timeslice_us;
	int interleave;
	enum warden_gate gate;
	uint32_t channels, processes;
	uint64_t calls, refusals, rings, forwards, strange, swept, gate_cpu_ns;
	struct {
		pid_t pid;
		uint64_t used_bytes;   /* by the ledger */
		uint64_t driver_bytes; /* by the driver */
	} process[WARDEN_REPORT_PROCESSES];
};
void warden_report(struct warden *warden, struct warden_report *report);

#endif
