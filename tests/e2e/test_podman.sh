#!/bin/bash
# Containers of podman on vGPUs: the device by its CDI name and the precreate hook, or belfry-oci as the runtime, with crun and
# runc; user namespaces; podman of an ordinary user. Their root file system is made of the host's /usr. Runs in a mount
# namespace of its own, because crun does not accept every layout of cgroups.
# Scripts for the containers are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2034,SC2154,SC2317
set -u
if [ "$(id -u)" != 0 ]; then
	echo "skipped: containers need root"
	exit 77
fi
if [ -z "${BELFRY_TEST_IN_NAMESPACE:-}" ]; then
	unshare --mount true 2>/dev/null || { echo "skipped: no mount namespaces"; exit 77; }
	exec env BELFRY_TEST_IN_NAMESPACE=1 unshare --mount --propagation private "$0"
fi
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/containers.sh"
command -v podman >/dev/null || skip "podman is not installed"
runtimes=()
for name in crun runc; do
	! command -v $name >/dev/null || runtimes+=("$name")
done
[ ${#runtimes[@]} != 0 ] || skip "neither crun nor runc is installed"
! is_sanitized || skip "the leak check of a sanitizer needs rights that programs in these containers lack"

export BELFRY_SOFT="mem=512M,linger=1,name=pod$$"
hog=/build/tests/e2e/hog
soft_env=(-e LD_LIBRARY_PATH=/run/belfry/lib -e BELFRY_SOFT_DIR=/run/belfry/soft)
cgroup="belfry-podman-$$" # above those of this test's containers
use_daemon
listen="$work/d/oci.sock"
printf '[server]\noci_socket = %s\non_daemon_death = carry\n' "$listen" >"$work/conf"
ln -s "$belfry" "$work/belfry-oci"
confine_daemon

# podman's files are in $work, its locks too. podman_in FOLDER: its global options are $pod.
podman_in() {
	pod=(timeout 120 podman --root "$1/storage" --runroot "$1/run" --tmpdir "$1/tmp" --storage-driver vfs
		--cgroup-manager cgroupfs --events-backend file --hooks-dir "$1/hooks" --runtime "$runtime")
	mkdir -p "$1/hooks"
}
printf '[engine]\nlock_type = "file"\n' >"$work/containers.conf"
export CONTAINERS_CONF="$work/containers.conf"

# write_hook FOLDER MARKS SOCKET
write_hook() {
	printf '{"version":"1.0.0","hook":{"path":"%s","args":["belfry","oci","edit","--marks","%s","--runtime","%s"],
		"env":["BELFRY_SOCKET=%s"]},"when":{"always":true},"stages":["precreate"]}' \
		"$belfry" "$2" "$runtime" "$3" >"$1/hooks/belfry.json"
}

# start WANTED OPTION... COMMAND...: a container of $image to its end.
start() {
	local wanted=$1
	shift
	status "$wanted" "${pod[@]}" run --rm "${how[@]}" "$@"
}
# gets_memory WHAT MIB: the last container had all memory of its vGPU, and then an ordinary out-of-memory error.
gets_memory() {
	grep -q "total $2 .*got [0-9]* left 0 error 2" "$work/out" || fail "$runtime: $1: $(cat "$work/out" "$work/err")"
}
no_container() { [ -z "$(timeout 60 "${pod[@]}" ps -aq 2>/dev/null)" ]; }

memory_is_limited() {
	start 0 --device belfry.dev/vgpu=small --rootfs "$root" "$hog"
	gets_memory "run" 32
	start 0 --read-only --device belfry.dev/vgpu=small --rootfs "$root" "$hog"
	gets_memory "--read-only" 32
	# Containers that podman gives no profile have Belfry's.
	start 0 --security-opt seccomp=unconfined --device belfry.dev/vgpu=small --rootfs "$root" "$hog"
	gets_memory "seccomp=unconfined" 32
	start 0 --privileged --device belfry.dev/vgpu=small --rootfs "$root" "$hog"
	gets_memory "--privileged" 32
	start 0 --privileged --device belfry.dev/vgpu=small --rootfs "$root" grep -c '^Seccomp:.2' /proc/self/status
}

without_a_vgpu_there_is_no_gpu() {
	start 1 --rootfs "$root" "$hog" 1
	start 1 --privileged "${soft_env[@]}" -v "$soft/guest:/run/belfry/soft:ro" -v "$library:/run/belfry/lib:ro" --rootfs "$root" \
		"$hog" 1
	start 1 --annotation belfry.dev/vgpu=small -e BELFRY_VGPU=small --rootfs "$root" "$hog" 1
}

errors_are_told() {
	start 126 --device belfry.dev/vgpu=nothing --rootfs "$root" true
	says 'belfry.dev/vgpu=nothing' "$runtime: an unknown device"
	start 126 --pid host --device belfry.dev/vgpu=small --rootfs "$root" true
	says 'PID namespace' "$runtime: --pid host"
	printf '{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/nowhere","syscalls":[{"names":["getpid"],"action":"SCMP_ACT_NOTIFY"}]}' \
		>"$work/profile.json"
	start 126 --security-opt seccomp="$work/profile.json" --device belfry.dev/vgpu=small --rootfs "$root" true
	says 'has a listener already' "$runtime: a profile with a listener"
	status 0 "$belfry" create gone
	status 0 "$belfry" cdi --marks "$work/marks"
	status 0 "$belfry" rm gone
	start 126 --device belfry.dev/vgpu=gone --rootfs "$root" true
	says 'gone: no vGPU of this name' "$runtime: a vGPU that was removed"
	no_container || fail "$runtime: a container is left after an error: $("${pod[@]}" ps -a)"
}

exec_does_not_escape() {
	status 0 "${pod[@]}" run -d --name "stays-$runtime" "${how[@]}" --device belfry.dev/vgpu=small --rootfs "$root" sleep 600
	local extra
	for extra in --privileged=false --privileged; do
		status 0 "${pod[@]}" exec $extra "${soft_env[@]}" "stays-$runtime" "$hog"
		gets_memory "exec $extra" 32
	done
	status 1 "${pod[@]}" exec -e "BELFRY_SOCKET=/work/d/belfryd.sock" "stays-$runtime" /build/belfry set small --mem 64M
	says 'cannot be told from one' "$runtime: set inside a container"
	status 0 "${pod[@]}" rm -f -t 0 "stays-$runtime"
	until_so no_run small
}

# A container inside the container has the limits of the outer one, and no vGPU of its own.
a_nested_container_does_not_escape() {
	cp -a "$root" "$work/nested-root-$runtime"
	bundle nested '' "$hog"
	sed -i "s|\"$root\"|\"/work/nested-root-$runtime\"|; s|\"$BELFRY_BUILD_DIR\"|\"/build\"|; s|\"$work\"|\"/work\"|
		s|\"PATH=/usr/bin:/bin\"|\"LD_LIBRARY_PATH=/run/belfry/lib\", \"BELFRY_SOFT_DIR=/run/belfry/soft\"|
		s|\"mounts\": \[|\"mounts\": [{\"destination\": \"/run\", \"type\": \"bind\", \"source\": \"/run\", \"options\": [\"rbind\"]}, |
		s|{\"destination\": \"/run\", \"type\": \"tmpfs\", \"source\": \"tmpfs\"}, ||" "$work/nested/config.json"
	start 0 --privileged --device belfry.dev/vgpu=small --rootfs "$root" \
		crun --root /tmp/crun --cgroup-manager=disabled run --bundle /work/nested inner
	gets_memory "a nested container" 32
	# The inner runtime cannot have a listener: it belongs to the outer filter.
	sed -i 's|"linux": {|"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/work/d/oci.sock", "listenerMetadata": "belfry:vgpu=big", "syscalls": [{"names": ["ioctl"], "action": "SCMP_ACT_NOTIFY"}]}, |' \
		"$work/nested/config.json"
	start 1 --privileged --device belfry.dev/vgpu=small --rootfs "$root" \
		crun --root /tmp/crun --cgroup-manager=disabled run --bundle /work/nested inner
	says "Device or resource busy" "$runtime: a listener in a nested container"
	is_figure big runs '[]' || fail "$runtime: a container has attached itself to another vGPU"
}

# An image with a program and the libraries that it needs, and one with a static program of musl.
images_need_nothing() {
	local bare="$work/bare-$runtime" file
	mkdir -p "$bare"/{proc,dev,sys,run,etc,tmp,lib,lib64,work}
	cp "$BELFRY_BUILD_DIR/tests/e2e/hog" "$bare/hog"
	for file in $({ ldd "$BELFRY_BUILD_DIR/tests/e2e/hog" "$library/libcuda.so.1"; } | grep -o '/[^ ]*\.so[^ ]*' | grep -v ':$' | sort -u); do
		case $file in
		*/ld-linux*) cp -L "$file" "$bare/lib64/" ;;
		*) cp -L "$file" "$bare/lib/" ;;
		esac
	done
	status 0 "${pod[@]}" run --rm --cgroup-parent "$cgroup" "${limits[@]}" --read-only --device belfry.dev/vgpu=small --rootfs "$bare" /hog
	gets_memory "an image without a shell" 32
	command -v musl-gcc >/dev/null || { echo "musl-tools is not installed: static programs were not tested"; return; }
	mkdir -p "$work/static-$runtime"/{proc,dev,sys,run,etc,tmp,work}
	musl-gcc -static -O1 -o "$work/static-$runtime/wait" "$(dirname "$0")/static_wait.c" || fail "musl-gcc"
	status 0 "${pod[@]}" run -d --name "static-$runtime" --cgroup-parent "$cgroup" "${limits[@]}" -v "$work/share:/work" \
		--device belfry.dev/vgpu=small --rootfs "$work/static-$runtime" /wait /work/static.go
	until_so is_figure small runs.0.kind container
	: >"$work/share/static.go"
	status 0 "${pod[@]}" wait "static-$runtime"
	has_line '^0$' "$work/out" || fail "$runtime: a static program ended with $(cat "$work/out"): $("${pod[@]}" logs "static-$runtime" 2>&1)"
	status 0 "${pod[@]}" rm "static-$runtime"
	rm "$work/share/static.go"
	until_so no_run small
}

# Root of the container is another user of the host, to which the root file system belongs.
user_namespaces() {
	local mapped="$work/mapped-$runtime"
	cp -a "$root" "$mapped"
	chown -hR 100000:100000 "$mapped"
	start 0 --uidmap 0:100000:65536 --gidmap 0:100000:65536 --device belfry.dev/vgpu=small --rootfs "$mapped" "$hog"
	gets_memory "--uidmap" 32
	start 0 --uidmap 0:100000:65536 --gidmap 0:100000:65536 --user 7:7 --device belfry.dev/vgpu=small --rootfs "$mapped" "$hog"
	gets_memory "--uidmap --user" 32
	start 1 --uidmap 0:100000:65536 --gidmap 0:100000:65536 --rootfs "$mapped" "$hog" 1
}

shares_are_kept() {
	local name jobs=()
	for name in big little; do
		load_words $name
		"${pod[@]}" run --rm "${how[@]}" --device belfry.dev/vgpu=$name --rootfs "$root" "${load_command[@]}" \
			>"$work/$name.json" 2>"$work/$name.err" &
		jobs+=($!)
	done
	until_ready big little
	shares_are "podman with $runtime" big=75 little=25
	: >"$work/big.stop"
	: >"$work/little.stop"
	wait "${jobs[@]}"
	has_line '"wrong":0,' "$work/big.json" && has_line '"wrong":0,' "$work/little.json" ||
		fail "$runtime: a load: $(cat "$work"/{big,little}.err)"
	until_so no_run big
	until_so no_run little
}

# belfry-oci as the runtime, instead of the hook.
runtime_instead_of_the_hook() {
	rm "$work/p/hooks/belfry.json"
	pod+=(--runtime "$work/belfry-oci" --runtime-flag "belfry-runtime=$runtime" --runtime-flag "belfry-marks=$work/marks"
		--runtime-flag "belfry-socket=$BELFRY_SOCKET")
	start 0 --device belfry.dev/vgpu=small --rootfs "$root" "$hog"
	gets_memory "belfry-oci" 32
	start 126 --device belfry.dev/vgpu=gone --rootfs "$root" true
	says 'gone: no vGPU of this name' "belfry-oci with $runtime: a vGPU that was removed"
}

podman_with() {
	runtime=$1
	podman_in "$work/p"
	write_hook "$work/p" "$work/marks" "$BELFRY_SOCKET"
	status 0 "$belfry" cdi --marks "$work/marks"
	memory_is_limited
	without_a_vgpu_there_is_no_gpu
	errors_are_told
	exec_does_not_escape
	images_need_nothing
	user_namespaces
	if command -v crun >/dev/null; then
		a_nested_container_does_not_escape
	fi
	shares_are_kept
	runtime_instead_of_the_hook
	until_so no_run small
	no_container || fail "$runtime: containers are left: $("${pod[@]}" ps -a)"
}

# podman of an ordinary user, with a belfryd of that user. A belfryd of root takes listeners from root only.
rootless() {
	local at="$work/user" home=$work/user/home
	knows_others && command -v newuidmap >/dev/null && [ "$(id -un 65534 2>/dev/null)" = nobody ] ||
		{ echo "uidmap is not installed, or user 65534 is not nobody: podman of a user was not tested"; return; }
	echo 'nobody:200000:65536' >"$work/subids"
	[ -e /etc/subuid ] && [ -e /etc/subgid ] || { echo "no /etc/subuid: podman of a user was not tested"; return; }
	mount --bind "$work/subids" /etc/subuid
	mount --bind "$work/subids" /etc/subgid
	runtime=${runtimes[0]}
	podman_in "$at"
	mkdir -m 700 "$home" "$at/xdg"
	mkdir "$at/d"
	cp -a "$root" "$at/root"
	printf '[server]\noci_socket = %s\n' "$at/d/oci.sock" >"$at/conf"
	write_hook "$at" "$at/marks" "$at/d/belfryd.sock"
	chown -hR 65534:65534 "$at"
	local as=(env -i PATH="$PATH" HOME="$home" XDG_RUNTIME_DIR="$at/xdg" CONTAINERS_CONF="$CONTAINERS_CONF"
		BELFRY_SOFT="mem=64M,linger=1,name=user$$" BELFRY_SOCKET="$at/d/belfryd.sock"
		setpriv --reuid=65534 --regid=65534 --clear-groups)
	cd / || exit 1 # podman needs a folder that its user can enter
	"${as[@]}" "$BELFRYD" --socket "$at/d/belfryd.sock" --config "$at/conf" --gpu soft >"$at/log" 2>&1 &
	local belfryd_of_user=$!
	until_so test -S "$at/d/oci.sock"
	until_so "${as[@]}" "$belfry" create mine --mem 16M 2>/dev/null
	status 0 "${as[@]}" "$belfry" cdi --marks "$at/marks" -o "$at/cdi.json"
	cp "$at/cdi.json" /run/cdi/user.json # podman 4.3 reads /etc/cdi and /run/cdi only
	pod=("${as[@]}" "${pod[@]}")
	# Without cgroups a container of crun is in the cgroup of the user's session.
	how=(--network none --cgroups disabled -v /usr:/usr:ro -v "$BELFRY_BUILD_DIR:/build:ro")
	start 0 --device belfry.dev/vgpu=mine --rootfs "$at/root" "$hog"
	gets_memory "podman of a user" 16
	start 1 --rootfs "$at/root" "$hog" 1
	# A mark of root's belfryd names a vGPU that the user's belfryd does not have.
	start 126 --device belfry.dev/vgpu=small --rootfs "$at/root" "$hog" 1
	status 0 "${pod[@]}" run -d --name user "${how[@]}" --device belfry.dev/vgpu=mine --rootfs "$at/root" sleep 600
	status 0 "${pod[@]}" exec "${soft_env[@]}" user "$hog"
	gets_memory "podman exec of a user" 16
	# The removal of the vGPU ends the container.
	status 0 "${as[@]}" "$belfry" rm --force mine
	status 0 "${pod[@]}" wait user
	status 0 "${pod[@]}" rm user
	no_container || fail "containers of the user are left: $("${pod[@]}" ps -a)"
	# podman keeps a process for the user namespace of its user.
	local pause
	pause=$(find "$at" -name pause.pid)
	[ -z "$pause" ] || { kill "$(cat "$pause")" && until_so is_gone "$(cat "$pause")"; }
	kill "$belfryd_of_user"
	ended "$belfryd_of_user"
	"${as[@]}" "$belfry" soft stop 2>/dev/null
	umount /etc/subuid /etc/subgid
	cd "$work" || exit 1
}

# podman leaves cgroups of its own. A process in one of them would keep it.
no_cgroup_is_left() {
	find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>"$work/err"
	[ -z "$(find /sys/fs/cgroup -name "$cgroup")" ] || fail "cgroups with processes are left: $(cat "$work/err")"
}

hide_unified
make_root
mkdir "$work/share"
limits=(--network none --ulimit nofile=4096:4096 --ulimit nproc=4096:4096)
how=("${limits[@]}" --cgroup-parent "$cgroup" -v /usr:/usr:ro -v "$BELFRY_BUILD_DIR:/build:ro" -v "$work:/work")
library="$BELFRY_BUILD_DIR/src/soft/cuda"
start_daemon
until_so test -S "$listen"
soft=$("$belfry" ls --json | awk -F'"' '$2 == "folder" { print $4; exit }')
status 0 "$belfry" create small --mem 32M
status 0 "$belfry" create big --time 75 --mem 32M
status 0 "$belfry" create little --time 25 --mem 32M
calibrate
had_cdi=1
[ -d /run/cdi ] || { had_cdi= && mkdir -p /run/cdi; }
mount -t tmpfs none /run/cdi
for name in "${runtimes[@]}"; do
	podman_with "$name"
done
rootless
umount /run/cdi
[ -n "$had_cdi" ] || rmdir /run/cdi 2>/dev/null
# Nothing is left behind.
until_so is_figure '' gpus.0.mem.used 0
status 0 "$belfry" rm small big little
end_daemon
no_cgroup_is_left
exit "$failed"
