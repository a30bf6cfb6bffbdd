#!/bin/bash
# A node from installation to accounting: Belfry is installed, configured and started. Two users share a GPU under quotas. The
# configuration is reloaded, once with an invalid file. Belfry is installed again, and belfryd restarted under running
# programs. The accounts are read.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
knows_others || skip 'not root, or no other user'
command -v meson >/dev/null || skip 'no meson'
. "$(dirname "$0")/install.sh"
unset BELFRY_SOFT_SERVER BELFRY_GPU
export BELFRY_SOFT="mem=512M,linger=1,name=day$$"
use_daemon
root=$work/root
sums=$work/sums
mkdir -m 777 "$work/theirs"
cp "$BELFRY_BUILD_DIR/tests/e2e/sums" "$sums"
chmod 755 "$sums"
other_name=$(user_name 65534)

other() {
	local wanted=$1
	shift
	status "$wanted" env -i PATH="$PATH" HOME=/ BELFRY_SOCKET="$BELFRY_SOCKET" setpriv --reuid=65534 --regid=65534 \
		--clear-groups "$@"
}
shows() { grep -q -- "$1" "$work/out" || fail "$2: $(cat "$work/out")"; }

# configure MEM: the section of the vGPU that is always there, with so much memory.
configure() {
	cat >"$work/conf" <<END
[server]
access = everyone
on_daemon_death = carry
accounting = $work/accounts
[user 65534]
mem = 100M
time = 40
vgpus = 2
[vgpu always]
mem = $1
time = 30
END
}

morning_install_and_start() {
	with_install_log install_into "$root" || { fail "install"; exit 1; }
	belfry=$root$prefix/bin/belfry belfryd=$root$prefix/bin/belfryd
	configure 64M
	status 0 "$belfryd" --check --gpu soft --config "$work/conf"
	shows '^ok$' "--check"
	start_daemon
	until_so is_there always
	status 0 "$belfry" info
	shows "^belfryd  process $daemon, user root, $BELFRY_SOCKET; serves GPU soft:0\$" "info"
}

two_users_share_the_gpu_under_quotas() {
	status 0 "$belfry" create mine --mem 128M --time 40
	other 0 "$belfry" create theirs --mem 64M --time 30
	other 1 "$belfry" create more --mem 64M
	says 'memory 64 MiB: over the quota of 100 MiB, of which other vGPUs of the user have 64 MiB' "a quota of memory"
	other 1 "$belfry" set theirs --time 50
	says '50 % of the time: over the quota of 40 %' "a quota of time"
	other 1 "$belfry" stop mine
	says 'mine: belongs to user root; only that user and root may do that' "another user's vGPU"
	other 1 "$belfry" run mine -- true
	says 'mine: belongs to user root, and is not public' "a run on another user's vGPU"
	status 0 "$belfry" ls
	shows '^mine  *soft:0  *root ' "ls: root's"
	shows "^theirs  *soft:0  *$other_name " "ls: the other user's"
	[ "$(figure theirs owner) $(figure theirs owner_name)" = "65534 $other_name" ] || fail "ls --json: the owner"
}

# A program of each user, which computes until the evening.
programs_begin() {
	timeout 170 "$belfry" run mine -- "$sums" "$work/mine.ready" "$work/evening" >"$work/mine.out" 2>"$work/mine.err" &
	mine=$!
	timeout 170 env -i PATH="$PATH" HOME=/ BELFRY_SOCKET="$BELFRY_SOCKET" setpriv --reuid=65534 --regid=65534 --clear-groups \
		"$belfry" run theirs -- "$sums" "$work/theirs/ready" "$work/evening" >"$work/theirs.out" 2>"$work/theirs.err" &
	theirs=$!
	until_so test -e "$work/mine.ready"
	until_so test -e "$work/theirs/ready"
}
programs_go_on() {
	local name used
	for name in mine theirs; do
		used=$(figure "$name" time.gpu_ns)
		until_so grows "$name" "$used" || fail "$1: $name does not go on"
	done
}
grows() { [ "$(figure "$1" time.gpu_ns)" -gt "$2" ] 2>/dev/null; }

three_reloads_one_of_them_bad() {
	configure 96M
	status 0 "$belfry" reload
	is_figure always mem.limit $((96 << 20)) || fail "the first reload: $(figure always mem.limit)"
	echo 'tme = 10' >>"$work/conf"
	status 1 "$belfry" reload
	says "$work/conf:12: " "a reload of a bad file"
	is_figure always mem.limit $((96 << 20)) || fail "a bad file has changed something"
	other 1 "$belfry" reload
	says 'only root and the user belfryd runs as' "another user's reload"
	configure 32M
	status 0 "$belfry" reload
	is_figure always mem.limit $((32 << 20)) || fail "the third reload: $(figure always mem.limit)"
	programs_go_on "after the reloads"
}

an_upgrade_under_running_programs() {
	local server
	server=$(server_pid mine)
	with_install_log install_into "$root" || fail "install over what runs"
	end_daemon
	is_gone "$server" && fail "the GPU server has ended with belfryd"
	start_daemon
	[ "$(server_pid mine)" = "$server" ] || fail "the GPU server is another one"
	status 0 "$belfry" ls
	for name in always mine theirs; do
		shows "^$name " "after the upgrade"
	done
	programs_go_on "after the upgrade"
}

# The result of a program: right, and of more than one step.
is_right() {
	[ "$2" = 0 ] && grep -qE '^steps [0-9]{2,} wrong 0$' "$work/$1.out" ||
		fail "$1: status $2: $(cat "$work/$1.out" "$work/$1.err")"
}

evening_results_and_accounts() {
	: >"$work/evening"
	wait "$mine"
	is_right mine $?
	wait "$theirs"
	is_right theirs $?
	other 0 "$belfry" rm theirs
	status 0 "$belfry" rm mine
	until_so has_line '"mine"' "$work/accounts"
	python3 - "$work/accounts" <<'END' || fail "the accounts: $(cat "$work/accounts")"
import json, sys
lines = {line.get("name"): line for line in map(json.loads, open(sys.argv[1]))}
for name, owner, promised in (("mine", 0, 128 << 20), ("theirs", 65534, 64 << 20)):
    line = lines[name]
    assert line["owner"] == owner and line["runs"] == 1 and line["gpu"] == "soft:0", line
    assert line["gpu_seconds"] > 0 and line["memory_reserved_bytes"] == promised, line
    assert line["from"] <= line["to"], line
END
	status 0 "$belfry" ls
	[ "$(awk 'NR > 1 { print $1 }' "$work/out")" = always ] || fail "ls in the evening: $(cat "$work/out")"
}

night() {
	end_daemon
	! grep -i 'assert\|sanitizer\|error' "$work/log" || fail "belfryd's log"
}

for part in morning_install_and_start two_users_share_the_gpu_under_quotas programs_begin three_reloads_one_of_them_bad \
	an_upgrade_under_running_programs evening_results_and_accounts night; do
	$part
done
exit "$failed"
