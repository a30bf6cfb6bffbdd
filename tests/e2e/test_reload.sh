#!/bin/bash
# belfry reload and belfryd --check: changes that free come before changes that take. A configuration that cannot be kept is
# refused and changes nothing. A change that was acknowledged is saved. test_pending.sh has changes that are tried again.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=reload$$"
use_daemon

time_and_memory_change_hands_in_one_reload() {
	configure_vgpus a time=10 mem=100M b time=80 mem=400M
	start_daemon
	until_so is_there b
	configure_vgpus a time=30 mem=400M b time=50 mem=100M
	status 0 "$belfry" reload
	vgpu_is a 0.3 400
	vgpu_is b 0.5 100
	# Each of them gives one and takes the other.
	configure_vgpus a time=70 mem=100M b time=30 mem=400M
	status 0 "$belfry" reload
	vgpu_is a 0.7 100
	vgpu_is b 0.3 400
	# One that goes makes room for one that comes, whatever the order in the file.
	configure_vgpus c time=70 mem=50M b time=30 mem=400M
	status 0 "$belfry" reload
	is_not_there a || fail "a is still there"
	vgpu_is c 0.7 50
}

what_cannot_be_kept_is_refused_and_changes_nothing() {
	local before
	before=$(timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }')
	for words in 'c time=90 d time=30' 'c mem=8G' 'c mem=300M d mem=300M'; do
		# shellcheck disable=SC2086 # words
		configure_vgpus $words
		status 1 "$BELFRYD" --check --gpu soft --config "$work/conf"
		says "$work/conf:" "$words: --check"
		status 1 "$belfry" reload
		says "$work/conf:" "$words: reload"
		[ "$(timeout 20 "$belfry" ls | awk '{ print $1, $2, $3, $4 }')" = "$before" ] || fail "$words: something has changed"
	done
	# What was made by hand counts.
	configure_vgpus c time=70 mem=50M b time=20 mem=300M
	status 0 "$belfry" reload
	status 0 "$belfry" create hand --time 10 --mem 100M
	configure_vgpus c time=70 mem=50M b time=30 mem=300M
	status 1 "$belfry" reload
	says 'a requested share of 30 % of the time of GPU soft:0 does not fit: 20 % are left by other vGPUs' "beside one made by hand"
	status 0 "$belfry" rm hand
}

# Checked by --check and by a reload, and then nothing changes.
what_does_not_fit_the_machine_is_refused() {
	cp "$work/conf" "$work/good"
	while read -r text line; do
		printf '%b\n' "$line" | sed "s|WORK|$work|" >"$work/conf"
		status 1 "$BELFRYD" --check --gpu soft --config "$work/conf"
		says "belfryd: $work/conf:$text" "$line: --check"
		status 1 "$belfry" reload
		says "belfry: $work/conf:$text" "$line: reload"
	done <<'END'
3: [vgpu a]\nmem = 1M\n[vgpu a]\nmem = 2M
3: [user 7]\nvgpus = 1\n[user 7]\nvgpus = 2
2: [sharing]\n[sharing]
2: [server]\naccounting = WORK/none/accounting
2: [server]\naccounting = WORK/good/accounting
2: [server]\naccounting = WORK
END
	cp "$work/good" "$work/conf"
	if [ "$(id -u)" != 0 ]; then
		mkdir -m 555 "$work/closed"
		printf '[server]\naccounting = %s/closed/accounting\n' "$work" >"$work/closed.conf"
		status 1 "$BELFRYD" --check --gpu soft --config "$work/closed.conf"
		says "$work/closed.conf:2: accounting" "a directory that is not writable"
	fi
	status 0 "$belfry" reload
}

# --check tells of GPUs that are not there, by the line. A GPU whose driver is not loaded yet is no error.
gpus_that_are_not_there_are_told() {
	printf '[server]\ngpus = soft:0 soft:5\n' >"$work/gpus.conf"
	status 1 "$BELFRYD" --check --config "$work/gpus.conf"
	says "belfryd: $work/gpus.conf:2: gpus: there is no soft:5; the software GPU has 1 GPU" "a software GPU that is not there"
	printf '[server]\ngpus = soft:0\n[vgpu a]\ngpu = soft:1\n' >"$work/gpus.conf"
	status 1 "$BELFRYD" --check --config "$work/gpus.conf"
	says "belfryd: $work/gpus.conf:3: vgpu 'a': gpu: there is no soft:1" "a vGPU on it"
	status 1 "$BELFRYD" --check --soft gpus=2 --gpu soft:0 --config "$work/gpus.conf"
	says "belfryd: $work/gpus.conf:3: vgpu 'a': gpu soft:1 is not served; add it to gpus" "a vGPU on a GPU that is not served"
	status 0 "$BELFRYD" --check --soft gpus=2 --gpu soft:0 --gpu soft:1 --config "$work/gpus.conf"
	if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
		printf '[server]\ngpus = 0\n[vgpu a]\ngpu = 0\n' >"$work/gpus.conf"
		status 0 "$BELFRYD" --check --config "$work/gpus.conf"
		says "belfryd: $work/gpus.conf:2: gpus: there is no /dev/nvidia0 now" "an NVIDIA GPU that is not there"
		says "belfryd: $work/gpus.conf:3: vgpu 'a': gpu: there is no /dev/nvidia0 now" "a vGPU on it"
	fi
}

# Names are looked up by a helper, which is gone afterwards.
names_of_users_are_looked_up() {
	local root_name
	root_name=$(id -un 0)
	cp "$work/conf" "$work/good"
	printf '[vgpu named]\nmem = 1M\nowner = %s\n' "$root_name" >>"$work/conf"
	status 0 "$belfry" reload
	[ "$(figure named owner)" = 0 ] || fail "the owner is $(figure named owner)"
	printf '[vgpu unnamed]\nowner = no-such-user\n[user %s]\nvgpus = 9\n' "$root_name" >>"$work/conf"
	status 1 "$belfry" reload
	says "owner 'no-such-user': there is no such user" "a name that does not exist"
	# A signal reads it as well.
	cp "$work/good" "$work/conf"
	printf '[vgpu by-signal]\nmem = 1M\nowner = %s\n' "$(id -un)" >>"$work/conf"
	kill -HUP "$daemon"
	until_so is_there by-signal
	cp "$work/good" "$work/conf"
	status 0 "$belfry" reload
	until_so no_helpers
}
# shellcheck disable=SC2046 # words
no_helpers() { ! grep -lsz -e --look-up-names $(child_of "$daemon" | sed 's|[0-9][0-9]*|/proc/&/cmdline|g') /dev/null >/dev/null; }

# A GPU that fails is in the answer, and the others are served.
a_gpu_that_fails_is_told() {
	local before socket=$BELFRY_SOCKET other
	export BELFRY_SOCKET="$work/d/other.sock"
	printf '[server]\ngpus = soft:0\n' >"$work/other.conf"
	"$BELFRYD" --socket "$BELFRY_SOCKET" --config "$work/other.conf" >>"$work/other.log" 2>&1 &
	other=$!
	until_so has_servers 1
	printf '[server]\ngpus = soft:0 soft:1\n' >"$work/other.conf"
	status 1 "$belfry" reload
	says '1 of its GPUs is not served: GPU soft:1: ' "a GPU that is not there"
	before=$(server_pids)
	printf '[server]\ngpus = soft:0\n' >"$work/other.conf"
	status 0 "$belfry" reload
	[ "$(server_pids)" = "$before" ] || fail "the GPU that is served has another server"
	kill -TERM "$other"
	until_so is_gone "$other"
	export BELFRY_SOCKET=$socket
}
has_servers() { [ "$(server_pids | wc -l)" = "$1" ]; }

# What rm removes and the configuration has comes back, and that is said.
a_vgpu_of_the_configuration_comes_back() {
	configure_vgpus c time=70 mem=50M b time=20 mem=300M
	status 0 "$belfry" reload
	status 0 "$belfry" create hand
	status 0 "$belfry" rm hand b
	[ "$(wc -l <"$work/err")" = 1 ] || fail "rm says more than one thing: $(cat "$work/err")"
	says "belfry: b: removed, but section [vgpu b] at $work/conf:5 creates it again at the next reload; remove the section" "rm"
	is_not_there b || fail "b is still there"
	status 0 "$belfry" reload
	vgpu_is b 0.2 300
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
what_does_not_fit_the_machine_is_refused
gpus_that_are_not_there_are_told
names_of_users_are_looked_up
a_gpu_that_fails_is_told
a_vgpu_of_the_configuration_comes_back
what_is_acknowledged_survives_a_kill
what_cannot_be_saved_is_no_success
end_daemon
exit "$failed"
