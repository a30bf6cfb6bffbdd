#!/bin/bash
# SPDX-License-Identifier: MIT
# Lists of process numbers are split on purpose, and functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2048,SC2086,SC2317
# Every measurement, about six minutes on an H200. all.sh [name…] for some of them.
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tests/gpu/common.sh"
need_gpu
status=0
for name in ${*:-overhead gate stop isolation memory idle}; do
	start=$SECONDS
	echo "== $name"
	bash "$HERE/$name.sh" 2>&1
	rc=$?
	echo "-- $name: $([ "$rc" = 0 ] && echo ok || echo "FAILED ($rc)"), $((SECONDS - start)) s"
	[ "$rc" = 0 ] || status=1
done
exit "$status"
