/* belfry.h: libbelfry, the client library of belfryd(8). It makes, changes, watches and removes virtual GPUs, for
 * schedulers, operators and plugins. Link with `pkg-config --cflags --libs belfry`. libbelfry(3) is its manual.
 *
 * It does not start programs on a vGPU: execute `belfry run NAME -- PROGRAM` for that. A run needs processes of its own,
 * which a library must not add to its host. Neither does it start belfryd or the software GPU.
 *
 * Results. A function that returns int returns 0, or a negative errno; belfry_error() then says what failed, why, and what
 * to do. These codes have the same meaning in every function:
 *
 *   -EINVAL, -ERANGE   an argument is wrong, or belfryd refused its value; bad arguments are found before anything is sent
 *   -ENOENT            there is no such vGPU
 *   -EEXIST            there is such a vGPU already
 *   -EPERM, -EACCES    the caller may not do this, or may not connect
 *   -ENOSPC, -EDQUOT   the GPU or the quota of the owner has not enough left
 *   -ENODEV            there is no such GPU, or it is not served now
 *   -EBUSY             programs run on it
 *   -EAGAIN            belfryd has too many clients, or is about to exit; try again
 *   -ECONNREFUSED      no belfryd runs there
 *   -ETIMEDOUT         belfryd did not answer in time; it may still carry out what was asked
 *   -EPROTO            belfryd is of another release, or what answered is not belfryd
 *   -ENOMEM            there is no memory
 *
 * Data is returned as JSON text in UTF-8, with the keys of `belfry stats --json`: a new key breaks no program. The caller
 * frees the text with belfry_free().
 *
 * Options, too, are text: a list of keys and values that ends with NULL, with the words of `belfry create`. A structure
 * would change its layout with every option that a release adds; a list does not, and an unknown key is an error with a
 * message and not a field that is silently ignored.
 *
 *   const char *const options[] = { "mem", "40G", "time", "40:100", "class", "latency", NULL };
 *
 * A handle keeps no connection between calls: each call connects anew. So a handle remains usable when belfryd is restarted,
 * and after fork(). A handle must be used by one thread at a time; different handles are independent, as the library has no
 * state outside of them. The library never exits, prints, forks, or changes signals or the locale. It raises no SIGPIPE, and
 * its descriptors are close-on-exec. Where belfry_open() was given no socket, each call reads BELFRY_SOCKET,
 * BELFRY_RUNTIME_DIR and XDG_RUNTIME_DIR with getenv(), and makes the user's runtime folder if it does not exist.
 *
 * Compatibility. Programs that are built against one libbelfry.so.0 run with every later one. libbelfry and belfryd must be
 * of one release, as belfry(1) and belfryd. */
#ifndef BELFRY_BELFRY_H
#define BELFRY_BELFRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One client of one belfryd. */
struct belfry;

/* The release of this library, such as "0.1.0". */
const char *belfry_version(void);

/* Make a handle. socket: the path of belfryd's socket; NULL: find belfryd as belfry(1) does, which is BELFRY_SOCKET if that
 * is set, else /run/belfry/belfryd.sock if it answers, else the private belfryd of the user. Does not connect; belfry_info()
 * tells whether belfryd answers.
 *
 * *b is set even if this fails, so that belfry_error() can say why; it is NULL if there is no memory. Call belfry_close() in
 * either case. */
int belfry_open(struct belfry **b, const char *socket);
/* Free the handle. NULL is allowed. */
void belfry_close(struct belfry *b);

/* What the last call on this handle failed with: one line, without a newline at its end; "" if it succeeded. Valid until the
 * next call on the handle. NULL is allowed: then memory was short. */
const char *belfry_error(const struct belfry *b);
/* Free a text that this library returned. NULL is allowed. */
void belfry_free(char *text);

/* How long to wait for belfryd, in milliseconds, at most one day; 0 restores the default, 20000. It bounds each request:
 * belfry_report() of all GPUs makes one for belfryd and one for each GPU, every other function makes one. */
int belfry_set_timeout(struct belfry *b, unsigned milliseconds);
/* How long belfryd took to carry out the last successful request, in nanoseconds, without the transport. */
uint64_t belfry_took_ns(const struct belfry *b);

enum belfry_flags {
	BELFRY_FORCE = 1, /* belfry_vgpu_remove(): end the programs that run on it */
	BELFRY_SET = 2,	  /* belfry_vgpu_check(): check for belfry_vgpu_set() */
};

/* Make a vGPU. It exists until it is removed. name: 1 to 63 of a-z 0-9 . _ -, a letter or digit first. options may be NULL;
 * a key that appears twice has the last value. The keys are those of belfry-create(1):
 *
 *   mem         the limit of device memory, which is reserved: "40G"
 *   time        percent of the GPU's time, guaranteed and at most: "40:100"; "40" is the same
 *   class       "throughput" or "latency"
 *   objective   for class latency: "p99=2ms", "none"
 *   domain      the domain that it shares its turns with
 *   timeslice   the length of its turn: "200us"
 *   interleave  how often its turn comes: "low", "medium", "high"
 *   public      whether every user may run programs on it: "yes", "no"
 *   gpu         which GPU: "0", "soft:0"; without it belfryd chooses
 *   folder      with "gpu" "soft:N": the folder of a software GPU other than belfryd's own
 *   owner       the number of the user who will own it; for root
 *   any-driver  "yes": accept a driver series that Belfry does not know
 *
 * json, unless NULL: {"name": "train", "gpu": "soft:0"}. */
int belfry_vgpu_create(struct belfry *b, const char *name, const char *const *options, char **json);
/* Change a vGPU while programs run on it; what is not in options remains. Keys: the first eight of those above. */
int belfry_vgpu_set(struct belfry *b, const char *name, const char *const *options);
/* Check a name and options without asking belfryd, as belfry_vgpu_create() would, or with BELFRY_SET as belfry_vgpu_set()
 * would. name NULL: check the options only. */
int belfry_vgpu_check(struct belfry *b, const char *name, const char *const *options, unsigned flags);
/* Remove a vGPU. -EBUSY if programs run on it, unless flags has BELFRY_FORCE. */
int belfry_vgpu_remove(struct belfry *b, const char *name, unsigned flags);

/* Close the gate of a vGPU: nothing that its programs submit from now on reaches the GPU. for_us: open it again after so many
 * microseconds, at most one day; 0: not before belfry_vgpu_open(). */
int belfry_vgpu_hold(struct belfry *b, const char *name, uint64_t for_us);
int belfry_vgpu_open(struct belfry *b, const char *name);
/* Stop what a vGPU runs on the GPU, in the middle of a kernel if need be; and let it go on from there. */
int belfry_vgpu_stop(struct belfry *b, const char *name);
int belfry_vgpu_resume(struct belfry *b, const char *name);

/* Why a vGPU waits, or what it does: {"text": "...", ...}. The text is for people. */
int belfry_vgpu_explain(struct belfry *b, const char *name, char **json);
/* Everything that is counted: {"daemon": {...}, "gpus": [...], "vgpus": [...]}, as `belfry stats --json` prints it, of all
 * GPUs, or of one vGPU and its GPU. If the server of one GPU does not answer, the error is returned and *json has the rest.
 * *json is NULL if there is nothing to report. */
int belfry_report(struct belfry *b, const char *name, char **json);
/* belfryd and its GPUs, without asking their servers: {"daemon": {...}, "gpus": [...]}. */
int belfry_info(struct belfry *b, char **json);
/* Have belfryd read its configuration again. If something is wrong with it, nothing changes. */
int belfry_reload(struct belfry *b);

#ifdef __cplusplus
}
#endif

#endif
