#!/bin/bash
# The socket to which container runtimes send listeners: started and ended with belfryd, for its own user only, and what
# is not a message of a runtime is refused and logged. test_containers.sh has the real runtimes.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
export BELFRY_SOFT="mem=512M,linger=1,name=oci$$"
send=(timeout 90 "$(dirname "$0")/oci_send.py")

use_daemon
oci="$work/d/oci.sock"
printf '[server]\noci_socket = %s\nlog = info\n' "$oci" >"$work/conf"
start_daemon
until_so test -S "$oci"
status 0 "$belfry" create one

only_its_owner_may_connect() {
	[ "$(stat -c %a "$oci")" = 600 ] || fail "the mode of the socket is $(stat -c %a "$oci")"
}

# refused WHAT TEXT
refused() {
	: >"$work/log"
	status 0 "${send[@]}" "$oci" "$1"
	until_so has_line "belfry-oci-listener: .*$2" "$work/log"
}

invalid_messages_are_refused() {
	refused garbage 'not JSON'
	refused half 'ends after'
	refused no-fd 'without its descriptor'
	refused no-vgpu 'names no vGPU'
	refused pipe 'listener of its filter'
	refused many 'cannot be received'
	refused large 'more than'
	is_figure one runs '[]' || fail "a run was attached"
	: >"$work/log"
	status 0 "${send[@]}" "$oci" nothing
	! grep -q "a message" "$work/log" || fail "a connection without data is logged as an error"
}

# edit STATUS VGPU: the hook, for a container with the mark of that vGPU.
edit() {
	printf '{"ociVersion": "1.0.0", "process": {"env": []}, "linux": {"namespaces": [{"type": "pid"}]}, "mounts": [
		{"destination": "/run/belfry/vgpu", "type": "bind", "source": "%s", "options": ["bind", "ro"]}]}' \
		"$work/marks/$2" >"$work/config.json"
	status "$1" "$belfry" oci edit --marks "$work/marks" <"$work/config.json"
}

a_profile_that_names_a_vgpu_without_a_mark_is_refused() {
	printf '{"linux": {"seccomp": {"listenerPath": "/s", "listenerMetadata": "belfry:vgpu=one"}}, "mounts": []}' \
		>"$work/config.json"
	status 1 "$belfry" oci edit --marks "$work/marks" <"$work/config.json"
	says "its seccomp profile names a vGPU" "the hook"
	sed -i s/belfry:/other:/ "$work/config.json"
	status 0 "$belfry" oci edit --marks "$work/marks" <"$work/config.json"
}

# The hook says so, before the container is made. Otherwise the container would start, and be killed.
a_container_with_a_vgpu_of_a_shared_domain_is_refused() {
	local name
	status 0 "$belfry" create pooled --domain pool --sm 50
	status 0 "$belfry" create beside --domain pool
	status 0 "$belfry" create together --domain named
	status 0 "$belfry" cdi --marks "$work/marks" -o "$work/cdi.json"
	for name in pooled beside; do
		edit 1 $name
		says "belfry: $name: a container cannot use a vGPU of a shared domain" "the hook"
	done
	edit 0 together
	edit 0 one
	grep -q "$oci" "$work/out" || fail "the hook has not edited: $(cat "$work/out")"
	status 0 "$belfry" rm pooled beside together
}

# A connection that is silent does not delay another one.
silence_delays_no_other() {
	local start=$SECONDS pids=()
	for _ in $(seq 30); do
		python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); time.sleep(600)' "$oci" &
		pids+=($!)
	done
	refused garbage 'not JSON'
	[ $((SECONDS - start)) -lt 10 ] || echo "the host is busy: nothing is shown about silent connections"
	kill "${pids[@]}"
}

the_listener_is_started_again() {
	local listener
	listener=$(pgrep -P "$daemon" -f belfry-oci-listener | head -n 1)
	kill -9 "$listener"
	until_so has_line 'it is started again' "$work/log"
	until_so connects
}
connects() { "${send[@]}" "$oci" nothing 2>/dev/null; }

the_configuration_is_followed() {
	printf '[server]\noci_socket = off\n' >"$work/conf"
	status 0 "$belfry" reload
	until_so test ! -e "$oci"
	printf '[server]\noci_socket = here\n' >"$work/conf"
	status 1 "$belfry" reload
	says 'whole path' "a relative path"
	printf '[server]\noci_socket = %s\n' "$oci.2" >"$work/conf"
	status 0 "$belfry" reload
	until_so test -S "$oci.2"
}

only_its_owner_may_connect
invalid_messages_are_refused
a_profile_that_names_a_vgpu_without_a_mark_is_refused
a_container_with_a_vgpu_of_a_shared_domain_is_refused
silence_delays_no_other
the_listener_is_started_again
the_configuration_is_followed
end_daemon
[ ! -e "$oci.2" ] || fail "the socket was left behind"
exit "$failed"
