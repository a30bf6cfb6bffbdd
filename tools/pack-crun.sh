#!/bin/sh
# SPDX-License-Identifier: MIT
# pack-crun.sh DIR: a folder with this machine's crun, its shared libraries and its dynamic linker. DIR/crun runs on machines of
# the same architecture that have another glibc and nothing installed. bench/container.sh finds it in the folder "crun" of the
# portable folder, or beside the portable folder.
set -eu
[ $# = 1 ] || { echo "usage: pack-crun.sh DIR" >&2; exit 2; }
dir=$1
crun=$(command -v crun) || { echo "pack-crun.sh: crun is not installed" >&2; exit 1; }

rm -rf "$dir"
mkdir -p "$dir/lib"
cp "$crun" "$dir/lib/crun"
ldd "$crun" | grep -o '/[^ ]*' | while read -r library; do
	cp -L "$library" "$dir/lib/"
done
linker=$(basename "$(ldd "$crun" | grep -o '/[^ ]*/ld-linux[^ ]*')")
cat >"$dir/crun" <<END
#!/bin/sh
lib=\$(dirname "\$(readlink -f "\$0")")/lib
exec "\$lib/$linker" --library-path "\$lib" --argv0 crun "\$lib/crun" "\$@"
END
chmod 755 "$dir/crun"
"$dir/crun" --version | head -1
