#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/json.h"
#include "base/landlock.h"
#include "base/own.h"
#include "base/process.h"
#include "base/units.h"
#include "base/users.h"
#include "cli/cli.h"
#include "cli/landlock.h"
#include "cli/report.h"
#include "cli/soft.h"
#include "rm/rm.h"
#include "warden/device.h"

enum { GPUS_MAX = 32 };

static const struct bf_command command = {
	.name = "info",
	.about =
		"usage: belfry info [--json]\n"
		"\n"
		"Show the version of the driver and whether Belfry knows it, the GPUs, the belfryd that answers\n"
		"and the GPUs that it serves, and whether the kernel has what Belfry needs.\n",
	.options = cli_json_options,
};

struct info {
	char version[32];
	const struct rm_layout *layout;
	int landlock_abi;
	bool has_driver, has_notify, has_getfd, has_kcmp, has_soft;
	struct json_object *hello; /* of the running belfryd; NULL: none runs */
	struct bf_error no_hello;  /* why there is none */
	unsigned gpus;
	struct {
		unsigned index;
		uint64_t mem_bytes;
		char why[384]; /* empty: the GPU is usable */
	} gpu[GPUS_MAX];
};

static bool has_notify(void)
{
	unsigned action = SECCOMP_RET_USER_NOTIF;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static bool has_getfd(void)
{
	cleanup_close int self = bf_pidfd_open(getpid());
	cleanup_close int copy = self < 0 ? -1 : bf_pidfd_getfd(self, self);

	return copy >= 0;
}

static void gather(struct info *info)
{
	*info = (struct info){ .has_notify = has_notify(),
			       .has_getfd = has_getfd(),
			       .has_kcmp = bf_same_files(getpid(), getpid()) == 1,
			       .landlock_abi = landlock_abi() };
	info->has_driver = device_nv_version(info->version, sizeof(info->version)) == 0;
	info->layout = rm_layout_find(info->version);
	info->has_soft = cli_soft_is_here();
	report_hello(&info->hello, &info->no_hello);
	for (unsigned i = 0; i < GPUS_MAX; i++) {
		struct device_options options = { .index = i };
		struct bf_error err = { 0 };
		struct device *device;
		char path[32];

		snprintf(path, sizeof(path), "/dev/nvidia%u", i);
		if (access(path, F_OK))
			continue;
		device = device_nv_open(&options, &err);
		info->gpu[info->gpus].index = i;
		if (device) {
			info->gpu[info->gpus].mem_bytes = device->mem_bytes;
			device->ops->close(device);
		} else {
			snprintf(info->gpu[info->gpus].why, sizeof(info->gpu[0].why), "%s", err.text);
		}
		info->gpus++;
	}
}

static const char *known(const struct info *info)
{
	if (!info->has_driver)
		return "not loaded";
	if (!info->layout)
		return "unknown series";
	return info->layout->is_measured ? "known, measured" : "known from its public source";
}

static bool has_signal_scope(const struct info *info)
{
	return info->landlock_abi >= BF_LANDLOCK_ABI_SCOPE;
}

static bool has_device_right(const struct info *info)
{
	return info->landlock_abi >= BF_LANDLOCK_ABI_IOCTL_DEV;
}

/* The socket of belfryd, its user, and the GPUs it serves. */
static void print_daemon(const struct info *info)
{
	struct json_object *daemon = report_at(info->hello, "daemon"), *gpus = report_at(info->hello, "gpus");
	const char *between = "; serves GPU ";

	if (!info->hello) {
		char text[sizeof(info->no_hello.text) + BF_USER_ROOM];

		printf("belfryd  %s\n", bf_name_users(info->no_hello.text, text, sizeof(text)));
		return;
	}
	printf("belfryd  process %" PRId64 ", user ", report_number(daemon, "pid"));
	if (report_text(daemon, "user", NULL))
		printf("%s", report_text(daemon, "user", ""));
	else
		printf("%" PRId64, report_number(daemon, "uid"));
	printf(", %s", report_text(daemon, "socket", "?"));
	for (size_t i = 0; json_object_is_type(gpus, json_type_array) && i < json_object_array_length(gpus);
	     i++) {
		printf("%s%s", between, report_text(json_object_array_get_idx(gpus, i), "gpu", "?"));
		between = ", ";
	}
	putchar('\n');
	report_print_pending(info->hello);
}

static void print(const struct info *info)
{
	char size[24];

	printf("driver   %s%s(%s)\n", info->version, info->has_driver ? " " : "", known(info));
	printf("series   ");
	for (unsigned i = 0; rm_layout_at(i); i++)
		printf("%s%s", i ? ", " : "", rm_layout_at(i)->series);
	printf(" are known\n");
	for (unsigned i = 0; i < info->gpus; i++)
		if (info->gpu[i].why[0])
			printf("GPU %u    not usable: %s\n", info->gpu[i].index, info->gpu[i].why);
		else
			printf("GPU %u    %s\n", info->gpu[i].index,
			       bf_format_size(info->gpu[i].mem_bytes, size, sizeof(size)));
	if (!info->gpus)
		puts("GPU      none found");
	printf("soft     the software GPU is %s\n", !info->has_soft ? "not installed"
						    : info->gpus
							    ? "there: --gpu soft takes it"
							    : "there, and taken where there is no other");
	print_daemon(info);
	printf("kernel   seccomp notification %s, pidfd_getfd %s, kcmp %s\n", info->has_notify ? "yes" : "NO",
	       info->has_getfd ? "yes" : "NO", info->has_kcmp ? "yes" : "NO");
	if (has_device_right(info))
		printf("files    device files that programs map take no driver call (Landlock ABI %d)\n",
		       info->landlock_abi);
	else
		printf("files    device files that programs map take driver calls if they are passed out of the run; "
		       "it takes\n         Landlock ABI %d (Linux 6.10), and here it is %s\n",
		       BF_LANDLOCK_ABI_IOCTL_DEV, info->landlock_abi ? "older" : "off or missing");
	if (has_signal_scope(info))
		printf("signals  programs signal and trace processes of their own run only (Landlock ABI %d)\n",
		       info->landlock_abi);
	else
		printf("signals  NOT restricted: programs can signal every process of their user, belfryd too; it "
		       "takes Landlock\n         ABI %d (Linux 6.12), and here it is %s\n",
		       BF_LANDLOCK_ABI_SCOPE, info->landlock_abi ? "older" : "off or missing");
}

static void print_json(const struct info *info)
{
	struct json_object *top = json_object_new_object(), *gpus = json_object_new_array(),
			   *series = json_object_new_array(), *kernel = json_object_new_object();

	for (unsigned i = 0; rm_layout_at(i); i++)
		json_object_array_add(series, json_object_new_string(rm_layout_at(i)->series));
	for (unsigned i = 0; i < info->gpus; i++) {
		struct json_object *gpu = json_object_new_object();

		json_add_number(gpu, "index", info->gpu[i].index);
		json_add_number(gpu, "mem", info->gpu[i].mem_bytes);
		json_add_text(gpu, "problem", info->gpu[i].why[0] ? info->gpu[i].why : NULL);
		json_object_array_add(gpus, gpu);
	}
	json_add_text(top, "driver", info->has_driver ? info->version : NULL);
	json_add_bool(top, "known", info->layout != NULL);
	json_add_bool(top, "measured", info->layout && info->layout->is_measured);
	json_add(top, "series", series);
	json_add(top, "gpus", gpus);
	json_add_bool(top, "soft", info->has_soft);
	json_add(top, "daemon", json_object_get(report_at(info->hello, "daemon")));
	json_add(top, "served", json_object_get(report_at(info->hello, "gpus")));
	json_add(top, "pending", json_object_get(report_at(info->hello, "pending")));
	json_add_bool(kernel, "seccomp_notify", info->has_notify);
	json_add_bool(kernel, "pidfd_getfd", info->has_getfd);
	json_add_bool(kernel, "kcmp", info->has_kcmp);
	json_add_number(kernel, "landlock_abi", (uint64_t)info->landlock_abi);
	json_add_bool(kernel, "inert_device_files", has_device_right(info));
	json_add_bool(kernel, "signal_scope", has_signal_scope(info));
	json_add(top, "kernel", kernel);
	report_print(top);
	json_object_put(top);
}

int cli_info(int argc, char **argv)
{
	bool is_json = false;
	struct info info;
	int status, first = cli_parse(&command, argc, argv, &is_json, &status);

	if (!first)
		return status;
	gather(&info);
	if (is_json)
		print_json(&info);
	else
		print(&info);
	json_object_put(info.hello);
	return CLI_OK;
}
