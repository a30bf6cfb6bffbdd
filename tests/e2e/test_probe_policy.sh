#!/bin/bash
# What policies learn from the libraries in programs: the modules that they load, and what probes have counted.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
need_policies
export BELFRY_SOFT="sms=8,mem=1G,linger=1,name=modules$$"
here=$(dirname "$0")
. "$here/probing.sh"
policies="$BELFRY_BUILD_DIR/tests/policies"

# The policy has been told of modules: a pattern of its line.
knows() { timeout 20 "$belfry" policy dump 2>/dev/null | grep -q -- "$1"; }
heard() { until_so knows "$1" || fail "the policy has: $(timeout 20 "$belfry" policy dump), not $1"; }

echo '== modules that programs load'
status 0 "$belfry" create a
status 0 "$belfry" policy load "$policies/modules.bpf.o"
begin a --probes
ordered a data
ordered a library
heard '^modules 2 kernels 4 bytes [1-9][0-9]* texts 2 woven 0 lost 0$'
status 0 "$belfry" probe attach kernelstat --vgpu a
until_so dumps 'no kernel of it carries the probe' kernelstat
ordered a ex
heard '^modules 3 kernels 6 bytes [1-9][0-9]* texts 3 woven 1 lost 0$'
printf '\177ELF%256s' '' >"$work/code"
order a image "$work/code"
case $answer in
failed*) ;; # the software GPU has no machine code
*) heard '^modules 4 kernels 6 bytes [1-9][0-9]* texts 3 woven 1 lost 0$' ;;
esac

echo '== a policy that is loaded later, and one that is unloaded'
status 0 "$belfry" policy unload
ordered a data
status 0 "$belfry" policy load "$policies/modules.bpf.o"
knows '^modules 0 ' || fail "a new policy starts with: $(timeout 20 "$belfry" policy dump)"
# The process hears of the policy a moment later.
loads_one() { order a data && knows '^modules [1-9]'; }
until_so loads_one || fail "a policy that was loaded later is not told of modules"
ordered a launch step 3 64 2

echo '== a policy reads the map of a probe'
status 1 "$belfry" policy load "$policies/large_probe_map.bpf.o"
says 'a map of a probe has at most 4096 entries' "a map that is too large"
status 0 "$belfry" policy load "$policies/reads_probe.bpf.o"
heard '^entries [12] calls 2 threads 384 '
ordered a launch step 3 64 3
heard '^entries [12] calls 5 threads 960 '
status 0 "$belfry" create b
status 0 "$belfry" probe attach kernelstat --vgpu b
begin b --probes
ordered b data
ordered b launch step 1 32 10
heard '^entries [1-4] calls 15 threads 1280 '
finish b # its entries go with it
heard '^entries [12] calls 5 threads 960 '
status 0 "$belfry" probe detach --all --vgpu a
heard '^entries 0 calls 0 threads 0 vgpu 0$'
finish a

echo '== a process that sends garbage'
status 0 "$belfry" probe attach kernelstat --vgpu a
status 0 "$belfry" probe ls --vgpu a --json
bytes=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["probes"][0]["area_bytes"])' <"$work/out")
socket=$(echo "$BELFRY_RUNTIME_DIR"/probe.*)
if is_sanitized; then
	echo 'left out: python3 cannot load a libcuda.so.1 with a sanitizer in it'
else
	for how in random ones short; do
		mkfifo "$work/peer.$how"
		PEER_SOCKET=$socket timeout 300 "$belfry" run a -- python3 "$here/probe_peer.py" "$how" "$bytes" \
			<"$work/peer.$how" >"$work/peer.out" 2>"$work/peer.err" &
		peer=$!
		exec {in}>"$work/peer.$how"
		until_so has_line there "$work/peer.out"
		knows '^entries' || fail "$how: the policy does not answer"
		status 0 "$belfry" probe dump --vgpu a
		exec {in}>&-
		wait "$peer" || fail "the peer: $(cat "$work/peer.err")"
		heard '^entries 0 '
	done
fi

echo '== placement receives what roofline counts'
status 0 "$belfry" probe detach --all --vgpu a
status 0 "$belfry" probe attach roofline --vgpu a
status 0 "$belfry" policy load placement
begin a --probes
ordered a data
ordered a launch step 3 64 2
status 0 "$belfry" probe ls --vgpu a
told 'in step, process' "roofline is in an ordinary kernel"
if command -v bpftool >/dev/null; then
	has_roofline() { bpftool map dump name roofline 2>/dev/null | grep -q key; }
	until_so has_roofline || fail "placement's map of roofline is empty"
else
	echo 'left out: the content of the map; bpftool is not here'
fi
finish a

exit "$failed"
