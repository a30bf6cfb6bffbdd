#!/bin/bash
# belfry-metrics on the software GPU: its output, read by a strict parser; the metrics that the dashboard and the alert rules
# use; totals of removed vGPUs, which outlive belfryd.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
here=$(dirname "$0")
[ -x "$BELFRY_BUILD_DIR/src/metrics/belfry-metrics" ] || skip 'belfry-metrics was not built: libmicrohttpd is missing'
export BELFRY_SOFT="gpus=2,mem=256M,linger=1,name=metrics$$"
use_daemon
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[server]\nmetrics = 127.0.0.1:%s\naccounting = %s\n' "$port" "$work/accounting" >"$work/conf"

start_both() {
	start_daemon --gpu soft:0 --gpu soft:1
	until_so get
}
get() {
	python3 -c 'import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=10).read().decode())' \
		"http://127.0.0.1:$port/metrics" >"$work/metrics" 2>/dev/null
}
# value NAME LABEL=VALUE...: of the one series that has these labels.
value() {
	python3 - "$here" "$work/metrics" "$@" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import exposition
with open(sys.argv[2], encoding="utf-8") as file:
    series = exposition.parse(file.read())[sys.argv[3]]["series"]
wanted = dict(word.split("=", 1) for word in sys.argv[4:])
found = [value for labels, value in series if wanted.items() <= labels.items()]
print(f"{found[0]:.15g}" if len(found) == 1 else f"{len(found)} series")
END
}
is_value() {
	get || return
	[ "$(value "${@:2}")" = "$1" ]
}

start_both
status 0 "$belfry" create infer --gpu soft:0 --mem 64M --time 30:100 --class latency --objective p95=500ms
status 0 "$belfry" create train --gpu soft:1
status 0 "$belfry" run infer -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 500 --secs 30 --launches 50 --sync
status 0 "$belfry" run train -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 500 --secs 30 --launches 50 --sync
status 0 "$belfry" create gone --mem 16M
status 0 "$belfry" run gone -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 500 --secs 30 --launches 20 --sync
status 0 "$belfry" rm gone
status 0 "$belfry" run --mem 16M -- sh -c 'exit 0'
until_so is_value 1 belfry_past_runs_total vgpu=sh

# The format, and what the two files in contrib use.
status 0 "$here/exposition.py" check "$work/metrics"
grep -Eq '^[0-9]+ families$' "$work/out" || fail "the parser: $(cat "$work/out")"
status 0 "$here/exposition.py" used "$work/metrics" "$here/../../contrib/grafana/belfry.json" "$here/../../contrib/grafana/alerts.yml"
# The parser would notice.
for change in 's/^belfry_build_info{/belfry_build{/' 's/\(^belfry_build_info.*\)/\1\n\1/' 's/^# TYPE belfry_vgpu_runs gauge/# TYPE belfry_vgpu_runs counter/' \
	's/^# HELP belfry_vgpu_runs.*/&\n&/' 's/version="/version="\\x/' 's/\(^belfry_build_info.*\) 1/\1 one/' '/^# TYPE belfry_vgpu_runs/d'; do
	sed "$change" "$work/metrics" >"$work/changed"
	cmp -s "$work/metrics" "$work/changed" && fail "nothing was changed by $change"
	status 1 "$here/exposition.py" check "$work/changed"
done
for change in 's/belfry_gpu_request_ratio/belfry_gpu_requests_ratio/' 's/sum by (user)/sum by (users)/' 's/{{Hostname}}/{{hostname}}/'; do
	sed "$change" "$here/../../contrib/grafana/belfry.json" >"$work/changed"
	cmp -s "$here/../../contrib/grafana/belfry.json" "$work/changed" && fail "nothing was changed by $change"
	status 1 "$here/exposition.py" used "$work/metrics" "$work/changed" "$here/../../contrib/grafana/alerts.yml"
done

# Labels as the DCGM exporter has them; nothing is counted twice; a software GPU has no sensors.
uuid=$(figure '' gpus.0.uuid)
[[ $uuid == GPU-62656c66-* ]] || fail "the UUID is '$uuid'"
[ "$(value BELFRY_FI_DEV_FB_TOTAL gpu=soft:0 "UUID=$uuid" device=soft0 'modelName=Belfry Software GPU' "Hostname=$(hostname)")" = 256 ] ||
	fail "labels of a GPU: $(grep '^BELFRY_FI_DEV_FB_TOTAL' "$work/metrics")"
[ "$(grep -c '^BELFRY_FI_DEV_FB_TOTAL{' "$work/metrics")" = 2 ] || fail "a metric of GPUs is told of something else"
grep -q '^BELFRY_FI_DEV_GPU_TEMP{\|^BELFRY_FI_DEV_POWER_USAGE{' "$work/metrics" && fail "a software GPU has a temperature"
[ "$(value belfry_vgpu_memory_limit_bytes vgpu=infer "uid=$(id -u)" "user=$(id -un)" class=latency)" = $((64 << 20)) ] || fail "labels of a vGPU"
[ "$(value belfry_vgpu_memory_limit_bytes vgpu=train)" = '0 series' ] || fail "a vGPU without a limit has one"
[ "$(value belfry_vgpu_state vgpu=infer state=idle) $(value belfry_vgpu_state vgpu=infer state=running)" = '1 0' ] || fail "the state of a vGPU"
[ "$(value belfry_vgpu_objective_seconds vgpu=infer percentile=95)" = 0.5 ] || fail "the objective"
[ "$(value belfry_vgpu_latency_seconds vgpu=infer percentile=95)" != '0 series' ] || fail "latency at the objective's percentile"
[ "$(value belfry_vgpu_latency_samples_total vgpu=infer)" -gt 0 ] || fail "no samples of latency"
[ "$(value belfry_build_info "version=$("$belfry" --version | cut -d ' ' -f 2)")" = 1 ] || fail "build info"
[ "$(value belfry_past_runs_total vgpu=gone "user=$(id -un)")" = 1 ] || fail "runs of a vGPU that is gone"
used=$(value belfry_past_gpu_seconds_total vgpu=gone)
python3 -c "import sys; sys.exit(not 0 < $used < 30)" || fail "GPU time of a vGPU that is gone: $used"
[ "$(value belfry_past_memory_high_water_bytes vgpu=gone)" -gt 0 ] || fail "memory of a vGPU that is gone"
[ "$(value belfry_events_total event=run_ended)" = 4 ] || fail "events are not counted"

# Clients that send a byte a second, more than there are connections: they are closed, and a scrape succeeds meanwhile.
slow_clients() {
	python3 - "$port" "$work/slow" <<'END'
import select
import socket
import sys
import time

port, ready = int(sys.argv[1]), sys.argv[2]
text = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"x" * 1000
clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
open(ready, "w").close()
for at in range(60):
    for client in clients:
        try:
            client.send(text[at:at + 1])
        except OSError:
            pass
    time.sleep(1)
    # The end of the stream, or a reset: it was closed.
    clients = [c for c in clients if c not in select.select(clients, [], [], 0)[0]]
    if not clients:
        sys.exit(0)
sys.exit(f"{len(clients)} slow clients are still connected")
END
}
slow_clients 2>"$work/slow.err" &
slow=$!
until_so test -e "$work/slow"
until_so get
status 0 "$here/exposition.py" check "$work/metrics"
wait "$slow" || fail "slow clients: $(cat "$work/slow.err")"
get || fail "no scrape after slow clients"

# After the last program the GPU is not reported as busy.
until_so is_value 0 BELFRY_FI_DEV_GPU_UTIL gpu=soft:1
until_so is_value 0 BELFRY_FI_PROF_SM_ACTIVE gpu=soft:1
until_so is_value 0 belfry_vgpu_share_ratio vgpu=train

# Many idle connections, each of which may stay for 5 s, do not delay a scrape; nor does a scrape close all of them.
status 0 timeout 100 python3 - "$port" <<'END'
import select
import socket
import sys
import time
import urllib.request

port = int(sys.argv[1])
start = time.monotonic()
idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=90).read()
took = time.monotonic() - start
assert b"belfry_build_info" in text
assert took < 20, f"a scrape after 300 idle connections took {took:.1f} s"
time.sleep(0.1)
closed = len(select.select(idle, [], [], 0)[0])
assert closed >= 240, f"only {closed} of 300 idle connections were closed"
END

# Totals outlive belfryd, also one that is killed before it has saved them.
until_so test -s "$work/accounting.totals"
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
rm -f "$work/accounting.totals"
start_both
[ "$(value belfry_past_runs_total vgpu=gone)" = 1 ] || fail "totals are not made of the accounting file"
python3 -c "import sys; sys.exit(abs($(value belfry_past_gpu_seconds_total vgpu=gone) - $used) > 1e-6)" || fail "GPU time is another after a restart"
status 0 "$belfry" rm train
until_so is_value 1 belfry_past_vgpus_total vgpu=train
kill "$daemon"
until_so is_gone "$daemon"
start_both
[ "$(value belfry_past_runs_total vgpu=gone) $(value belfry_past_vgpus_total vgpu=train)" = '1 1' ] ||
	fail "totals after a clean end: $(grep ^belfry_past "$work/metrics")"
# What is no totals file is not believed.
kill "$daemon"
until_so is_gone "$daemon"
printf '{"inode":0,"offset":0,"totals":[{"owner":0' >"$work/accounting.totals"
echo 'no JSON' >>"$work/accounting"
start_both
[ "$(value belfry_past_runs_total vgpu=gone)" = 1 ] || fail "half a totals file"
until_so python3 -m json.tool "$work/accounting.totals" /dev/null
# Lines behind those that are in the totals are added, and no line twice. Many names do not grow the table without limit.
python3 - "$work/accounting" <<'END'
import json
import sys
with open(sys.argv[1], "a", encoding="utf-8") as file:
    for i in range(3000):
        print(json.dumps({"name": f"n{i}", "owner": 1000 + i % 2, "gpu_seconds": 1.0, "runs": 1}), file=file)
    for i in range(3000):
        print(json.dumps({"name": "one", "owner": 2000 + i, "gpu_seconds": 1.0, "runs": 1}), file=file)
END
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
start_both
status 0 "$here/exposition.py" check "$work/metrics"
[ "$(grep -c '^belfry_past_runs_total{' "$work/metrics")" = 1024 ] || fail "$(grep -c '^belfry_past_runs_total{' "$work/metrics") totals"
[ "$(value belfry_past_runs_total vgpu=gone)" = 1 ] || fail "lines are counted twice"
grep -q '^belfry_past_runs_total{vgpu="(other)",uid="1000"' "$work/metrics" || fail "the names of one owner have no limit"
[ "$(python3 -c '
import re, sys
print(sum(int(float(l.split()[-1])) for l in open(sys.argv[1]) if re.match("belfry_past_runs_total{.*uid=\"(?!0\")", l)))' "$work/metrics")" = 6000 ] || fail "some totals are lost"
end_daemon
exit "$failed"
