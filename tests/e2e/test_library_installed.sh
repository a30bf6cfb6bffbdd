#!/bin/bash
# libbelfry as others find it: installed, through pkg-config, shared and static, from C, C++ and Python; what it exports, and
# what it must not call.
# Functions are called by name:
# shellcheck disable=SC1091,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRY_SOURCE_DIR:?}"
cc=${CC:-cc}
if nm -D "$BELFRY_BUILD_DIR/src/client/libbelfry.so" | grep -qE ' (__[at]san_init|__ubsan_)'; then
	skip 'programs that are built without sanitizers cannot load this libbelfry.so'
fi
for tool in meson pkg-config "$cc" nm readelf; do
	command -v "$tool" >/dev/null || skip "$tool is not installed"
done
export BELFRY_SOFT="mem=512M,linger=1,name=installed$$"
use_daemon

meson install -C "$BELFRY_BUILD_DIR" --no-rebuild --quiet --tags devel,runtime --destdir "$work/dest" \
	>"$work/out" 2>&1 || fail "meson install: $(cat "$work/out")"
pc=$(find "$work/dest" -name belfry.pc)
libdir=$(find "$work/dest" -name libbelfry.a -printf '%h\n')
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$work/dest"
[ "$(pkg-config --modversion belfry)" = "$("$belfry" --version | sed 's/.* //')" ] || fail 'the version of belfry.pc'
read -ra flags < <(pkg-config --cflags --libs belfry)
read -ra cflags < <(pkg-config --cflags belfry)
read -ra private < <(PKG_CONFIG_SYSROOT_DIR='' pkg-config --libs json-c)

# The example: with the shared library, and with the static one.
example="$BELFRY_SOURCE_DIR/examples/vgpu.c"
strict=(-std=c11 -Wall -Wextra -Werror -pedantic)
status 0 "$cc" "${strict[@]}" "$example" "${flags[@]}" -o "$work/shared"
status 0 "$cc" "${strict[@]}" "$example" "${cflags[@]}" "$libdir/libbelfry.a" "${private[@]}" -lm -o "$work/static"
readelf -d "$work/shared" | grep -qF '[libbelfry.so.0]' || fail 'the example does not need libbelfry.so.0'
readelf -d "$work/static" | grep -qF 'libbelfry' && fail 'the static example needs libbelfry.so'
start_daemon
# shows COMMAND...: the report on the vGPU of the example, which is gone afterwards.
shows() {
	status 0 "$@"
	python3 -c '
import json, sys
vgpu, = json.load(open(sys.argv[1]))["vgpus"]
assert (vgpu["name"], vgpu["mem"]["limit"], vgpu["time"]["request"]) == ("example", 64 << 20, 0.4), vgpu' "$work/out" ||
		fail "$* : $(cat "$work/out")"
	is_there example && fail "$* left its vGPU"
}
shows env LD_LIBRARY_PATH="$libdir" "$work/shared" "$BELFRY_SOCKET"
shows env LD_LIBRARY_PATH="$libdir" "$work/shared"
shows "$work/static"
status 1 "$work/static" /no/such/socket
says 'vgpu: /no/such/socket: no belfryd answers there' 'the example without belfryd'
# The header is C++, too, and needs nothing before it.
printf '#include <belfry/belfry.h>\nint main() { return *belfry_version() ? 0 : 1; }\n' >"$work/cxx.cc"
if command -v c++ >/dev/null; then
	status 0 c++ -Wall -Wextra -Werror -pedantic "$work/cxx.cc" "${flags[@]}" -o "$work/cxx"
	status 0 env LD_LIBRARY_PATH="$libdir" "$work/cxx"
fi

# The header, the version script, both libraries and the manual have the same functions.
header=$(sed -n 's/^[a-z].*[ *]\(belfry_[a-z_]*\)(.*/\1/p' "$BELFRY_SOURCE_DIR/include/belfry/belfry.h" | sort)
# same WHAT NAMES
same() { [ "$2" = "$header" ] || fail "$1 is not the header: $(diff <(echo "$header") <(echo "$2"))"; }
[ "$(echo "$header" | wc -l)" -ge 19 ] || fail "functions of the header: $header"
library="$libdir/libbelfry.so.0"
same 'the version script' "$(sed -n 's/^\t\t\(belfry_[a-z_]*\);$/\1/p' "$BELFRY_SOURCE_DIR/src/client/belfry.map" | sort)"
same 'what the shared library exports' \
	"$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)"
same 'what the static library defines' "$(nm -g --defined-only "$libdir/libbelfry.a" | awk 'NF == 3 { print $3 }' | sort)"
same 'the manual' "$(sed -n 's/^\.Fn \(belfry_[a-z_]*\).*/\1/p' "$BELFRY_SOURCE_DIR/man/libbelfry.3" | sort -u)"
nm -D --defined-only "$library" | awk '$2 != "A" && $3 !~ /@@BELFRY_0\./ { exit 1 }' || fail 'a function without a version'
readelf -d "$library" | grep -qF 'Library soname: [libbelfry.so.0]' || fail 'the soname'

# What a library must not do in another's process.
calls=$(nm -D --undefined-only "$library" | sed 's/.* //; s/@.*//' |
	grep -E '^(_?_?(v?f?d?printf|printf_chk|fprintf_chk|dprintf_chk)|puts|putchar|fputs|perror|syslog|_?exit|abort|__assert_fail|v?fork|posix_spawn.*|system|execv.*|execl.*|signal|sigaction|sigprocmask|pthread_sigmask|setlocale|uselocale|setenv|unsetenv|putenv|chdir|umask|alarm|setitimer)$')
[ -z "$calls" ] || fail "libbelfry calls $calls"

# Python.
status 0 env BELFRY_LIBRARY="$library" PYTHONPATH="$BELFRY_SOURCE_DIR/contrib/python" PYTHONDONTWRITEBYTECODE=1 \
	python3 "$BELFRY_SOURCE_DIR/tests/e2e/library_client.py" "$BELFRY_SOCKET" "$(pkg-config --modversion belfry)"

[ "$failed" -eq 0 ] && echo 'found, linked and used'
exit "$failed"
