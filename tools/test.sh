#!/bin/sh
# test.sh BUILD-DIR [MESON-TEST-OPTION]...: run the tests. The last line says how many passed, failed and were skipped.
set -u
build=$1
shift
log="$build/meson-logs/testlog.json"

# Most end-to-end tests wait for other processes most of the time, so two run for each processor. Tests that measure
# wall-clock time run alone (is_parallel: false).
rm -f "$log"
meson test -C "$build" --no-rebuild --print-errorlogs --num-processes "${TEST_PROCESSES:-$((2 * $(nproc)))}" "$@"
status=$?

python3 - "$status" "$log" <<'END'
import json
import sys

good = ("OK", "EXPECTEDFAIL")
status, tests = int(sys.argv[1]), {}
try:
    with open(sys.argv[2], encoding="utf-8", errors="replace") as lines:
        tests = {test["name"]: test for test in map(json.loads, lines)}
except FileNotFoundError:
    pass
passed = sum(test["result"] in good for test in tests.values())
skipped = [test for test in tests.values() if test["result"] == "SKIP"]
failed = len(tests) - passed - len(skipped)
for test in skipped:
    lines = ((test.get("stdout") or "") + (test.get("stderr") or "")).strip().splitlines()
    reasons = [line.partition("skipped: ")[2] for line in lines if "skipped: " in line] or lines[-1:]
    print(f"skipped {test['name']}: {'; '.join(dict.fromkeys(reasons)) or 'no reason given'}")
if not tests:
    print("belfry: no test ran; see the messages above", file=sys.stderr)
if (status or not tests) and not failed:
    failed = 1
print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
sys.exit(failed > 0)
END
