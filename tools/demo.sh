#!/bin/sh
# demo.sh BUILD-DIR: what Belfry does, on this machine. With an NVIDIA GPU, virtual GPUs; without one, what
# works without one, and says so.
set -eu
build=$1
belfry=$build/belfry
programs=$build/tests/gpu
failed=0

say() {
	printf '\n== %s\n' "$*"
}

# Show a command and run it. One that fails does not end the demo, and is not hidden either.
show() {
	printf '$ %s\n' "$*"
	"$@" || {
		echo "(exit status $?)"
		failed=1
	}
}

has_gpu() {
	[ -c /dev/nvidiactl ] || return 1
	for node in /dev/nvidia[0-9]*; do
		[ -c "$node" ] && return 0
	done
	return 1
}

say 'What Belfry finds on this machine'
show "$belfry" info

if ! has_gpu; then
	cat <<'END'

There is no NVIDIA GPU on this machine (no /dev/nvidiactl with a /dev/nvidiaN), and the software GPU that will
stand in for one is not there yet: it comes with a later release. So no virtual GPU can be shown here.
What follows is what works without one: the tests, among them those of the driver-call decoder on the recorded
calls of a real program, and of the gate on ordinary memory pages.
END
	say 'The tests that need no GPU'
	show tools/test.sh "$build" --suite unit
	say 'On a machine with an NVIDIA GPU'
	echo '$ build/belfry run --mem 4G -- python3 train.py'
	exit $failed
fi

say 'A program on a virtual GPU of 4 GiB: blocks until one is refused, and then it goes on'
show "$belfry" run --name demo-limit --mem 4G -- "$programs/gpu_exact" --limit 4294967296

say 'Two programs at once, each on a virtual GPU of its own; one of them is held for 300 ms'
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
"$belfry" run --name demo-gap --mem 2G -- "$programs/gpu_gap" --secs 4 --top 3 >"$log/gap" 2>&1 &
gap=$!
"$belfry" run --name demo-busy --mem 1G -- "$programs/gpu_busy" --secs 4 >"$log/busy" 2>&1 &
busy=$!
sleep 2 # the two are to be seen at work
show "$belfry" ls
show "$belfry" hold demo-gap --for 300ms
wait "$gap" || failed=1
wait "$busy" || failed=1
echo 'what the held program saw, in gaps between its kernels:'
sed 's/^/    /' "$log/gap"
echo 'what its neighbour did:'
sed 's/^/    /' "$log/busy"
exit $failed
