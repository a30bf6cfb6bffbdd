#!/bin/sh
# SPDX-License-Identifier: MIT
# Build the GPU tests and the bench programs with nothing but a C compiler: build.sh [DIR]. With --ptx, check the
# kernels with ptxas instead. Meson does the same build as part of `make`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc="${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I$here"
lib="$here/cu.c $here/gclock.c $here/json.c $here/kernels.c $here/shared.c $here/util.c"

if [ "${1:-}" = --ptx ]; then
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	{
		echo '#include <stdio.h>'
		echo '#include "kernels.h"'
		echo 'static void put(const char *n, const char *t) { FILE *f = fopen(n, "w"); if (f) { fputs(t, f); fclose(f); } }'
		echo 'int main(void) {'
		sed -n 's/^extern const char kernel_\([a-z]*\)\[\];/put("\1.ptx", kernel_\1);/p' "$here/kernels.h"
		echo 'return 0; }'
	} >"$tmp/dump.c"
	$cc "$tmp/dump.c" "$here/kernels.c" "$here/cu.c" -o "$tmp/dump" -ldl
	(cd "$tmp" && ./dump)
	for ptx in "$tmp"/*.ptx; do
		ptxas -arch=sm_90 "$ptx" -o "$tmp/out"
		echo "$(basename "$ptx") ok"
	done
	exit 0
fi

out=${1:-$here/../../build/tests/gpu}
mkdir -p "$out"
for source in "$here"/gpu_*.c "$here"/../../bench/*.c; do
	[ -e "$source" ] || continue
	name=$(basename "$source" .c)
	extra=
	[ "$name" != gpu_memory ] || extra="$here/memory_child.c $here/memory_share.c"
	# shellcheck disable=SC2086
	$cc "$source" $extra $lib -o "$out/$name" -ldl -lpthread -lrt
done
