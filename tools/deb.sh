#!/bin/sh
# deb.sh BUILD-DIR DIST-DIR: the Debian packages of this tree, built in a copy of it, without tests and without network.
set -eu
mkdir -p "$1" "$2"
build=$(cd "$1" && pwd)
dist=$(cd "$2" && pwd)

rm -rf "$build/belfry" "$build"/*.deb "$dist"/*.deb
mkdir "$build/belfry"
tar -c --exclude=./.git --exclude='./build*' --exclude=./dist --exclude=__pycache__ . | tar -x -C "$build/belfry"

# debhelper sets HOME to a folder of the package, in which ccache would find nothing.
: "${CCACHE_DIR:=${XDG_CACHE_HOME:-$HOME/.cache}/ccache}"
DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)"
export CCACHE_DIR DEB_BUILD_OPTIONS
cd "$build/belfry"
dpkg-buildpackage --build=binary --no-sign >"$build/log" 2>&1 || {
	tail -n 40 "$build/log" >&2
	echo "belfry: the packages cannot be built; $build/log has everything" >&2
	exit 1
}
mv "$build"/*.deb "$dist/"
ls "$dist"/*.deb
