/* belfry.h: libbelfry, the client library of belfryd(8). It creates, changes, monitors and removes virtual GPUs, for
 * schedulers, operators and plugins. Link with `pkg-config --cflags --libs belfry`. libbelfry(3) is its manual.
 *
 * It does not start programs on a vGPU: execute `belfry run NAME -- PROGRAM` for that. A run needs processes of its
 * own, which a library must not add to its host. It does not start belfryd or the software GPU either.
 *
 * Results. A function that returns int returns 0 or a negative errno. After an error belfry_error() says what failed,
 * why, and what to do. These codes have the same meaning in every function:
 *
 *   -EINVAL, -ERANGE   an argument is wrong, or belfryd refused its value; bad arguments are found before a request is sent
 *   -ENOENT            there is no such vGPU
 *   -EEXIST            there is such a vGPU already
 *   -EPERM, -EACCES    the caller may not do this, or may not connect
 *   -ENOSPC, -EDQUOT   not enough is left of the GPU or of the owner's quota
 *   -ENODEV            there is no such GPU, or it is not served now
 *   -EBUSY             programs run on the vGPU
 *   -EAGAIN            belfryd has too many clients, or is about to exit; try again
 *   -ECONNREFUSED      no belfryd runs there
 *   -ETIMEDOUT         belfryd did not answer in time; it may still carry out the request
 *   -EPROTO            belfryd is of another release, or the peer is not belfryd
 *   -ENOMEM            out of memory
 *
 * Data is returned as JSON text in UTF-8, with the keys of `belfry stats --json`. Later releases may add keys. The
 * caller frees the text with belfry_free().
 *
 * Options are also text: a list of keys and values, terminated by NULL, as in `belfry create`. A structure would
 * change its layout with every option that a release adds. A list does not, and an unknown key is an error with a
 * message, not a field that is silently ignored.
 *
 *   const char *const options[] = { "mem", "40G", "time", "40:100", "class", "latency", NULL };
 *
 * A handle keeps no connection between calls: each call opens a new one. So a handle remains usable when belfryd is
 * restarted, and after fork(). A handle must be used by one thread at a time. Different handles are independent,
 * because the library has no other state. The library never exits, prints, forks, or changes signals or the locale.
 * It raises no SIGPIPE, and its descriptors are close-on-exec. If belfry_open() was given no socket, each call reads
 * BELFRY_SOCKET, BELFRY_RUNTIME_DIR and XDG_RUNTIME_DIR with getenv(), and creates the user's runtime folder if it
 * does not exist.
 *
 * Compatibility. Programs that are built against one libbelfry.so.0 run with every later one. libbelfry and belfryd
 * must be of one release, like belfry(1) and belfryd. */
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

/* Create a handle. socket: the path of belfryd's socket; NULL: find belfryd as belfry(1) does, which is BELFRY_SOCKET
 * if that is set, else /run/belfry/belfryd.sock if it answers, else the private belfryd of the user. Does not
 * connect: belfry_info() checks whether belfryd answers.
 *
 * *b is set even if this fails, so that belfry_error() can say why; it is NULL if out of memory. Call belfry_close()
 * in either case. */
int belfry_open(struct belfry **b, const char *socket);
/* Free the handle. NULL is allowed. */
void belfry_close(struct belfry *b);

/* The error of the last call on this handle: one line without a newline; "" if the call succeeded. Valid until the
 * next call on the handle. b NULL: says that there is no handle. */
const char *belfry_error(const struct belfry *b);
/* Free a text that this library returned. NULL is allowed. */
void belfry_free(char *text);

/* How long to wait for belfryd, in milliseconds, at most one day; 0 restores the default, 20000. It limits each
 * request: belfry_report() makes one to belfryd and one for each GPU that it reports. Every other function makes one. */
int belfry_set_timeout(struct belfry *b, unsigned milliseconds);
/* How long belfryd took to carry out the last successful request, in nanoseconds, without the transport. */
uint64_t belfry_took_ns(const struct belfry *b);

enum belfry_flags {
	BELFRY_FORCE = 1, /* belfry_vgpu_remove(): end the programs on the vGPU */
	BELFRY_SET = 2,	  /* belfry_vgpu_check(): check options of belfry_vgpu_set() */
};

/* Create a vGPU. It exists until it is removed. name: 1 to 63 of a-z 0-9 . _ -, a letter or digit first. options may
 * be NULL. If a key appears twice, the last value counts. The keys are those of belfry-create(1):
 *
 *   mem         the limit of device memory, which is reserved: "40G"
 *   time        requested share and limit of the GPU's time, in percent: "40:100"; "40" is the same
 *   class       "throughput" or "latency"
 *   objective   for class latency: "p99=2ms", "none"
 *   domain      the domain with which it shares its turns
 *   sm          percent of the GPU's SMs, requested and limit: "25:100", "none"; the programs of the domain then
 *               share a GPU context, and a fault
 *   timeslice   the length of its turn: "200us"
 *   interleave  how often its turn comes: "low", "medium", "high"
 *   public      whether every user may run programs on it: "yes", "no"
 *   gpu         which GPU: "0", "soft:0"; default: belfryd chooses
 *   folder      with "gpu" "soft:N": the folder of a software GPU other than belfryd's own
 *   owner       the user ID of the owner; root only
 *   any-driver  "yes": accept a driver series that Belfry does not know
 *
 * json, unless NULL: {"name": "train", "gpu": "soft:0"}, and "now_shared": true if the domain has become a shared one
 * with this vGPU. */
int belfry_vgpu_create(struct belfry *b, const char *name, const char *const *options, char **json);
/* Change a vGPU, also while programs run on it. Other values stay the same. Keys: the first nine of those above. */
int belfry_vgpu_set(struct belfry *b, const char *name, const char *const *options);
/* The name of the domain that the last call on this handle, belfry_vgpu_create() or belfry_vgpu_set(), has made a shared
 * one; "" if none. A fault of one program of a shared domain ends all its programs. Valid until the next call. */
const char *belfry_shared_domain(const struct belfry *b);
/* Check a name and options without a request to belfryd, as belfry_vgpu_create() does, or with BELFRY_SET as
 * belfry_vgpu_set() does. name NULL: check the options only. */
int belfry_vgpu_check(struct belfry *b, const char *name, const char *const *options, unsigned flags);
/* Remove a vGPU. -EBUSY if programs run on it, unless flags has BELFRY_FORCE. */
int belfry_vgpu_remove(struct belfry *b, const char *name, unsigned flags);

/* Close the gate of a vGPU: later submissions of its programs do not reach the GPU. for_us: open the gate after this
 * many microseconds, at most one day; 0: not before belfry_vgpu_open(). */
int belfry_vgpu_hold(struct belfry *b, const char *name, uint64_t for_us);
int belfry_vgpu_open(struct belfry *b, const char *name);
/* Stop the work of a vGPU on the GPU, in the middle of a kernel if necessary. Resume it from there. A hold stays;
 * belfry_vgpu_open() ends both. */
int belfry_vgpu_stop(struct belfry *b, const char *name);
int belfry_vgpu_resume(struct belfry *b, const char *name);

/* Why a vGPU waits, or what it does: {"text": "...", ...}. The text is for display. */
int belfry_vgpu_explain(struct belfry *b, const char *name, char **json);
/* Everything that is counted: {"daemon": {...}, "gpus": [...], "vgpus": [...], ...}, as `belfry stats --json` prints
 * it, of all GPUs, or of one vGPU and its GPU. If the server of one GPU does not answer, the error is returned and
 * *json has the reports of the others. *json is NULL if there is nothing to report. */
int belfry_report(struct belfry *b, const char *name, char **json);
/* belfryd and its GPUs, without a request to their servers: {"daemon": {...}, "gpus": [...], ...}. */
int belfry_info(struct belfry *b, char **json);
/* Have belfryd read its configuration again. If it is invalid, nothing changes. */
int belfry_reload(struct belfry *b);

#ifdef __cplusplus
}
#endif

#endif
