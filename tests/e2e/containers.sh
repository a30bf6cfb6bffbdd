# shellcheck shell=bash disable=SC2015,SC2034,SC2154
# Sourced by tests with containers: their root file system, which is made of the host's /usr, and their bundles.

# crun 1.8 refuses the hybrid layout: cgroups of version 2 with controllers, beside version 1. Here it finds version 1 only.
hide_unified() {
	local path options
	grep -q ' /sys/fs/cgroup/unified cgroup2 ' /proc/mounts || return 0
	awk '$3 == "cgroup" { print $2, $4 }' /proc/mounts >"$work/cgroups"
	mount -t tmpfs none /sys/fs/cgroup
	while read -r path options; do
		mkdir -p "$path"
		options=${options//rw,/} options=${options//relatime,/}
		mount -t cgroup -o "${options/#name=/none,name=}" none "$path" || fail "$path cannot be mounted"
	done <"$work/cgroups"
}
make_root() {
	local name
	root="$work/root"
	mkdir -p "$root"/{usr,proc,dev,sys,tmp,run,etc,build,work}
	for name in bin sbin lib lib64; do
		ln -s "usr/$name" "$root/$name"
	done
}

# bundle NAME VGPU COMMAND...: a bundle for crun and runc. An empty VGPU: none. $bundle_mounts: further mounts, "TO FROM" each.
# $bundle_annotations: "KEY=VALUE" each.
bundle() {
	local at="$work/$1" vgpu=$2
	shift 2
	mkdir -p "$at"
	BUNDLE_MOUNTS="${bundle_mounts:-}" BUNDLE_ANNOTATIONS="${bundle_annotations:-}" \
		python3 - "$at/config.json" "$root" "$work" "$BELFRY_BUILD_DIR" "$vgpu" "$@" <<'P'
import json, os, sys
path, root, work, build, vgpu = sys.argv[1:6]
mounts = [("/usr", "/usr"), ("/build", build), ("/work", work)]
if vgpu:
    mounts.append(("/run/belfry/vgpu", f"{work}/marks/{vgpu}"))
more = os.environ["BUNDLE_MOUNTS"].split()
mounts += zip(more[::2], more[1::2])
config = {
    "ociVersion": "1.0.0",
    "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": sys.argv[6:], "cwd": "/",
                "env": ["PATH=/usr/bin:/bin"], "capabilities": {}},
    "root": {"path": root, "readonly": False},
    "annotations": dict(one.split("=") for one in os.environ["BUNDLE_ANNOTATIONS"].split()),
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
               {"destination": "/run", "type": "tmpfs", "source": "tmpfs"},
               {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}] +
              [{"destination": to, "type": "bind", "source": of, "options": ["rbind"] + ["ro"] * (to != "/work")}
               for to, of in mounts],
    "linux": {"namespaces": [{"type": name} for name in ("pid", "ipc", "uts", "mount")]},
}
json.dump(config, open(path, "w"))
P
}
# confine_daemon: belfryd has a filter and no_new_privs, as under systemd.
confine_daemon() {
	{
		echo '#!/bin/bash'
		declare -f confined
		echo "confined '$belfryd' \"\$@\""
	} | sed 's/^    python3 -c/    exec python3 -c/' >"$work/belfryd"
	chmod +x "$work/belfryd"
	belfryd="$work/belfryd"
}
# calibrate: how much work a microsecond is on this host, for loads in containers: --calibration /work/calibration.
calibrate() {
	status 0 "$belfry" soft run -- "$load" --calibrate "$work/calibration"
	chmod 644 "$work/calibration"
}
# load_words NAME: a load in a container, until $work/NAME.stop exists.
load_words() {
	rm -f "$work/$1".{ready,stop}
	load_command=(/build/bench/load --calibration /work/calibration --kernel-us 3000 --secs 1200 --json
		--ready "/work/$1.ready" --until "/work/$1.stop")
}
# shares_are WHAT NAME=PERCENT...: of the GPU's time, which these vGPUs share.
shares_are() {
	local what=$1
	shift
	timeout 280 "$(dirname "$0")/shares.py" "$belfry" "$@" || fail "$what: the shares are not kept: $*"
}

no_run() { is_figure "$1" runs '[]'; }

has_used() { [ "$(($(figure "$1" time.gpu_ns) - $2))" -gt "$3" ]; }
# All jobs but belfryd.
wait_jobs() {
	local job
	for job in $(jobs -p); do
		[ "$job" = "$daemon" ] || wait "$job"
	done
}
