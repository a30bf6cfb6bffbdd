#!/bin/bash
# A belfryd for every user, on the software GPU: its socket and the rights of users, its configuration, its saved state, and
# what happens to programs when it or its GPU server dies.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=server$$"
use_daemon

# configure LINE...: a [server] section that begins with these.
configure() { printf '%s\n' '[server]' "$@" >"$work/conf"; }

# start NAME [OPTION...]: a load on a vGPU, until $work/stop is there; its number is in $runner.
start() {
	local name=$1
	shift
	rm -f "$work/ready" "$work/stop"
	timeout 100 "$belfry" run "$name" -- "$load" --per-us 1 --kernel-us 3000 --secs 90 --ready "$work/ready" \
		--until "$work/stop" --json >"$work/load" 2>"$work/told" &
	runner=$!
	until_so test -e "$work/ready"
	until_so grows "$name" time.gpu_ns 0
}
grows() { [ "$(figure "$1" "$2")" -gt "$3" ] 2>/dev/null; }
soft_grows() { [ "$(soft_figure busy_ns)" -gt "$1" ] 2>/dev/null; }

free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The socket.
configure
start_daemon
first=$daemon
status 1 "$BELFRYD" --socket "$BELFRY_SOCKET" --gpu soft --config "$work/conf"
says "belfryd already runs here (process $first)" "a second belfryd"
[ "$(stat -c %a "$BELFRY_SOCKET")" = 600 ] || fail "the socket is open to others"
if knows_others; then
	mkdir -m 755 "$work/e"
	python3 -c 'import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); os.chown(sys.argv[1], 65534, 65534)' "$work/e/s"
	status 1 "$BELFRYD" --socket "$work/e/s" --gpu soft --config "$work/conf"
	says "a socket of user $(user_name 65534) is there" "another user's socket"
	mkdir "$work/f" && chown 65534 "$work/f"
	python3 -c '
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen()
s.accept()' "$work/f/s" &
	until_so test -S "$work/f/s"
	status 1 env BELFRY_SOCKET="$work/f/s" "$belfry" create one
	says "served by user $(user_name 65534); belfry trusts only a belfryd of root or of its own user" "another user's belfryd"
	wait $! 2>/dev/null
fi

# Malformed requests are answered or dropped, and change nothing.
status 0 "$belfry" create kept --mem 64M --time 30
cat >"$work/garbage.py" <<'END'
import array, os, random, re, socket, struct, sys
path = sys.argv[1]
random.seed(1)
MAGIC = 0xbe1f7a11

def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    s.settimeout(20)
    return s

def say(data, files=()):
    with connect() as s:
        try:
            s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else [])
        except PermissionError:  # the socket takes no descriptors here (Linux 6.16)
            assert files
            return b""
        try:
            return s.recv(1 << 16)
        except ConnectionResetError:
            return b""

# The version and size of a request are in the answer to one of another version.
text = say(struct.pack("<II", MAGIC, 99))
version, size = map(int, re.search(rb"speaks version (\d+), with (\d+) bytes", text).groups())

def request(op, flags=0, name=b"", rest=b""):
    head = struct.pack("<IIIIIIQ64s", MAGIC, version, op, flags, 0, 0, 0, name)
    return (head + rest).ljust(size, b"\0")[:size]

for data in (b"\0", b"x" * 7, struct.pack("<I", MAGIC), request(1)[:-1], request(1) + b"\0", os.urandom(size),
             os.urandom(100000)):
    assert say(data), len(data)
say(os.urandom(size), [0, 1, 2] * 30)
say(request(1), [0, 1, 2] * 30)
for _ in range(300):
    op = random.randrange(20)
    say(request(op, random.getrandbits(32), random.choice((b"kept\xff", os.urandom(64), b"")), os.urandom(size)))
for op in range(2, 14):
    if op != 5:
        say(request(op, 0, b"nobody", os.urandom(size)))

# A run that does not go on as it should ends, with its vGPU.
for after in b"", b"x", os.urandom(100), request(1), None:
    with connect() as s:
        s.send(request(5, 2, b"brief"))
        reply = s.recv(1 << 16)
        assert struct.unpack("<i", reply[8:12])[0] == 0, reply
        if after is not None:
            s.send(after)
            try:
                s.recv(1 << 16)
            except ConnectionResetError:
                pass

# A client that never reads, and many clients at once.
deaf = [connect() for _ in range(3)]
for s, op in zip(deaf, (1, 6, 7)):
    s.setblocking(False)
    try:
        for _ in range(2000):
            s.send(request(op, 0, b"kept" if op == 7 else b""))
    except OSError:
        pass
many = [connect() for _ in range(200)]
for s in many:
    s.send(request(1))
for s in many:
    assert struct.unpack("<i", s.recv(1 << 16)[8:12])[0] == 0
END
status 0 python3 "$work/garbage.py" "$BELFRY_SOCKET"
until_so is_not_there brief
timeout 20 "$belfry" ls >"$work/out" || fail "belfryd does not answer any more"
[ "$(awk 'NR > 1 { print $1 }' "$work/out")" = kept ] || fail "after garbage there is: $(cat "$work/out")"
status 0 "$belfry" run kept -- true
[ "$(router_pid)" = "$first" ] || fail "belfryd is another one after garbage"

# vGPUs exist again after a restart. A clean end leaves nothing else.
server=$(server_pids)
end_daemon
until_so is_gone "$server"
[ "$(cd "$work/d" && echo *)" = 'belfryd.sock.lock belfryd.sock.state' ] || fail "a clean end leaves $(ls "$work/d")"
start_daemon
until_so is_there kept
[ "$(figure kept mem.limit) $(figure kept time.request)" = "$((64 << 20)) 0.3" ] || fail "kept is not as it was"
# When a GPU server dies, its programs are ended with a message, its vGPUs are created again, and the next program runs.
start kept
server=$(server_pids)
kill -9 "$server"
ended $runner
[ $? = 1 ] && has_line 'GPU server died; what ran on the vGPU was ended' "$work/told" ||
	fail "a program whose GPU server died: $(cat "$work/told")"
status 0 "$belfry" run kept -- true
[ "$(server_pids)" != "$server" ] || fail "there is no new GPU server"
# When belfryd dies, with "end": the same.
start kept
server=$(server_pids)
kill -9 "$daemon"
ended $runner
[ $? = 1 ] && has_line 'what ran on the vGPU was ended' "$work/told" ||
	fail "a program whose belfryd died: $(cat "$work/told")"
until_so is_gone "$server"
wait "$daemon" 2>/dev/null
status 1 "$belfry" reload
says 'no belfryd answers there' "nobody is there"

# With "carry" programs continue, and the next belfryd finds them.
configure 'on_daemon_death = carry'
start_daemon
until_so is_there kept
has_line '"on_daemon_death": "carry"' <(timeout 20 "$belfry" ls --json) || fail 'belfry ls does not report "carry"'
for how in KILL TERM; do
	start kept
	server=$(server_pid kept)
	kill -$how "$daemon"
	ended "$daemon"
	busy=$(soft_figure busy_ns)
	until_so soft_grows "$busy"
	start_daemon
	[ "$(server_pid kept)" = "$server" ] || fail "$how: the GPU server was not found again"
	until_so grows kept time.gpu_ns "$(figure kept time.gpu_ns)"
	has_line load <(timeout 20 "$belfry" stats kept) || fail "$how: the run is not listed"
	: >"$work/stop"
	wait $runner && has_line '"wrong":0,' "$work/load" || fail "$how: the program did not end well: $(cat "$work/told")"
	status 0 "$belfry" run kept -- true
done
# Without programs the GPU server ends with belfryd.
server=$(server_pids)
end_daemon
until_so is_gone "$server"

# The configuration creates, changes and removes vGPUs. An invalid one changes nothing.
port=$(free_port)
cat >"$work/conf" <<END
[server]
metrics = 127.0.0.1:$port
[vgpu one]
mem = 32M
time = 20:100
[vgpu two]
time = 10
END
start_daemon
for name in one two kept; do
	until_so is_there $name
done
cat >"$work/conf" <<END
[server]
metrics = 127.0.0.1:$port
access = everyone
[vgpu one]
mem = 32M
time = 25:100
[vgpu three]
class = latency
public = yes
END
status 0 "$belfry" reload
until_so is_there three
until_so is_not_there two
until_so is_figure one time.request 0.25
is_there kept || fail "a vGPU that was made by hand is gone"
cp "$work/conf" "$work/good"
printf '[vgpu four]\ntime = 60:50\n' >>"$work/conf"
line=$(wc -l <"$work/conf")
timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }' >"$work/before"
status 1 "$belfry" reload
says "$work/conf:$line: " "a broken configuration"
kill -HUP "$daemon"
until_so has_line "$work/conf:$line: " "$work/log"
timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }' | cmp -s - "$work/before" || fail "a broken configuration changed something"
cp "$work/good" "$work/conf"
printf '[vgpu four]\ntime = 5\n' >>"$work/conf"
kill -HUP "$daemon"
until_so is_there four

# Metrics.
get() { python3 -c 'import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=10).read().decode())' "http://127.0.0.1:$port/metrics" >"$work/metrics" 2>/dev/null; }
if [ -x "$BELFRY_BUILD_DIR/src/metrics/belfry-metrics" ]; then
	until_so get
	for name in one three kept; do
		grep -q "^belfry_.*vgpu=\"$name\"" "$work/metrics" || fail "metrics do not tell of $name"
	done
fi

# While a GPU server hangs, belfry top can be ended.
server=$(server_pids)
kill -STOP "$server"
began=$SECONDS
timeout 1 "$belfry" top -n 0 >/dev/null 2>&1
[ $((SECONDS - began)) -lt 10 ] || fail "top did not end when it was told to"
kill -CONT "$server"

# The rights of other users.
if knows_others; then
	mkdir "$work/bin" "$work/bin/soft"
	cp "$belfry" "$BELFRYD" "$BELFRY_BUILD_DIR/belfry-soft" "$work/bin"
	cp "$BELFRY_BUILD_DIR/src/soft/cuda/libcuda.so.1" "$work/bin/soft"
	chmod -R go+rX "$work/bin" # whatever the umask
	other() {
		local wanted=$1
		shift
		status "$wanted" env -u BELFRY_RUNTIME_DIR -u BELFRY_GPU -u BELFRY_SOFT -u BELFRY_SOFT_SERVER HOME=/ setpriv --reuid=65534 \
			--regid=65534 --clear-groups "$work/bin/belfry" "$@"
	}
	other 0 ls
	has_line '^kept ' "$work/out" || fail "another user does not see the vGPUs"
	for order in 'set --mem 1G' hold open stop resume rm explain; do
		# shellcheck disable=SC2086 # a command and its words
		other 1 $order kept
		says 'belongs to user root; only that user and root' "another user's $order"
	done
	other 1 run kept -- true
	says 'belongs to user root, and is not public' "another user's run"
	other 4 run three -- sh -c 'exit 4'
	other 1 reload
	other 0 create his --mem 16M
	other 0 set his --public
	status 0 "$belfry" set his --time 1
	other 3 run his -- sh -c 'exit 3'
	other 0 rm his
else
	echo 'no root who may be another user: what another user may do was not tried'
fi

server=$(server_pids)
end_daemon
until_so is_gone "$server"

# Without a free descriptor belfryd accepts no client, and accepts clients again once it has one.
(
	ulimit -n 40
	exec "$BELFRYD" --private --socket "$work/d/few.sock" --gpu soft >>"$work/few.log" 2>&1
) &
few=$!
until_so test -S "$work/d/few.sock"
python3 - "$work/d/few.sock" "$work/few.log" <<'END' || fail 'connections to a belfryd without free descriptors'
import socket, sys, time

socks = []
for _ in range(60):
    socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    socks[-1].settimeout(60)
    socks[-1].connect(sys.argv[1])
while "Too many open files" not in open(sys.argv[2]).read():
    time.sleep(0.02)
END
BELFRY_SOCKET="$work/d/few.sock" status 0 "$belfry" ls
kill -TERM "$few"
ended "$few"
grep -i 'assert\|sanitizer' "$work/log" && fail "belfryd's log"
exit "$failed"
