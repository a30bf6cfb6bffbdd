#!/bin/sh
# deps.sh [--check] [build|test|lint|deb]...: install the Debian packages that are missing.
# As root it installs them; otherwise, and with --check, it prints the one command to run and fails.
set -eu

build='gcc make meson ninja-build pkg-config libc6-dev libseccomp-dev libjson-c-dev libzstd-dev liblz4-dev libmicrohttpd-dev libnghttp2-dev libcurl4-openssl-dev libbpf-dev libelf-dev zlib1g-dev clang python3'
test='libcmocka-dev python3-yaml python3-grpcio crun runc containerd podman uidmap musl-tools libslurm-dev slurmctld slurmd slurm-client munge'
lint='clang-format clang-tidy libclang-rt-dev cppcheck shellcheck mandoc'
deb='build-essential debhelper dpkg-dev lintian libslurm-dev slurm-wlm-basic-plugins'

only_check=no
wanted=
for word in "$@"; do
	case $word in
	--check) only_check=yes ;;
	build) wanted="$wanted $build" ;;
	test) wanted="$wanted $test" ;;
	lint) wanted="$wanted $lint" ;;
	deb) wanted="$wanted $deb" ;;
	*)
		echo "deps.sh: unknown word '$word'; known are --check, build, test, lint, deb" >&2
		exit 2
		;;
	esac
done

# Elsewhere than on Debian and its kin the packages have other names: let the build say what is missing.
command -v dpkg-query >/dev/null || exit 0

is_installed() {
	dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

missing=
for package in $wanted; do
	if [ "$package" = pkg-config ] && command -v pkg-config >/dev/null; then
		continue # pkgconf provides it too
	fi
	is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$only_check" = yes ] || [ "$(id -u)" != 0 ]; then
	echo "belfry: packages are missing:$missing; run: sudo apt-get install -y$missing" >&2
	exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of names
apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 || {
	# A fresh machine has no package lists yet.
	apt-get update -q
	apt-get install -y -q --no-install-recommends $missing
}
