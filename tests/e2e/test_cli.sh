#!/bin/sh
# What belfry says to wrong input: one clear line, the right exit status, and nothing left behind.
set -u

: "${BELFRY:?}" "${BELFRYD:?}" "${BELFRY_BUILD_DIR:?}"
work=$(mktemp -d /tmp/belfry-e2e.XXXXXX) # not in TMPDIR: the path of a socket has little room
trap '"$BELFRY" soft stop >/dev/null 2>&1; "$BELFRY" soft stop --soft name=two >/dev/null 2>&1; rm -rf "$work"' EXIT
export BELFRY_RUNTIME_DIR="$work/run"
export BELFRY_LINGER=1
unset BELFRY_GPU BELFRY_SOFT BELFRY_SOFT_DIR BELFRY_SOCKET
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
	timeout 30 "$@" >"$work/out" 2>"$work/err" </dev/null
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
	timeout 30 "$@" >"$work/out" 2>"$work/err" </dev/null || fail "$* : status $?"
	[ ! -s "$work/err" ] || fail "$* : wrote to stderr"
	grep -qF -- "$text" "$work/out" || fail "$* : does not say '$text'"
}

# silent COMMAND...: exit 0, and nothing is said.
silent() {
	timeout 30 "$@" >"$work/out" 2>"$work/err" </dev/null || fail "$* : status $?"
	[ ! -s "$work/err" ] || fail "$* : wrote to stderr"
	[ ! -s "$work/out" ] || fail "$* : wrote to stdout"
}

# Nothing is left in the folder of sockets but the software GPUs' own folders, and what the next private belfryd is to
# find; and it comes to that by itself.
others() {
	find "$BELFRY_RUNTIME_DIR" -mindepth 1 -maxdepth 1 ! -name 'soft-*' ! -name belfryd.log ! -name 'belfryd.sock*.lock'
}
check_folder() {
	tries=0
	while [ -n "$(others)" ] && [ "$tries" -lt 200 ]; do
		tries=$((tries + 1))
		sleep 0.05
	done
	[ -z "$(others)" ] || fail "something is left in the folder of sockets: $(others)"
}

# Usage.
expect 2 'no command' "$BELFRY"
expect 2 "no such command" "$BELFRY" frobnicate
expect 2 "no such command" "$BELFRY" --frobnicate
well 'usage: belfry' "$BELFRY" --help
well 'usage: belfry' "$BELFRY" -h
well 'usage: belfry' "$BELFRY" help
expect 2 "'frobnicate': no such command" "$BELFRY" help frobnicate
expect 2 'too many words' "$BELFRY" help policy load now
for command in load unload ls dump check new trace record replay; do
	well "usage: belfry policy $command" "$BELFRY" help policy "$command"
done
well 'belfry ' "$BELFRY" --version
well 'belfryd ' "$BELFRYD" --version
well 'usage: belfryd' "$BELFRYD" --help
for command in create run ls top set explain stats events trace hold open stop resume rm reload info; do
	well "usage: belfry $command" "$BELFRY" "$command" --help
	cp "$work/out" "$work/help"
	well "usage: belfry $command" "$BELFRY" help "$command"
	cmp -s "$work/out" "$work/help" || fail "help $command: is not $command --help"
	expect 2 "unknown option '--frobnicate'" "$BELFRY" "$command" --frobnicate=7
done

# What cannot be written is no success.
own_folder=$BELFRY_RUNTIME_DIR
export BELFRY_RUNTIME_DIR="$work/full"
"$BELFRY" create there || fail 'create' # for ls and top to show
for command in --help -h help --version info 'info --json' ls 'ls --json' 'run --help' 'policy --help' 'soft --help' top; do
	# shellcheck disable=SC2016 # the inner shell's own arguments
	expect 1 'belfry: cannot write: No space left on device' sh -c '"$0" $1 >/dev/full' "$BELFRY" "$command"
	# shellcheck disable=SC2016 # likewise
	expect 1 'belfry: cannot write: Bad file descriptor' sh -c '"$0" $1 >&-' "$BELFRY" "$command"
done
# Several at once; what is wrong with one is no reason to leave the others. In the order of their names, with the owner.
for name in c a b; do "$BELFRY" create $name || fail "create $name"; done
"$BELFRY" ls >"$work/out" || fail 'ls'
awk 'NR > 1 { print $1 }' "$work/out" | sort -c || fail "ls is not in the order of names: $(cat "$work/out")"
awk -v user="$(id -un)" 'NR == 1 && $3 != "OWNER" || NR > 1 && $3 != user { exit 1 }' "$work/out" || fail "ls tells no owner: $(cat "$work/out")"
grep -q '^a .* GPU  *0  ' "$work/out" || fail "ls: the limit of a vGPU without one is not 'GPU': $(cat "$work/out")"
well '"name": "a"' "$BELFRY" set a --time 10 --json
python3 -m json.tool "$work/out" >/dev/null || fail 'set --json is not JSON'
expect 1 'nobody: no vGPU of this name' "$BELFRY" rm a nobody b c
"$BELFRY" rm there || fail 'rm'
[ "$("$BELFRY" ls 2>/dev/null | wc -l)" -le 1 ] || fail 'rm of several left some'
export BELFRY_RUNTIME_DIR="$own_folder"

# Sizes, times and numbers.
for size in -1 0 abc 5X 1e400 '' 0.5 -8G 0G 5GB5 nan 0x10 +1 '8 G'; do
	expect 2 "size '$size'" "$BELFRY" run --mem "$size" -- true
	expect 2 "size '$size'" "$BELFRY" set --mem "$size" somebody
	expect 2 "size '$size'" "$BELFRY" create --mem "$size" somebody
done
expect 2 'too large' "$BELFRY" run --mem 99999999T -- true
expect 2 "option '--mem' needs a value" "$BELFRY" run --mem
expect 2 "option '--json' takes no value" "$BELFRY" create --json=yes somebody
for gpu in x -1 254 1.5 '' 99999999999999999999; do
	expect 2 "--gpu '$gpu'" "$BELFRY" run --gpu "$gpu" -- true
	expect 2 "--gpu '$gpu'" "$BELFRY" create --gpu "$gpu" somebody
done
for time in 0us 5 1h abc -1ms 0.5us ''; do
	expect 2 "time '$time'" "$BELFRY" run --timeslice "$time" -- true
	expect 2 "time '$time'" "$BELFRY" hold --for "$time" somebody
done
expect 2 'too long' "$BELFRY" run --timeslice 2000000s -- true
expect 2 'not low, medium or high' "$BELFRY" run --interleave 7 -- true
while read -r option value text; do
	expect 2 "$text" "$BELFRY" run "$option" "$value" -- true
	expect 2 "$text" "$BELFRY" create "$option" "$value" somebody
	expect 2 "$text" "$BELFRY" set "$option" "$value" somebody
done <<'END'
--time 101 '101'
--time -1 '-1'
--time 60:50 is above the limit
--time 10:0 '10:0'
--time 10:20:30 '10:20:30'
--time half 'half'
--time 0.00001 '0.00001'
--class fast 'fast'
--objective p99 'p99'
--objective p99=0 time '0'
--objective p101=2ms 'p101=2ms'
--domain A 'A'
END
for command in run create; do
	set -- "$BELFRY" "$command" --objective p99=2ms one
	expect 2 'class latency' "$@"
done
expect 2 "--log 'loud'" "$BELFRY" run --log loud -- true

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
expect 1 'no vGPU of this name' "$BELFRY" rm nobody
expect 1 'no vGPU of this name' "$BELFRY" rm --json nobody
expect 2 'name of a vGPU, or of several' "$BELFRY" rm
expect 1 'not a name' "$BELFRY" rm ../../etc/passwd
expect 1 'no vGPU of this name' "$BELFRY" set --mem 1G nobody
expect 2 'nothing to change' "$BELFRY" set nobody
expect 2 '--for is an option of hold' "$BELFRY" stop --for 1s nobody
expect 2 '--for is an option of hold' "$BELFRY" rm --for 1s nobody # not an abbreviation of --force
expect 2 '--force is an option of rm' "$BELFRY" stop --force nobody
expect 2 'takes no arguments' "$BELFRY" ls somebody
expect 2 'takes no arguments' "$BELFRY" reload somebody
expect 2 'takes no arguments' "$BELFRY" trace somebody
for command in explain stats; do
	expect 1 'no vGPU of this name' "$BELFRY" "$command" nobody
	expect 2 'name of one vGPU' "$BELFRY" "$command" one two
	expect 1 'not a name' "$BELFRY" "$command" ../x
done
expect 2 'name of one vGPU' "$BELFRY" explain
expect 2 'name of one vGPU' "$BELFRY" create
expect 2 'name of one vGPU' "$BELFRY" create one two
expect 1 'no vGPU of this name' "$BELFRY" run nobody -- true
expect 2 'make a vGPU of its own' "$BELFRY" run --mem 1G nobody -- true
expect 1 'no belfryd runs' env BELFRY_RUNTIME_DIR="$work/quiet" "$BELFRY" trace -o "$work/trace"
[ ! -e "$work/trace" ] || fail 'trace left a file'
expect 1 'no belfryd answers there' env BELFRY_SOCKET="$work/none" "$BELFRY" reload
expect 1 'no belfryd answers there' env BELFRY_SOCKET="$work/none" "$BELFRY" run -- true
expect 1 'no belfryd answers there' env BELFRY_SOCKET="$work/none" "$BELFRY" create one
for command in ls unload dump trace 'record -o x' 'load fair' 'ls --vgpu a' 'unload --vgpu a' 'trace --vgpu a'; do
	# shellcheck disable=SC2086 # a command and its words
	expect 1 'no belfryd answers there' env BELFRY_SOCKET="$work/none" "$BELFRY" policy $command
done
expect 1 'no belfryd answers there' env BELFRY_SOCKET="$work/none" "$BELFRY" trace -o "$work/trace"
expect 1 'too long' env BELFRY_SOCKET="/$(printf '%0200d' 0)" "$BELFRY" ls

# The texts of --help have one style: vGPU, default values as (default: X), what --json prints, at most 100 columns.
check_help() {
	[ -s "$work/out" ] || fail "$* --help: nothing"
	grep -q '^usage: ' "$work/out" || fail "$* --help: no usage"
	{
		awk 'length($0) > 100 && !/come with Belfry/' "$work/out"
		grep -iE '\bvirtual GPUs?\b|\b(who|whom|nobody|somebody|tells?|lately)\b' "$work/out" | grep -v 'virtual GPUs (vGPUs)'
		grep -E '^  --json' "$work/out" | grep -v 'print'
		# A value in parentheses at the end is a default value.
		grep -E '^  -.* \([^ )]+\)$' "$work/out" | grep -vE '\(required\)'
	} >"$work/err"
	[ ! -s "$work/err" ] || fail "$* --help: style"
}
"$BELFRY" --help >"$work/out"
check_help belfry
for command in create run ls top set explain stats events trace hold open stop resume rm policy probe reload verify soft cdi oci info \
	'policy load' 'policy unload' 'policy ls' 'policy dump' 'policy check' 'policy new' 'policy trace' 'policy record' 'policy replay' \
	'probe attach' 'probe detach' 'probe ls' 'probe dump' 'probe check'; do
	# shellcheck disable=SC2086 # a command and its words
	"$BELFRY" $command --help >"$work/out"
	check_help "$command"
done
for program in "$BELFRYD" "$BELFRY_BUILD_DIR/belfry-soft" "$BELFRY_BUILD_DIR/belfry-oci-listener" \
	"$BELFRY_BUILD_DIR/src/kube/belfry-device-plugin" "$BELFRY_BUILD_DIR/src/metrics/belfry-metrics"; do
	[ -x "$program" ] || continue # not built
	"$program" --help >"$work/out"
	check_help "$program"
done

# Policies: where none is, which come with Belfry, and what is no name.
for command in load unload ls dump check new trace record replay; do
	well "usage: belfry policy $command" "$BELFRY" policy "$command" --help
	expect 2 'unknown option' "$BELFRY" policy "$command" --frobnicate
done
expect 1 'no vGPU of this name' "$BELFRY" policy unload --vgpu nobody
shipped=$(find "${BELFRY_SOURCE_DIR:-.}/policies" -maxdepth 1 -name '*.bpf.c' ! -name 'template.*' -printf '%f\n' |
	sed 's/\.bpf\.c$//' | sort | paste -sd, | sed 's/,/, /g')
for command in load check replay; do
	well "$shipped." "$BELFRY" policy "$command" --help
done
for command in 'load no_such' 'check no_such'; do
	# shellcheck disable=SC2086 # a command and its words
	expect 1 "comes with Belfry; those are $shipped" "$BELFRY" policy $command
done
expect 1 'belfry policy unload has it decide again' "$BELFRY" policy load built-in
expect 1 'has at most 31 characters' "$BELFRY" policy new Foo

# Without belfryd, with no folder there yet: every command says how to start one.
for command in 'hold a' 'open a' 'stop a' 'resume a' 'rm a' 'set a --mem 1G' 'explain a' 'stats a'; do
	# shellcheck disable=SC2086 # a command and its words
	expect 1 'a: no vGPU of this name, as no belfryd runs; belfry create and belfry run start one' \
		env BELFRY_RUNTIME_DIR="$work/quiet" "$BELFRY" $command
done
for command in 'ls' 'ls --json' 'stats' 'stats --json' 'top -n 1' 'events' 'reload' 'trace -o x' 'policy ls' 'policy unload' \
	'policy dump' 'policy trace' 'policy record -o x'; do
	rm -rf "$BELFRY_RUNTIME_DIR"
	# shellcheck disable=SC2086 # a command and its words
	expect 1 'no belfryd runs; belfry create and belfry run start one' "$BELFRY" $command
	# shellcheck disable=SC2086
	[ -z "$("$BELFRY" $command 2>/dev/null)" ] || fail "$command without belfryd: prints a table"
	# shellcheck disable=SC2086
	expect 1 "no belfryd answers there; start it with belfryd --socket $work/nobody.sock, or unset BELFRY_SOCKET" \
		env BELFRY_SOCKET="$work/nobody.sock" "$BELFRY" $command
done
well 'driver' "$BELFRY" info
grep -q '^belfryd  no belfryd runs; belfry create and belfry run start one$' "$work/out" || fail 'info does not say how to start belfryd'
well "start it with belfryd --socket $work/none" env BELFRY_SOCKET="$work/none" "$BELFRY" info
well '"driver"' "$BELFRY" info --json
python3 -m json.tool "$work/out" >/dev/null || fail 'info --json is not JSON'

# The folder of sockets must belong to the user, and no other user may write to it.
mkdir -p "$work/open"
chmod 777 "$work/open"
expect 1 'not a directory that only you can write' env BELFRY_RUNTIME_DIR="$work/open" "$BELFRY" hold nobody
expect 1 'cannot be created' env BELFRY_RUNTIME_DIR="$work/no/such" "$BELFRY" hold nobody
: >"$work/file"
expect 1 'not a directory that only you can write' env BELFRY_RUNTIME_DIR="$work/file" "$BELFRY" hold nobody
expect 1 'too long' env BELFRY_RUNTIME_DIR="/$(printf '%0200d' 0)" "$BELFRY" hold nobody
mkdir -p "$work/theirs"
if chown 65534 "$work/theirs" 2>/dev/null; then # root of a container may know no other user
	expect 1 "$work/theirs: belongs to user" env BELFRY_RUNTIME_DIR="$work/theirs" "$BELFRY" hold nobody
	grep -q 'set BELFRY_SOCKET' "$work/err" || fail 'a directory of another user: no word of BELFRY_SOCKET'
elif [ "$(id -u)" -ne 0 ]; then
	expect 1 'to use a belfryd of root, unset it and set BELFRY_SOCKET' env BELFRY_RUNTIME_DIR=/usr "$BELFRY" hold nobody
fi

# belfryd by hand.
expect 2 'takes no arguments' "$BELFRYD" somebody
expect 2 'unknown option' "$BELFRYD" --frobnicate
expect 2 "did you mean '--socket'?" "$BELFRYD" --sokcet x
for option in --socket --gpu --soft --config --metrics --log; do
	expect 2 'needs a value' "$BELFRYD" "$option"
done
expect 2 'not error, warn, info or debug' "$BELFRYD" --log loud
for gpu in x -1 254 soft: soft:8 softy ''; do
	expect 2 "'$gpu'" "$BELFRYD" --gpu "$gpu"
done
expect 2 "'frob': unknown" "$BELFRYD" --soft frob=1
expect 2 "'frob': unknown" env BELFRY_SOFT=frob=1 "$BELFRYD"
expect 2 'number from 0' "$BELFRYD" --gpu-server x
expect 2 'number from 0' "$BELFRYD" --mps-keeper x
# shellcheck disable=SC2016 # the inner shell's own arguments
silent sh -c '"$1" --mps-keeper 3 3</dev/null; [ $? -eq 2 ]' sh "$BELFRYD"
# shellcheck disable=SC2016
silent sh -c '"$1" --gpu-server 3 3</dev/null; [ $? -eq 2 ]' sh "$BELFRYD"
expect 1 "BELFRY_LINGER 'x'" env BELFRY_LINGER=x "$BELFRYD" --check
expect 1 'No such file' "$BELFRYD" --config "$work/no.conf"
expect 1 'make it, or use another --socket' "$BELFRYD" --socket "$work/no/such/s" --gpu soft
expect 1 'others can write there' "$BELFRYD" --socket "$work/open/s" --gpu soft
expect 1 'too long' "$BELFRYD" --socket "/$(printf '%0150d' 0)" --gpu soft
expect 1 'no socket; move it away' "$BELFRYD" --socket "$work/file" --gpu soft
rm -f "$work/file.lock"
expect 1 'metrics' "$BELFRYD" --metrics nowhere --check
while read -r text line; do
	printf '[server]\n%b\n' "$line" >"$work/bad.conf"
	expect 1 "$work/bad.conf:" "$BELFRYD" --check --config "$work/bad.conf"
	grep -qF "$text" "$work/err" || fail "'$line' : does not say '$text'"
done <<'END'
:2: frob = 1
:2: log = loud
:3: access = owner\nlinger = x
:2: gpus = 254
:3: [vgpu A]\nmem = 1G
:4: [vgpu a]\nmem = 1G\ntime = 60:50
:3: [sharing]\npolicy = no_such_policy
:4: [sharing]\npolicy = fair\npolicy_set = no_such=1
END
printf '[server]\nlog = error\n[vgpu a]\nmem = 1G\ntime = 40:100\n' >"$work/good.conf"
well ok "$BELFRYD" --check --config "$work/good.conf"

# A folder beside which there is no belfryd.
cp "$BELFRY" "$work/belfry"
expect 1 'it belongs beside belfry' "$work/belfry" run -- true

# The software GPU: what is wrong with what was said of it.
well 'usage: belfry soft' "$BELFRY" soft --help
expect 2 'say run, env, status or stop' "$BELFRY" soft
expect 2 'say run, env, status or stop' "$BELFRY" soft frobnicate
for command in run env status stop; do
	expect 2 'unknown option' "$BELFRY" soft "$command" --frobnicate
	expect 2 'needs a value' "$BELFRY" soft "$command" --soft
	expect 2 "'frob': unknown" "$BELFRY" soft "$command" --soft frob=1
done
for command in env status stop; do
	expect 2 'takes no arguments' "$BELFRY" soft "$command" somebody
done
expect 2 'no program' "$BELFRY" soft run
expect 1 'no software GPU runs here' "$BELFRY" soft status
expect 1 'no software GPU runs here' "$BELFRY" soft status --json
expect 1 'no software GPU runs here' "$BELFRY" soft stop
for gpu in soft: soft:8 soft:x softy 'soft:1 ' soft:-1; do
	expect 2 '--gpu' "$BELFRY" run --gpu "$gpu" -- true
	expect 2 'BELFRY_GPU' env BELFRY_GPU="$gpu" "$BELFRY" run -- true
done
while read -r config text; do
	expect 2 "$text" "$BELFRY" run --soft "$config" -- true
	expect 2 "$text" env BELFRY_SOFT="$config" "$BELFRY" run --gpu soft -- true
	expect 2 "$text" "$BELFRY" soft run --soft "$config" -- true
done <<'END'
gpus not KEY=VALUE
gpus= gpus ''
gpus=0 not a number from 1 to 8
gpus=9 not a number from 1 to 8
gpus=2,gpus not KEY=VALUE
sms=257 not a number from 1 to 256
mem=1 not from 64 MiB to 1 TiB
mem=4X size '4X'
rate=0 rate
pace=maybe not on or off
cores=-1 cores '-1'
linger=x linger 'x'
name= not a name
name=../x not a name
name=A not a name
frob=1 'frob': unknown
END
expect 2 "BELFRY_SOFT: name 'wA'" env BELFRY_SOFT=name=wA "$BELFRY" policy ls
expect 2 "BELFRY_SOFT: 'frob'" env BELFRY_SOFT=frob=1 "$BELFRY" create one
expect 2 'more than' "$BELFRY" run --soft "name=$(printf '%01000d' 0)" -- true
expect 1 'cannot be started' env BELFRY_SOFT_SERVER=/no/such "$BELFRY" run --gpu soft -- true

# It starts on first use, once. All programs that name it use the same one.
well 'BELFRY_SOFT_DIR=' "$BELFRY" soft env --soft gpus=2,sms=8,mem=256M
well "LD_LIBRARY_PATH=$BELFRY_BUILD_DIR/src/soft/cuda" "$BELFRY" soft env
well '2 GPUs of 8 SMs, 256 MiB each' "$BELFRY" soft status
well '"sms": 8' "$BELFRY" soft status --json
python3 -m json.tool "$work/out" >/dev/null || fail 'soft status --json is not JSON'
for way in 'run --gpu soft' 'run --gpu soft:1' 'soft run'; do
	# shellcheck disable=SC2016,SC2086 # a command and its words; the inner shell's own environment
	well "$BELFRY_RUNTIME_DIR/soft-default" "$BELFRY" $way -- sh -c 'echo $BELFRY_SOFT_DIR'
done
for mismatch in gpus=1 sms=16 mem=1G rate=1M pace=off; do
	expect 1 'one with another configuration is running' "$BELFRY" run --soft "$mismatch" -- true
	expect 1 'one with another configuration is running' env BELFRY_SOFT="$mismatch" "$BELFRY" soft run -- true
	expect 1 'one with another configuration is running' "$BELFRY" create --soft "$mismatch" one
done
expect 1 'the software GPU has fewer' "$BELFRY" run --gpu soft:2 -- true
expect 1 'the software GPU has fewer' env BELFRY_GPU=soft:2 "$BELFRY" run -- true
expect 1 'larger than the GPU' "$BELFRY" run --gpu soft --mem 257M -- true
silent "$BELFRY" run --gpu soft --mem 256M -- true
# A size with decimals is rounded down to whole bytes.
silent "$BELFRY" create tenth --gpu soft --mem 0.1G
well ' 102.40 MiB ' "$BELFRY" ls
well '"limit": 107374182,' "$BELFRY" ls --json
silent "$BELFRY" rm tenth
silent env BELFRY_GPU=soft:1 "$BELFRY" run -- true
well "soft-two" env BELFRY_SOFT=name=two,mem=64M "$BELFRY" soft env
well '64 MiB each' "$BELFRY" soft status --soft name=two
well '2 GPUs of 8 SMs, 256 MiB each' env BELFRY_SOFT=name=two "$BELFRY" soft status --soft name=default
# The status of the program is belfry's own, without a vGPU and with one.
for way in 'soft run' 'run --gpu soft'; do
	# shellcheck disable=SC2086 # a command and its words
	{
		expect 127 'No such file' "$BELFRY" $way -- /no/such/program
		expect 126 'denied' "$BELFRY" $way -- /etc/passwd
		"$BELFRY" $way -- sh -c 'exit 3' || [ $? -eq 3 ] || fail "$way: the status of the program is lost"
		# shellcheck disable=SC2016 # the inner shell's own number
		"$BELFRY" $way -- sh -c 'kill -9 $$' || [ $? -eq 137 ] || fail "$way: the signal of the program is lost"
	}
done
expect 1 'supervised already' "$BELFRY" run --gpu soft -- "$BELFRY" run --gpu soft -- true
# Ended, it is gone at once; the next one may be different.
silent "$BELFRY" soft stop --soft name=two
silent "$BELFRY" soft stop
expect 1 'no software GPU runs here' "$BELFRY" soft status
well '1 GPU of 4 SMs' env BELFRY_SOFT=sms=4 "$BELFRY" soft run -- "$BELFRY" soft status
silent "$BELFRY" soft stop
# A folder whose path is as long as one may be, and one that is longer.
long=$work/$(printf "%0$((99 - ${#work}))d" 0)
silent env BELFRY_SOFT_DIR="$long" "$BELFRY" soft run -- true
silent env BELFRY_SOFT_DIR="$long" "$BELFRY" soft stop
expect 1 'too long' env BELFRY_SOFT_DIR="${long}0" "$BELFRY" soft run -- true

if [ ! -e /sys/module/nvidia/version ]; then
	# Without a driver: said once, and nothing is left in the folder but the software GPU's own.
	expect 1 'driver is not loaded' "$BELFRY" run --gpu 0 --mem 1G --name nogpu -- true
	expect 1 'driver is not loaded' env BELFRY_GPU=0 "$BELFRY" run -- /no/such/program
	check_folder
	# Where no GPU was asked for it is the software one. That is said when it is started, and only then.
	expect 0 'no NVIDIA GPU here; started the software GPU' "$BELFRY" run --name nogpu -- true
	silent "$BELFRY" run --name nogpu -- true
	silent "$BELFRY" create nogpu
	silent "$BELFRY" rm nogpu
	silent "$BELFRY" soft stop
	check_folder
elif "$BELFRY" run -- true 2>/dev/null; then
	expect 127 'No such file' "$BELFRY" run -- /no/such/program
	expect 126 'denied' "$BELFRY" run -- /etc/passwd
	expect 1 'larger than the GPU' "$BELFRY" run --mem 8000T -- true
	expect 1 'supervised already' "$BELFRY" run -- "$BELFRY" run -- true
	"$BELFRY" run -- sh -c 'exit 3' || [ $? -eq 3 ] || fail 'the status of the program is lost'
	# shellcheck disable=SC2016 # the inner shell's own number
	"$BELFRY" run -- sh -c 'kill -9 $$' || [ $? -eq 137 ] || fail 'the signal of the program is lost'
	check_folder
else
	echo 'a driver, but no GPU that can be used: starting programs was not tried'
fi

[ "$failed" -eq 0 ] && echo 'all said as it should be'
exit "$failed"
