#!/bin/bash
# belfry-dra against a kubelet and an API server of the test's own (dra.py), and a container with what a claim has prepared.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2154,SC2317
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
export BELFRY_SOFT="mem=8G,linger=1,name=dra$$"
program="$BELFRY_BUILD_DIR/src/dra/belfry-dra"

[ -x "$program" ] || skip "belfry-dra is not built: libnghttp2 or libcurl is missing"
for python in python3 /usr/bin/python3 ''; do
	[ -n "$python" ] || skip "python3-grpcio is not installed"
	! "$python" -c 'import grpc' 2>/dev/null || break
done
command -v openssl >/dev/null || skip "openssl is not installed"

use_daemon
printf '[server]\noci_socket = %s/d/oci.sock\n' "$work" >"$work/conf"
export BELFRY_OCI_MARKS="$work/marks"
registry="$work/r" folder="$work/f" cdi="$work/cdi"
mkdir "$registry"
one=11111111-2222-4333-8444-555555555555
two=22222222-2222-4333-8444-555555555555
three=33333333-2222-4333-8444-555555555555
four=44444444-2222-4333-8444-555555555555

start_kubelet() {
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1 \
		-keyout "$work/key.pem" -out "$work/ca.pem" >"$work/openssl" 2>&1 || skip "no certificate: $(cat "$work/openssl")"
	cat "$work/key.pem" "$work/ca.pem" >"$work/both.pem"
	echo secret-token >"$work/token"
	mkfifo "$work/commands" "$work/answers"
	"$python" "$here/dra.py" "$registry" "$work/commands" "$work/both.pem" secret-token >"$work/answers" 2>"$work/kubelet.log" &
	kubelet_pid=$!
	exec 8<"$work/answers" 9>"$work/commands"
	read -r port <&8
}
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
start_driver() {
	"$program" --node node-1 --server "https://127.0.0.1:$port" --token "$work/token" --ca "$work/ca.pem" --registry "$registry" \
		--folder "$folder" --marks "$work/marks" --cdi "$cdi" "$@" >>"$work/dra.log" 2>&1 &
	driver=$!
	until_so test -S "$registry/gpu.belfry.dev-reg.sock"
	asked '["DRAPlugin", "gpu.belfry.dev", "v1.DRAPlugin", "v1beta1.DRAPlugin"]' info
}
end_driver() {
	kill -TERM "$driver"
	ended "$driver" || fail "the end of the driver: status $?: $(tail -n 5 "$work/dra.log")"
	[ ! -e "$registry/gpu.belfry.dev-reg.sock" ] && [ ! -e "$folder/dra.sock" ] || fail "sockets are left"
}
vgpus() { timeout 20 "$belfry" ls | awk '/^claim-/ { print $1 }' | sort | xargs; }
files_of() { find "$cdi" "$work/marks" "$folder/claims" -name "*$1*" 2>/dev/null; }

gpus_are_published() {
	ask until 1
	python3 - "$answer" <<'P' || fail "the slice: $answer"
import json, sys
slice = json.loads(sys.argv[1])
assert slice["apiVersion"] == "resource.k8s.io/v1" and slice["kind"] == "ResourceSlice"
assert slice["metadata"]["name"] == "node-1-gpu.belfry.dev"
(owner,) = slice["metadata"]["ownerReferences"]
assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "node-1", "4f9a")
spec = slice["spec"]
assert (spec["driver"], spec["nodeName"]) == ("gpu.belfry.dev", "node-1")
assert spec["pool"] == {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
(device,) = spec["devices"]
assert device["name"] == "soft-0" and device["allowMultipleAllocations"] is True
assert device["attributes"]["gpu"] == {"string": "soft:0"}
# The vGPU that belongs to no claim has 1 GiB and 10 %.
assert device["capacity"] == {
    "memory": {"value": "7168Mi", "requestPolicy": {"default": "1024Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}},
    "time": {"value": "90", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "1"}}},
}
P
	asked '{}' register
	until_so has_line 'registered with the kubelet' "$work/dra.log"
	status 0 "$program" --node node-1 --print-slice
	has_line '"value": *"7168Mi"' "$work/out" || fail "--print-slice: $(cat "$work/out")"
}

a_claim_gets_a_vgpu() {
	ask claim a $one soft-0=2Gi/25
	asked "{\"$one\": [[\"r0\", \"node-1\", \"soft-0\", \"belfry.dev/claim=claim-$one-0\"]]}" prepare v1 a $one
	vgpu_is claim-$one-0 0.25 2048
	is_figure claim-$one-0 time.limit 1.0 || fail "the limit: $(figure claim-$one-0 time.limit)"
	grep -q "\"kind\": *\"belfry.dev/claim\"" "$cdi/belfry-claim-$one.json" &&
		grep -q "\"hostPath\": *\"$work/marks/claim-$one-0\"" "$cdi/belfry-claim-$one.json" ||
		fail "the CDI specification: $(cat "$cdi/belfry-claim-$one.json")"
	# Again, by the older name of the service, with the same answer and the same vGPU; also if its limit was changed.
	status 0 "$belfry" set claim-$one-0 --mem 1G
	asked "\"belfry.dev/claim=claim-$one-0\"" prepare v1beta1 a $one
	vgpu_is claim-$one-0 0.25 2048
	[ "$(vgpus)" = "claim-$one-0" ] || fail "vGPUs: $(vgpus)"
	# A prepared claim needs no API server.
	ask refuse 500
	asked "\"belfry.dev/claim=claim-$one-0\"" prepare v1 a $one
	ask refuse 0
}

# What containerd does with the CDI device is a mount of the mark.
a_container_has_the_claim() {
	local runtime
	! is_sanitized || return 0
	runtime=$(command -v crun || command -v runc) || { echo "no container: neither crun nor runc is installed"; return; }
	hide_unified
	make_root
	ln -s "$belfry" "$work/belfry-oci"
	until_so test -S "$work/d/oci.sock"
	bundle_mounts="/run/belfry/vgpu $work/marks/claim-$one-0"
	bundle claim '' /build/tests/e2e/hog
	status 0 timeout 120 "$work/belfry-oci" --belfry-runtime="$runtime" --root "$work/state" run --bundle "$work/claim" "claim-$$"
	grep -q 'total 2048 .*got 2048 .*error 2' "$work/out" || fail "the container: $(cat "$work/out" "$work/err")"
	until_so no_run claim-$one-0
}

# vGPUs of claims change no slice: the scheduler counts them. Others do.
other_vgpus_change_the_slice() {
	status 0 "$belfry" create later --mem 1G --time 5
	ask until 2
	[[ $answer == *'"6144Mi"'* && $answer == *'"value": "85"'* ]] || fail "the second slice: $answer"
	status 0 "$belfry" rm later
	asked '"7168Mi"' until 3
	# A kubelet removes the slice when it starts.
	ask wipe
	asked '"7168Mi"' until 1
}

errors_say_what_failed() {
	ask claim big $two soft-0=7Gi/0
	asked 'error' prepare v1 big $two
	[[ $answer == *GiB* ]] || fail "too much memory: $answer"
	ask claim time $two soft-0=1Gi/80
	asked 'error' prepare v1 time $two
	ask claim device $two gpu-7=1Gi/0
	asked 'gpu-7: belfryd has no such GPU' prepare v1 device $two
	ask claim amount $two soft-0=1Q/0
	asked "memory '1Q' of the claim: not an amount" prepare v1 amount $two
	ask claim percent $two soft-0=1Gi/101
	asked "not a number from 0 to 100" prepare v1 percent $two
	ask claim none $two
	asked 'is not allocated' prepare v1 none $two
	asked 'not found' prepare v1 nothing $two
	asked "has another UID" prepare v1 a $two
	ask refuse 403
	asked 'answers 403: refused by the test' prepare v1 big $two
	ask refuse 0
	# The second device does not fit: nothing is left of the first.
	ask claim pair $two soft-0=1Gi/0 soft-0=7Gi/0
	asked 'error' prepare v1 pair $two
	[ -z "$(files_of $two)" ] || fail "files are left: $(files_of $two)"
	[ "$(vgpus)" = "claim-$one-0" ] || fail "vGPUs are left: $(vgpus)"
	# Messages and names that no kubelet sends.
	asked INVALID_ARGUMENT raw NodePrepareResources 0a05
	asked INVALID_ARGUMENT raw NodePrepareResources 0a 0e 0a 03 6c6162 12 04 2e2e2f78 1a 01 61
	asked UNIMPLEMENTED raw Nothing ''
	asked '""' raw NodePrepareResources ''
}

claims_of_other_shapes() {
	ask claim pair $two soft-0=512Mi/10 soft-0=1e9/0.5
	asked "[\"r1\", \"node-1\", \"soft-0\", \"belfry.dev/claim=claim-$two-1\"]" prepare v1 pair $two
	vgpu_is claim-$two-0 0.1 512
	is_figure claim-$two-1 mem.limit 1000000000 && is_figure claim-$two-1 time.request 0.005 || fail "the second device of a claim"
	# Two claims at once. Without amounts the device is allocated as a whole.
	ask claim whole $three soft-0=-
	ask claim small $four soft-0=64Mi/0
	asked "claim-$three-0" prepare v1 whole $three small $four
	[[ $answer == *"claim-$four-0"* ]] || fail "two claims: $answer"
	is_figure claim-$three-0 mem.limit 0 || fail "a whole device: $(figure claim-$three-0 mem.limit)"
	ask unprepare v1 pair $two whole $three small $four
	[ "$answer" = "{\"$two\": \"\", \"$three\": \"\", \"$four\": \"\"}" ] || fail "unprepare: $answer"
	[ "$(vgpus)" = "claim-$one-0" ] && [ -z "$(files_of $two)$(files_of $three)$(files_of $four)" ] ||
		fail "left: $(vgpus) $(files_of $two) $(files_of $three) $(files_of $four)"
}

a_claim_in_use_stays() {
	timeout 600 "$belfry" run claim-$one-0 -- sleep 600 &
	local job=$!
	until_so is_figure claim-$one-0 runs.0.program sleep
	asked "claim-$one-0" unprepare v1 a $one
	[ "$answer" != "{\"$one\": \"\"}" ] && [ -n "$(files_of $one)" ] || fail "a claim in use: $answer"
	kill "$job"
	wait "$job"
	until_so no_run claim-$one-0
}

the_driver_is_killed() {
	kill -9 "$driver"
	ended "$driver"
	start_driver
	asked "\"belfry.dev/claim=claim-$one-0\"" prepare v1 a $one
	vgpu_is claim-$one-0 0.25 2048
	# A second one leaves the first alone.
	status 1 timeout 20 "$program" --node node-1 --server https://127.0.0.1:1 --folder "$folder" --registry "$registry"
	says 'another belfry-dra serves this node' "a second driver"
}

belfryd_is_restarted() {
	end_daemon
	start_daemon
	until_so vgpu_there claim-$one-0
	vgpu_is claim-$one-0 0.25 2048
	# A vGPU that is gone, as after a reboot, is made again.
	status 0 "$belfry" rm claim-$one-0
	until_so vgpu_there claim-$one-0
	vgpu_is claim-$one-0 0.25 2048
}
vgpu_there() { [ "$(figure "$1" name)" = "$1" ]; }

# The claim need not exist any more.
a_claim_is_given_back() {
	ask forget a
	asked "{\"$one\": \"\"}" unprepare v1 a $one
	[ -z "$(vgpus)" ] && [ -z "$(files_of $one)" ] || fail "left: $(vgpus) $(files_of $one)"
	asked "{\"$one\": \"\"}" unprepare v1 a $one
}

# The certificate and the token are checked.
others_are_not_trusted() {
	end_driver
	: >"$work/dra.log"
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout "$work/other.key" -out "$work/other.pem" >/dev/null 2>&1
	start_driver --ca "$work/other.pem"
	ask claim a $one soft-0=1Gi/0
	asked 'the API server https://127.0.0.1' prepare v1 a $one
	until_so has_line 'cannot be published: .*certificate' "$work/dra.log"
	end_driver
	echo wrong >"$work/token"
	start_driver --time-limit
	asked 'answers 401: Unauthorized' prepare v1 a $one
	echo secret-token >"$work/token"
	# The token is read for each request.
	ask claim b $two soft-0=1Gi/30
	asked "claim-$two-0" prepare v1 b $two
	is_figure claim-$two-0 time.limit 0.3 || fail "--time-limit: $(figure claim-$two-0 time.limit)"
	asked "{\"$two\": \"\"}" unprepare v1 b $two
}

start_daemon
status 0 "$belfry" create infer --mem 1G --time 10
status 2 "$program" --node node-1
says 'name the API server' "without a server"
status 2 env -u NODE_NAME "$program" --server https://127.0.0.1:1
says 'name this node' "without a node"
start_kubelet
start_driver
gpus_are_published
a_claim_gets_a_vgpu
a_container_has_the_claim
other_vgpus_change_the_slice
errors_say_what_failed
claims_of_other_shapes
a_claim_in_use_stays
the_driver_is_killed
belfryd_is_restarted
a_claim_is_given_back
others_are_not_trusted
end_driver
echo end >&9
ended "$kubelet_pid"
status 0 "$belfry" rm infer
end_daemon
! grep -iE 'assert|sanitizer' "$work/dra.log" || fail "the driver's log"
exit "$failed"
