# For tests of probes: programs on vGPUs that are told what to do, and what probes have counted. Sourced after common.sh.
# shellcheck shell=bash disable=SC2034,SC2154
programs="$BELFRY_BUILD_DIR/tests/e2e"
objects="$BELFRY_BUILD_DIR/tests/probes"
declare -A probed

told() { grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }

# begin NAME [OPTION...]: the program `probed` on that vGPU; commands go to it by `order`.
begin() {
	local name=$1 to
	shift
	rm -f "$work/$name.in" "$work/$name.log"
	mkfifo "$work/$name.in"
	timeout 900 "$belfry" run "$@" "$name" -- "$programs/probed" <"$work/$name.in" >"$work/$name.log" \
		2>"$work/$name.err" &
	probed[$name]=$!
	exec {to}>"$work/$name.in"
	inputs[$name]=$to
	answers[$name]=1
	until_so has_answers "$name" 1
}
declare -A inputs answers
has_answers() {
	local lines
	lines=$(grep -c "" "$work/$1.log" 2>/dev/null)
	[ "${lines:-0}" -ge "$2" ]
}
# order NAME COMMAND...: have it carried out, and wait for the answer, which is $answer.
order() {
	local name=$1
	shift
	echo "$*" >&"${inputs[$name]}"
	answers[$name]=$((answers[$name] + 1))
	until_so has_answers "$name" "${answers[$name]}"
	answer=$(sed -n "${answers[$name]}p" "$work/$name.log")
}
ordered() {
	order "$@"
	[ "${answer##* }" = ok ] || fail "$*: $answer $(cat "$work/$1.err")"
}
# leave_alone NAME: its standard input ends.
leave_alone() {
	local to=${inputs[$1]}
	exec {to}>&-
}
finish() {
	leave_alone "$1"
	wait "${probed[$1]}" || fail "the program on $1: $(cat "$work/$1.err")"
}
process_of() { figure "$1" processes.0.pid; }

# counted PROBE TITLE KERNEL: a number of a table of `belfry probe dump --json`; empty: there is no such row.
counted() {
	timeout 60 "$belfry" probe dump "$1" --vgpu "${4:-a}" --json 2>"$work/err" | python3 -c '
import json, sys
title, kernel = sys.argv[1:]
for probe in json.load(sys.stdin)["probes"]:
    for table in probe["tables"]:
        for row in table["rows"]:
            cells = dict(zip(table["columns"], zip(row["values"], row["words"])))
            if "kernel" in cells and cells["kernel"][1] == kernel:
                print(cells[title][0])' "$2" "$3"
}
# is_counted PROBE CALLS KERNEL [VGPU]
is_counted() { [ "$(counted "$1" calls "$3" "${4:-a}")" = "$2" ]; }
# A process that is slow to answer is left out of a dump: so until it is not.
exactly() {
	until_so is_counted "$@" ||
		fail "kernelstat has $(counted "$1" calls "$3" "${4:-a}") calls of $3, not $2; $(cat "$work/err")"
}
# dumps TEXT [ARGUMENT...]: a dump says so.
dumps() {
	local text=$1
	shift
	timeout 60 "$belfry" probe dump --vgpu a "$@" >"$work/out" 2>"$work/err" && grep -qF -- "$text" "$work/out"
}
