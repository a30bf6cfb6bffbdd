#!/bin/bash
# belfry verify: a program that does the same in every run, programs that do not, the two errors that must be found, and what
# cannot be verified.
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="sms=32,mem=512M,pace=off,linger=1,name=verify$$"
program="$BELFRY_BUILD_DIR/tests/e2e/verified"

# prints TEXT WHAT: the last command printed TEXT on stdout.
prints() { grep -qF -- "$1" "$work/out" || fail "$2: $(cat "$work/out" "$work/err")"; }

# The vGPUs of runs are named after belfry.
has_no_vgpu() { ! timeout 20 "$belfry" ls 2>/dev/null | grep -q '^belfry-'; }

# Through belfryd and vGPUs. Everything else is the same without them, and faster.
echo '- a steady program is identical'
status 0 "$belfry" verify --seed 7 --mem 64M --any-driver --gpu soft:0 -- "$program" steady
prints 'identical: 2 runs alone and 2 shared did the same' 'the verdict'
prints 'shared 2  seed 8, exit status 0, 10 launches, 10 launches of graphs, 22 copies to the host' 'what was compared'
until_so has_no_vgpu

echo '- runs on a vGPU that is there'
status 0 "$belfry" create shelf --mem 256M
status 0 "$belfry" verify --runs 1 shelf -- "$program" steady
status 2 "$belfry" verify --mem 1G shelf -- "$program" steady
says 'these options are for runs with vGPUs of their own' 'options for a vGPU that is there'
status 0 "$belfry" rm shelf

verify=("$belfry" verify --direct --runs 1)
echo '- a program that differs from itself'
status 3 "${verify[@]}" -- "$program" clock
prints 'differs from itself' 'a result that is the time'
prints 'the last kernel before it is tell_time' 'the kernel of a program that differs from itself'

echo '- sums of floats differ from themselves, or came out the same in all runs'
timeout 300 "${verify[@]}" -- "$program" floats >"$work/out" 2>"$work/err"
case $? in
0) prints 'identical' 'sums of floats' ;;
3) prints 'the last kernel before it is sum_floats' 'the kernel that sums floats' ;;
*) fail "sums of floats: $(cat "$work/out" "$work/err")" ;;
esac

echo '- memory that is used again right after a copy'
status 0 "${verify[@]}" -- "$program" reused

echo '- parameters that vary and change nothing'
status 0 "${verify[@]}" -- "$program" vary
prints 'launches have parameters that vary from run to run' 'parameters that vary'

echo '- parameters that vary first in a shared run'
status 0 "${verify[@]}" -- "$program" seldom "$work/counted"
prints 'identical: 3 runs alone and 1 shared did the same' 'parameters that seldom vary'
prints 'launches have parameters that vary from run to run' 'parameters that seldom vary'

echo '- a parameter that sharing changed'
status 1 "${verify[@]}" -- "$program" told
prints 'changed: sharing changed what the program did; kernel step has other parameters' 'a changed parameter'

echo '- an exit status that sharing changed'
status 1 "${verify[@]}" -- "$program" fails
prints 'exit status 5 instead of 0' 'a changed exit status'

echo '- a program that is killed leaves a trace'
status 0 "${verify[@]}" -- "$program" killed
prints 'exits with status 137, also alone' 'a killed program'

echo '- the controls are found'
status 1 "${verify[@]}" --control sms -- "$program" steady
prints 'kernel step has grid 16,1,1, block 64,1,1, 0 bytes of shared memory instead of grid 32,1,1' 'half of the SMs'
status 1 "${verify[@]}" --control split --json -- "$program" steady
python3 - "$work/out" <<'END' || fail "a split kernel: $(cat "$work/out")"
import json, sys
told = json.load(open(sys.argv[1]))
alone, again, shared, *confirmed = told["runs"]
assert len(confirmed) == 2 and all(run["identical"] and not run["shared"] for run in confirmed)
assert told["verdict"] == "changed" and told["varying_parameters"] == 0
assert not alone["shared"] and alone["identical"] and again["identical"] and alone["processes"] == 1
assert shared["shared"] and shared["seed"] == told["seed"] and not shared["identical"]
assert shared["kernel"] == "step" and "grid 16,1,1" in shared["difference"]
assert (alone["launches"], shared["launches"]) == (10, 20)
END

echo '- buffers'
status 0 "${verify[@]}" --buffer steps_done -- "$program" steady
status 0 "${verify[@]}" -- "$program" stored
status 1 "${verify[@]}" --buffer steps_done -- "$program" stored
prints 'the buffer steps_done of 4 bytes has other content; the last kernel before it is step' 'a changed buffer'
status 4 "${verify[@]}" --buffer nothing -- "$program" steady
says '--buffer nothing: no module of the program has such a variable' 'a buffer that is not there'
status 2 "${verify[@]}" --buffer 'a b' -- "$program" steady

echo '- what cannot be verified'
status 4 "${verify[@]}" -- true
says 'the program launched nothing and copied nothing to the host' 'a program without a GPU'
status 4 "${verify[@]}" --json -- true
python3 - "$work/out" <<-'END' || fail "the JSON of a program without a GPU: $(cat "$work/out")"
	import json, sys
	told = json.load(open(sys.argv[1]))
	assert told["verdict"] == "unknown" and told["runs"] == [] and "launched nothing" in told["error"]
END
status 4 "${verify[@]}" -- false
says 'the program used no GPU and exited with status 1' 'a program that fails without a GPU'
status 4 "${verify[@]}" -- "$work/nothing"
says 'nothing: No such file or directory' 'no such program'
status 2 "$belfry" verify
says 'no program given' 'no program'
status 2 "${verify[@]}" --runs 0 -- "$program"
status 2 "${verify[@]}" --mem 1G -- "$program"
says '--direct makes no vGPUs' 'a limit without a vGPU'
status 2 "${verify[@]}" --control all -- "$program"
says '--control all: say sms or split' 'no such control'

echo '- traces are kept'
status 0 "${verify[@]}" --keep "$work/kept" -- "$program" many 1000
for run in alone-1 alone-2 shared-1; do
	[ "$(cat "$work/kept/$run/stdout")" = 'done' ] || fail "the output of $run"
	[ "$(head -n 1 "$work/kept/$run/"*-0.trace)" = 'belfry-trace 1' ] || fail "the trace of $run"
done
bytes=$(cat "$work"/kept/alone-1/*.trace | wc -c)
[ "$bytes" -le 100000 ] || fail "a trace of 1000 launches has $bytes bytes"
status 4 "${verify[@]}" --keep "$work/kept" -- "$program" many 1
says '--keep needs a folder without runs' 'a folder with runs'

echo '- the examples of the man page'
grep -o '\$ belfry verify .*' "${BELFRY_SOURCE_DIR:?}/man/belfry-verify.1" >"$work/examples"
[ "$(wc -l <"$work/examples")" -ge 3 ] || fail 'the examples are not found'
cd "$work" || exit 1
while read -r _ _ _ example; do
	read -ra words <<<"${example%%-- [./a-z]*}"
	wanted=0
	[[ $example != *--control* ]] || wanted=1
	status "$wanted" "$belfry" verify --direct "${words[@]}" -- "$program" many 2
done <"$work/examples"

echo '- a signal ends the runs and removes the folder'
mkdir "$work/tmp"
TMPDIR="$work/tmp" "${verify[@]}" -- sh -c 'echo $$ >'"$work/pid"'; exec sleep 1000' >"$work/out" 2>"$work/err" &
until_so test -s "$work/pid"
kill -TERM $!
wait $!
[ $? = 143 ] || fail 'the exit status after a signal'
until_so is_gone "$(cat "$work/pid")"
[ -z "$(ls "$work/tmp")" ] || fail "a folder is left: $(ls "$work/tmp")"

exit "$failed"
