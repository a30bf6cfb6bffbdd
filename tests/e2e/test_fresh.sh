#!/bin/bash
# Belfry with a fresh user's defaults: no configuration, no variables, no folder that was there before. Once as root
# without XDG_RUNTIME_DIR and once as an ordinary user, in a mount namespace with an empty /run and /tmp.
# Functions are called by name:
# shellcheck disable=SC2317
set -u
: "${BELFRY:?}" "${BELFRY_BUILD_DIR:?}"
user=65534
failed=0
fail() {
	echo "FAILED: $*"
	failed=1
}

if [ "${1:-}" != inside ]; then
	[ "$(id -u)" = 0 ] || { echo 'only root can try both users'; exit 77; }
	case "$BELFRY_BUILD_DIR" in /tmp/* | /run/*) echo 'the build folder is below /tmp or /run'; exit 77 ;; esac
	unshare --mount true 2>/dev/null || { echo 'no mount namespaces here'; exit 77; }
	exec unshare --mount --propagation private -- "$0" inside
fi
mount -t tmpfs -o mode=755 none /run && mount -t tmpfs -o mode=1777 none /tmp || exit 77
mkdir /tmp/work && cd / || exit 1

# fresh WHO COMMAND...: with nothing but a PATH; what it says is in /tmp/work/out and err.
fresh() {
	local who=$1
	shift
	if [ "$who" = root ]; then
		env -i PATH="$PATH" timeout 60 "$@" >/tmp/work/out 2>/tmp/work/err
	else
		env -i PATH="$PATH" setpriv --reuid=$user --regid=$user --clear-groups \
			timeout 60 "$@" >/tmp/work/out 2>/tmp/work/err
	fi
}
works() { fresh "$@" || fail "as $1: ${*:2}: $(cat /tmp/work/err)"; }
prints() { grep -q -- "$1" /tmp/work/out || fail "$2: $(cat /tmp/work/out)"; }

a_second_run_works_while_the_first_ones_belfryd_lives() {
	for _ in 1 2 3; do works "$1" "$BELFRY" run --gpu soft -- true; done
	works "$1" "$BELFRY" run -- true
}

a_vgpu_is_made_used_and_removed() {
	works "$1" "$BELFRY" create train --mem 1G --time 40:80
	works "$1" "$BELFRY" run train -- true
	works "$1" "$BELFRY" ls
	prints '^train ' "as $1: ls after create"
	works "$1" "$BELFRY" run --gpu soft -- true
	works "$1" "$BELFRY" explain train
	works "$1" "$BELFRY" rm train
}

a_private_belfryd_ends_by_itself() {
	local socket=/run/belfry/private.sock
	[ "$1" = root ] || socket=/tmp/belfry-$user/belfryd.sock
	for _ in $(seq 200); do
		[ -S "$socket" ] || break
		sleep 0.1
	done
	[ ! -S "$socket" ] || fail "as $1: belfryd does not end"
	fresh "$1" "$BELFRY" ls && fail "as $1: ls without belfryd succeeds"
	grep -q 'no belfryd runs' /tmp/work/err || fail "as $1: ls without belfryd: $(cat /tmp/work/err)"
}

# root's private belfryd is not what others find as the system's, and the system's is found before it.
the_systems_belfryd_is_found_beside_a_private_one() {
	works root "$BELFRY" create private
	env -i PATH="$PATH" "$BELFRYD" --gpu soft >/tmp/work/log 2>&1 &
	for _ in $(seq 100); do [ -S /run/belfry/belfryd.sock ] && break; sleep 0.1; done
	works root "$BELFRY" create common
	works root "$BELFRY" ls
	prints '^common ' "the system's belfryd"
	grep -q '^private ' /tmp/work/out && fail "a private belfryd was taken for the system's"
	kill %1
	wait
	works root "$BELFRY" rm private
}

says() { grep -qF -- "$1" /tmp/work/err || fail "$2: $(cat /tmp/work/err)"; }

# The system's belfryd serves its own user only, by default. With mode 700 of its folder a user does not even see the socket.
a_user_is_told_of_a_belfryd_that_does_not_admit_him() {
	local mode
	env -i PATH="$PATH" "$BELFRYD" --gpu soft >/tmp/work/log 2>&1 &
	for _ in $(seq 100); do [ -S /run/belfry/belfryd.sock ] && break; sleep 0.1; done
	for mode in 700 755; do
		chmod "$mode" /run/belfry
		fresh user "$BELFRY" ls && fail "mode $mode: ls succeeds"
		says "the system's, of user root, does not admit this user; set access = group NAME or access = everyone in its belfryd.conf(5)" \
			"mode $mode: ls"
		fresh user "$BELFRY" explain train && fail "mode $mode: explain succeeds"
		says 'train: no vGPU of this name' "mode $mode: explain"
		says 'of user root, does not admit this user' "mode $mode: explain"
		fresh user env BELFRY_SOCKET=/run/belfry/belfryd.sock "$BELFRY" ls && fail "mode $mode: ls of that socket succeeds"
		says '/run/belfry/belfryd.sock: its belfryd, of user root, does not admit this user' "mode $mode: ls of that socket"
		works user "$BELFRY" info
		prints '^belfryd .*of user root, does not admit this user' "mode $mode: info"
	done
	# A private belfryd that is started beside it: said once.
	works user "$BELFRY" create train --gpu soft
	[ "$(wc -l </tmp/work/err)" = 1 ] || fail "create beside root's belfryd: $(cat /tmp/work/err)"
	says 'belfry: the belfryd of user root does not admit this user: started a private one; reserved memory, requested shares and limits do not hold between the two' \
		"create"
	works user "$BELFRY" run train -- true
	[ ! -s /tmp/work/err ] || fail "run beside root's belfryd: $(cat /tmp/work/err)"
	works user "$BELFRY" ls
	prints '^train ' "ls of the private one"
	works user "$BELFRY" rm train
	kill %1
	wait
	a_private_belfryd_ends_by_itself user # and nothing is said about root's, which has ended
}

# No configuration file is an ordinary state.
a_reload_without_a_configuration_is_no_error() {
	if [ -e /etc/belfry ]; then
		echo 'there is /etc/belfry: a reload without it was not tried'
		return
	fi
	env -i PATH="$PATH" "$BELFRYD" --gpu soft >/tmp/work/log 2>&1 &
	for _ in $(seq 100); do [ -S /run/belfry/belfryd.sock ] && break; sleep 0.1; done
	works root "$BELFRY" create kept
	works root "$BELFRY" reload
	says 'belfry: there is no configuration file /etc/belfry/belfryd.conf: belfryd has taken the defaults' "reload"
	works root "$BELFRY" ls
	prints '^kept ' "ls after reload"
	works root "$BELFRY" rm kept
	env -i PATH="$PATH" "$BELFRYD" --check --gpu soft >/tmp/work/out 2>/tmp/work/err || fail "--check: $(cat /tmp/work/err)"
	kill %1
	wait
}

for who in root user; do
	a_second_run_works_while_the_first_ones_belfryd_lives $who
	a_vgpu_is_made_used_and_removed $who
	a_private_belfryd_ends_by_itself $who
done
the_systems_belfryd_is_found_beside_a_private_one
a_private_belfryd_ends_by_itself root
a_user_is_told_of_a_belfryd_that_does_not_admit_him
a_reload_without_a_configuration_is_no_error
env -i PATH="$PATH" timeout 20 "$BELFRY" soft stop 2>/dev/null
exit $failed
