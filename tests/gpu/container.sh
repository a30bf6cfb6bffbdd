# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Sourced by scripts that run programs in containers on vGPUs (bash), after common.sh and bench/vgpus.sh. crun and belfry-oci start
# the containers. Their root file system is the host's, read-only; /dev, /tmp and /run are empty, and $SHARED can be written. So
# every program has the same path inside and outside. The script runs as root, in a mount namespace of its own.

# own_namespace SCRIPT ARGUMENT...: skip if there can be no containers, or start the script again in a mount namespace.
own_namespace() {
	[ -z "${BELFRY_OWN_NAMESPACE:-}" ] || return 0
	[ "$(id -u)" = 0 ] || { echo "skipped: containers need root"; exit 77; }
	find_crun || { echo "skipped: no crun: set CRUN"; exit 77; }
	unshare --mount --propagation private true 2>/dev/null || { echo "skipped: no mount namespaces"; exit 77; }
	exec env BELFRY_OWN_NAMESPACE=1 CRUN="$CRUN" unshare --mount --propagation private "$@"
}

# tools/pack-crun.sh makes the folder "crun".
find_crun() {
	CRUN=$(first_program "${CRUN:-/nonexistent}" "$(command -v crun || echo /nonexistent)" "$ROOT/crun/crun" "$ROOT/../crun/crun")
}

# start_containers: belfryd with a socket for listeners, a root file system, and OCI, the command of the runtime.
start_containers() {
	unset BELFRY_SOCKET
	SHARED=$WORK/shared
	mkdir -p "$SHARED" "$WORK/bundles"
	export BELFRY_RUNTIME_DIR=$WORK/run BELFRY_OCI_MARKS=$WORK/marks
	SERVER_LINES="oci_socket = $WORK/run/oci.sock" start_daemon
	wait_until 20 test -S "$WORK/run/oci.sock" || { echo "FAILED: no socket for listeners"; tail -5 "$WORK/belfryd.log"; exit 1; }
	make_container_root
	OCI=("$(dirname "$BELFRY")/belfry-oci")
	if [ ! -e "${OCI[0]}" ]; then # in a build folder
		ln -s "$BELFRY" "$WORK/belfry-oci"
		OCI=("$WORK/belfry-oci")
	fi
	OCI+=("--belfry-runtime=$CRUN" --root "$WORK/state")
	choose_cgroups
}

json_text() {
	local text=${1//\\/\\\\}
	printf '"%s"' "${text//\"/\\\"}"
}
json_list() {
	local between=''
	for _; do
		printf '%s' "$between"
		json_text "$1"
		between=', '
		shift
	done
}

# add_mount TO TYPE FROM OPTION...
add_mount() {
	MOUNTS+=",
  {\"destination\": $(json_text "$1"), \"type\": \"$2\", \"source\": $(json_text "$3"), \"options\": [$(json_list "${@:4}")]}"
}
make_container_root() {
	local path
	mkdir "$WORK/root"
	MOUNTS='{"destination": "/proc", "type": "proc", "source": "proc"}'
	add_mount /dev tmpfs tmpfs nosuid mode=755
	for path in /dev/shm /run /tmp; do
		add_mount "$path" tmpfs tmpfs nosuid nodev mode=1777
	done
	for path in /*; do
		case $path in
		/proc | /dev | /run | /tmp | /lost+found) continue ;;
		esac
		if [ -L "$path" ]; then
			cp -P "$path" "$WORK/root/"
		elif [ -d "$path" ]; then
			add_mount "$path" bind "$path" rbind ro
		fi
	done
	# They may be below /tmp.
	for path in "$ROOT" "$(dirname "$BELFRY")" "$BIN"; do
		add_mount "$path" bind "$path" rbind ro
	done
	add_mount "$SHARED" bind "$SHARED" bind rw
}

# What the program has natively, without the variables of Belfry and those that JSON cannot hold as they are. ${EXTRA_ENV[@]}: more.
container_env() {
	local name list=()
	for name in PATH HOME LANG LC_ALL LD_LIBRARY_PATH PYTHONPATH PYTHONHOME VIRTUAL_ENV CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES; do
		case ${!name-} in
		'' | *[[:cntrl:]]*) ;;
		*) list+=("$name=${!name}") ;;
		esac
	done
	json_list "${list[@]}" CUDA_CACHE_PATH=/tmp/cuda-cache "${EXTRA_ENV[@]}"
}

# make_bundle NAME VGPU COMMAND...: an empty VGPU: none. The capabilities are those of Docker, without CAP_MKNOD: there may be no cgroup
# that keeps the container from devices. ${EXTRA_CAPS[@]}: more.
make_bundle() {
	local name=$1 vgpu=$2 mounts=$MOUNTS caps
	shift 2
	[ -z "$vgpu" ] || mounts+=",
  {\"destination\": \"/run/belfry/vgpu\", \"type\": \"bind\", \"source\": \"$BELFRY_OCI_MARKS/$vgpu\", \"options\": [\"bind\", \"ro\"]}"
	caps=$(json_list CAP_CHOWN CAP_DAC_OVERRIDE CAP_FSETID CAP_FOWNER CAP_NET_RAW CAP_SETGID CAP_SETUID CAP_SETFCAP CAP_SETPCAP \
		CAP_NET_BIND_SERVICE CAP_SYS_CHROOT CAP_KILL CAP_AUDIT_WRITE "${EXTRA_CAPS[@]}")
	mkdir -p "$WORK/bundles/$name"
	cat >"$WORK/bundles/$name/config.json" <<END
{"ociVersion": "1.0.0",
 "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": [$(json_list "$@")], "env": [$(container_env)],
  "capabilities": {"bounding": [$caps], "effective": [$caps], "permitted": [$caps]}},
 "root": {"path": "$WORK/root", "readonly": true},
 "mounts": [$mounts],
 "linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}]}}
END
}

# write_marks: after each vGPU that is made.
write_marks() { bf cdi -o "$WORK/cdi.json" --marks "$BELFRY_OCI_MARKS"; }

# run_bundle SECONDS NAME: to its end. The status is the program's.
run_bundle() {
	local status
	timeout -k 5 "$1" "${OCI[@]}" run --bundle "$WORK/bundles/$2" "$2-$$"
	status=$?
	timeout -k 5 20 "${OCI[@]}" delete --force "$2-$$" >/dev/null 2>&1
	return "$status"
}

# in_container SECONDS NAME VGPU COMMAND...
in_container() {
	make_bundle "$2" "$3" "${@:4}" && run_bundle "$1" "$2"
}

# crun refuses some layouts of cgroups, and some machines allow none to be made. The containers need none.
choose_cgroups() {
	local plain=("${OCI[@]}")
	in_container 30 no-gpu '' true >"$WORK/cgroups" 2>&1 && return
	mount -t tmpfs none /sys/fs/cgroup
	OCI=("${plain[@]}" --cgroup-manager=disabled)
	in_container 30 no-gpu '' true >>"$WORK/cgroups" 2>&1 && return
	echo "FAILED: crun starts no container"
	cat "$WORK/cgroups"
	exit 1
}
