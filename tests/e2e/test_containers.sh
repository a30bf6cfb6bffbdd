#!/bin/bash
# Containers on vGPUs, with the runtimes that are installed: crun and runc. Their root file system is made of the host's /usr.
# test_podman.sh has those of podman. Runs in a mount namespace of its own, because crun does not accept every layout of cgroups.
# Scripts for the program are quoted on purpose, and functions are called by name:
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
export BELFRY_SOFT="mem=1G,linger=1,name=ct$$"
hog=/build/tests/e2e/hog

use_daemon
listen="$work/d/oci.sock"
server="[server]
oci_socket = $listen
on_daemon_death = carry"
printf '%s\nlog = info\n' "$server" >"$work/conf"
export BELFRY_OCI_MARKS="$work/marks"
ln -s "$belfry" "$work/belfry-oci"
. "$(dirname "$0")/containers.sh"
confine_daemon

no_cgroup_is_left() {
	find /sys/fs/cgroup -type d \( -name "*-crun-$$" -o -name "*-runc-$$" \) >"$work/out"
	[ ! -s "$work/out" ] || fail "cgroups are left: $(cat "$work/out")"
}

memory_is_limited() {
	bundle limited small "$hog"
	status 0 "${oci[@]}" run --bundle "$work/limited" "limited-$tag"
	grep -q 'total 32 .*got 3[0-2] ' "$work/out" || fail "$runtime: memory: $(cat "$work/out" "$work/err")"
	until_so no_run small
}

without_a_vgpu_there_is_no_gpu() {
	bundle none '' "$hog" 1
	status 1 "${oci[@]}" run --bundle "$work/none" "none-$tag"
	# The environment names no vGPU, and neither does a file that is not a mark.
	bundle forged '' "$hog" 1
	sed -i 's|"PATH=/usr/bin:/bin"|"PATH=/usr/bin:/bin", "BELFRY_VGPU=small"|' "$work/forged/config.json"
	status 1 "${oci[@]}" run --bundle "$work/forged" "forged-$tag"
	echo small >"$work/mark"
	sed -i 's|"mounts": \[|"mounts": [{"destination": "/run/belfry/vgpu", "type": "bind", "source": "'"$work/mark"'", "options": ["bind"]}, |' \
		"$work/forged/config.json"
	status 1 "${oci[@]}" run --bundle "$work/forged" "forged-$tag"
	says 'no file of' "a mark that is not one"
}

shares_are_kept() {
	local name
	for name in big little; do
		load_words $name
		bundle "$name" "$name" "${load_command[@]}"
		"${oci[@]}" run --bundle "$work/$name" "$name-$tag" >"$work/$name.json" 2>"$work/$name.err" &
	done
	until_ready big little
	shares_are "$runtime" big=75 little=25
	: >"$work/big.stop"
	: >"$work/little.stop"
	wait_jobs
	has_line '"wrong":0,' "$work/big.json" && has_line '"wrong":0,' "$work/little.json" ||
		fail "$runtime: a load: $(cat "$work"/{big,little}.err)"
	until_so no_run big
	until_so no_run little
}

# exec is a second run on the same vGPU: the limit holds for both together.
exec_does_not_escape() {
	bundle shell small sleep 600
	status 0 "${oci[@]}" create --bundle "$work/shell" "shell-$tag" </dev/null
	status 0 "${oci[@]}" start "shell-$tag"
	status 0 "${oci[@]}" exec --env LD_LIBRARY_PATH=/run/belfry/lib --env BELFRY_SOFT_DIR=/run/belfry/soft "shell-$tag" "$hog"
	grep -q 'total 32 ' "$work/out" || fail "$runtime: exec: $(cat "$work/out" "$work/err")"
	# Nothing is changed from inside, though belfryd's socket can be reached.
	status 1 "${oci[@]}" exec --env "BELFRY_SOCKET=/work/d/belfryd.sock" "shell-$tag" /build/belfry set small --mem 64M
	says 'cannot be told from one' "$runtime: set inside a container"
	status 1 "${oci[@]}" exec --env "BELFRY_SOCKET=/work/d/belfryd.sock" "shell-$tag" /build/belfry run --name more true
	is_not_there more || fail "$runtime: a container has made a vGPU"
	is_figure small mem.limit $((32 << 20)) || fail "$runtime: a container has changed its limit"
	status 0 "${oci[@]}" delete --force "shell-$tag"
	until_so no_run small
}

killed_between_create_and_start() {
	bundle early small sleep 600
	status 0 "${oci[@]}" create --bundle "$work/early" "early-$tag" </dev/null
	kill -9 "$("${oci[@]}" state "early-$tag" | awk -F'[:,]' '/"pid"/ { print $2 + 0 }')"
	status 0 "${oci[@]}" delete --force "early-$tag"
	until_so no_run small
	memory_is_limited
}

# many_at_once COUNT
many_at_once() {
	local i
	for i in $(seq "$1"); do
		bundle "many$i" many "$hog" 1
		"${oci[@]}" run --bundle "$work/many$i" "many$i-$tag" >"$work/many$i.out" 2>&1 &
	done
	wait_jobs
	for i in $(seq "$1"); do
		has_line 'got 1 ' "$work/many$i.out" || fail "$runtime: container $i of $1: $(cat "$work/many$i.out")"
	done
	until_so no_run many
	until_so is_figure many mem.used 0
}

# The memory of a vGPU is that of all its containers together: what one has, another one lacks.
two_on_a_small_vgpu() {
	bundle first small "$hog" 20 /work/first.stop
	rm -f "$work/first.stop"
	"${oci[@]}" run --bundle "$work/first" "first-$tag" >"$work/first.out" 2>&1 &
	until_so has_line 'got 20 ' "$work/first.out"
	bundle second small "$hog"
	status 0 "${oci[@]}" run --bundle "$work/second" "second-$tag"
	grep -q 'total 32 free 12 got 12 left 0 error 2' "$work/out" || fail "$runtime: the second of two: $(cat "$work/out" "$work/err")"
	: >"$work/first.stop"
	wait_jobs
	until_so no_run small
}

# Nothing is left of a container whose listener belfryd does not receive: the runtime refuses to start it.
no_process_listens() {
	bundle late small true
	status 0 "$belfry" oci edit --marks "$work/marks" --runtime "$runtime" <"$work/late/config.json"
	cp "$work/out" "$work/late/config.json"
	end_daemon
	until_so test ! -e "$listen"
	status 1 timeout 120 "$runtime" --root "$work/state" run --bundle "$work/late" "late-$tag"
	! "$runtime" --root "$work/state" list | grep -q "late-$tag" || fail "$runtime: a container without a listener is left"
	bundle late small true
	status 1 "${oci[@]}" run --bundle "$work/late" "late-$tag"
	start_daemon
	until_so listens
}

an_unknown_vgpu_is_named() {
	status 0 "$belfry" create gone
	status 0 "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks"
	status 0 "$belfry" rm gone
	bundle unknown gone true
	status 1 "${oci[@]}" run --bundle "$work/unknown" "unknown-$tag"
	says 'gone: no vGPU of this name' "$runtime: a vGPU that was removed"
	status 0 "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks"
	[ ! -e "$work/marks/gone" ] || fail "the mark of a removed vGPU is left"
}

# belfryd is killed and started again: the container goes on, and further ones are attached.
belfryd_is_restarted() {
	bundle stays small sh -c "while ! test -e /work/go; do sleep 0.05; done; $hog >/work/stays.out; exec sleep 600"
	rm -f "$work"/{go,stays.out}
	status 0 "${oci[@]}" create --bundle "$work/stays" "stays-$tag" </dev/null
	status 0 "${oci[@]}" start "stays-$tag"
	until_so is_figure small runs.0.kind container
	kill -9 "$daemon"
	ended "$daemon"
	start_daemon
	until_so test -S "$listen"
	: >"$work/go"
	until_so has_line 'total 32 ' "$work/stays.out"
	status 0 "${oci[@]}" delete --force "stays-$tag"
	until_so no_run small
	until_so listens
	memory_is_limited
}
listens() { "$(dirname "$0")/oci_send.py" "$listen" nothing 2>/dev/null; }

# The removal of a vGPU ends the container.
removal_ends_the_container() {
	status 0 "$belfry" create doomed --mem 8M
	status 0 "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks"
	bundle doomed doomed sh -c 'sleep 601 & exec sleep 600'
	status 0 "${oci[@]}" create --bundle "$work/doomed" "doomed-$tag" </dev/null
	status 0 "${oci[@]}" start "doomed-$tag"
	local pid
	pid=$("${oci[@]}" state "doomed-$tag" | awk -F'[:,]' '/"pid"/ { print $2 + 0 }')
	until_so is_figure doomed runs.0.pid "$pid"
	status 0 "$belfry" rm --force doomed
	until_so is_gone "$pid"
	status 0 "${oci[@]}" delete --force "doomed-$tag"
}

with_runtime() {
	runtime=$1
	tag="$runtime-$$" # of this test's containers
	oci=(timeout 120 "$work/belfry-oci" --belfry-runtime="$runtime" --root "$work/state")
	memory_is_limited
	without_a_vgpu_there_is_no_gpu
	shares_are_kept
	exec_does_not_escape
	killed_between_create_and_start
	many_at_once "$([ "$runtime" = "${runtimes[0]}" ] && echo 200 || echo 20)"
	two_on_a_small_vgpu
	an_unknown_vgpu_is_named
	belfryd_is_restarted
	no_process_listens
	removal_ends_the_container
}

runtimes=()
for name in crun runc; do
	! command -v $name >/dev/null || runtimes+=("$name")
done
! is_sanitized || skip "the leak check of a sanitizer needs rights that programs in these containers lack"
[ ${#runtimes[@]} != 0 ] || skip "neither crun nor runc is installed"
hide_unified
make_root
start_daemon
grep -q 'NoNewPrivs:.1' "/proc/$daemon/status" || fail "belfryd is not confined"
until_so test -S "$listen"
status 0 "$belfry" create small --mem 32M
status 0 "$belfry" create many --mem 640M
status 0 "$belfry" create big --time 75 --mem 32M
status 0 "$belfry" create little --time 25 --mem 32M
calibrate
status 0 "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks"
for name in "${runtimes[@]}"; do
	with_runtime "$name"
done
# Nothing is left behind.
until_so is_figure '' gpus.0.mem.used 0
status 0 "$belfry" rm small many big little
end_daemon
no_cgroup_is_left
exit "$failed"
