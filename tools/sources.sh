#!/bin/sh
# sources.sh DIR [SUFFIX]: the names of the files in DIR that end in SUFFIX (default .c), sorted, one a line.
set -eu
export LC_ALL=C
cd "$1"
suffix=${2:-.c}
for file in *"$suffix"; do
	if [ -f "$file" ]; then
		printf '%s\n' "$file"
	fi
done
