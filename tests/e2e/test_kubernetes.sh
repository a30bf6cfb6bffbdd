#!/bin/bash
# belfry-device-plugin against a kubelet of the test's own (kubelet.py, gRPC by grpcio), and containers that are started through
# belfry-oci with what Allocate answered; also by containerd, if that is installed.
# Functions are called by name:
# shellcheck disable=SC1091,SC2004,SC2015,SC2016,SC2034,SC2086,SC2154,SC2317
set -u
if [ "$(id -u)" != 0 ]; then
	echo "skipped: containers need root"
	exit 77
fi
if [ -z "${BELFRY_TEST_IN_NAMESPACE:-}" ]; then
	unshare --mount true 2>/dev/null || { echo "skipped: no mount namespaces"; exit 77; }
	exec env BELFRY_TEST_IN_NAMESPACE=1 unshare --mount --propagation private "$0"
fi
here=$(dirname "$0")
. "$here/common.sh"
. "$here/containers.sh"
export BELFRY_SOFT="mem=8G,linger=1,name=ku$$"
hog=/build/tests/e2e/hog
tag="kube$$" # of this test's containers
program="$BELFRY_BUILD_DIR/src/kube/belfry-device-plugin"
memory=belfry.dev/memory-gib
time=belfry.dev/time-percent

[ -x "$program" ] || skip "belfry-device-plugin is not built: libnghttp2 is missing"
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] || skip "python3-grpcio is not installed"
	! "$python" -c 'import grpc' 2>/dev/null || break
done
runtime=$(command -v crun || command -v runc) || skip "neither crun nor runc is installed"
! is_sanitized || is_plugin_only=1
: "${is_plugin_only:=}"

use_daemon
listen="$work/d/oci.sock"
printf '[server]\noci_socket = %s\non_daemon_death = carry\n' "$listen" >"$work/conf"
export BELFRY_OCI_MARKS="$work/marks"
ln -s "$belfry" "$work/belfry-oci"
oci=(timeout 120 "$work/belfry-oci" --belfry-runtime="$runtime" --root "$work/state")
kubelet="$work/k"
mkdir "$kubelet"

start_kubelet() {
	mkfifo "$work/commands" "$work/answers"
	"$python" "$here/kubelet.py" "$kubelet" "$work/commands" >"$work/answers" 2>"$work/kubelet.log" &
	kubelet_pid=$!
	exec 8<"$work/answers" 9>"$work/commands"
	read -r answer <&8
}
# ask WORD...: a command for kubelet.py. Its answer is in $answer.
ask() {
	echo "$*" >&9
	read -r -t 280 answer <&8 || { fail "the kubelet does not answer: $*: $(cat "$work/kubelet.log")"; exit 1; }
}
# asked WANTED WORD...: the answer has this text.
asked() {
	local wanted=$1
	shift
	ask "$@"
	[[ $answer == *"$wanted"* ]] || fail "$*: '$answer' has no '$wanted'"
}
no_error() {
	ask "$@"
	[[ $answer != *'"error"'* ]] || fail "$*: $answer"
}
start_plugin() {
	"$program" --folder "$kubelet" --marks "$work/marks" >>"$work/plugin.log" 2>&1 &
	plugin=$!
}
end_plugin() {
	kill -TERM "$plugin"
	ended "$plugin" || fail "the plugin's end: status $?: $(tail -n 5 "$work/plugin.log")"
	! ls "$kubelet"/belfry-*.sock >/dev/null 2>&1 || fail "sockets are left: $(ls "$kubelet")"
}
# What an answer of `take` says: the mounts as "TO FROM ..." and the devices.
mounts() { "$python" -c 'import json,sys; print(*(w for m in json.loads(sys.argv[1])["mounts"] for w in m[:2]))' "$answer"; }
devices() { "$python" -c 'import json,sys; print(*json.loads(sys.argv[1])["ids"])' "$answer"; }

# take_pod GIB PERCENT: what a pod is allocated, in $bundle_mounts. free_pod gives it back.
take_pod() {
	no_error take $memory "$1"
	bundle_mounts=$(mounts) memory_ids=$(devices)
	time_ids=
	[ "$2" = 0 ] && return
	no_error take $time "$2"
	bundle_mounts="$bundle_mounts $(mounts)" time_ids=$(devices)
}
free_pod() {
	ask free $memory "$memory_ids"
	[ -z "$time_ids" ] || ask free $time "$time_ids"
}
# name_pod NAME: the annotations that containerd writes.
name_pod() {
	bundle_annotations="io.kubernetes.cri.container-type=container io.kubernetes.cri.sandbox-name=$1
		io.kubernetes.cri.sandbox-namespace=lab io.kubernetes.cri.container-name=main"
}
vgpu_of() { timeout 20 "$belfry" ls 2>/dev/null | awk -v name="$1.pod-" 'index($1, name) == 1 { print $1; exit }'; }
has_vgpu() { [ -n "$(vgpu_of "$1")" ]; }
has_no_vgpu() { ! has_vgpu "$1"; }

resources_are_offered() {
	asked vgpu-infer wait $memory $time belfry.dev/vgpu-infer
	no_error until $memory 7 8
	no_error until $time 90 100
	no_error until belfry.dev/vgpu-infer 1 1
	asked '"1001"' options $memory
	asked '""' prestart $memory soft:0/1
	asked UNIMPLEMENTED method $memory Nothing
	asked 'no device soft:0/99' allocate $memory soft:0/99
	asked 'or a device twice' allocate $memory soft:0/1 soft:0/1
	asked 'or a device twice' allocate $memory
	# A container has one GPU: the one that fits best; and one vGPU.
	asked '["b/0", "b/1"]' prefer $memory 2 a/0 b/0 b/1 a/1 a/2
	asked '["a/0", "a/1", "a/2"]' prefer $memory 3 a/0 b/0 b/1 a/1 a/2
	asked "memory@soft:0@2" allocate $memory soft:0/1 soft:0/5
}

health_follows_belfryd() {
	kill -9 "$daemon"
	ended "$daemon"
	no_error until $memory 0 8
	no_error until belfry.dev/vgpu-infer 0 1
	start_daemon
	no_error until $memory 7 8
	no_error until $time 90 100
	no_error until belfry.dev/vgpu-infer 1 1
}

vgpus_come_and_go() {
	status 0 "$belfry" create later --mem 3G --time 20:50
	asked vgpu-later wait belfry.dev/vgpu-later
	no_error until belfry.dev/vgpu-later 1 1
	no_error until $memory 4 8
	no_error until $time 70 100
	[ -f "$work/marks/later" ] || fail "a vGPU without a mark"
	status 0 "$belfry" rm later
	no_error until belfry.dev/vgpu-later 0 0
	no_error until $memory 7 8
	# The kubelet is told that there are no devices, and then the plugin is gone for this resource, also for a new kubelet.
	asked '{}' ended belfry.dev/vgpu-later
	until_so test ! -e "$kubelet/belfry-vgpu-later.sock"
	asked '"error"' allocate belfry.dev/vgpu-later soft:0/0
	fresh_kubelet
	ask wait
	[[ $answer != *vgpu-later* ]] || fail "a removed vGPU is registered again: $answer"
	status 0 "$belfry" create later
	asked vgpu-later wait belfry.dev/vgpu-later
	no_error until belfry.dev/vgpu-later 1 1
	status 0 "$belfry" rm later
	asked '{}' ended belfry.dev/vgpu-later
}

# A kubelet that has just started: every resource is registered again, and all devices are free.
fresh_kubelet() {
	ask restart
	asked vgpu-infer wait $memory $time belfry.dev/vgpu-infer
	no_error until $memory 7 8
	no_error until $time 90 100
	no_error until belfry.dev/vgpu-infer 1 1
}

the_plugin_is_killed() {
	kill -9 "$plugin"
	ended "$plugin"
	no_error until $memory 0 8
	start_plugin
	ask wait $memory
	no_error_until_healthy
}
# The kubelet may still have the plugin of before.
no_error_until_healthy() { until_so is_allocated; }
is_allocated() {
	ask allocate $memory soft:0/0
	[[ $answer == *memory@soft:0@1* ]]
}

# A second plugin waits until the first has ended, and takes over.
a_second_plugin_waits() {
	local first=$plugin
	start_plugin
	until_so has_line 'another belfry-device-plugin serves this node' "$work/plugin.log"
	until_so is_allocated
	kill -9 "$first"
	ended "$first"
	until_so is_allocated
}

# The plugin serves the kubelet while others send garbage, and keeps little of it.
garbage_is_survived() {
	local at="$kubelet/belfry-memory-gib.sock" rss
	[ "$(stat -c %a "$at")" = 600 ] || fail "the socket's mode is $(stat -c %a "$at")"
	timeout 280 "$python" "$here/grpc_garbage.py" "$at" >"$work/out" 2>"$work/err" || fail "garbage: $(tail -n 3 "$work/err")"
	until_so is_allocated
	rss=$(awk '/^VmHWM/ { print $2 }' "/proc/$plugin/status")
	[ -n "$is_plugin_only" ] || [ "$rss" -lt 65536 ] || fail "the plugin has used $rss KiB"
}

hundred_allocations() {
	asked 100 many $memory 100
	asked 100 many belfry.dev/vgpu-infer 100
}

a_pod_has_its_part() {
	name_pod train-0
	take_pod 1 30
	bundle part '' sh -c "$hog >/work/part.out; : >/work/part.ready; exec sleep 600"
	rm -f "$work"/part.{out,ready}
	status 0 "${oci[@]}" create --bundle "$work/part" part-$tag </dev/null
	status 0 "${oci[@]}" start part-$tag
	until_so test -e "$work/part.ready"
	grep -q 'total 1024 .*got 10[12][0-9] ' "$work/part.out" || fail "memory: $(cat "$work/part.out")"
	local vgpu
	vgpu=$(vgpu_of train-0)
	is_figure "$vgpu" mem.limit $((1 << 30)) && is_figure "$vgpu" time.request 0.3 && is_figure "$vgpu" time.limit 1.0 ||
		fail "the vGPU of a pod: $(timeout 20 "$belfry" ls)"
	is_figure "$vgpu" runs.0.kind pod && is_figure "$vgpu" runs.0.pod train-0 &&
		is_figure "$vgpu" runs.0.namespace lab && is_figure "$vgpu" runs.0.container main &&
		is_figure "$vgpu" runs.0.id part-$tag || fail "the identity of a pod: $(timeout 20 "$belfry" ls --json)"
	status 0 "$belfry" explain "$vgpu"
	grep -q 'container main of pod train-0 in namespace lab' "$work/out" || fail "explain: $(cat "$work/out")"
	# exec is on the same vGPU, whose memory the first program has given back.
	status 0 "${oci[@]}" exec --env LD_LIBRARY_PATH=/run/belfry/lib --env BELFRY_SOFT_DIR=/run/belfry/soft part-$tag "$hog" 5
	grep -q 'total 1024 .*got 5 ' "$work/out" || fail "exec: $(cat "$work/out" "$work/err")"
	# A restart of belfryd and of the plugin does not end it.
	kill -9 "$daemon" "$plugin"
	ended "$daemon"
	ended "$plugin"
	start_daemon
	start_plugin
	until_so test -S "$listen"
	until_so is_figure "$vgpu" runs.0.pod train-0
	status 0 "${oci[@]}" delete --force part-$tag
	until_so has_no_vgpu train-0
	ask wait $memory
	until_so is_allocated
	no_error until $memory 7 8
	free_pod
}

a_named_vgpu() {
	name_pod serve-0
	no_error take belfry.dev/vgpu-infer 1
	bundle_mounts=$(mounts)
	asked 'only 0 devices' take belfry.dev/vgpu-infer 1 # it has one slot
	bundle named '' "$hog"
	status 0 "${oci[@]}" run --bundle "$work/named" named-$tag
	grep -q 'total 32 ' "$work/out" || fail "a vGPU by name: $(cat "$work/out" "$work/err")"
	ask free belfry.dev/vgpu-infer soft:0/0
	is_there infer || fail "the vGPU of the configuration was removed"
}

# shares_are_kept COMMAND...: of pods that COMMAND starts, with the path of a bundle's config.json as %s and a name after it.
shares_are_kept() {
	local name part jobs=()
	for part in big:60 little:20; do
		name=${part%:*}
		name_pod "$name"
		take_pod 1 "${part#*:}"
		load_words "$name"
		bundle "$name" '' "${load_command[@]}"
		"${@//%s/"$work/$name"}" "$name-$tag" >"$work/$name.json" 2>"$work/$name.err" &
		loads[$name]=$!
	done
	until_ready big little
	shares_are "pods of $1 $2 $3" "$(vgpu_of big)=75" "$(vgpu_of little)=25"
	stop_loads big little
	until_so has_no_vgpu big
	until_so has_no_vgpu little
	fresh_kubelet
}

errors_say_what_to_do() {
	name_pod wrong
	no_error take $time 10
	bundle_mounts=$(mounts)
	bundle wrong '' true
	status 1 "${oci[@]}" run --bundle "$work/wrong" wrong-$tag
	says 'time-percent without belfry.dev/memory-gib; ask for both' "time without memory"
	# A vGPU and parts of a GPU.
	take_pod 1 0
	bundle_mounts="$bundle_mounts /run/belfry/vgpu $work/marks/infer"
	bundle wrong '' true
	status 1 "${oci[@]}" run --bundle "$work/wrong" wrong-$tag
	says 'parts of a GPU, but not both' "two vGPUs"
	# A file that is not a mark.
	echo >"$work/memory@soft:0@1"
	bundle_mounts="/run/belfry/memory $work/memory@soft:0@1"
	bundle wrong '' true
	status 1 "${oci[@]}" run --bundle "$work/wrong" wrong-$tag
	says 'no file of' "a mark that is not one"
	# Another user of the node has taken the memory since it was allocated.
	free_pod
	take_pod 6 0
	status 0 "$belfry" create other --mem 4G
	bundle wrong '' true
	status 1 "${oci[@]}" run --bundle "$work/wrong" wrong-$tag
	says '6 GiB' "memory that is not free"
	has_no_vgpu wrong || fail "a vGPU of a container that was refused"
	status 0 "$belfry" rm other
	no_error until $memory 7 8
	# What is there now is there for the next one.
	bundle wrong '' "$hog" 5
	status 0 "${oci[@]}" run --bundle "$work/wrong" wrong-$tag
	grep -q 'total 6144 .*got 5 ' "$work/out" || fail "6 GiB: $(cat "$work/out" "$work/err")"
	until_so has_no_vgpu wrong
	free_pod
	fresh_kubelet
}

killed_between_create_and_start() {
	name_pod early
	take_pod 1 0
	bundle early '' sleep 600
	status 0 "${oci[@]}" create --bundle "$work/early" early-$tag </dev/null
	has_vgpu early || fail "a created container without a vGPU"
	kill -9 "$("${oci[@]}" state early-$tag | awk -F'[:,]' '/"pid"/ { print $2 + 0 }')"
	status 0 "${oci[@]}" delete --force early-$tag
	until_so has_no_vgpu early
	# The runtime is killed, and the container is created again under its name.
	status 0 "${oci[@]}" create --bundle "$work/early" early-$tag </dev/null
	status 0 env -u BELFRY_SOCKET "$runtime" --root "$work/state" delete --force early-$tag
	has_vgpu early || fail "the vGPU should be left"
	bundle early '' "$hog" 5
	status 0 "${oci[@]}" run --bundle "$work/early" early-$tag
	grep -q 'total 1024 ' "$work/out" || fail "created again: $(cat "$work/out" "$work/err")"
	until_so has_no_vgpu early
	free_pod
}

many_pods() {
	local i pids=()
	for i in $(seq 7); do
		name_pod "many$i"
		take_pod 1 10
		bundle "many$i" '' "$hog" 1
		"${oci[@]}" run --bundle "$work/many$i" "many$i-$tag" >"$work/many$i.out" 2>&1 &
		pids+=($!)
	done
	wait "${pids[@]}"
	for i in $(seq 7); do
		has_line 'got 1 ' "$work/many$i.out" || fail "pod $i of 7: $(cat "$work/many$i.out")"
		until_so has_no_vgpu "many$i"
	done
	asked 'only 0 devices' take $memory 1
	fresh_kubelet
}

# containerd with belfry-oci as the program of its runc shim, as a RuntimeClass has it.
containerd_starts_pods() {
	local log="$work/containerd.log" ctr
	command -v containerd >/dev/null && command -v ctr >/dev/null && command -v runc >/dev/null ||
		{ echo "containerd and runc are not installed: containerd was not tested"; return; }
	mkdir "$work/c"
	printf 'version = 2\nroot = "%s/c/root"\nstate = "%s/c/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "%s/c/sock"\n' \
		"$work" "$work" "$work" >"$work/c/config.toml"
	printf '#!/bin/bash\nexport BELFRY_SOCKET=%s BELFRY_OCI_MARKS=%s\nexec -a belfry-oci %s --belfry-runtime=runc "$@"\n' \
		"$BELFRY_SOCKET" "$work/marks" "$belfry" >"$work/c/runtime"
	chmod +x "$work/c/runtime"
	containerd --config "$work/c/config.toml" >"$log" 2>&1 &
	containerd=$!
	until_so containerd_answers
	# Where containerd's shim cannot start any container, Belfry cannot be tested with it.
	bundle_mounts='' bundle_annotations=''
	bundle plain '' echo hello
	ctr=(timeout 120 ctr --address "$work/c/sock" run --rm --runc-root "$work/c/runc")
	if ! "${ctr[@]}" --config "$work/plain/config.json" plain >"$work/out" 2>"$work/err"; then
		echo "containerd starts no containers here, so it was not tested: $(tail -n 1 "$work/err")"
	else
		pod_of_containerd
	fi
	kill "$containerd"
	ended "$containerd"
}
containerd_answers() { timeout 20 ctr --address "$work/c/sock" version >/dev/null 2>&1; }
pod_of_containerd() {
	ctr+=(--runc-binary "$work/c/runtime")
	name_pod ctr-0
	take_pod 2 20
	bundle ctr '' sh -c "$hog 5 && : >/work/ctr.ready && while ! test -e /work/ctr.stop; do sleep 0.05; done"
	rm -f "$work"/ctr.{ready,stop}
	"${ctr[@]}" --config "$work/ctr/config.json" ctr-$tag >"$work/ctr.out" 2>&1 &
	local job=$!
	until_so test -e "$work/ctr.ready" || cat "$work/ctr.out"
	has_line 'total 2048 .*got 5 ' "$work/ctr.out" || fail "containerd: $(cat "$work/ctr.out")"
	is_figure "$(vgpu_of ctr-0)" runs.0.pod ctr-0 && is_figure "$(vgpu_of ctr-0)" runs.0.container main ||
		fail "containerd: the identity: $(timeout 20 "$belfry" ls --json)"
	status 0 timeout 120 ctr --address "$work/c/sock" task exec --exec-id more ctr-$tag \
		env LD_LIBRARY_PATH=/run/belfry/lib BELFRY_SOFT_DIR=/run/belfry/soft "$hog" 5
	grep -q 'total 2048 ' "$work/out" || fail "ctr exec: $(cat "$work/out" "$work/err")"
	: >"$work/ctr.stop"
	wait "$job" || fail "ctr run: $(cat "$work/ctr.out")"
	until_so has_no_vgpu ctr-0
	# Without a vGPU there is no GPU, and an error is shown by containerd.
	bundle_mounts=''
	bundle ctr '' "$hog" 1
	status 1 "${ctr[@]}" --config "$work/ctr/config.json" ctr-none
	status 0 "$belfry" create soon
	status 0 "$belfry" cdi -o "$work/cdi.json" --marks "$work/marks"
	bundle_mounts="/run/belfry/vgpu $work/marks/soon"
	bundle ctr '' "$hog" 1
	status 0 "$belfry" rm soon
	: >"$work/marks/soon"
	status 1 "${ctr[@]}" --config "$work/ctr/config.json" ctr-gone
	says 'soon: no vGPU of this name' "containerd: a vGPU that was removed"
	free_pod
	fresh_kubelet
	shares_are_kept "${ctr[@]}" --config %s/config.json
}

start_daemon
until_so test -S "$listen"
status 0 "$belfry" create infer --mem 32M --time 10
start_plugin
start_kubelet
resources_are_offered
vgpus_come_and_go
health_follows_belfryd
fresh_kubelet
hundred_allocations
garbage_is_survived
the_plugin_is_killed
a_second_plugin_waits
fresh_kubelet
if [ -z "$is_plugin_only" ]; then
	hide_unified
	make_root
	a_pod_has_its_part
	fresh_kubelet
	a_named_vgpu
	calibrate
	shares_are_kept "${oci[@]}" run --bundle %s
	errors_say_what_to_do
	killed_between_create_and_start
	many_pods
	containerd_starts_pods
else
	echo "with a sanitizer only the plugin is tested: programs in containers lack the rights that its leak check needs"
fi
# Nothing is left behind.
until_so is_figure '' gpus.0.mem.used 0
end_plugin
echo end >&9
ended "$kubelet_pid"
status 0 "$belfry" rm infer
end_daemon
[ -z "$(find /sys/fs/cgroup -type d -name "*-$tag" 2>/dev/null)" ] || fail "cgroups are left: $(find /sys/fs/cgroup -type d -name "*-$tag")"
! grep -iE 'assert|sanitizer' "$work/plugin.log" || fail "the plugin's log"
exit "$failed"
