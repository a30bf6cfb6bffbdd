#!/bin/sh
# embed.sh NAME FILE: FILE as C: the array of strings NAME, a line each, with a NULL after the last.
set -eu
printf '#include <stddef.h>\nextern const char *const %s[];\nconst char *const %s[] = {\n' "$1" "$1"
sed 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/\t/\\t/g; s/^/\t"/; s/$/\\n",/' "$2"
printf '\tNULL,\n};\n'
