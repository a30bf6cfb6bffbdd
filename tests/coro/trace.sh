#!/bin/bash
# trace.sh PROGRAM...: tests of tests/cuda as belfry verify traces them, with other SMs at every launch. They must pass as they do
# without a trace, and each line of a trace must have the form that src/coro/trace_format.h says. So must the traces have
# launches, copies and graphs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d /tmp/belfry-trace.XXXXXX)
trap 'rm -rf "$folder"' EXIT
export BELFRY_TRACE=$folder
number='[0-9a-f]{1,16}'
three="$number,$number,$number"
shape="$number $three $three $number $number ($number|-)"
event="$number $number $number"
form="^(F $number .+|L $event $shape|N $number $shape|G $event $number|C $event $number $number|B $number $number $number $number .+)$"
status=0

for program; do
	name=$(basename "$program")
	"$here/front.sh" "$program" >"$folder/out" 2>&1 || {
		cat "$folder/out"
		echo "$name: failed with a trace"
		status=1
	}
	compgen -G "$folder/*.trace" >"$folder/traces" || {
		echo "$name: no trace"
		status=1
		continue
	}
	while read -r trace; do
		[ "$(head -n 1 "$trace")" = 'belfry-trace 1' ] || status=1
		! tail -n +2 "$trace" | grep -vE "$form" | head -n 3 | grep . || {
			echo "$name: not the form of a trace"
			status=1
		}
		cat "$trace" >>"$folder/all"
	done <"$folder/traces"
	rm -f "$folder"/*.trace
done
for letter in F L N G C; do
	grep -q "^$letter " "$folder/all" || {
		echo "no line $letter in all traces"
		status=1
	}
done
exit "$status"
