#!/bin/bash
# belfry reload and belfryd --check: what frees comes before what takes, what cannot be kept is refused and then changes
# nothing. And: what is acknowledged is saved. What is refused and tried again is in test_pending.sh.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRYD:?}"
export BELFRY_SOFT="mem=512M,linger=1,name=reload$$" BELFRY_SOCKET="$work/d/belfryd.sock"
chmod 755 "$work"
mkdir -m 755 "$work/d"

start_daemon() {
	"$BELFRYD" --socket "$BELFRY_SOCKET" --gpu soft --config "$work/conf" >>"$work/log" 2>&1 &
	daemon=$!
	until_so answers || { cat "$work/log"; exit 1; }
}
answers() { [ "$(router_pid)" = "$daemon" ] && [ -n "$(server_pids)" ]; }
# configure NAME KEY=VALUE...: vGPUs; a name begins a section.
configure() {
	local word
	echo '[server]' >"$work/conf"
	for word; do
		case "$word" in
		*=*) echo "${word%%=*} = ${word#*=}" ;;
		*) echo "[vgpu $word]" ;;
		esac
	done >>"$work/conf"
}
# is NAME REQUEST MEM
is() {
	[ "$(figure "$1" time.request)" = "$2" ] && [ "$(figure "$1" mem.limit)" = "$(($3 << 20))" ] ||
		fail "$1: request $(figure "$1" time.request), memory $(figure "$1" mem.limit), not $2 and $3 MiB"
}

time_and_memory_change_hands_in_one_reload() {
	configure a time=10 mem=100M b time=80 mem=400M
	start_daemon
	until_so is_there b
	configure a time=30 mem=400M b time=50 mem=100M
	status 0 "$belfry" reload
	is a 0.3 400
	is b 0.5 100
	# Each of them gives one and takes the other.
	configure a time=70 mem=100M b time=30 mem=400M
	status 0 "$belfry" reload
	is a 0.7 100
	is b 0.3 400
	# One that goes makes room for one that comes, whatever the order in the file.
	configure c time=70 mem=50M b time=30 mem=400M
	status 0 "$belfry" reload
	is_not_there a || fail "a is still there"
	is c 0.7 50
}

what_cannot_be_kept_is_refused_and_changes_nothing() {
	local before
	before=$(timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }')
	for words in 'c time=90 d time=30' 'c mem=8G' 'c mem=300M d mem=300M'; do
		# shellcheck disable=SC2086 # words
		configure $words
		status 1 "$BELFRYD" --check --gpu soft --config "$work/conf"
		says "$work/conf:" "$words: --check"
		status 1 "$belfry" reload
		says "$work/conf:" "$words: reload"
		[ "$(timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }')" = "$before" ] || fail "$words: something has changed"
	done
	# What was made by hand counts.
	configure c time=70 mem=50M b time=20 mem=300M
	status 0 "$belfry" reload
	status 0 "$belfry" create hand --time 10 --mem 100M
	configure c time=70 mem=50M b time=30 mem=300M
	status 1 "$belfry" reload
	says '30 % of the time of GPU soft:0 cannot be promised: 20 % are left by the others' "beside one made by hand"
	status 0 "$belfry" rm hand
}

what_is_acknowledged_survives_a_kill() {
	status 0 "$belfry" create first --mem 10M
	status 0 "$belfry" create second --mem 10M
	status 0 "$belfry" rm first
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null
	grep -q '^\[vgpu second\]' "$BELFRY_SOCKET.state" || fail "what was made is not saved"
	! grep -q '^\[vgpu first\]' "$BELFRY_SOCKET.state" || fail "what was removed is still saved"
	start_daemon
	until_so is_there second
	is_not_there first || fail "what was removed is back"
	status 0 "$belfry" set second --mem 20M
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null
	grep -A4 '^\[vgpu second\]' "$BELFRY_SOCKET.state" | grep -q "mem = $((20 << 20))" || fail "what was changed is not saved"
	start_daemon
	until_so is_there second
}

what_cannot_be_saved_is_no_success() {
	[ "$(id -u)" = 0 ] || { echo 'not root: a full disk was not tried'; return; }
	mkdir "$BELFRY_SOCKET.state.new" # as good as a full disk: it cannot be written
	status 1 "$belfry" create third --mem 10M
	says 'third: not made: ' "a vGPU that cannot be saved"
	is_not_there third || fail "a vGPU that cannot be saved is there"
	status 1 "$belfry" set second --mem 30M
	says 'second: changed, but not for good: ' "a change that cannot be saved"
	rmdir "$BELFRY_SOCKET.state.new"
	status 0 "$belfry" create third --mem 10M
}

time_and_memory_change_hands_in_one_reload
what_cannot_be_kept_is_refused_and_changes_nothing
what_is_acknowledged_survives_a_kill
what_cannot_be_saved_is_no_success
kill -TERM "$daemon"
until_so is_gone "$daemon"
wait "$daemon" 2>/dev/null
grep -i 'assert\|sanitizer' "$work/log" && fail "belfryd's log"
exit "$failed"
