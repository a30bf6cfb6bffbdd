#!/bin/sh
# test.sh BUILD-DIR [MESON-TEST-OPTION]...: run the tests; the last line says how many passed, failed, were skipped.
# With TRIES=2 what fails is run once more, by itself, and that is said: some tests go by the host's time, and a busy host
# has them fail now and then.
set -u
build=$1
shift
logs="$build/meson-logs"

# run LOG [MESON-TEST-OPTION]...
run() {
	log=$1
	shift
	rm -f "$logs/testlog.json"
	meson test -C "$build" --no-rebuild --print-errorlogs "$@"
	status=$?
	cp "$logs/testlog.json" "$log" 2>/dev/null
	return "$status"
}

# tally STATUS LOG...: of a test in several logs the last counts.
tally() {
	python3 - "$@" <<'END'
import json
import re
import sys

good = ("OK", "EXPECTEDFAIL")
status, tests = int(sys.argv[1]), {}
for log in sys.argv[2:]:
    try:
        with open(log, encoding="utf-8", errors="replace") as lines:
            for test in map(json.loads, lines):
                before = tests.get(test["name"])
                tests[test["name"]] = test
                if before and test["result"] in good:
                    print(f"{test['name']}: failed, and passed once more")
    except FileNotFoundError:
        pass
for test in tests.values(): # to cmocka a program whose cases were all skipped has ended well
    said = (test.get("stdout") or "") + (test.get("stderr") or "")
    left_out = re.search(r"\[  SKIPPED \] (\d+) test", said)
    if test["result"] in good and left_out:
        why = re.findall("^skipped: (.*)", said, re.M) or ["no reason given"]
        test["result"] = "SKIP" if "[  PASSED  ] 0 test" in said else test["result"]
        test["stdout"] = f"{left_out[1]} of its cases: {why[-1]}"
        if test["result"] != "SKIP":
            print(f"skipped of {test['name']}: {test['stdout']}")
passed = sum(test["result"] in good for test in tests.values())
skipped = [test for test in tests.values() if test["result"] == "SKIP"]
failed = len(tests) - passed - len(skipped)
for test in skipped:
    said = (test.get("stdout") or test.get("stderr") or "").strip().splitlines()
    print(f"skipped {test['name']}: {said[-1] if said else 'no reason given'}")
if not tests:
    print("belfry: no test ran; see the messages above", file=sys.stderr)
if (status or not tests) and not failed:
    failed = 1
print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
sys.exit(failed > 0)
END
}

failed_of() {
	python3 - "$1" <<'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8", errors="replace") as lines:
    for test in map(json.loads, lines):
        if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
            print(test["name"].rpartition(" ")[2])
END
}

rm -f "$logs"/tests-*.json
run "$logs/tests-1.json" "$@"
status=$?
if [ "$status" -ne 0 ] && [ "${TRIES:-1}" -gt 1 ] && [ -s "$logs/tests-1.json" ]; then
	# shellcheck disable=SC2046 # names of tests, without blanks
	run "$logs/tests-2.json" --num-processes 1 "$@" $(failed_of "$logs/tests-1.json")
	status=$?
fi
tally "$status" "$logs/tests-1.json" "$logs/tests-2.json"
