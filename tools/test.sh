#!/bin/sh
# test.sh BUILD-DIR [MESON-TEST-OPTION]...: run the tests; the last line says how many passed, failed, were skipped.
set -u
build=$1
shift

rm -f "$build/meson-logs/testlog.json"
meson test -C "$build" --no-rebuild --print-errorlogs "$@"
status=$?
python3 - "$build/meson-logs/testlog.json" "$status" <<'END'
import json
import sys

log, status = sys.argv[1], int(sys.argv[2])
passed, failed, skipped = 0, 0, []
try:
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            test = json.loads(line)
            if test["result"] in ("OK", "EXPECTEDFAIL"):
                passed += 1
            elif test["result"] == "SKIP":
                skipped.append(test)
            else:
                failed += 1
except FileNotFoundError:
    pass
for test in skipped:
    said = (test.get("stdout") or test.get("stderr") or "").strip().splitlines()
    print(f"skipped {test['name']}: {said[-1] if said else 'no reason given'}")
if passed + failed + len(skipped) == 0:
    print("belfry: no test ran; see the messages above", file=sys.stderr)
    failed = 1
elif status and not failed:
    failed = 1
print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
sys.exit(1 if failed else 0)
END
