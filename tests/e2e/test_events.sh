#!/bin/bash
# Events: belfry events, and the command that the configuration names; which user sees which events; slow readers and slow
# commands.
# Functions are called by name, and scripts are quoted on purpose:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=256M,linger=1,name=events$$"
use_daemon
many_vgpus="$BELFRY_BUILD_DIR/tests/e2e/many_vgpus"
mkdir -m 777 "$work/got"
chmod 777 "$work/got" # whatever the umask

# follow FILE [OPTION...]: write events to a file, in the background. The process is $follower.
follow() {
	local file=$1
	shift
	"$belfry" events --json --since 600s "$@" >"$file" 2>"$file.err" &
	follower=$!
}
# told FILE EXPRESSION: the expression is true of an event e in the file.
told() {
	python3 - "$@" <<'END'
import json
import sys
with open(sys.argv[1], encoding="utf-8") as file:
    events = [json.loads(line) for line in file if line.endswith("\n")]
sys.exit(not any(eval(sys.argv[2], {"e": e, "get": e.get}) for e in events))
END
}

# All events of a vGPU.
printf '[server]\naccess = everyone\n' >"$work/conf"
start_daemon
follow "$work/events"
all=$follower
until_so told "$work/events" 'e["event"] == "server_started" and e["gpu"] == "soft:0" and e["vgpu"] is None and e["owner"] is None'
status 0 "$belfry" create a --mem 32M --time 0:50
until_so told "$work/events" 'e["event"] == "vgpu_created" and e["vgpu"] == "a" and e["owner"] == '"$(id -u)"' and e["text"] == "mem 32 MiB, time 0:50"'
status 0 "$belfry" set a --mem 64M
until_so told "$work/events" 'e["event"] == "vgpu_changed" and e["text"] == "mem 64 MiB"'
status 0 "$belfry" hold a
status 0 "$belfry" open a
until_so told "$work/events" 'e["event"] == "vgpu_changed" and e["text"] == "its gate is open"'
status 3 "$belfry" run a -- sh -c 'exit 3'
until_so told "$work/events" 'e["event"] == "run_started" and e["program"] == "sh" and e["pid"] > 1'
until_so told "$work/events" 'e["event"] == "run_ended" and get("exit_status") == 3 and "signal" not in e and e["program"] == "sh"'
status 137 "$belfry" run a -- sh -c 'kill -9 $$'
until_so told "$work/events" 'e["event"] == "run_ended" and get("signal") == 9 and "exit_status" not in e'
status 127 "$belfry" run a -- /nonexistent/program
until_so told "$work/events" 'e["event"] == "run_ended" and get("exit_status") == 127'
# belfry is killed: the exit status of the program is not known.
"$belfry" run a -- sleep 100 &
front=$!
until_so told "$work/events" 'e["event"] == "run_started" and e["program"] == "sleep"'
kill -9 $front
until_so told "$work/events" 'e["event"] == "run_ended" and e["program"] == "sleep" and "exit_status" not in e and "signal" not in e'

# A newline in the name of a program does not make a second line.
cp /bin/true "$work/"$'x\nserver_died'
status 0 "$belfry" run a -- "$work/"$'x\nserver_died'
until_so told "$work/events" 'e["event"] == "run_ended" and e["program"] == "x server_died"'

# Limits: one event in 10 seconds, however often memory is refused.
began=$SECONDS
status 0 "$belfry" run a -- "$BELFRY_BUILD_DIR/tests/e2e/hog" 1000
until_so told "$work/events" 'e["event"] == "memory_refused" and e["vgpu"] == "a" and "the limit is 64 MiB" in e["text"]'
for _ in 1 2 3 4 5 6 7 8; do
	status 0 "$belfry" run a -- "$BELFRY_BUILD_DIR/tests/e2e/hog" 1000
done
most=$((2 + (SECONDS - began) / 10))
[ "$(grep -c '"memory_refused"' "$work/events")" -le $most ] || fail "refusals are not limited: $(grep -c '"memory_refused"' "$work/events")"
if ! is_sanitized; then # with a sanitizer the program is too slow to reach its limit
	status 0 "$belfry" run a -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 3000 --secs 60 --launches 600
	until_so told "$work/events" 'e["event"] == "time_limited" and e["vgpu"] == "a" and "limit of 50 %" in e["text"]'
fi
status 0 "$belfry" run a -- "$BELFRY_BUILD_DIR/tests/gpu/gpu_fault" illegal
until_so told "$work/events" 'e["event"] == "fault" and "Xid 31" in e["text"] and e["pid"] > 1'

# A vGPU that is removed with its run; --vgpu and --gpu; the text form.
follow "$work/of_b" --vgpu b
status 0 "$belfry" create b
status 0 "$belfry" run --name c -- true
until_so told "$work/events" 'e["event"] == "vgpu_removed" and e["vgpu"] == "c" and e["text"].startswith("after 1 run: ")'
status 0 "$belfry" rm b
until_so told "$work/of_b" 'e["event"] == "vgpu_removed"'
kill $follower
told "$work/of_b" 'e["vgpu"] != "b"' && fail "--vgpu shows others, too"
timeout 2 "$belfry" events --gpu 5 --since 600s >"$work/out" 2>/dev/null
[ ! -s "$work/out" ] || fail "--gpu shows other GPUs, too"
timeout 2 "$belfry" events --gpu soft --since 600s >"$work/out" 2>/dev/null
grep -Eq "^20[0-9-]+ [0-9:.]+ soft:0 +c +$(id -un) +run_ended +true \(process [0-9]+\): exit status 0\$" "$work/out" ||
	fail "events for people: $(cat "$work/out")"
status 2 "$belfry" events --since nonsense
status 2 "$belfry" events --vgpu ../x
status 0 sh -c '"$0" events --since 600s | head -1 >/dev/null' "$belfry"

# Policies, where eBPF may be loaded.
if timeout 100 "$belfry" policy load fair >/dev/null 2>&1; then
	until_so told "$work/events" 'e["event"] == "policy_loaded" and e["policy"] == "fair" and "in place of the built-in" in e["text"]'
	status 0 "$belfry" policy unload
	until_so told "$work/events" 'e["event"] == "policy_unloaded" and e["policy"] == "fair" and "has unloaded it" in e["text"]'
	status 0 "$belfry" policy load "$BELFRY_BUILD_DIR/tests/policies/errs_later.bpf.o" --vgpu a --set after=0
	timeout 100 "$belfry" run a -- "$BELFRY_BUILD_DIR/bench/load" --per-us 1 --kernel-us 1000 --secs 60 --launches 400 >/dev/null 2>&1
	until_so told "$work/events" 'e["event"] == "policy_unloaded" and e["vgpu"] == "a" and "it is out: " in e["text"]'
else
	echo 'eBPF may not be loaded here: events of policies were not tried'
fi

# The configuration, and a GPU server that dies.
printf '[server]\naccess = everyone\n[vgpu conf]\nmem = 1T\n' >"$work/conf"
status 1 "$belfry" reload
until_so told "$work/events" 'e["event"] == "config_refused" and "conf:" in e["text"]'
printf '[server]\naccess = everyone\n' >"$work/conf"
status 0 "$belfry" reload
until_so told "$work/events" 'e["event"] == "config_reloaded"'
kill -9 "$(server_pids)"
until_so told "$work/events" 'e["event"] == "server_died" and "vGPU" in e["text"]'

# The owner and root see the events of a vGPU. Every user sees the events of GPUs. Other users see nothing else.
if knows_others; then
	mkdir "$work/bin"
	cp "$belfry" "$work/bin"
	chmod -R go+rX "$work/bin"
	other() {
		env -u BELFRY_RUNTIME_DIR -u BELFRY_GPU -u BELFRY_SOFT HOME=/ setpriv --reuid=65534 --regid=65534 --clear-groups \
			timeout "$1" "$work/bin/belfry" "${@:2}"
	}
	other 20 events --vgpu a 2>"$work/err" && fail "another user follows a vGPU that is not his"
	says 'a: belongs to user root; only that user and root may see its events' "another user's vGPU"
	other 20 create his --mem 16M || fail "another user cannot make a vGPU"
	other 3 events --json --since 600s >"$work/his"
	told "$work/his" 'e["event"] == "vgpu_created" and e["vgpu"] == "his" and e["owner"] == 65534' || fail "an owner does not see his events"
	told "$work/his" 'e["event"] == "server_died"' || fail "another user does not see what happens to GPUs"
	told "$work/his" 'e["vgpu"] not in (None, "his") or e["event"].startswith("config")' && fail "another user sees too much"
	until_so told "$work/events" 'e["event"] == "vgpu_created" and e["vgpu"] == "his"'
	other 20 rm his
else
	echo 'no root who may be another user: what another user sees was not tried'
fi

# belfryd does not wait for a reader that is stopped. The reader learns how many events it has missed.
follow "$work/slow" --vgpu s
slow=$follower
status 0 "$belfry" create s
status 0 "$belfry" rm s
until_so told "$work/slow" 'e["event"] == "vgpu_removed"'
kill -STOP $slow
status 0 "$many_vgpus" again s 250
until_so told "$work/events" 'e["number"] > 500'
kill -CONT $slow
# The events that it shows and those that it reports as dropped are all there were: two for each of 251 vGPUs.
all_told() {
	python3 - "$work/slow" <<'END'
import json
import sys
events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8") if line.endswith("\n")]
dropped = sum(e["count"] for e in events if e["event"] == "dropped")
sys.exit(not (dropped > 0 and dropped + sum(e["event"] != "dropped" for e in events) == 502))
END
}
until_so all_told
kill $slow

# The command runs once for each event, and inherits nothing but the event.
cat >"$work/command" <<'END'
#!/bin/sh
to="GOT/$BELFRY_EVENT_NUMBER"
{
	env
	ls -l /proc/self/fd
	id -u
	id -G
	grep NoNewPrivs /proc/self/status
	pwd
	cat
} >"$to.part" 2>&1
[ "$BELFRY_EVENT_VGPU" != hangs ] || sleep 1000
mv "$to.part" "$to"
END
sed -i "s|GOT|$work/got|" "$work/command"
chmod 755 "$work/command"
wrong() {
	printf '[server]\naccess = everyone\n[events]\n%s\n' "$1" >"$work/wrong"
	status 1 "$BELFRYD" --gpu soft --config "$work/wrong" --check
	says "$2" "$1"
}
wrong 'command = nowhere' 'write off, or the whole path'
wrong 'command = /nonexistent/command' "$work/wrong:4: command '/nonexistent/command': No such file"
wrong 'kinds = fault, nonsense' "'nonsense' is not an event; there are all, vgpu_created"
wrong 'user = root' 'must not run as root'
wrong 'timeout = 3600s' '1ms to 600s'
wrong 'frobnicate = yes' 'no key of [events]'
if [ "$(id -u)" != 0 ] || knows_others; then
	printf '[server]\naccess = everyone\n[events]\ncommand = %s\nkinds = vgpu_created run_ended\ntimeout = 3s\n' "$work/command" >"$work/conf"
	status 0 "$belfry" reload
	status 0 "$belfry" create d --mem 16M
	ran() { grep -lqs "\"event\":\"$1\".*\"vgpu\":\"$2\"" "$work/got"/*[0-9]; }
	until_so ran vgpu_created d
	file=$(grep -ls '"vgpu":"d"' "$work/got"/*[0-9])
	for line in BELFRY_EVENT=vgpu_created BELFRY_EVENT_VGPU=d BELFRY_EVENT_GPU=soft:0 "BELFRY_EVENT_OWNER=$(id -u)" \
		'BELFRY_EVENT_TEXT=mem 16 MiB' /; do
		grep -qxF -- "$line" "$file" || fail "the command has no $line: $(cat "$file")"
	done
	[ "$(id -u)" != 0 ] || [ "$(grep -cx 65534 "$file")" = 2 ] || fail "the command is not nobody's: $(cat "$file")"
	grep -q 'NoNewPrivs:.1' "$file" || fail "the command may gain privileges"
	grep -E ' [0-9]+ -> ' "$file" | grep -Ev ' [012] -> | 3 -> /proc' && fail "the command has descriptors of belfryd's"
	grep -q "^BELFRY_SOCKET\|^NOTIFY_SOCKET\|^BELFRY_SOFT" "$file" && fail "the command has belfryd's environment"
	status 3 "$belfry" run d -- sh -c 'exit 3'
	until_so ran run_ended d
	grep -qx 'BELFRY_EVENT_STATUS=3' "$(grep -ls '"event":"run_ended".*"vgpu":"d"' "$work/got"/*[0-9])" || fail "the command has no status"
	ran run_started d && fail "an event of another kind"
	# A command that hangs is killed. Other commands run meanwhile.
	status 0 "$belfry" create hangs
	hanging() { grep -lqs '"vgpu":"hangs"' "$work/got"/*.part; }
	until_so hanging
	status 0 "$belfry" create e
	until_so ran vgpu_created e
	until_so grep -q 'runs longer than its timeout, and was killed' "$work/log"
	mapfile -t left < <(pgrep -f "$work/command")
	until_so all_gone "${left[@]}"
	# While 4 run and 64 wait, more are dropped; belfryd goes on.
	sed -i 's/timeout = 3s/timeout = 600s/' "$work/conf"
	status 0 "$belfry" reload
	sed -i "2i sleep 1000" "$work/command"
	status 0 "$many_vgpus" again f 80
	until_so grep -q 'too many events wait for it; some are dropped' "$work/log"
	# Commands end with belfryd.
	mapfile -t left < <(pgrep -f "$work/command")
	[ "${#left[@]}" -gt 0 ] || fail "no command runs"
	kill "$daemon"
	until_so is_gone "$daemon"
	all_gone "${left[@]}" || fail "commands are left after belfryd has ended"
else
	echo 'no root who may be another user: the command was not tried'
	kill "$daemon"
	until_so is_gone "$daemon"
fi
until_so is_gone "$all"
grep -q 'belfryd has ended' "$work/events.err" || fail "who follows is not told of the end"
! grep -i 'assert\|sanitizer' "$work/log" || fail "belfryd's log"
exit "$failed"
