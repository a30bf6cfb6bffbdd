#!/bin/bash
# belfry top: on terminals of several sizes and kinds (top_pty.py), and into files.
# shellcheck disable=SC1091,SC2154
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=top$$"

for i in $(seq -w 0 39); do
	status 0 "$belfry" create "v$i"
done
timeout 150 python3 "$(dirname "$0")/top_pty.py" "$belfry" || fail "on a terminal"

# Into a file: one table, or as many as asked for, each of all vGPUs.
status 0 "$belfry" top
[ "$(grep -c '^v' "$work/out")" = 40 ] || fail "one table: $(cat "$work/out")"
status 0 "$belfry" top -n 3 -d 0.1
[ "$(grep -c '^NAME' "$work/out") $(grep -c '^v' "$work/out")" = '3 120' ] || fail "three tables: $(cat "$work/out")"
! grep -q $'\033' "$work/out" || fail "escape sequences in a file"
status 0 env COLUMNS=60 "$belfry" top
[ "$(wc -L <"$work/out")" -le 60 ] || fail "wider than COLUMNS: $(cat "$work/out")"
timeout 20 "$belfry" top -n 1 >/dev/full 2>"$work/err" && fail "a full disk is not told"
says 'cannot write' "a full disk"
exit "$failed"
