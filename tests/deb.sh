#!/bin/bash
# deb.sh DIST-DIR BUILD-DIR: installs, upgrades and purges the packages of `make deb` in a root of its own: an overlay over
# this machine's, with its own processes and /run. Programs of BUILD-DIR run there on the software GPU. systemd does not run
# there. A script stands for systemctl, because belfry.postinst decides whether belfryd is restarted.
# Functions are called by name:
# shellcheck disable=SC2015,SC2317
set -u

fail() {
	echo "FAILED: $*"
	exit 1
}
skip() {
	echo "skipped: $*"
	exit 77
}

# repack VERSION: the same packages with another version, in $work/VERSION.
repack() {
	local package folder
	mkdir "$work/$1"
	for package in "$dist"/*.deb; do
		folder=$work/$1/$(basename "${package%%_*}")
		dpkg-deb -R "$package" "$folder"
		sed -i "s/^Version: .*/Version: $1/; s/(= $version)/(= $1)/" "$folder/DEBIAN/control"
		dpkg-deb -b -Znone --root-owner-group "$folder" "$work/$1" >/dev/null || fail "dpkg-deb: $package"
		rm -r "$folder"
	done
}

make_root() {
	mkdir "$work/upper" "$work/overlay" "$root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" "$root" ||
		skip 'no overlay can be mounted here'
	mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" &&
		mount -t tmpfs tmpfs "$root/run" && mount -t tmpfs tmpfs "$root/tmp" || fail 'mounts of the root'
	[ -e "$root/usr/bin/systemctl" ] || : >"$root/usr/bin/systemctl" # for fake_systemctl
	# Where images are built, it forbids the start of services.
	[ ! -e "$root/usr/sbin/policy-rc.d" ] || mount --bind /dev/null "$root/usr/sbin/policy-rc.d"
	# The index of all man pages of this machine takes longer than the rest of an installation.
	[ ! -e "$root/usr/bin/mandb" ] || mount --bind /bin/true "$root/usr/bin/mandb"
	mkdir -m 755 "$root/run/job"
	cp "$build/demo/belfry-demo" demo/kernels.ptx "$build/bench/load" examples/vgpu.c "$root/run/job/" || fail "programs of $build"
}

in_root() { chroot "$root" "$@"; }
# install FOLDER-OF-PACKAGES: the output is in $work/out.
install() {
	mkdir "$root/run/packages"
	cp "$1"/*.deb "$root/run/packages/"
	DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c 'dpkg -i /run/packages/*.deb' >"$work/out" 2>&1 ||
		fail "dpkg -i of $1: $(cat "$work/out")"
	rm -r "$root/run/packages"
}

# The files of the root that differ from the machine's. dpkg keeps lists of its own, and its triggers make caches.
changed_files() {
	(cd "$work/upper" && find . -mindepth 1 ! -type d -o -name '*belfry*' | LC_ALL=C sort |
		grep -vE '^\./(var/(lib/dpkg|log|cache)/|etc/(ld\.so\.cache|group-?|gshadow-?|\.pwd\.lock)$)')
}

# until_so COMMAND...: wait until it succeeds.
until_so() {
	local end=$((SECONDS + 120))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || fail "$* : did not come to be: $(cat "$work/out")"
		sleep 0.1
	done
}

fake_systemctl() {
	mkdir -p "$root/run/systemd/system"
	cat >"$root/run/job/systemctl" <<'END'
#!/bin/sh
file=/run/job/belfryd.pid
is_active() { [ -e $file ] && kill -0 "$(cat $file)" 2>/dev/null; }
stop() { is_active || return 0; kill "$(cat $file)"; while is_active; do sleep 0.1; done; }
start() {
	is_active && return
	mkdir -p -m 755 /run/belfry
	RUNTIME_DIRECTORY=/run/belfry setsid belfryd </dev/null >>/run/job/log 2>&1 &
	echo $! >$file
}
case " $* " in
*belfry-device-plugin*) ;; # needs a kubelet
*' is-enabled '*) echo enabled ;;
*' is-active '*) is_active ;;
*' restart '*) stop; start ;;
*' start '*) start ;;
*' stop '*) stop ;;
esac
END
	chmod 755 "$root/run/job/systemctl"
	mount --bind "$root/run/job/systemctl" "$root/usr/bin/systemctl"
}

daemon() { cat "$root/run/job/belfryd.pid"; }
server() { in_root belfry ls --json 2>/dev/null | awk '$1 == "\"server_pid\":" && $2 + 0 { print $2 + 0; exit }'; }
answers() { [ -n "$(server)" ]; }
start_load() {
	rm -f "$root"/run/job/{ready,stop}
	in_root belfry run kept -- /run/job/load --per-us 1 --kernel-us 3000 --secs 600 --ready /run/job/ready \
		--until /run/job/stop --json >"$work/load" 2>&1 &
	load=$!
	until_so test -e "$root/run/job/ready"
}
# The load still runs, ends when it shall, and has computed the right result.
stop_load() {
	kill -0 "$load" 2>/dev/null || fail "$1: the program has ended: $(cat "$work/load")"
	: >"$root/run/job/stop"
	wait "$load" && grep -q '"wrong":0,' "$work/load" || fail "$1: the program did not end well: $(cat "$work/load")"
}

the_parts_work() {
	in_root belfry run --gpu soft --mem 1G -- /run/job/belfry-demo train --secs 1 --kernels /run/job/kernels.ptx >"$work/out" 2>&1 ||
		fail "the demo: $(cat "$work/out")"
	# shellcheck disable=SC2016
	in_root sh -c 'cc /run/job/vgpu.c $(pkg-config --cflags --libs belfry) -o /run/job/vgpu' || fail 'a program with libbelfry'
	in_root env PYTHONDONTWRITEBYTECODE= PYTHONPATH=/usr/share/belfry/python python3 -c 'import belfry; belfry.version()' || fail 'the Python module'
	in_root belfryd --check >/dev/null || fail 'belfryd --check'
	in_root ldd /usr/lib/belfry/belfry_spank.so >"$work/out" && ! grep 'not found' "$work/out" || fail "the plugin of Slurm: $(cat "$work/out")"
	in_root getent group belfry >/dev/null || fail 'no group belfry'
	[ -L "$root/etc/systemd/system/multi-user.target.wants/belfryd.service" ] || fail 'the service is not enabled'
}

# With on_daemon_death = end, the default, a restart would end the program.
an_upgrade_keeps_programs() {
	local before
	before=$(daemon)
	start_load
	install "$work/$version+1"
	[ "$(daemon)" = "$before" ] || fail 'an upgrade has restarted belfryd under a program'
	grep -q 'systemctl restart belfryd' "$work/out" || fail "an upgrade without a restart does not say so: $(cat "$work/out")"
	stop_load 'upgrade, end'
}

an_upgrade_without_programs_restarts() {
	local before
	before=$(daemon)
	install "$work/$version+2"
	[ "$(daemon)" != "$before" ] || fail "an upgrade has not restarted belfryd: $(cat "$work/out")"
	until_so answers
}

a_restart_carries_programs() {
	local before server
	sed -i 's/^#on_daemon_death = .*/on_daemon_death = carry/' "$root/etc/belfry/belfryd.conf"
	in_root belfry reload || fail 'belfry reload'
	before=$(daemon)
	start_load
	server=$(server)
	install "$work/$version+1" # a downgrade is an upgrade, too
	[ "$(daemon)" != "$before" ] || fail "an upgrade has not restarted belfryd, which carries: $(cat "$work/out")"
	until_so answers
	[ "$(server)" = "$server" ] || fail 'the GPU server was not found again'
	grep -q '^on_daemon_death = carry' "$root/etc/belfry/belfryd.conf" || fail 'the upgrade has changed the configuration'
}

# The program of a_restart_carries_programs runs.
purge_removes_everything_but_programs() {
	local before=$1
	in_root dpkg --purge belfry-kubernetes belfry-slurm libbelfry-dev belfry-soft belfry >"$work/out" 2>&1 ||
		fail "dpkg --purge: $(cat "$work/out")"
	! kill -0 "$(daemon)" 2>/dev/null || fail 'belfryd runs after purge'
	stop_load purge
	[ ! -e "$root/run/belfry" ] || fail 'purge left /run/belfry'
	! in_root getent group belfry >/dev/null || fail 'purge left the group'
	changed_files >"$work/after"
	diff "$before" "$work/after" || fail 'purge left files'
}

inside() {
	make_root
	changed_files >"$work/before"
	install "$dist"
	the_parts_work
	fake_systemctl
	sed -i 's/^#gpus = .*/gpus = soft/' "$root/etc/belfry/belfryd.conf"
	in_root deb-systemd-invoke start belfryd.service
	until_so answers
	in_root belfry create kept --mem 64M || fail 'belfry create'
	an_upgrade_keeps_programs
	an_upgrade_without_programs_restarts
	a_restart_carries_programs
	purge_removes_everything_but_programs "$work/before"
	echo 'installed, upgraded and purged'
}

dist=$(cd "${1:?}" && pwd) && build=$(cd "${2:?}" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1
work=${3:-}
root=$work/root
version=$(dpkg-parsechangelog -S Version)
if [ -n "$work" ]; then
	mount -t tmpfs tmpfs "$work" || skip 'nothing can be mounted here'
	repack "$version+1"
	repack "$version+2"
	inside
	exit
fi

[ "$(id -u)" = 0 ] || skip 'needs root'
grep -q "^  version: '$version',$" meson.build && grep -qF "## [$version]" CHANGELOG.md ||
	fail "debian/changelog has version $version; meson.build or CHANGELOG.md has another"
lintian --fail-on error,warning "$dist"/*.deb || fail lintian
work=$(mktemp -d /tmp/belfry-deb.XXXXXX)
trap 'rmdir "$work"' EXIT
# The namespaces end with all processes and mounts in them.
for variable in $(compgen -e | grep ^BELFRY); do unset "$variable"; done
timeout 600 unshare --mount --pid --fork --kill-child "$0" "$dist" "$build" "$work"
