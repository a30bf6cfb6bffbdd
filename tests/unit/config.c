/* config: what the configuration may say, what it may not, and what it is told then; drop-ins; what is remembered. */
#include "router/config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "router/state.h"

static char folder[64];

static int use_new_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/belfry-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static int parse(struct config *config, const char *text, struct bf_error *err)
{
	int rc;

	config_init(config);
	rc = config_parse(config, "f", text, strlen(text), false, err);
	return rc ? rc : config_check(config, err);
}

static void everything_that_can_be_said_is_understood(void **state)
{
	struct bf_error err = { 0 };
	struct config config;

	(void)state;
	assert_int_equal(
		parse(&config,
		      "# all of it\n\n[server]\r\n gpus = 0 1,soft:1\naccess=group 7\n"
		      "on_daemon_death = carry\nmetrics = [::1]:9835\nlog = debug\nlinger = 2s\n"
		      "[sharing]\nwindow = 2s\nround = 50ms\nslice_min = 1ms\ngrace = 0\nidle = 0us\n"
		      "how = turns\npublic_domains = none\npublic_domains = pool,\t batch \n"
		      "mps_control = auto\nmps_control = /usr/bin/mps\nmps_folder = auto\nmps_folder = /run/m\n"
		      "[vgpu infer]\nmem = 30G\ntime = 40:100\nclass = latency\nobjective = p99=2ms\n"
		      "gpu = 1\nowner = 1000\npublic = yes\ndomain = pool\nsm = 25:50\n"
		      "[vgpu train]\ngpu = soft:1 /run/x\n"
		      "# the end, without a newline",
		      &err),
		0);
	assert_false(config.is_all);
	assert_int_equal(config.gpu_count, 3);
	assert_int_equal(config.gpus[2].kind, PROTOCOL_GPU_SOFT);
	assert_int_equal(config.gpus[2].index, 1);
	assert_int_equal(config.access, CONFIG_GROUP);
	assert_int_equal(config.group, 7);
	assert_int_equal(config.sharing.on_daemon_death, SETTINGS_CARRY);
	assert_string_equal(config.metrics, "[::1]:9835");
	assert_int_equal(config.log, BF_LOG_DEBUG);
	assert_int_equal(config.linger_us, 2000000);
	assert_int_equal(config.sharing.window_us, 2000000);
	assert_int_equal(config.sharing.round_us, 50000);
	assert_int_equal(config.sharing.slice_min_us, 1000);
	assert_int_equal(config.sharing.grace_us, 0);
	assert_int_equal(config.sharing.idle_us, 0);
	assert_int_equal(config.sharing.how, SETTINGS_TURNS);
	assert_string_equal(config.sharing.public_domains, "pool batch");
	assert_string_equal(config.sharing.mps_control, "/usr/bin/mps");
	assert_string_equal(config.sharing.mps_folder, "/run/m");
	assert_int_equal(config.vgpu_count, 2);
	assert_int_equal(config.vgpus[0].spec.sm_limit_ppm, 500000);
	assert_int_equal(config.vgpus[0].spec.mem_bytes, 30ull << 30);
	assert_int_equal(config.vgpus[0].spec.request_ppm, 400000);
	assert_int_equal(config.vgpus[0].owner, 1000);
	assert_string_equal(config.vgpus[1].gpu.folder, "/run/x");
	config_free(&config);
}

static void nothing_said_is_the_default(void **state)
{
	struct config config;

	(void)state;
	assert_int_equal(parse(&config, "", NULL), 0);
	assert_true(config.is_all);
	assert_int_equal(config.access, CONFIG_OWNER);
	assert_int_equal(config.metrics[0], 0);
	assert_int_equal(config.sharing.window_us, 1000000);
	assert_int_equal(config.sharing.round_us, 100000);
	assert_int_equal(config.sharing.slice_min_us, 2000);
	assert_int_equal(config.sharing.grace_us, 500);
	assert_int_equal(config.sharing.idle_us, 1000);
	assert_int_equal(config.sharing.how, SETTINGS_AUTO);
	assert_string_equal(config.sharing.public_domains, "");
	assert_int_equal(config.sharing.on_daemon_death, SETTINGS_END);
	config_free(&config);
}

static void mistakes_are_told_with_their_line(void **state)
{
	static const struct {
		const char *text, *told;
	} cases[] = {
		{ "gpus = all", "f:1: gpus: in no section" },
		{ "[server]\ngpus", "f:2: 'gpus': neither a section nor a setting" },
		{ "[server", "f:1: '[server': a section without its end" },
		{ "[sever]", "f:1: section 'sever': not known; there are [server]" },
		{ "[vgpu]", "f:1: section 'vgpu': not known" },
		{ "[vgpu A]", "f:1: name 'A': not a name" },
		{ "[server]\n\nspeed = 3", "f:3: speed: no key of [server]" },
		{ "[sharing]\nspeed = 3", "f:2: speed: no key of [sharing]" },
		{ "[sharing]\nmps_folder = m", "f:2: mps_folder 'm': write the whole path, or auto" },
		{ "[sharing]\nmps_control = mps", "f:2: mps_control 'mps': write the whole path, or auto" },
		{ "[vgpu a]\nsm = 25", "sm '25:100': it divides the SMs among the vGPUs of a domain" },
		{ "[sharing]\npublic_domains = pool Pool", "f:2: public_domains: name 'Pool': not a name" },
		{ "[vgpu a]\nspeed = 3", "f:2: speed: no key of [vgpu NAME]; there are mem, time" },
		{ "[vgpu a]\nspeed = 3", "public, gpu, owner" },
		{ "[vgpu a]\nfrom = configuration", "f:2: from: no key of [vgpu NAME]" },
		{ "[server]\n= 3", "f:2: '': a key is missing" },
		{ "[server]\nlog =", "f:2: 'log': a value is missing" },
		{ "[server]\nlog = loud", "f:2: log 'loud': not known" },
		{ "[server]\ngpus = 0 x", "f:2: gpu 'x': not a GPU" },
		{ "[server]\ngpus = 254", "f:2: gpu '254': not a GPU" },
		{ "[server]\ngpus = ,", "f:2: gpus: names none" },
		{ "[server]\naccess = all", "f:2: access 'all': not known; write owner" },
		{ "[server]\naccess = group no-such-group", "there is no such group" },
		{ "[server]\non_daemon_death = x",
		  "f:2: on_daemon_death 'x': not known; write end or carry" },
		{ "[server]\nmetrics = 9835", "f:2: metrics '9835': not an address and a port" },
		{ "[server]\nmetrics = 127.0.0.1:0", "its port is not from 1 to 65535" },
		{ "[server]\nmetrics = 127.0.0.1:1234567890", "its port is not from 1 to 65535" },
		{ "[server]\nmetrics = host:80", "not an address" },
		{ "[server]\nmetrics = 0.0.0.0:80",
		  "others can reach that address; write '0.0.0.0:80 public'" },
		{ "[server]\nmetrics = [::]:80", "others can reach that address" },
		{ "[server]\nmetrics = 0.0.0.0:80 please", "only 'public' may stand there" },
		{ "[sharing]\nwindow = 9ms", "f:2: window '9ms': out of range; it may be 10ms to 60s" },
		{ "[sharing]\nwindow = 61s", "out of range" },
		{ "[sharing]\nround = 999us", "out of range" },
		{ "[sharing]\nslice_min = 99us", "out of range" },
		{ "[sharing]\ngrace = 1001ms", "out of range" },
		{ "[sharing]\nidle = 2s", "out of range" },
		{ "[sharing]\nidle = 2", "no unit" },
		{ "[sharing]\nhow = fair", "f:2: how 'fair': not known; write auto, tokens or turns" },
		{ "[sharing]\nround = 2s\n", "f:2: round of 2000000 us: longer than the window" },
		{ "[sharing]\nslice_min = 200ms\n", "f:2: slice_min of 200000 us: longer than the round" },
		{ "[vgpu a]\nowner = no-such-user", "f:2: owner 'no-such-user': there is no such user" },
		{ "[vgpu a]\nowner = 4294967295", "not a number" },
		{ "[vgpu a]\ngpu = 0 /x", "only soft:NUMBER may have a folder" },
		{ "\n[vgpu a]\nobjective = p99=2ms", "f:2: vgpu 'a': objective" },
		{ "[vgpu a]\nmem = 1G\n[vgpu b]\n[vgpu a]\nmem = 2G",
		  "f:4: vgpu 'a': a second section of this name; the first is in line 1" },
		{ "[user 7]\nvgpus = 1\n[user *]\nvgpus = 2\n[user 7]\nvgpus = 3",
		  "f:5: user '7': a second section of this user; the first is in line 1" },
		{ "[user *]\n[user *]\n",
		  "f:2: user '*': a second section of this user; the first is in line 1" },
		{ "[server]\nlog = warn\n[sharing]\n[server]\nlog = info",
		  "f:4: a second section [server]; the first is in line 1" },
		{ "[sharing]\n[sharing]\n", "f:2: a second section [sharing]; the first is in line 1" },
		{ "\n[events]\n[events]\n", "f:3: a second section [events]; the first is in line 2" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bf_error err = { 0 };
		struct config config;

		assert_true(parse(&config, cases[i].text, &err) < 0);
		if (!strstr(err.text, cases[i].told))
			print_error("'%s' gives '%s'\n", cases[i].text, err.text);
		assert_non_null(strstr(err.text, cases[i].told));
		config_free(&config);
	}
}

static void gpus_that_are_not_there_are_refused_where_others_are(void **state)
{
	static const struct protocol_gpu nv[] = { { .kind = PROTOCOL_GPU_NV, .index = 0 },
						  { .kind = PROTOCOL_GPU_NV, .index = 2 } },
					 soft[] = { { .kind = PROTOCOL_GPU_SOFT, .index = 0 } };
	static const struct {
		const char *text, *told; /* NULL: it is right */
	} cases[] = {
		{ "", NULL },
		{ "[server]\ngpus = all\n[vgpu a]\ngpu = 2", NULL },
		{ "[server]\ngpus = 2 0 soft:3\n[vgpu a]\ngpu = any\n[vgpu b]\ngpu = soft:1", NULL },
		{ "[server]\nlog = warn\ngpus = 0 1",
		  "f:3: gpus: there is no /dev/nvidia1; belfry info lists the GPUs" },
		{ "[server]\n[vgpu a]\n[vgpu b]\ngpu = 3",
		  "f:3: vgpu 'b': gpu: there is no /dev/nvidia3; belfry info" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bf_error err = { 0 };
		struct config config;

		assert_int_equal(parse(&config, cases[i].text, &err), 0);
		assert_int_equal(config_check_gpus(&config, nv, 2, &err), cases[i].told ? -ENODEV : 0);
		assert_true(!cases[i].told || strstr(err.text, cases[i].told));
		/* Without a driver nothing is known of its GPUs. */
		assert_int_equal(config_check_gpus(&config, soft, 1, &err), 0);
		assert_int_equal(config_check_gpus(&config, NULL, 0, &err), 0);
		config_free(&config);
	}
}

static void gpus_that_are_not_served_are_told_by_the_line(void **state)
{
	static const struct protocol_gpu nv[] = { { .kind = PROTOCOL_GPU_NV, .index = 0 },
						  { .kind = PROTOCOL_GPU_NV, .index = 2 } },
					 soft[] = { { .kind = PROTOCOL_GPU_SOFT, .index = 0 },
						    { .kind = PROTOCOL_GPU_SOFT, .index = 1 } };
	static const struct {
		const char *text;
		bool is_nv;
		const char *told, *warned; /* NULL: nothing */
	} cases[] = {
		{ "[server]\ngpus = 0 2 soft:1\n[vgpu a]\ngpu = soft:1\n[vgpu b]\ngpu = any", true, NULL,
		  NULL },
		{ "[vgpu a]\ngpu = soft:7 /run/x", false, NULL, NULL },
		{ "[vgpu a]\ngpu = soft:1", false, NULL, NULL },
		{ "[server]\n\ngpus = soft:0 soft:2", false,
		  "f:3: gpus: there is no soft:2; the software GPU has 2 GPUs", NULL },
		{ "[server]\n[vgpu a]\ngpu = soft:3", false, "f:2: vgpu 'a': gpu: there is no soft:3", NULL },
		{ "[server]\ngpus = 0\n[vgpu a]\ngpu = 2", true,
		  "f:3: vgpu 'a': gpu 2 is not served; add it to gpus", NULL },
		{ "[vgpu a]\ngpu = soft:0", true, "f:1: vgpu 'a': gpu soft:0 is not served", NULL },
		{ "[server]\nlog = warn\ngpus = 0 1", false, NULL,
		  "f:3: gpus: there is no /dev/nvidia0 now, nor any other NVIDIA GPU\nf:3: gpus: there is no /dev/nvidia1" },
		{ "[vgpu a]\ngpu = 0", false, NULL, "f:1: vgpu 'a': gpu: there is no /dev/nvidia0 now" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bf_error err = { 0 };
		struct config config;
		char warning[512];
		int rc;

		assert_int_equal(parse(&config, cases[i].text, &err), 0);
		rc = config_check_served(&config, cases[i].is_nv ? nv : soft, 2, 2, warning, sizeof(warning),
					 &err);
		if (rc != (cases[i].told ? -ENODEV : 0) ||
		    (cases[i].told && !strstr(err.text, cases[i].told)) ||
		    (cases[i].warned ? !strstr(warning, cases[i].warned) : warning[0]))
			fail_msg("'%s': %d, '%s', '%s'", cases[i].text, rc, err.text, warning);
		config_free(&config);
	}
}

static void accounting_needs_a_file_that_can_be_written(void **state)
{
	char parent[] = "/tmp/belfry-config.XXXXXX", text[128], told[160], path[64];
	static const char *const wrong[] = { "/none/file", "/plain/file", "" };
	struct bf_error err = { 0 };
	struct config config;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(parent));
	snprintf(path, sizeof(path), "%s/plain", parent);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
		snprintf(text, sizeof(text), "[server]\n\naccounting = %s%s", parent, wrong[i]);
		snprintf(told, sizeof(told), "f:3: accounting '%s%s': ", parent, wrong[i]);
		assert_int_equal(parse(&config, text, &err), 0);
		assert_true(config_check_accounting(&config, &err) < 0);
		assert_ptr_equal(strstr(err.text, told), err.text);
		config_free(&config);
	}
	snprintf(text, sizeof(text), "[server]\naccounting = %s", path);
	assert_int_equal(parse(&config, text, &err), 0);
	assert_int_equal(config_check_accounting(&config, &err), 0);
	unlink(path);
	assert_int_equal(config_check_accounting(&config, &err), 0);
	assert_int_equal(access(path, F_OK), -1); /* a check leaves nothing */
	config_free(&config);
	rmdir(parent);
}

#define LEAST "policy = " BELFRY_BUILD_DIR "/tests/policies/least.bpf.o\n"

static void policies_are_held_against_their_objects(void **state)
{
	static const struct {
		const char *text, *told; /* NULL: it is right */
	} cases[] = {
		{ "", NULL },
		{ "[sharing]\npolicy = built-in\n", NULL },
		{ "[sharing]\n" LEAST, NULL },
		{ "[sharing]\n" LEAST "policy_set = slice_us=7000  is_strict=false\n", NULL },
		{ "[sharing]\npolicy = nosuch\n", "f:2: policy nosuch: neither a file nor" },
		{ "[sharing]\n\npolicy = /no/such.o\n", "f:3: policy /no/such.o: No such file" },
		{ "[sharing]\npolicy = /dev/null\n", "f:2: policy /dev/null: not a plain file" },
		{ "[sharing]\npolicy = " BELFRY_BUILD_DIR "/tests/policies/wrong_hook.bpf.o\n",
		  "there is no hook 'pikc'" },
		{ "[sharing]\n" LEAST "policy_set = bogus=5\n",
		  "f:3: policy_set: 'bogus' cannot be set: this policy has slice_us" },
		{ "[sharing]\npolicy_set = slice_us=x\n" LEAST,
		  "f:2: policy_set: 'slice_us=x': not a whole" },
		{ "[sharing]\n" LEAST "policy_set = slice_us\n",
		  "f:3: policy_set: 'slice_us': not NAME=VALUE" },
		{ "[sharing]\npolicy_set = slice_us=1\n",
		  "f:2: policy_set: the built-in has nothing to set" },
		{ "[sharing]\npolicy = built-in\npolicy_set = slice_us=1\n",
		  "f:3: policy_set: the built-in has nothing to set" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bf_error err = { 0 };
		struct config config;
		int rc;

		/* It is no mistake that keeps belfryd from starting. */
		assert_int_equal(parse(&config, cases[i].text, &err), 0);
		rc = config_check_policy(&config, false, &err);
		if (cases[i].told ? !strstr(err.text, cases[i].told) : rc != 0)
			fail_msg("'%s' gives '%s'", cases[i].text, err.text);
		assert_int_equal(rc, -err.code);
		config_free(&config);
	}
}

static void limits_are_kept(void **state)
{
	size_t room = (2 << 20) + 1;
	char *text = malloc(room);
	struct bf_error err = { 0 };
	struct config config;
	int used = 0;

	(void)state;
	memset(text, '#', 1026);
	text[1024] = 0;
	assert_int_equal(parse(&config, text, &err), 0);
	config_free(&config);
	text[1024] = '#';
	text[1025] = 0;
	assert_int_equal(parse(&config, text, &err), -E2BIG);
	assert_non_null(strstr(err.text, "f:1: line of 1025 bytes: too long; the most is 1024"));
	config_free(&config);
	memset(text, '\n', room);
	config_init(&config);
	assert_int_equal(config_parse(&config, "f", text, 1 << 20, false, &err), 0);
	assert_int_equal(config_parse(&config, "f", text, (1 << 20) + 1, false, &err), -EFBIG);
	assert_int_equal(config_parse(&config, "f", "a\0b", 3, false, &err), -EINVAL);
	assert_non_null(strstr(err.text, "zero byte"));
	config_free(&config);
	for (int i = 0; i < 4096; i++)
		used += snprintf(text + used, room - (size_t)used, "[vgpu v%d]\n", i);
	assert_int_equal(parse(&config, text, &err), 0);
	config_free(&config);
	snprintf(text + used, room - (size_t)used, "[vgpu more]\n");
	assert_int_equal(parse(&config, text, &err), -E2BIG);
	assert_non_null(strstr(err.text, "f:4097: vgpu 'more': one too many; there may be 4096"));
	config_free(&config);
	free(text);
}

static void put(const char *name, const char *text)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void drop_ins_come_after_in_the_order_of_their_names(void **state)
{
	struct bf_error err = { 0 };
	struct config config;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/c.d", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/c", folder);
	put("c", "[server]\nlog = info\n[sharing]\nwindow = 2s\n[vgpu a]\nmem = 1G\ntime = 10\n");
	put("c.d/20-b.conf", "[sharing]\nround = 200ms\n[vgpu a]\nmem = 3G\n[vgpu b]\n");
	put("c.d/10-a.conf", "[sharing]\nround = 300ms\n[vgpu a]\nmem = 2G\n");
	put("c.d/30-c.conf~", "nonsense");
	put("c.d/.hidden.conf", "nonsense");
	config_init(&config);
	assert_int_equal(config_read(&config, path, &err), 0);
	assert_int_equal(config.log, BF_LOG_INFO);
	assert_int_equal(config.sharing.window_us, 2000000);
	assert_int_equal(config.sharing.round_us, 200000);
	assert_int_equal(config.vgpu_count, 2);
	assert_int_equal(config.vgpus[0].spec.mem_bytes, 3ull << 30);
	assert_int_equal(config.vgpus[0].spec.request_ppm, 100000);
	config_free(&config);
	put("c.d/40-bad.conf", "\n[server]\nlog = x\n");
	assert_int_equal(config_read(&config, path, &err), -EINVAL);
	assert_non_null(strstr(err.text, "c.d/40-bad.conf:3: log 'x'"));
	config_free(&config);
}

static void a_named_file_has_to_be_there(void **state)
{
	struct bf_error err = { 0 };
	struct config config;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/none", folder);
	config_init(&config);
	assert_int_equal(config_read(&config, path, &err), -ENOENT);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(config_read(&config, folder, &err), -EINVAL);
	config_free(&config);
}

static void what_is_remembered_reads_as_it_was_written(void **state)
{
	struct config_vgpu vgpus[2] = { { .name = "a", .spec = spec_default, .owner = 7, .has_owner = true },
					{ .name = "b", .spec = spec_default, .is_from_config = true } };
	struct bf_error err = { 0 };
	struct config config;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/state", folder);
	vgpus[0].gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_SOFT, .index = 1, .folder = "/a b/c" };
	vgpus[1].gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 3 };
	vgpus[1].spec.request_ppm = 1;
	vgpus[1].spec.mem_bytes = 4097;
	assert_int_equal(state_save(path, vgpus, 2, &err), 0);
	config_init(&config);
	assert_int_equal(state_read(path, &config, &err), 0);
	assert_int_equal(config.vgpu_count, 2);
	assert_memory_equal(&config.vgpus[0].gpu, &vgpus[0].gpu, sizeof(vgpus[0].gpu));
	assert_memory_equal(&config.vgpus[1].spec, &vgpus[1].spec, sizeof(vgpus[1].spec));
	assert_int_equal(config.vgpus[0].owner, 7);
	assert_false(config.vgpus[0].is_from_config);
	assert_true(config.vgpus[1].is_from_config);
	config_free(&config);
	assert_int_equal(state_save(path, NULL, 0, &err), 0);
	assert_int_equal(state_read(path, &config, &err), 0);
	assert_int_equal(config.vgpu_count, 0);
	config_free(&config);
	assert_int_equal(state_save("/no/such/folder/state", vgpus, 1, &err), -ENOENT);
	assert_non_null(strstr(err.text, "cannot be written"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, use_new_folder, remove_folder)

/* The longest entries, as many as belfryd may have. */
static void as_many_are_remembered_as_there_may_be(void **state)
{
	struct config_vgpu *vgpus = calloc(CONFIG_STATE_VGPUS_MAX, sizeof(*vgpus));
	struct bf_error err = { 0 };
	struct config config;
	char path[128];

	(void)state;
	assert_non_null(vgpus);
	snprintf(path, sizeof(path), "%s/state", folder);
	for (unsigned i = 0; i < CONFIG_STATE_VGPUS_MAX; i++) {
		struct config_vgpu *vgpu = &vgpus[i];

		vgpu->spec = (struct spec){ .mem_bytes = 8190ull << 40,
					    .request_ppm = 123456,
					    .limit_ppm = 999999,
					    .class = SPEC_LATENCY,
					    .percentile_ppm = 999900,
					    .objective_us = 9999999,
					    .sm_request_ppm = 123456,
					    .sm_limit_ppm = 999999,
					    .timeslice_us = 999999,
					    .interleave = 2,
					    .is_public = 1 };
		memset(vgpu->spec.domain, 'd', SPEC_NAME_MAX);
		vgpu->gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_SOFT, .index = 7 };
		memset(vgpu->gpu.folder, '/', sizeof(vgpu->gpu.folder) - 1);
		vgpu->owner = 4000000000u;
		vgpu->is_from_config = true;
		snprintf(vgpu->name, sizeof(vgpu->name), "%s-%04u",
			 "a-very-long-name-of-a-vgpu-which-belfryd-still-takes-as-12", i);
	}
	assert_int_equal(state_save(path, vgpus, CONFIG_STATE_VGPUS_MAX, &err), 0);
	config_init(&config);
	if (state_read(path, &config, &err))
		print_error("%s\n", err.text);
	assert_int_equal(err.code, 0);
	assert_int_equal(config.vgpu_count, CONFIG_STATE_VGPUS_MAX);
	config_free(&config);
	free(vgpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_that_can_be_said_is_understood),
		cmocka_unit_test(nothing_said_is_the_default),
		cmocka_unit_test(mistakes_are_told_with_their_line),
		cmocka_unit_test(gpus_that_are_not_there_are_refused_where_others_are),
		cmocka_unit_test(gpus_that_are_not_served_are_told_by_the_line),
		cmocka_unit_test(accounting_needs_a_file_that_can_be_written),
		cmocka_unit_test(policies_are_held_against_their_objects),
		cmocka_unit_test(limits_are_kept),
		IN_FOLDER(drop_ins_come_after_in_the_order_of_their_names),
		IN_FOLDER(a_named_file_has_to_be_there),
		IN_FOLDER(what_is_remembered_reads_as_it_was_written),
		IN_FOLDER(as_many_are_remembered_as_there_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
