#!/bin/bash
# What belfry policy says: of the GPU and the policy that are meant, of records that are short or cut off, and how to compile
# a new one, which is tried as it is said.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRY_SOURCE_DIR:?}"
export BELFRY_SOFT="mem=256M,linger=1"
objects="$BELFRY_BUILD_DIR/tests/policies"
cd "$work" || exit 1

# told TEXT WHAT: the last command said so on stdout.
told() { grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }
not_told() { ! grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }

need_policies

# policy check prints the tunables as they are set, and hooks that are never called.
status 0 "$belfry" policy check "$objects/least.bpf.o" --set slice_us=7000 --set is_strict=false --set offset=-5
told 'tunable: slice_us=7000' "what was set"
told 'tunable: is_strict=0' "what was set"
told 'tunable: offset=-5' "what was set"
told 'tunable: deep=-1' "what was not"
status 1 "$belfry" policy check "$objects/least.bpf.o" --set no_such=1
says "'no_such' cannot be set: this policy has slice_us, offset" "a tunable that is not there"
status 1 "$belfry" policy check "$objects/least.bpf.o" --set slice_us=much
says 'not a whole number' "a tunable that is no number"
status 1 "$belfry" policy check "$objects/least.bpf.o" --set slice_us=010
says 'not a whole number, such as 10 or 0xa' "a tunable with a 0 before it"
# Where there are too few descriptors it is not the verifier that refuses. How many it takes depends on the kernel.
for count in 7 8 9 10 11 12; do
	(ulimit -n "$count" && exec timeout 20 "$belfry" policy check latency_first) >"$work/out" 2>"$work/err"
	! grep -qE 'verifier refuses program [^:]*: *$' "$work/err" || fail "refused for nothing: $(cat "$work/err")"
done
if timeout 20 unshare -Ur true 2>"$work/err"; then
	status 0 unshare -Ur "$belfry" policy check fair
	told 'cannot be loaded in a user namespace' "why root of a user namespace may not"
fi
not_told 'module_load' "a hook that is not there"
status 0 "$belfry" policy check "$objects/modules.bpf.o"
told 'module_load' "a hook that is there"

# docs/policies.md has every tunable with its default, and belfry-policy(1) every name.
for object in "$BELFRY_SOURCE_DIR"/policies/*.bpf.c; do
	name=$(basename "$object" .bpf.c)
	[ "$name" != template ] || continue
	grep -qE "^\.Cm .*\b$name\b" "$BELFRY_SOURCE_DIR/man/belfry-policy.1" || fail "belfry-policy(1) does not name $name"
	status 0 "$belfry" policy check "$name"
	awk -F'[ =]+' '$2 == "tunable:" { print $3, $4 }' "$work/out" >tunables
	awk -v policy="\`$name\`" -F' *[|] *' '
		/^## / { in_table = 0 }
		/^### Their tunables/ { in_table = 1 }
		in_table && NF > 3 && $2 != "" { ours = $2 == policy }
		in_table && ours && NF > 3 { gsub("`", "", $3); print $3, $4 }' "$BELFRY_SOURCE_DIR/docs/policies.md" >tunables.docs
	diff tunables tunables.docs >&2 || fail "docs/policies.md has other tunables of $name"
done

# The line to compile a new one is the one of docs/policies.md, but for where the header is; both work as they are.
status 0 "$belfry" policy new oldest
grep '^  clang ' "$work/out" >line || fail "nobody says how to compile: $(cat "$work/out")"
grep '^clang ' "$BELFRY_SOURCE_DIR/docs/policies.md" >line.docs
[ "$(sed 's/^ *//; s/ -I [^ ]*/ -I include/' line)" = "$(cat line.docs)" ] ||
	fail "docs/policies.md has another line than policy new: $(cat line line.docs)"
if command -v clang >/dev/null; then
	ln -s "$BELFRY_SOURCE_DIR/include" include # as from a checkout
	for one in line line.docs; do
		rm -f oldest.bpf.o
		status 0 bash "$one"
		[ ! -s "$work/err" ] || fail "$(cat "$one"): $(cat "$work/err")"
		status 0 "$belfry" policy check oldest.bpf.o
	done
fi

# Two software GPUs are told apart where they would look the same, and can be named.
status 0 "$belfry" create first --mem 64M --time 30 --soft name=one
status 0 "$belfry" policy ls
told 'built-in on GPU soft:0, since' "one GPU alone needs no name"
status 0 "$belfry" create second --mem 64M --soft name=two
status 0 env -u BELFRY_GPU "$belfry" policy ls
told 'built-in on GPU soft:0 (name=one)' "the first GPU"
told 'built-in on GPU soft:0 (name=two)' "the second GPU"
status 1 env -u BELFRY_GPU "$belfry" policy unload
says '2 GPUs are in use: soft:0 (name=one), soft:0 (name=two); say which' "which there are"
status 0 "$belfry" policy ls --json --soft name=two
told "\"folder\": \"$BELFRY_RUNTIME_DIR/soft-two\"" "the folder of a software GPU"
status 0 "$belfry" policy load edf --soft name=two
status 0 env -u BELFRY_GPU "$belfry" policy ls
told 'edf on GPU soft:0 (name=two)' "a policy of the second GPU"
told '  maps: ' "where maps are, or why they are not pinned"
told ' LATE ' "how often a hook took too long"
# The one without a name is meant where none is said.
status 0 "$belfry" create third --mem 64M --soft name=default
status 1 "$belfry" policy unload --soft name=default
says 'no policy is loaded' "the GPU of the name default"
status 0 "$belfry" rm second
status 0 "$belfry" rm third
export BELFRY_SOFT="$BELFRY_SOFT,name=one"

# A record of nothing.
status 0 "$belfry" policy record -o nothing --for 100ms --soft name=one
status 0 "$belfry" policy replay nothing --with fair
told 'nothing can be compared' "a record without decisions"
told 'nothing can be played' "a record without work"
not_told 'WOULD BE' "there is nothing to compare"
not_told 'mean nothing' "there is nothing to compare"

# Numbers are as large as they are.
status 0 "$belfry" policy load "$objects/never_due.bpf.o" --soft name=one
status 0 "$belfry" create other --mem 64M --time 30 --soft name=one
for name in first other; do
	timeout 710 "$belfry" run "$name" -- "$load" --per-us 1 --kernel-us 2000 --gap-us 3000 --sync --secs 700 \
		--ready "$work/$name.ready" --until "$work/stop" >"$work/$name.log" 2>&1 &
done
until_so test -e "$work/first.ready"
until_so test -e "$work/other.ready"
never_is_told() {
	timeout 20 "$belfry" policy trace --soft name=one --for 300ms --json >"$work/out" &&
		grep -q '"hook": "enqueue".*"proposed_value": 18446744073709551615' "$work/out"
}
until_so never_is_told
not_told ': -1' "a number below 0"

# A record of something: what is compared, what is not, and by which name.
status 0 "$belfry" policy record -o some --for 1s --soft name=one
cp "$BELFRY_BUILD_DIR/policies/tpot_first.bpf.o" another_name.bpf.o
status 0 "$belfry" policy replay some --with ./another_name.bpf.o
told '; tpot_first was asked ' "the policy has one name"
told 'tpot_first also decides by tick: not compared here, but the play below asks that too' "what is not compared"
status 0 "$belfry" policy replay some --with quota_guard
told 'quota_guard also decides by mem_alloc and mem_pressure: neither compared here nor played' "what is not compared"
status 0 "$belfry" policy replay some --with tpot_first --json
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["not_compared"] == ["tick"] and not r["cut_off"], r' \
	"$work/out" || fail "replay --json: $(cat "$work/out")"
status 0 "$belfry" policy replay some --with fair
not_told 'also decides' "all is compared"
status 2 "$belfry" policy replay some --with built-in --set bogus=1
says 'the built-in has nothing to set' "a tunable of the built-in"
status 1 "$belfry" policy replay some --with fair --set bogus=1
says "'bogus' cannot be set" "a tunable that is not there"

# What it was recorded under: by its name where that is enough, or else by its file.
status 0 "$belfry" policy replay some --with fair
told '--against with the file of never_due would tell' "what to compare with"

# A record can come through a pipe. A pipe without a writer is not waited for, and other files are not read.
for with in fair never_due; do
	object=$with
	[ "$with" = fair ] || object=$objects/never_due.bpf.o
	status 0 "$belfry" policy replay some --with "$object"
	cp "$work/out" plain.out
	timeout 60 cat some | timeout 60 "$belfry" policy replay /dev/stdin --with "$object" >"$work/out" 2>"$work/err" ||
		fail "a record through a pipe: $(cat "$work/err")"
	diff plain.out "$work/out" >&2 || fail "a record through a pipe is another"
done
mkfifo pipe
status 1 "$belfry" policy replay pipe --with fair
says 'pipe: nothing came through this pipe' "a pipe that nobody writes to"
status 1 "$belfry" policy replay . --with fair
says 'neither a plain file nor a pipe' "a folder"
status 1 "$belfry" policy replay /dev/zero --with fair
says 'neither a plain file nor a pipe' "a device"

# If stdout is a full pipe, the command still ends at its time and on signals. It writes whole lines only.
# blocked STATUS COMMAND...: it ends with STATUS although its output is not read.
blocked() {
	local wanted=$1 began=$SECONDS got
	shift
	rm -f never_read
	mkfifo never_read
	exec 8<>never_read
	python3 -c 'import fcntl; fcntl.fcntl(8, fcntl.F_SETPIPE_SZ, 4096)' # soon full
	timeout 60 "$@" >never_read 2>"$work/err"
	got=$?
	[ "$got" = "$wanted" ] || fail "$* : status $got, not $wanted: $(cat "$work/err")"
	[ $((SECONDS - began)) -lt 30 ] || fail "$* : does not end while nobody reads"
	dd bs=64K count=1 iflag=nonblock <&8 >"$work/out" 2>/dev/null
	exec 8>&-
	[ -s "$work/out" ] && [ -z "$(tail -c 1 "$work/out")" ] || fail "$* : half a line: $(tail -1 "$work/out")"
}
blocked 0 "$belfry" policy trace --all --json --soft name=one --for 2s
for signal in INT TERM; do
	blocked 124 timeout -s "$signal" 2 "$belfry" policy trace --all --json --soft name=one
done

# What cannot be written is no success, and is said once.
while read -r command; do
	# shellcheck disable=SC2086 # a command and its words
	timeout 60 "$belfry" $command >/dev/full 2>"$work/err"
	got=$?
	[ "$got" = 1 ] || fail "$command, to a full disk: status $got"
	[ "$(cat "$work/err")" = 'belfry: cannot write: No space left on device' ] || fail "$command, to a full disk: $(cat "$work/err")"
done <<END
ls
ls --json
stats
stats --json
top
explain first
info
policy ls
policy ls --json
policy check fair
policy check fair --json
policy trace --all --for 30s --soft name=one
policy trace --all --for 30s --json --soft name=one
policy replay some --with fair
policy replay some --with fair --json
policy --help
policy load --help
run --help
soft status
hold --json other
open --json other
--help
--version
END
timeout 60 "$belfry" policy trace --all --for 30s --soft name=one 2>"$work/err" | head -n 1 >"$work/out"
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s "$work/err" ] || fail "nobody reads on, and that is called a failure: $(cat "$work/err")"

# A record that the disk has no room for ends with its last whole entry.
(ulimit -f 64 && exec timeout 60 "$belfry" policy record -o full --for 50s --soft name=one) >"$work/out" 2>"$work/err"
[ $? = 1 ] || fail "a record without room is a success"
kept=$(awk '{ print $2; exit }' "$work/out")
[ "$kept" -gt 0 ] || fail "nothing is kept of a record without room: $(cat "$work/out" "$work/err")"
says "full: cannot be written: File too large; what came before that is kept, $kept decisions" "a record without room"
status 0 "$belfry" policy replay full --with fair
[ ! -s "$work/err" ] || fail "a record without room is cut off: $(cat "$work/err")"
told "$kept decisions in " "a record without room"

# Of hundreds of vGPUs those that had work are played; where even they are too many the decisions are compared all the same.
# Names that could steer a terminal are not shown. others COUNT WHAT: so many beside those of a record.
others() {
	python3 - some "$1" "$2" <<'END'
import struct, sys
record = open(sys.argv[1], "rb").read()
def entry(kind, body, hook=0):
    return struct.pack("<IHBBIIIIQQQQQ", 64 + len(body), hook, 0, kind, 0, len(body), 0, 0, last, 0, 0, 0, 0) + body
at, vgpu_init = 16, b""
while at < len(record):
    size, hook, _, kind = struct.unpack_from("<IHBB", record, at)
    last = struct.unpack_from("<Q", record, at + 24)[0]
    if not vgpu_init and kind == 0 and record.find(b"first\0", at, at + size) > 0:
        vgpu_init = record[at:at + size]
    at += size
for i in range(int(sys.argv[2])):
    share = struct.pack("<Q64sIIIIQQIi", 100000 + i, b"many", 0, 1, 0, 0, 0, 0, 0, -1)
    work = struct.pack("<QII9Q", 100000 + i, int(sys.argv[3]), 0, last, last, 0, 0, 0, 0, 0, 0, 0)
    record += entry(2, share) + entry(3, work)
sys.stdout.buffer.write(record + vgpu_init.replace(b"first\0", b"\033[2J\xff"))
END
}
others 300 6 >idle
status 0 "$belfry" policy replay idle --with fair
told '; fair was asked ' "a record of hundreds of vGPUs"
told 'left out: 300 that had no work' "a record of hundreds of vGPUs"
others 300 4 >many
status 0 "$belfry" policy replay many --with fair
told '; fair was asked ' "a record with too much work"
told 'nothing can be played: more than 256 vGPUs of the record had work' "a record with too much work"
! grep -q "$(printf '\033')" "$work/out" || fail "a name steers the terminal"
status 0 "$belfry" policy replay many --with fair --json
python3 -c 'import json, sys; r = json.loads(open(sys.argv[1], "rb").read().decode()); assert r["play"] is None and r["not_played"] and r["asked"] > 0 and "first" in [v["name"] for v in r["vgpus"]], r' \
	"$work/out" || fail "replay --json of too much: $(cat "$work/out")"

# The recorder was killed: what is whole is used. What is no record, or has something else in it, is not.
head -c -5 some >cut_off
status 0 "$belfry" policy replay cut_off --with fair
says 'cut_off: the last entry is cut off: what comes before is used' "a record that is cut off"
told '; fair was asked ' "a record that is cut off"
status 0 "$belfry" policy replay cut_off --with fair --json
told '"cut_off": true' "a record that is cut off, as JSON"
head -c 10 some >no_header
status 1 "$belfry" policy replay no_header --with fair
says 'no_header: not a record of decisions' "a record without its header"
{ head -c 16 some; head -c 200 /dev/zero | tr '\0' x; } >noise
status 1 "$belfry" policy replay noise --with fair
says 'noise: invalid record entry' "noise in a record"
{ printf 'BELFRYR1'; head -c 100 /dev/zero; } >older
status 1 "$belfry" policy replay older --with fair
says 'older: the record is from another release' "an older record"

# What is refused is shown, and that there is more only where there is.
status 1 "$belfry" policy load "$objects/unverified.bpf.o" --soft name=one
if grep -q 'shows all of it' "$work/err"; then
	timeout 20 "$belfry" policy check "$objects/unverified.bpf.o" 2>&1 >/dev/null | wc -l >lines
	[ "$(cat lines)" -gt "$(wc -l <"$work/err")" ] || fail "all was shown already: $(cat "$work/err")"
fi
: >"$work/stop"
wait
status 0 "$belfry" rm first
status 0 "$belfry" rm other
exit "$failed"
