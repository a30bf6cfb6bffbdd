#!/bin/bash
# What belfry policy says: of the GPU and the policy that are meant, of records that are short or cut off, and how to compile
# a new one, which is tried as it is said.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRY_SOURCE_DIR:?}"
export BELFRY_SOFT="mem=256M,linger=1"
load="$BELFRY_BUILD_DIR/bench/load"
objects="$BELFRY_BUILD_DIR/tests/policies"
cd "$work" || exit 1

# told TEXT WHAT: the last command said so on stdout.
told() { grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }
not_told() { ! grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }

timeout 20 "$belfry" policy check fair >"$work/out" 2>&1 || { cat "$work/out"; fail "fair is refused"; exit 1; }
if grep -q '^not verified' "$work/out"; then
	echo "skipped: $(grep '^not verified' "$work/out")"
	exit 77
fi

# What is in an object: with the tunables as they were set, and the hook that nobody asks yet.
status 0 "$belfry" policy check "$objects/least.bpf.o" --set slice_us=7000 --set is_strict=false --set offset=-5
told 'tunable: slice_us=7000' "what was set"
told 'tunable: is_strict=0' "what was set"
told 'tunable: offset=-5' "what was set"
told 'tunable: deep=-1' "what was not"
status 1 "$belfry" policy check "$objects/least.bpf.o" --set no_such=1
says "'no_such' cannot be set: this policy has slice_us, offset" "a tunable that is not there"
status 1 "$belfry" policy check "$objects/least.bpf.o" --set slice_us=much
says 'not a whole number' "a tunable that is no number"
not_told 'module_load' "a hook that is not there"
status 0 "$belfry" policy check "$objects/never_due.bpf.o"
told 'module_load is not asked yet' "a hook that nobody asks"

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
	timeout 200 "$belfry" run "$name" -- "$load" --per-us 1 --kernel-us 2000 --gap-us 3000 --sync --secs 180 \
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
says 'noise: not an entry of a record' "noise in a record"
{ printf 'BELFRYR1'; head -c 100 /dev/zero; } >older
status 1 "$belfry" policy replay older --with fair
says 'older: a record of another release' "an older record"

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
