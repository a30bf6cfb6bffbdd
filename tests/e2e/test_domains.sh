#!/bin/bash
# Shared domains: what --sm reserves, and the MPS server of a domain: when it is started, ended and started again, and that
# none of its processes is left whatever is killed. mps_control.py stands in for MPS.
# Scripts for the program are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2016,SC2154,SC2317
set -u
# A mount namespace of its own, for a file system that can be filled.
if [ -z "${HAS_OWN_MOUNTS:-}" ] && unshare -m true 2>/dev/null; then
	export HAS_OWN_MOUNTS=yes
	exec unshare -m -- "$0" "$@"
fi
. "$(dirname "$0")/common.sh"
: "${BELFRYD:?}"
export BELFRY_SOFT="mem=512M,linger=1,name=domains$$"
chmod 755 "$work"

echo '== what is reserved'
status 0 "$belfry" create plain
for table in ls 'top -n 1'; do
	# shellcheck disable=SC2086
	status 0 "$belfry" $table
	has_line DOMAIN "$work/out" && fail "a column for domains, and there is none: $(cat "$work/out")"
done
status 0 "$belfry" rm plain
status 0 "$belfry" create a --domain pool --sm 25:100
says "belfry: faults in domain 'pool' are shared: a GPU fault in one program ends all programs of the domain" \
	"the first vGPU of a shared domain"
status 0 "$belfry" create b --domain pool --sm 50
[ ! -s "$work/err" ] || fail "said twice: $(cat "$work/err")"
status 0 "$belfry" create c --domain pool
status 1 "$belfry" set c --sm 26
says "26 % of the SMs cannot be reserved: the other vGPUs of domain 'pool' request 75 %, and 101 % is more than 100 %" \
	"set beyond all SMs"
status 1 "$belfry" create d --domain pool --sm 25.0001:30
says 'and 100.0001 % is more than 100 %' "create beyond all SMs"
status 0 "$belfry" create d --domain other --sm 100
says "faults in domain 'other' are shared" "another domain"
status 1 "$belfry" set d --domain pool
says 'and 175 % is more than 100 %' "a domain in which it does not fit"
status 2 "$belfry" create e --sm 10
says 'name the domain as well' "no domain"
is_figure c sm.limit 1.0 || fail "a vGPU without --sm in a shared domain: $(figure c sm)"
is_figure a sm.request 0.25 || fail "what was requested: $(figure a sm)"
status 0 "$belfry" ls
has_line '^a .* pool  *25:100 ' "$work/out" || fail "ls: $(cat "$work/out")"
status 0 "$belfry" top -n 1
has_line '^b .* pool ' "$work/out" || fail "top: $(cat "$work/out")"
status 0 "$belfry" create plain --domain alone
is_figure plain sm None || fail "a domain that is not shared: $(figure plain sm)"

echo '== without a program of MPS, as on the software GPU'
status 0 "$belfry" run a -- sh -c 'test -f "$CUDA_MPS_PIPE_DIRECTORY/control" && test -d "$CUDA_MPS_LOG_DIRECTORY" &&
	stat -c %a "$CUDA_MPS_PIPE_DIRECTORY" && echo "$CUDA_MPS_PIPE_DIRECTORY"'
[ "$(head -1 "$work/out")" = 700 ] || fail "its mode: $(cat "$work/out")"
folder=$(tail -1 "$work/out")
status 0 env CUDA_MPS_PIPE_DIRECTORY=/mine "$belfry" run c -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"'
[ "$(cat "$work/out")" = "$folder" ] || fail "two vGPUs of a domain: $folder, $(cat "$work/out")"
status 0 "$belfry" run d -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"'
[ "$(cat "$work/out")" != "$folder" ] || fail "two domains have one folder"
status 0 env CUDA_MPS_PIPE_DIRECTORY=/mine "$belfry" run plain -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"'
[ "$(cat "$work/out")" = /mine ] || fail "outside a shared domain: $(cat "$work/out")"
until_so test ! -e "$folder"
# Shared no more with the last --sm, and again with the next.
status 0 "$belfry" set a --sm none
status 0 "$belfry" set b --sm none
status 0 env CUDA_MPS_PIPE_DIRECTORY=/mine "$belfry" run c -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY"'
[ "$(cat "$work/out")" = /mine ] || fail "in a domain that is not shared any more: $(cat "$work/out")"
status 0 "$belfry" set c --time 10
[ ! -s "$work/err" ] || fail "a set that shares nothing: $(cat "$work/err")"
status 0 "$belfry" set c --sm 20
says "faults in domain 'pool' are shared: a GPU fault in one program ends all programs" "set that makes a domain shared"
for change in '--sm 30' '--domain pool' '--sm none --mem 1M'; do
	# shellcheck disable=SC2086
	status 0 "$belfry" set b --sm 10 $change
	[ ! -s "$work/err" ] || fail "said twice, by set $change: $(cat "$work/err")"
done
status 0 "$belfry" set plain --domain alone --sm 5
says "faults in domain 'alone' are shared" "set of another domain"
for name in a b c d plain; do
	status 0 "$belfry" rm $name
done

# A belfryd with a program.
export BELFRY_SOCKET="$work/d/belfryd.sock" LEAKED=yes
mkdir -m 755 "$work/d"
mkdir -m 777 "$work/mps"
cp "$(dirname "$0")/mps_control.py" "$work/mps/control"
chmod 755 "$work/mps/control"
write_conf() { printf '%s\n' '[server]' 'access = everyone' '[sharing]' "mps_control = $1" >"$work/conf"; }
mode() {
	echo "$1" >"$work/mps/mode"
	rm -f "$work/mps/starts" "$work/mps/heard"
	for file in starts heard; do
		: >"$work/mps/$file"
		chmod 666 "$work/mps/$file"
	done
}
start_daemon() {
	"$BELFRYD" --socket "$BELFRY_SOCKET" --gpu soft --config "$work/conf" >>"$work/log" 2>&1 &
	daemon=$!
	until_so answers || { cat "$work/log"; exit 1; }
}
answers() { [ "$(router_pid)" = "$daemon" ] && [ -n "$(server_pids)" ]; }
# mps WORD [START]: of the last start, or of another one: 1 control program, 2 server, 3 user, 4 folder, 5 logs.
mps() { sed -n "${2:-$}p" "$work/mps/starts" | cut -d ' ' -f "$1"; }
starts() { wc -l <"$work/mps/starts"; }
has_started() { [ "$(starts)" = "$1" ]; }
parent_of() { awk '$1 == "PPid:" { print $2 }' "/proc/$1/status"; }
is_busy() { [ "$(timeout 20 "$belfry" stats --json "$1" 2>/dev/null | grep -c '"program":')" -ge 1 ]; }
# begin NAME: a program on it that stays until its input ends.
begin() {
	"$belfry" run "$1" -- sleep 1000 2>"$work/$1.err" &
	runner=$!
	until_so is_busy "$1"
}
finish() {
	kill -TERM "$@"
	wait "$@" 2>/dev/null
}
mps_gone() { all_gone "$(mps 1 "${1:-$}")" "$(mps 2 "${1:-$}")"; }
make_vgpus() {
	status 0 "$belfry" create a --domain pool --sm 25
	status 0 "$belfry" create b --domain pool
}

mode ok
write_conf "$work/mps/control"
start_daemon
make_vgpus
echo '== one server for the programs of a domain'
begin a
first=$runner
begin b
second=$runner
has_started 1 || fail "the server was started $(starts) times"
status 0 "$belfry" run b -- sh -c 'echo "$CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY"; test -S "$CUDA_MPS_PIPE_DIRECTORY/control"'
[ "$(cat "$work/out")" = "$(mps 4) $(mps 5)" ] || fail "a program has $(cat "$work/out"), and the server $(mps 4)"
[ "$(mps 6)" = - ] || fail "the server has the environment of belfryd"
for process in "$(mps 1)" "$(mps 2)"; do
	has_line '^Seccomp:.2' "/proc/$process/status" || fail "process $process of MPS is not supervised"
	has_line '^CapPrm:.0000000000000000' "/proc/$process/status" || fail "process $process of MPS has capabilities"
done
status 0 "$belfry" ls
has_line '^pool.mps ' "$work/out" || fail "its vGPU is not shown: $(cat "$work/out")"
status 1 "$belfry" run pool.mps -- true
says 'no vGPU of this name' "a program on the vGPU of MPS"
status 1 "$belfry" rm --force pool.mps
status 1 "$belfry" set a --domain other
says "a: its programs share a GPU context with domain 'pool'; end them first" "another domain while programs run"
finish "$first"
sleep 6 # it stays as long as one program does, which is longer than it stays after the last one
mps_gone && fail "the server was ended while a program has it"
finish "$second"
echo '== it ends after the last program'
until_so has_line '^quit$' "$work/mps/heard"
until_so mps_gone
until_so test ! -e "$(mps 4)"
timeout 20 "$belfry" ls | grep -q '^pool.mps ' && fail "its vGPU is left"

echo '== it is started again when it dies'
timeout 150 "$belfry" events --json >"$work/events" &
events=$!
begin a
kill -9 "$(mps 1)"
until_so has_started 3
until_so mps_gone 2
until_so has_line '"event": *"mps_ended"' "$work/events"
has_line "the MPS server of domain 'pool' ended: signal 9; programs of the domain must be restarted" "$work/events" ||
	fail "the event: $(grep mps_ended "$work/events")"
has_line '"vgpu": *"b".*mps_ended\|mps_ended.*"vgpu": *"b"' "$work/events" && fail "an event for a vGPU without programs"
status 0 "$belfry" explain a
has_line "the MPS server of domain 'pool' ended: signal 9; programs of the domain must be restarted" "$work/out" ||
	fail "explain: $(cat "$work/out")"
status 0 "$belfry" run b -- sh -c 'test -S "$CUDA_MPS_PIPE_DIRECTORY/control"'
status 0 "$belfry" explain b
has_line 'must be restarted' "$work/out" && fail "explain of a vGPU without such programs: $(cat "$work/out")"
echo '== and when its keeper dies'
kill -9 "$(parent_of "$(mps 1)")"
until_so has_started 4
until_so mps_gone 3
until_so has_line 'ended: its keeper was killed' "$work/events"
kill -9 "$(parent_of "$(parent_of "$(mps 1)")")"
until_so has_started 5
until_so mps_gone 4
finish "$runner"
until_so mps_gone
kill "$events"
wait "$events" 2>/dev/null

echo '== a server that does not listen is killed'
mode deaf
begin a
finish "$runner"
until_so has_line '^quit$' "$work/mps/heard"
# A program that comes while it ends has the next one.
echo ok >"$work/mps/mode"
status 0 "$belfry" run a -- sh -c 'test -S "$CUDA_MPS_PIPE_DIRECTORY/control"'
has_started 2 || fail "a program has a server that ends"
mps_gone 1 || fail "two servers of one domain"
until_so mps_gone

echo '== a server that cannot be started'
mode fail
status 1 "$belfry" run a -- true
says "the MPS server of domain 'pool' cannot be started: it ended: status 3" "a program that fails"
mps_gone || fail "the server of a program that failed is left"
status 1 "$belfry" run --name own --domain pool --sm 10 -- true
says 'cannot be started: it ended: status 3' "a vGPU of its own"
is_not_there own || fail "the vGPU of a run that did not start is left"
mode silent
status 1 "$belfry" run a -- true
says "cannot be started: it made no control socket within 10 s" "a program that makes no socket"
until_so mps_gone
mode ok
write_conf "$work/mps/nothing"
status 0 "$belfry" reload
status 1 "$belfry" run a -- true
says "cannot be started: $work/mps/nothing: not a program" "no program"
write_conf nothing
status 1 "$belfry" reload
says "mps_control 'nothing': write the whole path, or auto" "a program without a path"
write_conf "$work/mps/control"
status 0 "$belfry" reload
status 0 "$belfry" run --name own --domain pool --sm 10 -- sh -c 'test -S "$CUDA_MPS_PIPE_DIRECTORY/control"'
is_not_there own || fail "the vGPU of a run is left"
until_so mps_gone

echo '== users'
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups true 2>/dev/null; then
	mkdir -p "$work/bin/soft"
	cp "$belfry" "$work/bin"
	cp "$BELFRY_BUILD_DIR/src/soft/cuda/libcuda.so.1" "$work/bin/soft"
	chmod -R go+rX "$work/bin"
	other() {
		local wanted=$1
		shift
		status "$wanted" env -u BELFRY_RUNTIME_DIR -u BELFRY_GPU -u BELFRY_SOFT -u BELFRY_SOFT_SERVER HOME=/ setpriv \
			--reuid=65534 --regid=65534 --clear-groups "$work/bin/belfry" "$@"
	}
	other 1 create his --domain pool --sm 10
	says "domain 'pool': belongs to user root" "another user's domain"
	status 0 "$belfry" set b --public
	other 1 run b -- true
	says "b: domain 'pool' is shared, and only its owner, user root, may run programs in it" "another user's program"
	other 0 create his --domain his --sm 10
	status 1 "$belfry" run his -- true
	says "only its owner, user $(user_name 65534), may run programs in it" "a program of root"
	mode ok
	other 0 run his -- sh -c 'stat -c "%u %a" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"; test -S "$CUDA_MPS_PIPE_DIRECTORY/control"'
	[ "$(sort -u "$work/out")" = '65534 700' ] || fail "the folders of another user: $(cat "$work/out")"
	[ "$(mps 3)" = 65534 ] || fail "the server of user 65534 runs as user $(mps 3)"
	has_line '^Groups:.*[0-9]' "/proc/$(mps 1)/status" && fail "the server has groups of root"
	until_so mps_gone
	until_so test ! -e "$(mps 4)"
	# One name, two owners: two servers.
	write_conf "$work/mps/control"
	echo 'public_domains = pool' >>"$work/conf"
	status 0 "$belfry" reload
	other 0 set his --domain pool
	mode ok
	begin a
	other 0 run his -- true
	has_started 2 || fail "two owners in a public domain have $(starts) servers"
	[ "$(mps 3 1) $(mps 3 2)" = '0 65534' ] || fail "two owners' servers are of users $(mps 3 1) and $(mps 3 2)"
	finish "$runner"
	until_so mps_gone 1
	until_so mps_gone 2
	status 0 "$belfry" rm his
else
	echo 'no root who may be another user: other users were not tried'
fi

echo '== a folder elsewhere'
mode ok
echo "mps_folder = $work/fs" >>"$work/conf"
mkdir -m 777 "$work/fs"
status 0 "$belfry" reload
status 1 "$belfry" run a -- true
says "mps_folder $work/fs: not a folder of belfryd's user that others cannot write to" "a folder of everyone"
chmod 755 "$work/fs"
mount -t tmpfs -o mode=0755,size=1m belfry "$work/fs" 2>/dev/null || echo 'no file system can be mounted: it was not filled'
begin a
case $(mps 4) in
"$work"/fs/*/*) ;;
*) fail "its folder is $(mps 4)" ;;
esac
if mountpoint -q "$work/fs"; then
	status 1 "$belfry" run b -- sh -c 'exec dd if=/dev/zero of="$CUDA_MPS_PIPE_DIRECTORY/filled" bs=64k count=64'
	says 'No space left on device' "filling the folder"
	status 0 "$belfry" create later # belfryd can save it
	status 0 "$belfry" rm later
fi
finish "$runner"
until_so mps_gone
until_so test ! -e "$(mps 4)"
if mountpoint -q "$work/fs"; then
	umount "$work/fs"
fi
write_conf "$work/mps/control"
status 0 "$belfry" reload

echo '== nothing is left when the GPU server is killed'
mode ok
begin a
server=$(server_pids)
kill -9 "$server"
wait "$runner" 2>/dev/null
until_so mps_gone
until_so answers
begin a
until_so has_started 2
[ "$(find "$work/d" -maxdepth 2 -path '*/mps.*/*' | wc -l)" = 1 ] || fail "a folder is left: $(ls "$work"/d/mps.*)"
echo '== nor when belfryd ends'
kill -TERM "$daemon"
until_so is_gone "$daemon"
wait "$runner" 2>/dev/null
mps_gone || fail "MPS is left"
[ -z "$(ls -d "$work"/d/mps.* 2>/dev/null)" ] || fail "the folders are left"
unset BELFRY_SOCKET
[ "$failed" = 0 ] || tail -40 "$work/log"
exit "$failed"
