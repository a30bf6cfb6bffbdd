#!/bin/sh
# What belfry says to wrong input: one clear line, the right exit status, and nothing left behind.
set -u

: "${BELFRY:?}" "${BELFRYD:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BELFRY_RUNTIME_DIR="$work/run"
failed=0

fail() {
	echo "FAILED: $1"
	sed 's/^/    /' "$work/err"
	failed=1
}

# expect STATUS TEXT COMMAND...: exactly one line on stderr, with TEXT in it, nothing on stdout.
expect() {
	status=$1
	text=$2
	shift 2
	"$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	[ "$got" -eq "$status" ] || fail "$* : status $got, not $status"
	[ "$(wc -l <"$work/err")" -eq 1 ] || fail "$* : not one line"
	grep -qF -- "$text" "$work/err" || fail "$* : does not say '$text'"
	[ ! -s "$work/out" ] || fail "$* : wrote to stdout"
}

# well TEXT COMMAND...: exit 0, TEXT on stdout, nothing on stderr.
well() {
	text=$1
	shift
	"$@" >"$work/out" 2>"$work/err" </dev/null || fail "$* : status $?"
	[ ! -s "$work/err" ] || fail "$* : wrote to stderr"
	grep -qF -- "$text" "$work/out" || fail "$* : does not say '$text'"
}

# Usage.
expect 2 'no command' "$BELFRY"
expect 2 "no such command" "$BELFRY" frobnicate
expect 2 "no such command" "$BELFRY" --frobnicate
well 'usage: belfry' "$BELFRY" --help
well 'usage: belfry' "$BELFRY" -h
well 'usage: belfry' "$BELFRY" help
well 'belfry ' "$BELFRY" --version
well 'belfryd ' "$BELFRYD" --version
well 'usage: belfryd' "$BELFRYD" --help
for command in run ls hold open stop resume set info; do
	well "usage: belfry $command" "$BELFRY" "$command" --help
	expect 2 'unknown option' "$BELFRY" "$command" --frobnicate
done

# Sizes, times and numbers.
for size in -1 0 abc 5X 1e400 '' 1.5 -8G 0G 5GB5 nan 0x10 +1 '8 G'; do
	expect 2 "size '$size'" "$BELFRY" run --mem "$size" -- true
	expect 2 "size '$size'" "$BELFRY" set --mem "$size" somebody
done
expect 2 'too large' "$BELFRY" run --mem 99999999T -- true
expect 2 'without its value' "$BELFRY" run --mem
for gpu in x -1 254 1.5 '' 99999999999999999999; do
	expect 2 "--gpu '$gpu'" "$BELFRY" run --gpu "$gpu" -- true
done
for time in 0us 5 1h abc -1ms 0.5us ''; do
	expect 2 "time '$time'" "$BELFRY" run --timeslice "$time" -- true
	expect 2 "time '$time'" "$BELFRY" hold --for "$time" somebody
done
expect 2 'too long' "$BELFRY" run --timeslice 2000000s -- true
expect 2 'not low, medium or high' "$BELFRY" run --interleave 7 -- true
expect 2 'log level' "$BELFRY" run --log loud -- true

# Names.
for name in '' A .x ../x a/b 'a b' -x "$(printf '%064d' 0)"; do
	expect 2 "not a name" "$BELFRY" run --name="$name" -- true
done
expect 2 'no program' "$BELFRY" run
expect 2 'no program' "$BELFRY" run --mem 1G --
expect 2 'no program' "$BELFRY" run ''

# vGPUs that are not there.
for command in hold open stop resume; do
	expect 1 'no vGPU of this name' "$BELFRY" "$command" nobody
	expect 1 'no vGPU of this name' "$BELFRY" "$command" --json nobody
	expect 2 'name of one vGPU' "$BELFRY" "$command"
	expect 2 'name of one vGPU' "$BELFRY" "$command" one two
	expect 1 'not a name' "$BELFRY" "$command" ../../etc/passwd
done
expect 1 'no vGPU of this name' "$BELFRY" set --mem 1G nobody
expect 2 'nothing to change' "$BELFRY" set nobody
expect 2 '--for is an option of hold' "$BELFRY" stop --for 1s nobody
expect 2 'takes no arguments' "$BELFRY" ls somebody

# ls and info: with no folder there yet, as text and as JSON.
rm -rf "$BELFRY_RUNTIME_DIR"
well 'NAME' "$BELFRY" ls
rm -rf "$BELFRY_RUNTIME_DIR"
well '"vgpus"' "$BELFRY" ls --json
python3 -m json.tool "$work/out" >/dev/null || fail 'ls --json is not JSON'
well 'driver' "$BELFRY" info
well '"driver"' "$BELFRY" info --json
python3 -m json.tool "$work/out" >/dev/null || fail 'info --json is not JSON'

# The folder of sockets must be ours alone.
mkdir -p "$work/open"
chmod 777 "$work/open"
expect 1 'not a folder of yours alone' env BELFRY_RUNTIME_DIR="$work/open" "$BELFRY" hold nobody
expect 1 'cannot be made' env BELFRY_RUNTIME_DIR="$work/no/such" "$BELFRY" hold nobody
: >"$work/file"
expect 1 'not a folder of yours alone' env BELFRY_RUNTIME_DIR="$work/file" "$BELFRY" hold nobody
expect 1 'too long' env BELFRY_RUNTIME_DIR="/$(printf '%0200d' 0)" "$BELFRY" hold nobody
if [ "$(id -u)" -eq 0 ]; then
	mkdir -p "$work/theirs"
	chown 65534 "$work/theirs"
	expect 1 'not a folder of yours alone' env BELFRY_RUNTIME_DIR="$work/theirs" "$BELFRY" hold nobody
else
	expect 1 'not a folder of yours alone' env BELFRY_RUNTIME_DIR=/usr "$BELFRY" hold nobody
fi

# belfryd by hand.
expect 2 'started by belfry run' "$BELFRYD"
expect 2 "number from 0" "$BELFRYD" --front x -- true
expect 2 'started by belfry run' "$BELFRYD" --front 3 -- true 3</dev/null

# A folder beside which there is no belfryd.
cp "$BELFRY" "$work/belfry"
expect 1 'it belongs beside belfry' "$work/belfry" run -- true

if [ ! -e /sys/module/nvidia/version ]; then
	# Without a driver: said once, and nothing is left in the folder.
	expect 1 'driver is not loaded' "$BELFRY" run --mem 1G --name nogpu -- true
	expect 1 'driver is not loaded' "$BELFRY" run -- /no/such/program
	[ -z "$(ls -A "$BELFRY_RUNTIME_DIR")" ] || fail 'something is left in the folder of sockets'
elif "$BELFRY" run -- true 2>/dev/null; then
	expect 127 'No such file' "$BELFRY" run -- /no/such/program
	expect 126 'denied' "$BELFRY" run -- /etc/passwd
	expect 1 'larger than the card' "$BELFRY" run --mem 8000T -- true
	expect 1 'supervised already' "$BELFRY" run -- "$BELFRY" run -- true
	"$BELFRY" run -- sh -c 'exit 3' || [ $? -eq 3 ] || fail 'the status of the program is lost'
	# shellcheck disable=SC2016 # the inner shell's own number
	"$BELFRY" run -- sh -c 'kill -9 $$' || [ $? -eq 137 ] || fail 'the signal of the program is lost'
	[ -z "$(ls -A "$BELFRY_RUNTIME_DIR")" ] || fail 'something is left in the folder of sockets'
else
	echo 'a driver, but no GPU that can be used: starting programs was not tried'
fi

[ "$failed" -eq 0 ] && echo 'all said as it should be'
exit "$failed"
