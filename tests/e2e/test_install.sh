#!/bin/bash
# make install and make uninstall: what is installed works from where it is, the links of the installed documents lead
# somewhere, and nothing is left afterwards.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
command -v meson >/dev/null || skip 'no meson'
. "$(dirname "$0")/install.sh"
root=$work/root
unset BELFRY_SOFT_SERVER
export BELFRY_SOFT="mem=64M,linger=1,name=install$$"

uninstall() {
	make -s -C "${BELFRY_SOURCE_DIR:?}" uninstall BUILD="$BELFRY_BUILD_DIR" PREFIX="$prefix" DESTDIR="$root" >"$work/out" 2>&1 ||
		fail "make uninstall: $(cat "$work/out")"
}

the_parts_are_there_and_work() {
	local file
	for file in bin/belfry bin/belfryd libexec/belfry/belfry-soft libexec/belfry/belfry-metrics share/doc/belfry/README.md \
		share/man/man1/belfry.1 share/man/man8/belfryd.8 share/bash-completion/completions/belfry \
		share/zsh/site-functions/_belfry share/fish/vendor_completions.d/belfry.fish \
		lib/systemd/system/belfryd.service lib/systemd/system/run-belfry.mps.mount lib/belfry/soft/libcuda.so.1 lib/belfry/coro/libcuda.so.1; do
		[ -e "$root$prefix/$file" ] || fail "$file is not installed"
	done
	status 0 "$root$prefix/bin/belfry" run --mem 16M -- "$BELFRY_BUILD_DIR/tests/e2e/hog" 4
	grep -q 'got 4 ' "$work/out" || fail "a program with what is installed: $(cat "$work/out" "$work/err")"
	status 0 "$root$prefix/bin/belfry" run --domain pool --sm 50 -- sh -c 'test -f "${LD_LIBRARY_PATH%%:*}/libcuda.so.1" &&
		test -f "$BELFRY_LIBCUDA" && echo "$LD_LIBRARY_PATH"'
	grep -q '^[^:]*/lib/belfry/coro:' "$work/out" || fail "the library for leases: $(cat "$work/out" "$work/err")"
	status 0 "$root$prefix/bin/belfry" verify --direct --runs 1 -- "$BELFRY_BUILD_DIR/tests/e2e/verified" many 2
}

# Programs and containers that load them need glibc only, if the static libraries were there when Belfry was built.
the_libraries_need_glibc_only() {
	local name file others
	if is_sanitized; then
		echo 'with a sanitizer the libraries need more'
		return
	fi
	for file in libzstd.a liblz4.a; do
		case $("${CC:-cc}" -print-file-name=$file) in
		/*) ;;
		*) echo "$file is not installed: the libraries need the shared one"; return ;;
		esac
	done
	for name in soft coro; do
		file=$root$prefix/lib/belfry/$name/libcuda.so.1
		others=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' |
			grep -vxE 'lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux-.*' | tr '\n' ' ')
		[ -z "$others" ] || fail "$name/libcuda.so.1 needs $others"
		ldd "$file" | grep -qE 'zstd|lz4' && fail "$name/libcuda.so.1: $(ldd "$file")"
	done
}

# lines_work FOLDER: the lines of docs/probes.md and belfry-probe(1) make an object of the probe of docs/probes.md, with the
# belfry of that folder in PATH, in a folder that is no checkout.
lines_work() {
	local page
	rm -rf "$work/probe"
	mkdir "$work/probe"
	awk '/^```/ { in_c = /^```c$/; next } in_c' "$BELFRY_SOURCE_DIR/docs/probes.md" >"$work/probe/count.bpf.c"
	grep -E '^(clang |belfry probe check ).*count\.bpf' "$BELFRY_SOURCE_DIR/docs/probes.md" >"$work/probe/docs"
	awk '/^\$ clang/, /^\.Ed/' "$BELFRY_SOURCE_DIR/man/belfry-probe.1" | sed '/^\.Ed/d; s/^\$ //; s/\\e$/\\/' >"$work/probe/man"
	for page in docs man; do
		grep -q clang "$work/probe/$page" || fail "$page has no line to compile a probe"
		rm -f "$work/probe/count.bpf.o"
		(cd "$work/probe" && PATH="$1:$PATH" bash -e ./"$page") >"$work/out" 2>"$work/err" || fail "the lines of $page with $1: $(cat "$work/err")"
		[ -s "$work/probe/count.bpf.o" ] || fail "the lines of $page with $1 make no object"
	done
}
probes_are_compiled_as_the_pages_say() {
	command -v clang >/dev/null || { echo 'no clang: the lines to compile probes were not tried'; return; }
	lines_work "$root$prefix/bin"
	lines_work "$BELFRY_BUILD_DIR"
}

# The hook of docs/containers.md names the belfry that is in PATH, wherever it is installed.
the_hook_of_the_page_names_what_is_installed() {
	local path
	sed -n "/^cat >.*belfry.json <<END/,/^END/p" "$BELFRY_SOURCE_DIR/docs/containers.md" |
		sed "s|/etc/containers/oci/hooks.d|$work|" >"$work/hook"
	PATH="$root$prefix/bin:$PATH" bash "$work/hook"
	path=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["hook"]["path"])' "$work/belfry.json")
	[ "$path" = "$root$prefix/bin/belfry" ] || fail "the hook of docs/containers.md has the path '$path'"
	[ -x "$root$prefix/bin/belfry-oci" ] || fail "belfry-oci is not beside belfry"
}

links_lead_somewhere() {
	python3 - "$root$prefix/share/doc/belfry" <<'END' || fail "links of the installed documents"
import os, re, sys
top, bad, count = sys.argv[1], 0, 0
for folder, _, files in os.walk(top):
    for name in (n for n in files if n.endswith(".md")):
        path = os.path.join(folder, name)
        text = re.sub(r"^```.*?^```", "", open(path, encoding="utf-8").read(), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            count += 1
            file, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(folder, file)) if file else path
            found = os.path.exists(target) and target.startswith(top)
            if found and anchor:
                heads = re.findall(r"^#+ (.*)$", open(target, encoding="utf-8").read(), flags=re.M)
                found = anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}
            if not found:
                print(f"{os.path.relpath(path, top)}: {link} leads nowhere")
                bad += 1
assert count > 20, count
sys.exit(bad > 0)
END
}

nothing_is_left() {
	local left
	left=$(find "$root" ! -type d -o -type d -name '*belfry*')
	[ -z "$left" ] || fail "left after $1: $left"
}

# meson removes what was installed last, wherever that is.
an_uninstall_from_elsewhere_is_refused() {
	make -s -C "$BELFRY_SOURCE_DIR" uninstall BUILD="$BELFRY_BUILD_DIR" PREFIX=/elsewhere DESTDIR="$root" >"$work/out" 2>&1 &&
		fail "make uninstall from another prefix: $(cat "$work/out")"
	[ -e "$root$prefix/bin/belfry" ] || fail "make uninstall from another prefix has removed something"
}

first_install() { install_into "$root" && cp "$install_log" "$work/first"; }
first_uninstall() {
	cp "$work/first" "$install_log"
	an_uninstall_from_elsewhere_is_refused
	uninstall
}
two_installs_and_an_uninstall() {
	install_into "$root" && install_into "$root" || return 1
	uninstall
}

with_install_log first_install || { fail "meson install"; exit 1; }
the_parts_are_there_and_work
the_libraries_need_glibc_only
probes_are_compiled_as_the_pages_say
the_hook_of_the_page_names_what_is_installed
links_lead_somewhere
# What is not Belfry's stays.
: >"$root$prefix/share/doc/another"
with_install_log first_uninstall
[ -e "$root$prefix/share/doc/another" ] || fail "uninstall has removed another program's file"
rm "$root$prefix/share/doc/another"
nothing_is_left "uninstall"
with_install_log two_installs_and_an_uninstall || fail "meson install over an install"
nothing_is_left "two installs and an uninstall"
exit "$failed"
