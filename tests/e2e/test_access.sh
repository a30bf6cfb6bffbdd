#!/bin/bash
# What users that `access` admits may do: run programs on the software GPU of a shared belfryd, only on a vGPU, and see
# their own vGPUs.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
knows_others || skip 'not root, or no other user'
export BELFRY_SOFT="mem=512M,linger=1,name=access$$"
use_daemon
group=12345
mkdir -m 755 "$work/bin" "$work/bin/soft"
mkdir -m 777 "$work/theirs"
cp "$belfry" "$BELFRYD" "$BELFRY_BUILD_DIR/belfry-soft" "$BELFRY_BUILD_DIR/tests/e2e/hog" "$work/bin"
cp "$BELFRY_BUILD_DIR/src/soft/cuda/libcuda.so.1" "$work/bin/soft"
chmod -R go+rX "$work/bin"

# configure LINE...: the [server] section.
configure() { printf '%s\n' '[server]' "$@" >"$work/conf"; }
# other GROUP STATUS COMMAND...: as another user, in that group.
other() {
	local in=$1 wanted=$2
	shift 2
	status "$wanted" env -i PATH="$PATH" BELFRY_SOCKET="$BELFRY_SOCKET" setpriv --reuid=65534 --regid=65534 \
		--groups="$in" "$@"
}

# The line of a vGPU that is gone.
accounting_outlives_a_vgpu() {
	local line
	other $group 0 "$work/bin/belfry" run --name accounted --mem 32M -- "$work/bin/hog" 10
	until_so has_line '"accounted"' "$work/accounts"
	line=$(grep '"accounted"' "$work/accounts")
	echo "$line" | python3 -c '
import json, sys
line = json.loads(sys.stdin.read())
assert line["owner"] == 65534 and line["gpu"] == "soft:0" and line["runs"] == 1, line
assert line["memory_high_water_bytes"] >= 10 << 20 and line["memory_reserved_bytes"] == 32 << 20, line
assert line["from"] <= line["to"] and line["gpu_seconds"] >= 0, line' || fail "accounting: $line"
}

a_member_of_the_group_computes_on_a_vgpu() {
	configure "access = group $group" "accounting = $work/accounts"
	start_daemon
	other $group 0 "$work/bin/belfry" create his --mem 64M
	other $group 0 "$work/bin/belfry" run his -- "$work/bin/hog" 10
	grep -q 'got 10 ' "$work/out" || fail "a group member's program: $(cat "$work/out" "$work/err")"
	other 23456 1 "$work/bin/belfry" run -- "$work/bin/hog" 10
}

another_user_has_no_gpu_without_a_vgpu() {
	local folder
	folder=$(timeout 20 "$belfry" ls --json | awk -F'"' '$2 == "folder" { print $4; exit }')
	[ -S "$folder/socket" ] || fail "no software GPU at '$folder'"
	other $group 1 env BELFRY_SOFT_DIR="$folder" LD_LIBRARY_PATH="$work/bin/soft" "$work/bin/hog" 10
	other $group 1 env BELFRY_SOFT_DIR="$folder" "$work/bin/belfry" soft stop
}

a_reload_lets_everyone_in_or_nobody() {
	printf '[server]\naccess = everyone\n' >"$work/conf"
	status 0 "$belfry" reload
	other 23456 0 "$work/bin/belfry" run -- "$work/bin/hog" 10
	printf '[server]\naccess = owner\n' >"$work/conf"
	status 0 "$belfry" reload
	other $group 1 "$work/bin/belfry" run -- "$work/bin/hog" 10
}

# trace and policy record tell of other users' programs what explain does.
another_user_traces_and_records_what_is_his() {
	status 0 "$belfry" create roots
	status 0 "$belfry" trace -o "$work/trace"
	grep -q '"name":"roots"' "$work/trace" || fail "root's trace is without root's vGPU"
	other $group 0 "$work/bin/belfry" trace -o "$work/theirs/trace"
	grep -q '"name":"his"' "$work/theirs/trace" || fail "another user's trace is without his vGPU"
	! grep -q '"name":"roots"' "$work/theirs/trace" || fail "another user's trace tells of root's vGPU"
	other $group 1 "$work/bin/belfry" explain roots
	other $group 1 timeout 5 "$work/bin/belfry" policy trace --vgpu roots
	says 'belongs to user' "another user's policy trace"
	other $group 1 timeout 5 "$work/bin/belfry" policy record -o "$work/theirs/record"
	says 'only root and the user belfryd runs as' "another user's policy record"
	status 0 "$belfry" rm roots
}

root_makes_vgpus_for_others() {
	status 0 "$belfry" create given --mem 16M --owner 65534
	[ "$(figure given owner)" = 65534 ] || fail "--owner: $(figure given owner)"
	other $group 0 "$work/bin/belfry" run given -- true
	other $group 1 "$work/bin/belfry" create taken --owner 0
	says 'only root may make a vGPU for another user' "another user's --owner"
	status 2 "$belfry" create given2 --owner nobody-of-this-name
	other $group 0 "$work/bin/belfry" rm given
}

a_users_quota_holds() {
	printf '[server]\naccess = group %s\n[user *]\nmem = 100M\ntime = 50\nvgpus = 3\n' $group >"$work/conf"
	status 0 "$belfry" reload
	other $group 0 "$work/bin/belfry" create a --mem 30M --time 30 # beside his, of 64 MiB
	other $group 1 "$work/bin/belfry" create b --mem 10M
	says 'memory 10 MiB: over the quota of 100 MiB, of which other vGPUs of the user have 94 MiB' "memory"
	other $group 1 "$work/bin/belfry" create b
	says 'a vGPU without --mem' "no memory named"
	other $group 1 "$work/bin/belfry" create b --mem 1M --time 21
	says '21 % of the time: over the quota of 50 %' "time"
	other $group 1 "$work/bin/belfry" set a --mem 40M
	says 'over the quota' "a change over the quota"
	other $group 0 "$work/bin/belfry" set a --mem 20M
	other $group 0 "$work/bin/belfry" create b --mem 10M --time 20
	other $group 1 "$work/bin/belfry" run --mem 1M -- true
	says 'the user has 3 vGPUs and may have 3' "number"
	status 1 "$belfry" create c --mem 1M --owner 65534
	status 0 "$belfry" create roots --mem 200M # root has no quota
	status 0 "$belfry" rm roots
	other $group 0 "$work/bin/belfry" rm a b
}

# A belfryd of an ordinary user lets others into its runtime folder as long as `access` says so.
the_folder_of_a_user_is_closed_again() {
	local at="$work/user" conf="$work/user.conf" pid
	local as=(env -i PATH="$PATH" BELFRY_RUNTIME_DIR="$at" BELFRY_SOFT="mem=64M,linger=1,name=own$$"
		setpriv --reuid=65534 --regid=65534 --clear-groups)
	install -d -m 700 -o 65534 -g 65534 "$at"
	install -d -m 755 -o 65534 -g 65534 "$work/user.d"
	printf '[server]\naccess = owner\n' >"$conf"
	"${as[@]}" "$work/bin/belfryd" --socket "$work/user.d/belfryd.sock" --config "$conf" --gpu soft >"$work/user.log" 2>&1 &
	pid=$!
	as+=(env BELFRY_SOCKET="$work/user.d/belfryd.sock" "$work/bin/belfry")
	until_so "${as[@]}" create one 2>/dev/null
	has_mode 700 "$at" || fail "a new folder of a user has mode $(stat -c %a "$at")"
	printf '[server]\naccess = everyone\n' >"$conf"
	status 0 "${as[@]}" reload
	until_so has_mode 711 "$at"
	printf '[server]\naccess = owner\n' >"$conf"
	status 0 "${as[@]}" reload
	until_so has_mode 700 "$at"
	status 0 "${as[@]}" rm one
	kill "$pid"
	ended "$pid"
	"${as[@]}" soft stop 2>/dev/null
}
has_mode() { [ "$(stat -c %a "$2")" = "$1" ]; }

a_member_of_the_group_computes_on_a_vgpu
accounting_outlives_a_vgpu
root_makes_vgpus_for_others
a_users_quota_holds
another_user_traces_and_records_what_is_his
another_user_has_no_gpu_without_a_vgpu
a_reload_lets_everyone_in_or_nobody
the_folder_of_a_user_is_closed_again
end_daemon
exit "$failed"
