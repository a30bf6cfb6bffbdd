#!/bin/sh
# format.sh CLANG-FORMAT-OPTION...: clang-format over every C file of the project.
# Versions differ in small things: 14 is the one that decides, where it is installed under that name.
set -eu
format=clang-format
if command -v clang-format-14 >/dev/null; then
	format=clang-format-14
fi
find src include tests bench examples policies probes -name '*.[ch]' -print0 2>/dev/null |
	xargs -0 -r "$format" --style=file "$@"
