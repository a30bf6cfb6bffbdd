#!/bin/sh
# remove.sh FOLDER: remove the runtime folder of a test. A software GPU that is ending may still write to its folder there.
tries=0
until rm -rf "$1" 2>/dev/null; do
	tries=$((tries + 1))
	[ "$tries" -lt 200 ] || exec rm -rf "$1"
	sleep 0.05
done
