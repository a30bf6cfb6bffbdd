#!/bin/bash
# What belongs to a user and what a program of a run may do: domains of other users, requests from inside a run, and
# signals from inside a run to the processes outside it.
# Scripts for the program are quoted on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=owners$$"
hand_over="$BELFRY_BUILD_DIR/tests/e2e/hand_over"
reach_out="$BELFRY_BUILD_DIR/tests/e2e/reach_out"

# inside WANTED COMMAND...: in a run on vGPU mine.
inside() {
	local wanted=$1
	shift
	status "$wanted" "$belfry" run mine -- "$@"
}

# Requests from inside a run, of this belfryd: what changes something is refused, what asks is answered.
no_requests_from_inside() {
	local order
	status 0 "$belfry" create mine --time 20:50 --mem 64M
	for order in 'set mine --time 0:100' 'create more' 'hold mine' 'open mine' 'stop mine' 'resume mine' \
		reload 'policy unload' 'policy load fair' 'rm --force mine'; do
		# shellcheck disable=SC2086 # a command and its words
		inside 1 "$belfry" $order
		says 'refused inside a run' "$order"
	done
	inside 1 "$belfry" run mine -- true
	says 'supervised already' "run"
	inside 1 "$belfry" run --mem 1M -- true
	says 'supervised already' "run of a vGPU of its own"
	for order in ls 'ls --json' 'explain mine' 'stats mine' stats 'top -n 1' info 'policy ls' 'trace -o /dev/null'; do
		# shellcheck disable=SC2086
		inside 0 "$belfry" $order
	done
	is_not_there more || fail "a program has made a vGPU"
	is_figure mine time.limit 0.5 || fail "a program has changed its limit"

	# Also from a child in another session, and on the connection of a child that has ended.
	rm -f "$work/ran" "$work/ran.status"
	inside 1 sh -c 'setsid sh -c "\"\$0\" set mine --time 0:100 2>\"\$1\"; echo \$? >\"\$1.status\"" "$0" "$1" &
		while ! test -s "$1.status"; do sleep 0.05; done; cat "$1" >&2; exit "$(cat "$1.status")"' "$belfry" "$work/ran"
	says 'inside a run' "a child that ran away"
	inside 1 "$hand_over" alive mine 0:100
	says 'inside a run' "a child's connection"
	inside 1 "$hand_over" ended mine 0:100
	says 'cannot tell' "the connection of a child that has ended"
	is_figure mine time.limit 0.5 || fail "a program has changed its limit"

	# A change on a connection that belfryd has passed on.
	status 0 "$BELFRY_BUILD_DIR/tests/e2e/later_request" mine
	status 0 "$BELFRY_BUILD_DIR/tests/e2e/later_request" more
	is_not_there more || fail "a later request has made a vGPU"
	status 0 "$hand_over" alive mine 20:60
	status 1 "$hand_over" ended mine 20:70
	says 'cannot tell' "the same outside"
	is_figure mine time.limit 0.6 || fail "who is outside could not change the limit"

	# The GPU server's own socket is for belfryd.
	inside 0 python3 -c '
import glob, os, socket
paths = [p for p in glob.glob(os.environ["BELFRY_SOCKET_NOW"] + ".*") if not p.endswith((".lock", ".state", ".log"))]
assert paths
for path in paths:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect(path)
    assert s.recv(1 << 16) == b"", "the GPU server takes a program for belfryd"'
	status 0 "$belfry" set mine --time 20:50
	status 0 "$belfry" rm mine
}

# A process with a filter and without a keeper may be left of a run whose belfry and keeper were killed.
not_from_what_is_left() {
	status 0 "$belfry" create mine --time 20:50
	rm -f "$work/go" "$work/left.status"
	"$belfry" run mine -- sh -c 'setsid sh -c "
		while ! test -e \"\$1/go\"; do sleep 0.02; done
		\"\$0\" set mine --time 0:100 2>\"\$1/left\"; echo \$? >\"\$1/left.status\"" "$0" "$1" &
		echo $! >"$1/left.pid"; exec sleep 300' "$belfry" "$work" >/dev/null 2>&1 &
	runner=$!
	until_so test -s "$work/left.pid"
	keeper=$(child_of $runner)
	# Both are stopped first, so that neither notices that the other has died.
	kill -STOP "$runner" "$keeper"
	kill -9 "$runner" "$keeper"
	wait $runner 2>/dev/null
	until_so is_gone "$keeper" # a killed process takes time to exit; until then it is still an ancestor
	: >"$work/go"
	until_so test -s "$work/left.status"
	has_line 'cannot be told from one' "$work/left" || fail "what is left of a run: $(cat "$work/left")"
	is_figure mine time.limit 0.5 || fail "what is left of a run has changed its limit"
	status 0 "$belfry" rm --force mine
}

# Signals and tracing from inside.
no_signals_from_inside() {
	local victims
	# landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)
	abi=$(python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))')
	if [ "$abi" -lt 6 ]; then
		echo 'no Landlock ABI 6: signals from inside a run were not tried'
		status 0 "$belfry" info
		has_line '^signals  NOT restricted' "$work/out" || fail "info does not tell: $(cat "$work/out")"
		return
	fi
	status 0 "$belfry" info --json
	has_line '"signal_scope": *true' "$work/out" || fail "info does not tell: $(cat "$work/out")"
	sleep 300 &
	bystander=$!
	status 0 "$belfry" create mine
	rm -f "$work/pids" "$work/done"
	"$belfry" run mine -- sh -c 'while ! test -s "$1/pids"; do sleep 0.02; done
		"$0" $(cat "$1/pids") 2>"$1/reached"; echo $? >"$1/done"; sleep 300 & kill $!' "$reach_out" "$work" &
	runner=$!
	until_so eval '[ -n "$(child_of $runner)" ]'
	victims="$(router_pid) $(server_pid mine) $runner $(child_of $runner) $bystander"
	# shellcheck disable=SC2086
	[ "$(echo $victims | wc -w)" = 5 ] || fail "not all processes were found: $victims"
	echo "$victims" >"$work/pids"
	wait $runner || fail "a program cannot signal its own child"
	[ "$(cat "$work/done")" = 0 ] || fail "$(cat "$work/reached")"
	# From outside they are reached, as is the program.
	"$belfry" run mine -- sleep 300 &
	runner=$!
	until_so eval 'timeout 20 "$belfry" stats mine | grep -q "runs .*sleep"'
	kill -TERM $runner
	wait $runner
	[ $? = 143 ] || fail "a signal from outside does not reach the program"
	kill "$bystander"
	# What Landlock would forbid if it had rules about files.
	mkdir -p "$work/from" "$work/to" && : >"$work/from/file"
	inside 0 mv "$work/from/file" "$work/to/file"
	if [ "$(id -u)" = 0 ] && unshare -m mount -t tmpfs none "$work/from" 2>/dev/null; then
		inside 0 unshare -m mount -t tmpfs none "$work/from"
	fi
	status 0 "$belfry" rm --force mine
}

export BELFRY_SOCKET_NOW="$work/run/belfryd.sock"
echo '== a private belfryd'
no_requests_from_inside
not_from_what_is_left
no_signals_from_inside

# A run of the private belfryd, and a belfryd for every user.
use_daemon
printf '%s\n' '[server]' 'access = everyone' >"$work/conf"
start_daemon
echo '== a belfryd for everybody'
BELFRY_SOCKET_NOW=$BELFRY_SOCKET no_requests_from_inside
no_signals_from_inside
status 0 "$belfry" create other --time 20:50
status 1 env -u BELFRY_SOCKET "$belfry" run -- env BELFRY_SOCKET="$BELFRY_SOCKET" "$belfry" set other --time 0:100
says 'inside a run' "a run of another belfryd"
status 0 "$belfry" rm other

# Domains.
if knows_others; then
	mkdir "$work/bin"
	cp "$belfry" "$work/bin"
	chmod -R go+rX "$work/bin"
	other() {
		local wanted=$1
		shift
		status "$wanted" env -u BELFRY_RUNTIME_DIR -u BELFRY_GPU -u BELFRY_SOFT -u BELFRY_SOFT_SERVER HOME=/ setpriv --reuid=65534 \
			--regid=65534 --clear-groups "$work/bin/belfry" "$@"
	}
	status 0 "$belfry" create hers --domain pool --time 60
	status 0 "$belfry" create hers2 --domain pool
	other 1 create his --domain pool
	says "domain 'pool': belongs to user root; choose another name" "another user's domain"
	other 0 create his --domain own
	other 1 set his --domain pool
	says "domain 'pool': belongs to user root; choose another name" "another user's domain by set"
	other 0 set his --time 1
	status 1 "$belfry" create hers3 --domain own
	says "domain 'own': belongs to user $(user_name 65534)" "another user's domain, for root"
	status 0 "$belfry" set his --domain own2 # it stays his
	other 0 create his2 --domain own2
	printf '%s\n' '[server]' 'access = everyone' '[sharing]' 'public_domains = pool' >"$work/conf"
	status 0 "$BELFRYD" --check --config "$work/conf"
	status 0 "$belfry" reload
	other 0 set his --domain pool
	other 0 create his3 --domain pool
	for name in hers hers2 his his2 his3; do
		status 0 "$belfry" rm $name
	done
	printf '%s\n' '[sharing]' 'public_domains = Pool' >"$work/bad"
	status 1 "$BELFRYD" --check --config "$work/bad"
	says "$work/bad:2: public_domains: name 'Pool': not a name" "a public domain that is no name"
else
	echo 'no root who may be another user: the domain of another user was not tried'
fi

# The same name in sections of two owners is two domains, as the shares show. A public domain is one.
if is_sanitized; then
	echo 'with a sanitizer shares of the software GPU mean nothing: not tried'
else
	sections() { printf '%s\n' '[server]' 'access = everyone' "$@" '[vgpu a]' 'domain = pool' 'time = 80' \
		'[vgpu b]' 'domain = pool' "owner = 65534" >"$work/conf"; }
	share_of_a() {
		local a b
		sleep 2 # a window of 1 s, and what is owed from before
		a=$(figure a time.gpu_ns) b=$(figure b time.gpu_ns)
		sleep 4
		a=$(($(figure a time.gpu_ns) - a)) b=$(($(figure b time.gpu_ns) - b))
		part=$((100 * a / (a + b + 1)))
	}
	sections
	status 0 "$belfry" reload
	until_so is_there b
	loads=''
	for name in a b; do
		timeout 100 "$belfry" run $name -- "$load" --per-us 1 --kernel-us 3000 --secs 90 --ready "$work/$name.ready" \
			--until "$work/stop" >/dev/null 2>"$work/$name.err" &
		loads="$loads $!"
		until_so test -e "$work/$name.ready"
	done
	share_of_a
	[ "$part" -ge 70 ] || fail "of two owners' domains of one name, the one with 80 % has $part %"
	sections '[sharing]' 'public_domains = other pool'
	status 0 "$belfry" reload
	share_of_a
	[ "$part" -le 65 ] || fail "in a public domain the one with 80 % has $part %, and not what the turns give it"
	sections
	status 0 "$belfry" reload
	share_of_a
	[ "$part" -ge 70 ] || fail "in a domain that is no longer public, the one with 80 % has $part %"
	: >"$work/stop"
	# shellcheck disable=SC2086
	wait $loads
fi

server=$(server_pids)
end_daemon
until_so is_gone "$server"
unset BELFRY_SOCKET
exit "$failed"
