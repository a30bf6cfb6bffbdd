#!/bin/bash
# The limits on what probes and the processes that carry them cost the GPU server.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="sms=8,mem=1G,linger=1,name=probelimits$$"
here=$(dirname "$0")
objects="$BELFRY_BUILD_DIR/tests/probes"
status 0 "$belfry" create a

# memory FIELD: of the GPU server, in KiB.
memory() { sed -n "s/^$1:[^0-9]*\([0-9]*\) kB/\1/p" "/proc/$(server_pid a)/status"; }

echo '== large probes'
before=$(memory VmRSS)
for _ in 1 2 3 4 5 6 7 8; do
	status 0 "$belfry" probe attach "$objects/fat.bpf.o" --vgpu a
done
grown=$(($(memory VmHWM) - before))
is_sanitized || [ "$grown" -lt 65536 ] || fail "8 large probes took $grown KiB"
status 0 "$belfry" probe detach --all --vgpu a

# peer HOW [COUNT]: so many processes of probe_peer.py one after the other, each until it has handed over its copies.
peer() {
	local in peer
	for _ in $(seq "${2:-1}"); do
		rm -f "$work/peer" "$work/peer.out"
		mkfifo "$work/peer"
		PEER_SOCKET=$socket timeout 300 "$belfry" run a -- python3 "$here/probe_peer.py" "$1" "$bytes" <"$work/peer" \
			>"$work/peer.out" 2>"$work/peer.err" &
		peer=$!
		exec {in}>"$work/peer"
		until_so has_line there "$work/peer.out"
		exec {in}>&-
		wait "$peer" || fail "the peer: $(cat "$work/peer.err")"
	done
}
# attach PROBE: the only probe of the vGPU. Sets $bytes, those of its area.
attach() {
	status 0 "$belfry" probe attach "$1" --vgpu a
	status 0 "$belfry" probe ls --vgpu a --json
	bytes=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["probes"][0]["area_bytes"])' <"$work/out")
}
# processes EXPRESSION: of the list p of the processes in a dump.
processes() {
	timeout 60 "$belfry" probe dump --vgpu a --json 2>"$work/err" |
		python3 -c 'import json, sys; p = json.load(sys.stdin)["probes"][0]["processes"]; print(eval(sys.argv[1]))' "$1"
}
# until_told EXPECTED EXPRESSION
until_told() {
	is_told() { [ "$(processes "$2")" = "$1" ]; }
	until_so is_told "$@" || fail "$2 is $(processes "$2"), not $1"
}
socket=$(echo "$BELFRY_RUNTIME_DIR"/probe.*)
if is_sanitized; then
	echo 'the rest is left out: python3 cannot load a libcuda.so.1 with a sanitizer in it'
	exit "$failed"
fi

echo '== a process that connects under many names'
attach kernelstat
peer renamed
until_told 1 'len(p)'
until_told True 'p[0]["ended"] and p[0]["area"] is not None'
status 0 "$belfry" probe detach --all --vgpu a

echo '== a last copy that is none'
attach kernelstat
peer large
until_told "what it sent is not a copy of the probe's memory" 'p[0]["why"]'
find -L "/proc/$(server_pid a)/fd" -maxdepth 1 -size +63M >"$work/kept" 2>/dev/null
[ ! -s "$work/kept" ] || fail "the GPU server keeps a file of 64 MiB"
status 0 "$belfry" probe detach --all --vgpu a

echo '== probes whose numbers are 32 apart'
status 0 "$belfry" create c
attach kernelstat
for _ in $(seq 31); do
	status 0 "$belfry" probe attach kernelstat --vgpu c
	status 0 "$belfry" probe detach --all --vgpu c
done
attach kernelstat
peer first # the last copy of one of the two
endings() {
	timeout 60 "$belfry" probe dump --vgpu a --json 2>"$work/err" | python3 -c '
import json, sys
probes = json.load(sys.stdin)["probes"]
print(abs(probes[0]["number"] - probes[1]["number"]), sorted(str(p["why"]) for probe in probes for p in probe["processes"]))'
}
is_ended() { [ "$(endings)" = "32 ['None', 'it ended without a last copy']" ]; }
until_so is_ended || fail "the processes of two probes: $(endings)"
status 0 "$belfry" rm c
status 0 "$belfry" probe detach --all --vgpu a

echo '== more copies than a dump reads'
for _ in 1 2 3 4 5 6 7; do
	status 0 "$belfry" probe attach "$objects/wide.bpf.o" --vgpu a
done
attach "$objects/wide.bpf.o"
peer last 3
# 24 copies of 15.3 MiB, of which 16 are less than 256 MiB.
left_out() {
	timeout 60 "$belfry" probe dump --vgpu a --json 2>"$work/err" | python3 -c '
import json, sys
whys = [p["why"] for probe in json.load(sys.stdin)["probes"] for p in probe["processes"]]
print(len(whys), whys.count("left out: a dump reads at most 256 MiB of copies"), whys.count(None))'
}
is_left_out() { [ "$(left_out)" = '24 8 16' ]; }
until_so is_left_out || fail "left out: $(left_out)"

echo '== the client of a dump, and the vGPU, end while it is read'
status 0 "$belfry" create b # the GPU server stays
server=$(server_pid a)
for pause in 0.02 0.05 0.1 0.2 0.4; do
	timeout -s KILL "$pause" "$belfry" probe dump --vgpu a >/dev/null 2>&1
done
until_so is_left_out || fail "left out: $(left_out)"
timeout 60 "$belfry" probe dump --vgpu a >"$work/dump" 2>&1 &
dumping=$!
status 0 "$belfry" rm a
wait "$dumping" # it may have been done
status 0 "$belfry" create a
[ "$(server_pid b)" = "$server" ] || fail "the GPU server has ended"

echo '== a process outside that connects without end'
cat >"$work/connect.py" <<-'END'
	import socket, sys, time
	start = time.monotonic()
	for _ in range(3200):
	    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	    sock.connect(sys.argv[1])
	    sock.close()
	print(int(time.monotonic() - start))
END
# A rest of 0.1 s after every 16 connections would take 20 s.
took=$(timeout 300 python3 "$work/connect.py" "$socket")
[ "${took:-300}" -lt 15 ] || fail "3200 connections took ${took:-300} s"

exit "$failed"
