# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by tests that install Belfry into a folder of their own. Meson keeps one log of what it has installed, for
# uninstall: tests that install wait for each other, and leave the log as it was.
install_log=${BELFRY_BUILD_DIR:?}/meson-logs/install-log.txt

# with_install_log COMMAND...
with_install_log() {
	local rc
	exec 9>"$BELFRY_BUILD_DIR/meson-private/install-test.lock"
	flock 9
	rm -f "$work/install-log"
	[ ! -e "$install_log" ] || cp -p "$install_log" "$work/install-log"
	"$@" 9>&-
	rc=$?
	rm -f "$install_log"
	[ ! -e "$work/install-log" ] || cp -p "$work/install-log" "$install_log"
	exec 9>&- # what is started later must not keep the lock
	return "$rc"
}

# install_into FOLDER: as `make install DESTDIR=FOLDER`; the prefix below it is in $prefix.
install_into() {
	DESTDIR=$1 meson install -C "$BELFRY_BUILD_DIR" --no-rebuild >"$work/installed" 2>&1 || {
		cat "$work/installed"
		return 1
	}
}
prefix=$(meson introspect --buildoptions "$BELFRY_BUILD_DIR" | python3 -c '
import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
