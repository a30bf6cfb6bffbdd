#!/bin/sh
# check-rooms.sh: dependencies between the rooms of src/ point one way. Reads what the files include.
set -eu
status=0

# may ROOM OTHER...: a file of ROOM may include headers of OTHER and of its own room, and of no other room.
may() {
	room=$1
	allowed=$(printf '%s|' "$@")
	wrong=$(grep -rnE '^#include "[a-z_]+/' --include='*.[ch]' "src/$room" |
		grep -vE "#include \"(${allowed%|})/" || true)
	if [ -n "$wrong" ]; then
		printf '%s\n' "$wrong" | sed "s/\$/ <- not allowed in $room/" >&2
		status=1
	fi
}

may base
may rm base
may soft rm base
may gate rm base
may warden soft gate rm base
may sched belfry base
may policy belfry base
may replay policy sched belfry base
may server replay policy sched belfry warden soft gate rm base
may metrics server base
may cli replay policy sched belfry soft server warden gate rm base
exit $status
