/* cuda: shared domains. Programs with the same CUDA_MPS_PIPE_DIRECTORY are on the GPU together, as the clients of an MPS
 * server are. Every program is a process of its own; the test's process makes no CUDA call. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SAMPLES = 2000, TRIES = 5 };
#define MS 1000000ull

/* watch(words, samples, count): writes the time to words[0] until words[1] is not 0 and has come. Then it stores the time
 * in samples[], one every 50 us or so. */
static const char ptx[] = PTX_HEAD
	".visible .entry watch(.param .u64 words, .param .u64 samples, .param .u32 count)\n"
	"{\n"
	".reg .b64 %w, %s, %t, %u; .reg .b32 %n, %i, %k; .reg .pred %p;\n"
	"ld.param.u64 %w, [words];\n"
	"ld.param.u64 %s, [samples];\n"
	"ld.param.u32 %n, [count];\n"
	"spin:\n"
	"mov.u64 %t, %globaltimer;\n"
	"st.volatile.global.u64 [%w], %t;\n"
	"ld.volatile.global.u64 %u, [%w+8];\n"
	"setp.eq.u64 %p, %u, 0;\n"
	"@%p bra spin;\n"
	"setp.lt.u64 %p, %t, %u;\n"
	"@%p bra spin;\n"
	"mov.u32 %i, 0;\n"
	"next:\n"
	"mov.u64 %t, %globaltimer;\n"
	"st.global.u64 [%s], %t;\n"
	"add.u64 %s, %s, 8;\n"
	"mov.u32 %k, 300;\n"
	"slow:\n"
	"sub.u32 %k, %k, 1;\n"
	"setp.ne.u32 %p, %k, 0;\n"
	"@%p bra slow;\n"
	"add.u32 %i, %i, 1;\n"
	"setp.lt.u32 %p, %i, %n;\n"
	"@%p bra next;\n"
	"ret;\n}\n";

/* ---- processes */

struct child {
	pid_t pid;
	int to, from;
};

static void put(int fd, const void *bytes, size_t count)
{
	CHECK_EQUAL(write(fd, bytes, count), count);
}

static void get(int fd, void *bytes, size_t count)
{
	for (size_t had = 0; had < count;) {
		ssize_t n = read(fd, (char *)bytes + had, count - had);

		CHECK(n > 0);
		had += (size_t)n;
	}
}

static uint64_t get_word(int fd)
{
	uint64_t word;

	get(fd, &word, sizeof(word));
	return word;
}

static void put_word(int fd, uint64_t word)
{
	put(fd, &word, sizeof(word));
}

/* A process that runs `work` with this CUDA_MPS_PIPE_DIRECTORY, or without one. */
static struct child start(void (*work)(struct child *parent, int part), int part, const char *folder)
{
	int down[2], up[2];
	struct child child, parent;

	CHECK(!pipe(down) && !pipe(up));
	child.pid = fork();
	CHECK(child.pid >= 0);
	if (!child.pid) {
		close(down[1]);
		close(up[0]);
		parent = (struct child){ .to = up[1], .from = down[0] };
		if (folder)
			CHECK(!setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1));
		work(&parent, part);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	child.to = down[1];
	child.from = up[0];
	return child;
}

static void end_well(struct child *child)
{
	int status;

	CHECK_EQUAL(waitpid(child->pid, &status, 0), child->pid);
	CHECK_EQUAL(status, 0);
	close(child->to);
	close(child->from);
}

/* Folders for pipes: with and without a `control` in it. */
static char root[64];

static void folder_of(const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", root, name);
}

static void make_folder(const char *name, bool has_control)
{
	char path[128], control[160];
	int fd;

	folder_of(name, path);
	CHECK(!mkdir(path, 0700));
	snprintf(control, sizeof(control), "%s/control", path);
	fd = has_control ? open(control, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
	CHECK(!has_control || fd >= 0);
	close(fd);
}

static pid_t owner;

static void remove_folders(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	if (getpid() == owner && system(command))
		fprintf(stderr, "cannot remove %s\n", root);
}

static void begin(void)
{
	char options[512], link[128], pool[128];

	if (root[0])
		return;
	snprintf(root, sizeof(root), "/tmp/belfry-domain.XXXXXX");
	CHECK(mkdtemp(root));
	owner = getpid();
	CHECK(!atexit(remove_folders));
	make_folder("pool", true);
	make_folder("other", true);
	make_folder("plain", false);
	folder_of("pool", pool);
	folder_of("link", link);
	CHECK(!symlink(pool, link));
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	/* By the host's clock: nothing depends on which process is started first. */
	snprintf(options, sizeof(options), "%s,pace=on", getenv("BELFRY_SOFT"));
	setenv("BELFRY_SOFT", options, 1);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- what they do */

struct watch {
	CUstream stream;
	volatile uint64_t *words;
	CUdeviceptr samples;
};

static CUstream stream_of_part(int part)
{
	CUdevResource all, halves[2];
	CUdevResourceDesc desc;
	unsigned count = 2;
	CUgreenCtx green;
	CUstream stream;

	CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CU(cuDevSmResourceSplitByCount(halves, &count, &all, NULL, 0, 2));
	CHECK_EQUAL(count, 2);
	CU(cuDevResourceGenerateDesc(&desc, &halves[part], 1));
	CU(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

/* Starts the kernel, on one half of the SMs, and returns when it runs. */
static void watch_start(struct watch *watch, int part)
{
	uint32_t count = SAMPLES;
	CUdeviceptr words;
	void *host, *list[] = { &words, &watch->samples, &count };

	check_context();
	CU(cuMemHostAlloc(&host, 16, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer_v2(&words, host, 0));
	CU(cuMemAlloc_v2(&watch->samples, 8ul * SAMPLES));
	watch->words = host;
	watch->words[0] = watch->words[1] = 0;
	watch->stream = stream_of_part(part);
	CU(cuLaunchKernel(check_function(ptx, "watch"), 1, 1, 1, 1, 1, 1, 0, watch->stream, list, NULL));
	while (!watch->words[0])
		usleep(1000);
}

static void watch_and_tell(struct child *parent, int part)
{
	static uint64_t samples[SAMPLES];
	struct watch watch;

	watch_start(&watch, part);
	put_word(parent->to, watch.words[0]);
	watch.words[1] = get_word(parent->from);
	CU(cuStreamSynchronize(watch.stream));
	CU(cuMemcpyDtoH_v2(samples, watch.samples, sizeof(samples)));
	put(parent->to, samples, sizeof(samples));
}

/* Runs until it is ended, by a fault of another program or by the word that the parent says; tells the result. */
static void run_until_ended(struct child *parent, int part)
{
	struct watch watch;
	CUresult result;

	watch_start(&watch, part);
	put_word(parent->to, 1);
	if (get_word(parent->from))
		watch.words[1] = 1;
	result = cuStreamSynchronize(watch.stream);
	put_word(parent->to, result);
	/* The error stays. */
	CU_FAILS(result, cuCtxSynchronize());
}

static void read_nowhere(struct child *parent, int part)
{
	static const char bad[] = PTX_HEAD ".visible .entry bad()\n{\n.reg .b64 %p; .reg .b32 %r;\n"
					   "mov.u64 %p, 64;\nld.global.u32 %r, [%p];\n"
					   "st.global.u32 [%p], %r;\nret;\n}\n";

	(void)part;
	check_context();
	CU(cuLaunchKernel(check_function(bad, "bad"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	put_word(parent->to, cuCtxSynchronize());
}

static void tell_attribute(struct child *parent, int part)
{
	int value = -1;

	(void)part;
	CU(cuInit(0));
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0));
	put_word(parent->to, (uint64_t)value);
}

/* ---- tests */

/* A program samples the time while it is on the GPU; a longer gap is a turn of another one. */
static bool is_on(const uint64_t *samples, unsigned i)
{
	return samples[i + 1] - samples[i] < MS / 2;
}

static uint64_t shared_ns(const uint64_t *a, const uint64_t *b)
{
	uint64_t ns = 0;

	for (unsigned i = 0, j = 0; i + 1 < SAMPLES && j + 1 < SAMPLES;) {
		uint64_t from = a[i] > b[j] ? a[i] : b[j], to = a[i + 1] < b[j + 1] ? a[i + 1] : b[j + 1];

		if (is_on(a, i) && is_on(b, j) && to > from)
			ns += to - from;
		if (a[i + 1] < b[j + 1])
			i++;
		else
			j++;
	}
	return ns;
}

/* The part of the time of both programs in which both were on the GPU, in percent; -1: they did not begin together. */
static int together_once(const char *one, const char *other)
{
	static uint64_t samples[2][SAMPLES];
	struct child children[2] = { start(watch_and_tell, 0, one), start(watch_and_tell, 1, other) };
	uint64_t begin_ns = 0, from, to;

	for (int i = 0; i < 2; i++) {
		uint64_t now = get_word(children[i].from);

		begin_ns = now > begin_ns ? now : begin_ns;
	}
	begin_ns += 1000 * MS;
	for (int i = 0; i < 2; i++)
		put_word(children[i].to, begin_ns);
	for (int i = 0; i < 2; i++) {
		get(children[i].from, samples[i], sizeof(samples[i]));
		end_well(&children[i]);
	}
	from = samples[0][0] > samples[1][0] ? samples[0][0] : samples[1][0];
	to = samples[0][SAMPLES - 1] < samples[1][SAMPLES - 1] ? samples[0][SAMPLES - 1]
							       : samples[1][SAMPLES - 1];
	if (from > begin_ns + 30 * MS || to <= from)
		return -1;
	return (int)(shared_ns(samples[0], samples[1]) * 100 / (to - from));
}

static int together(const char *one_name, const char *other_name)
{
	char one[128], other[128];
	int percent = -1;

	begin();
	folder_of(one_name, one);
	folder_of(other_name, other);
	for (int i = 0; i < TRIES && percent < 0; i++)
		percent = together_once(one, other);
	CHECK(percent >= 0);
	return percent;
}

static void programs_of_one_domain_run_at_the_same_time(void)
{
	CHECK(together("pool", "pool") > 80);
}

static void domain_is_the_folder_and_not_its_name(void)
{
	CHECK(together("pool", "link") > 80);
}

static void without_control_programs_take_turns(void)
{
	CHECK(together("plain", "plain") < 5);
	CHECK(together("none", "none") < 5);
}

static void programs_of_two_domains_take_turns(void)
{
	CHECK(together("pool", "other") < 5);
	CHECK(together("pool", "plain") < 5);
}

static uint64_t attribute_with(const char *folder)
{
	struct child child = start(tell_attribute, 0, folder);
	uint64_t value = get_word(child.from);

	end_well(&child);
	return value;
}

static void the_attribute_says_whether_programs_are_together(void)
{
	char pool[128], plain[128];

	begin();
	folder_of("pool", pool);
	folder_of("plain", plain);
	CHECK_EQUAL(attribute_with(pool), 1);
	CHECK_EQUAL(attribute_with(plain), 0);
	CHECK_EQUAL(attribute_with(""), 0);
	CHECK_EQUAL(attribute_with(NULL), 0);
}

static void try_init(struct child *parent, int part)
{
	(void)part;
	put_word(parent->to, cuInit(0));
}

/* A name has at most 255 bytes. */
static void a_folder_that_cannot_be_a_name_is_an_error(void)
{
	char path[512], deep[256];
	struct child child;
	int fd;

	begin();
	memset(deep, 'x', 250);
	deep[250] = '\0';
	snprintf(path, sizeof(path), "%s/%s", root, deep);
	CHECK(!mkdir(path, 0700));
	child = start(try_init, 0, path);
	CHECK_EQUAL(get_word(child.from), CUDA_SUCCESS); /* nothing to join */
	end_well(&child);
	strcat(path, "/control");
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	close(fd);
	*strrchr(path, '/') = '\0';
	child = start(try_init, 0, path);
	CHECK_EQUAL(get_word(child.from), CUDA_ERROR_MPS_CONNECTION_FAILED);
	end_well(&child);
}

static void a_fault_ends_all_programs_of_the_domain(void)
{
	char pool[128], other[128];
	struct child bad, victim, stranger, alone;

	begin();
	folder_of("pool", pool);
	folder_of("other", other);
	victim = start(run_until_ended, 0, pool);
	stranger = start(run_until_ended, 0, other);
	alone = start(run_until_ended, 1, NULL);
	CHECK_EQUAL(get_word(victim.from), 1);
	CHECK_EQUAL(get_word(stranger.from), 1);
	CHECK_EQUAL(get_word(alone.from), 1);
	put_word(victim.to, 0);
	bad = start(read_nowhere, 0, pool);
	CHECK_EQUAL(get_word(bad.from), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_EQUAL(get_word(victim.from), CUDA_ERROR_ILLEGAL_ADDRESS);
	end_well(&bad);
	end_well(&victim);
	put_word(stranger.to, 1);
	put_word(alone.to, 1);
	CHECK_EQUAL(get_word(stranger.from), CUDA_SUCCESS);
	CHECK_EQUAL(get_word(alone.from), CUDA_SUCCESS);
	end_well(&stranger);
	end_well(&alone);
	/* The next program of the domain is not affected. */
	victim = start(run_until_ended, 0, pool);
	CHECK_EQUAL(get_word(victim.from), 1);
	put_word(victim.to, 1);
	CHECK_EQUAL(get_word(victim.from), CUDA_SUCCESS);
	end_well(&victim);
}

TESTS(TEST(programs_of_one_domain_run_at_the_same_time), TEST(domain_is_the_folder_and_not_its_name),
      TEST(without_control_programs_take_turns), TEST(programs_of_two_domains_take_turns),
      TEST(the_attribute_says_whether_programs_are_together),
      TEST(a_folder_that_cannot_be_a_name_is_an_error), TEST(a_fault_ends_all_programs_of_the_domain))
