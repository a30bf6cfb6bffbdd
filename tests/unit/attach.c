/* attach: seccomp profiles, configurations and states of containers. The filter that a profile becomes is simulated: the
 * first rule that matches decides, as the rules must not overlap. */
#include "attach/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/own.h"

static const struct attach_listener listener = { "/run/belfry/oci.sock", ATTACH_METADATA "one", true };

static const char denying[] =
	"{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"architectures\": [\"SCMP_ARCH_X86_64\", "
	"\"SCMP_ARCH_X86\"], \"syscalls\": [{\"names\": [\"read\", \"ioctl\", \"mmap\", "
	"\"openat\", \"open\", \"remap_file_pages\"], \"action\": \"SCMP_ACT_ALLOW\"}]}";

static struct json_object *edited(const char *profile, int wanted)
{
	struct json_object *object = profile ? json_tokener_parse(profile) : NULL;
	struct bf_error err = { 0 };

	assert_int_equal(attach_edit_profile(&object, &listener, &err), wanted);
	return object;
}

static const char *text_of(struct json_object *of, const char *key)
{
	return json_object_get_string(json_object_object_get(of, key));
}

static bool has_name(struct json_object *rule, const char *name)
{
	struct json_object *names = json_object_object_get(rule, "names");

	for (size_t i = 0; i < json_object_array_length(names); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(names, i)), name))
			return true;
	return false;
}

static bool matches(struct json_object *rule, const char *name, uint64_t value)
{
	struct json_object *args = json_object_object_get(rule, "args"), *arg;

	if (!has_name(rule, name))
		return false;
	if (!args || !json_object_array_length(args))
		return true;
	arg = json_object_array_get_idx(args, 0);
	return (value & json_object_get_uint64(json_object_object_get(arg, "value"))) ==
	       json_object_get_uint64(json_object_object_get(arg, "valueTwo"));
}

/* What the profile does with the call; NULL if rules of different actions match. */
static const char *action(struct json_object *profile, const char *name, uint64_t value)
{
	struct json_object *rules = json_object_object_get(profile, "syscalls");
	const char *found = NULL;

	for (size_t i = 0; i < json_object_array_length(rules); i++) {
		struct json_object *rule = json_object_array_get_idx(rules, i);

		if (!matches(rule, name, value))
			continue;
		if (found && strcmp(found, text_of(rule, "action")) != 0)
			return NULL;
		found = text_of(rule, "action");
	}
	return found ? found : text_of(profile, "defaultAction");
}

static void check_calls(struct json_object *profile)
{
	const unsigned sizes[] = { 0xc020462au, 0x30000001u, 1, 0x7f, 1u << 16, 1u << 29 };
	const unsigned others[] = { 0x5401u, 0x80, 0x8000u, 1u << 30, 1u << 31, 0x80005400u };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_string_equal(action(profile, "ioctl", sizes[i]), "SCMP_ACT_NOTIFY");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_string_equal(action(profile, "ioctl", others[i]), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "mmap", MAP_SHARED), "SCMP_ACT_NOTIFY");
	assert_string_equal(action(profile, "mmap", MAP_SHARED | MAP_FIXED), "SCMP_ACT_NOTIFY");
	assert_string_equal(action(profile, "mmap", MAP_PRIVATE), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "mmap", MAP_SHARED | MAP_ANONYMOUS), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "openat", O_RDWR | O_CLOEXEC), "SCMP_ACT_NOTIFY");
	assert_string_equal(action(profile, "openat", O_RDONLY), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "openat", O_RDWR | O_CREAT), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "open", O_RDWR), "SCMP_ACT_NOTIFY");
	assert_string_equal(action(profile, "open", O_WRONLY | O_CREAT), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "read", 0), "SCMP_ACT_ALLOW");
	assert_string_equal(action(profile, "remap_file_pages", 0), "SCMP_ACT_ERRNO");
}

static void driver_calls_are_notified_and_others_stay_allowed(void **state)
{
	struct json_object *profile;

	(void)state;
	profile = edited(denying, 0);
	check_calls(profile);
	assert_string_equal(action(profile, "ptrace", 0), "SCMP_ACT_ERRNO");
	assert_int_equal(json_object_array_length(json_object_object_get(profile, "architectures")), 1);
	assert_string_equal(text_of(profile, "listenerPath"), listener.path);
	json_object_put(profile);
	profile = edited(NULL, 0); /* unconfined */
	check_calls(profile);
	json_object_put(profile);
}

static void denied_calls_stay_denied(void **state)
{
	struct json_object *profile;

	(void)state;
	profile = edited("{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"names\": [\"ioctl\"], "
			 "\"action\": \"SCMP_ACT_ERRNO\"}]}",
			 0);
	assert_string_equal(action(profile, "ioctl", 1), "SCMP_ACT_ERRNO");
	assert_string_equal(action(profile, "mmap", MAP_SHARED), "SCMP_ACT_NOTIFY");
	json_object_put(profile);
	profile = edited("{\"defaultAction\": \"SCMP_ACT_ERRNO\"}", 0);
	assert_string_equal(action(profile, "openat", O_RDWR), "SCMP_ACT_ERRNO");
	json_object_put(profile);
}

static void profiles_that_cannot_be_combined_are_refused(void **state)
{
	static const struct {
		const char *profile;
		int rc;
	} refused[] = {
		{ "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"listenerPath\": \"/other\"}", -EBUSY },
		{ "{\"defaultAction\": \"SCMP_ACT_NOTIFY\"}", -EBUSY },
		{ "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"names\": [\"mount\"], \"action\": "
		  "\"SCMP_ACT_NOTIFY\"}]}",
		  -EBUSY },
		{ "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"names\": [\"mount\"], \"action\": "
		  "\"SCMP_ACT_TRACE\"}]}",
		  -EBUSY },
		{ "{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"syscalls\": [{\"names\": [\"ioctl\"], \"action\": "
		  "\"SCMP_ACT_ALLOW\", \"args\": [{\"index\": 1, \"value\": 1, \"op\": \"SCMP_CMP_NE\"}]}]}",
		  -ENOTSUP },
		{ "{}", -EINVAL },
		{ "[]", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		json_object_put(edited(refused[i].profile, refused[i].rc));
}

static int find(const char *folder, const char *source, char *name)
{
	struct bf_error err = { 0 };
	struct json_object *config;
	cleanup_free char *text = NULL;
	int rc;

	assert_true(asprintf(&text,
			     "{\"mounts\": [{\"destination\": \"/x\"}, {\"destination\": \"" ATTACH_MARK
			     "\", \"source\": \"%s\"}]}",
			     source) > 0);
	config = attach_parse(text, strlen(text), &err);
	assert_non_null(config);
	rc = attach_find_vgpu(config, folder, name, &err);
	json_object_put(config);
	return rc;
}

/* Environment variables and annotations do not count, and neither do other files. */
static void only_a_mark_names_a_vgpu(void **state)
{
	static const char *const names[] = { "one", "two" };
	char folder[] = "/tmp/belfry-marks.XXXXXX", path[64], other[64], name[SPEC_NAME_MAX + 1];
	struct bf_error err = { 0 };

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(attach_write_marks(folder, names, 2, &err), 0);
	snprintf(path, sizeof(path), "%s/two", folder);
	assert_int_equal(find(folder, path, name), 0);
	assert_string_equal(name, "two");
	assert_int_equal(find(folder, "/etc/passwd", name), -EPERM);
	assert_int_equal(find(folder, "/tmp", name), -EPERM);
	snprintf(other, sizeof(other), "%s.link", folder);
	assert_int_equal(symlink(path, other), 0); /* a link to a mark */
	assert_int_equal(find(folder, other, name), -EPERM);
	unlink(other);
	assert_int_equal(symlink(folder, other), 0); /* a link to the folder */
	strcat(other, "/two");
	assert_int_equal(find(folder, other, name), -EPERM);
	*strrchr(other, '/') = 0;
	unlink(other);
	snprintf(other, sizeof(other), "%s/none", folder);
	assert_int_equal(find(folder, other, name), -ENOENT);
	assert_int_equal(attach_write_marks(folder, names, 1, &err), 0);
	assert_int_equal(find(folder, path, name), -ENOENT); /* removed with its vGPU */
	assert_int_equal(chmod(folder, 0777), 0);
	snprintf(path, sizeof(path), "%s/one", folder);
	assert_int_equal(find(folder, path, name), -EPERM);
	unlink(path);
	rmdir(folder);
}

static int edit_with(const char *namespaces)
{
	struct attach_edit edit = { .vgpu = "one", .socket = "/s", .library = "/l" };
	struct bf_error err = { 0 };
	struct json_object *config;
	cleanup_free char *text = NULL;
	int rc;

	edit.gpu.kind = PROTOCOL_GPU_SOFT; /* without a folder, which is looked at after the namespaces */
	assert_true(asprintf(&text, "{\"linux\": {\"namespaces\": [%s]}}", namespaces) > 0);
	config = attach_parse(text, strlen(text), &err);
	assert_non_null(config);
	rc = attach_edit_config(config, &edit, &err);
	json_object_put(config);
	return rc;
}

static void pid_namespace_of_the_host_is_refused(void **state)
{
	(void)state;
	assert_int_equal(edit_with("{\"type\": \"mount\"}"), -ENOTSUP);
	assert_int_equal(edit_with("{\"type\": \"pid\", \"path\": \"/proc/self/ns/pid\"}"), -ENOTSUP);
	assert_int_equal(edit_with("{\"type\": \"pid\", \"path\": \"/nowhere\"}"), -ENOTSUP);
	assert_int_equal(edit_with("{\"type\": \"pid\"}"), -ENOENT);
	/* Another namespace than that of this process. */
	assert_int_equal(edit_with("{\"type\": \"pid\", \"path\": \"/proc/self/ns/mnt\"}"), -ENOENT);
}

static const char message[] =
	"{\"ociVersion\": \"1.0.2\", \"fds\": [\"other\", \"seccompFd\"], \"pid\": 4711, "
	"\"metadata\": \"belfry:vgpu=one\", \"state\": {\"id\": \"c1\", \"annotations\": "
	"{\"io.kubernetes.cri.container-name\": \"web\"}}}";

static int read_all(const char *text, size_t step, struct attach_state *into)
{
	struct attach_reader *reader = attach_reader_new();
	struct bf_error err = { 0 };
	size_t length = strlen(text);
	int rc = 0;

	for (size_t at = 0; !rc && at < length; at += step)
		rc = attach_read(reader, text + at, length - at < step ? length - at : step, into, &err);
	attach_reader_free(reader);
	return rc;
}

static void a_state_is_complete_when_its_braces_are(void **state)
{
	struct attach_state into;

	(void)state;
	for (size_t step = 1; step < sizeof(message); step += 7) {
		assert_int_equal(read_all(message, step, &into), 1);
		assert_string_equal(into.vgpu, "one");
		assert_string_equal(into.id, "c1");
		assert_string_equal(into.name, "web");
		assert_int_equal(into.pid, 4711);
		assert_int_equal(into.listener_at, 1);
	}
	assert_int_equal(read_all("{\"fds\": [", 3, &into), 0);
	assert_int_equal(
		read_all("{\"fds\": [\"seccompFd\"], \"state\": {\"id\": \"c\"}, \"metadata\": \"x\"}", 9,
			 &into),
		-EINVAL);
	assert_int_equal(read_all("[1, 2]", 9, &into), -EINVAL);
	assert_int_equal(read_all("nonsense", 9, &into), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(driver_calls_are_notified_and_others_stay_allowed),
		cmocka_unit_test(denied_calls_stay_denied),
		cmocka_unit_test(profiles_that_cannot_be_combined_are_refused),
		cmocka_unit_test(only_a_mark_names_a_vgpu),
		cmocka_unit_test(pid_namespace_of_the_host_is_refused),
		cmocka_unit_test(a_state_is_complete_when_its_braces_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
