#!/bin/sh
# demo.sh BUILD-DIR: two programs share one GPU, in less than a minute. On an NVIDIA GPU if there is one, else on the
# software GPU; needs no root.
set -eu
build=$(cd "$1" && pwd)
belfry=$build/belfry
demo=$build/demo/belfry-demo
kernels=demo/kernels.ptx
seconds=${DEMO_SECONDS:-5} # of each part
failed=0
log=$(mktemp -d /tmp/belfry-demo.XXXXXX) # not in TMPDIR: the path of a socket has little room
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	for vgpu in latency train; do
		"$belfry" rm --force "$vgpu" >/dev/null 2>&1 || :
	done
	rm -rf "$log"
}
trap clean_up EXIT
# A daemon of its own, whatever else runs here; it ends by itself.
export BELFRY_RUNTIME_DIR="$log" BELFRY_LINGER=1

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

# The kernels as this machine's nvcc makes them, if it has one.
if command -v nvcc >/dev/null && nvcc -ptx -arch=compute_80 demo/kernels.cu -o "$log/kernels.ptx" 2>/dev/null; then
	kernels=$log/kernels.ptx
fi

if [ -c /dev/nvidiactl ]; then
	mem=4G little=2G # a context alone takes half a gigabyte there
	size='--side 1024 --batch 16'
else
	mem=1G little=256M
	size=
	export BELFRY_GPU=soft BELFRY_SOFT="name=demo-$$,linger=2"
fi

# direct COMMAND...: on the GPU itself.
# shellcheck disable=SC2317 # called by start
direct() {
	if [ "${BELFRY_GPU:-}" = soft ]; then
		set -- "$belfry" soft run -- "$@"
	fi
	"$@"
}

# start NAME FILE COMMAND...: in the background, with its output in FILE.
start() {
	out=$log/$1
	shift
	# shellcheck disable=SC2086 # several words, or none; those for training mean nothing to the other
	"$@" --secs "$seconds" --kernels "$kernels" $size >"$out" 2>&1 &
}

wait_all() {
	for job; do
		wait "$job" || failed=1
	done
}

ready() {
	for tries in $(seq 100); do
		grep -q ready "$log/$1" 2>/dev/null && return
		sleep 0.1
	done
	echo "$1 did not start after $tries tries:"
	cat "$log/$1"
	exit 1
}

# figure FILE WORD: the number after WORD.
figure() {
	awk -v word="$2" '{ for (i = 1; i < NF; i++) if ($i == word) print $(i + 1) }' "$log/$1"
}

row() {
	printf '%-28s %12s %12s %16s\n' "$1" "$(figure "$2" p50_ms)" "$(figure "$2" p99_ms)" "$(figure "$3" per_second)"
}

say 'What Belfry finds on this machine'
show "$belfry" info

say "A program that answers requests (latency) and one that trains: each alone, $seconds seconds"
start latency-alone direct "$demo" latency
wait_all $!
start train-alone direct "$demo" train
wait_all $!
cat "$log/latency-alone" "$log/train-alone" | grep -v ready

say 'Both at once, without Belfry'
start latency-free direct "$demo" latency
a=$!
start train-free direct "$demo" train
wait_all $a $!
grep -hv ready "$log/latency-free" "$log/train-free"

say 'Both at once, each on a vGPU: what answers requests comes first, training is promised 60 % of the GPU'
show "$belfry" create latency --mem "$mem" --time 30:100 --class latency
show "$belfry" create train --mem "$mem" --time 60:100
echo '$ belfry run latency -- belfry-demo latency'
echo '$ belfry run train -- belfry-demo train'
start latency-belfry "$belfry" run latency -- "$demo" latency
a=$!
start train-belfry "$belfry" run train -- "$demo" train
wait_all $a $!
grep -hv ready "$log/latency-belfry" "$log/train-belfry"

driver_pid() { "$belfry" stats --json "$1" | sed -n 's/.*"driver_pid": \([0-9]*\).*/\1/p'; }

say 'Once more, with others on the GPU'
start latency-again "$belfry" run latency -- "$demo" latency
a=$!
start train-again "$belfry" run train -- "$demo" train
b=$!
ready latency-again
ready train-again
if [ "${BELFRY_GPU:-}" = soft ]; then
	echo 'Which vGPU has the GPU, a letter a millisecond (l: latency, t: train, dot: none), and its share of the time:'
	"$build/demo/belfry-demo-view" "$("$belfry" soft env | sed -n 's/^BELFRY_SOFT_DIR=//p')" 0.4 \
		"latency=$(driver_pid latency)" "train=$(driver_pid train)" || failed=1
fi
show "$belfry" ls
show "$belfry" explain train
echo
echo 'A third program wants more memory than its vGPU has, and a fourth has a mistake in its kernel'
show "$belfry" run --name greedy --mem "$little" -- "$demo" greedy
show "$belfry" run --name stray --mem "$little" -- "$demo" stray --kernels "$kernels"
echo 'The other two go on, and what they compute is right:'
wait_all $a $b
grep -hv ready "$log/latency-again" "$log/train-again"

say 'Two who train, 25 % and 75 % of the time'
show "$belfry" set latency --class throughput --time 25:100
show "$belfry" set train --time 75:100
start quarter "$belfry" run latency -- "$demo" train
a=$!
start rest "$belfry" run train -- "$demo" train
wait_all $a $!
LC_ALL=C awk -v a="$(figure quarter per_second)" -v b="$(figure rest per_second)" \
	'BEGIN { printf "steps/s: %s and %s, %.1f %% and %.1f %%\n", a, b, 100 * a / (a + b), 100 * b / (a + b) }'

say 'Together'
printf '%-28s %12s %12s %16s\n' '' 'p50, ms' 'p99, ms' 'training steps/s'
row 'alone' latency-alone train-alone
row 'sharing, without Belfry' latency-free train-free
row 'sharing, with Belfry' latency-belfry train-belfry
exit $failed
