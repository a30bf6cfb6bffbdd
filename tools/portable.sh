#!/bin/sh
# portable.sh BUILD-DIR DIST-DIR: a folder that runs on another distribution with nothing installed:
# only glibc is dynamic. The scripts in it find the programs beside them.
set -eu
build=$1
dist=$2

tools/configure.sh "$build" -Dportable=true -Dbuildtype=release
ninja -C "$build" --quiet

rm -rf "$dist"
mkdir -p "$dist/bin" "$dist/tests/gpu" "$dist/tests/attacks" "$dist/bench" "$dist/man"

# copy_programs ROOM: the programs built there, and the scripts and data beside the sources.
copy_programs() {
	find "$build/$1" -maxdepth 1 -type f -perm -u+x -exec cp {} "$dist/$1/" \;
	for file in "$1"/*; do
		case $file in
		*.c | *.h | */meson.build | */__pycache__) ;;
		*) [ ! -e "$file" ] || cp -R "$file" "$dist/$1/" ;;
		esac
	done
}

# The software GPU's parts and the policies are beside belfry.
mkdir -p "$dist/bin/soft" "$dist/bin/policies" "$dist/bin/probes" "$dist/include/belfry" "$dist/lib" "$dist/python" "$dist/demo"
cp "$build"/policies/*.bpf.o "$dist/bin/policies/"
cp "$build"/probes/*.bpf.o "$dist/bin/probes/"
cp include/belfry/policy.h include/belfry/probe.h include/belfry/belfry.h "$dist/include/belfry/"
find "$build/src/client" -maxdepth 1 -name 'libbelfry.so*' ! -type d -exec cp -P {} "$dist/lib/" \;
cp contrib/python/belfry.py "$dist/python/"
cp "$build/belfry" "$build/belfryd" "$build/belfry-soft" "$build/belfry-ptxas" "$build/belfry-oci-listener" "$dist/bin/"
ln -s belfry "$dist/bin/belfry-oci"
cp "$build/src/soft/cuda/libcuda.so.1" "$dist/bin/soft/"
mkdir -p "$dist/bin/coro"
cp "$build/src/coro/libcuda.so.1" "$dist/bin/coro/"
ln -sf libcuda.so.1 "$dist/bin/coro/libcuda.so" # some programs open it by that name
cp "$build/demo/belfry-demo" "$build/demo/belfry-demo-view" demo/kernels.ptx demo/kernels.cu "$dist/demo/"
copy_programs tests/gpu
copy_programs tests/attacks
copy_programs bench
cp "$build"/bench/*.bpf.o "$dist/bench/"
mkdir -p "$dist/tests/data/ptx"
cp tests/data/ptx/vector.ptx tests/data/ptx/matrix.ptx tests/data/ptx/block.ptx "$dist/tests/data/ptx/" # of bench/probe_overhead
cp man/*.[1358] "$dist/man/"
cp -R README.md LICENSE CHANGELOG.md CONTRIBUTING.md docs "$dist/"

status=0
for program in "$dist"/bin/* "$dist"/bin/soft/* "$dist"/bin/coro/* "$dist"/lib/* "$dist"/demo/* "$dist"/tests/gpu/* "$dist"/tests/attacks/* "$dist"/bench/*; do
	[ -f "$program" ] || continue
	case $program in *.bpf.o) continue ;; esac # for the kernel
	[ "$(head -c 4 "$program" | tail -c 3 | tr -d '\0')" = ELF ] || continue
	others=$(ldd "$program" | awk '{ print $1 }' | sed 's,.*/,,' |
		grep -vxE 'linux-vdso\.so\.1|ld-linux-.*|lib(c|m|dl|rt|pthread)\.so\.[0-9]+|statically' || true)
	if [ -n "$others" ]; then
		echo "belfry: $program is not portable: it needs" "$others" "; link it statically" >&2
		status=1
	fi
done
[ $status = 0 ] && echo "$dist: only glibc is dynamic"
exit $status
