#!/bin/sh
# run.sh PROGRAM: a test of leases, on a software GPU of its own, whose SMs the driver divides into units. The program
# listens on $BELFRY_LEASE.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d /tmp/belfry-lease.XXXXXX)
trap '"$here/../remove.sh" "$folder"' EXIT
BELFRY_LEASE=$folder/lease
case $1 in
*/coro_many) sms=30 ;; # a smaller GPU has smaller units
*) sms=32 ;;
esac
SOFT_OPTIONS=${SOFT_OPTIONS:-sms=$sms}
export BELFRY_LEASE SOFT_OPTIONS
status=0
"$here/front.sh" "$@" || status=$?
exit "$status"
