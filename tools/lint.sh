#!/bin/sh
# lint.sh BUILD-DIR: static analysis of the sources, the scripts and the man pages. All run; any finding fails.
# shellcheck disable=SC2317 # the checks are called through step()
set -u
build=$1
status=0

step() {
	echo "== $1"
	shift
	"$@" || status=1
}

# One file a process: with several, the va_list check of one spoils the next. The analyzer gives a function up after so
# many states; at its default, three times that, all of this takes twice as long.
tidy() {
	python3 - "$build/compile_commands.json" <<'END' |
import json
import os
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    commands = json.load(file)
for path in sorted({os.path.realpath(os.path.join(c["directory"], c["file"])) for c in commands}):
    if not path.startswith(os.path.realpath(os.path.dirname(sys.argv[1])) + os.sep):  # what is generated is not read
        sys.stdout.write(path + "\0")
END
		xargs -0 -r -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet \
			--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=75000 2>/dev/null
}

# It does not see the cleanup attribute: leaks are left to the address sanitizer. It reads no system headers, but cannot
# parse lists without their macros.
check_cpp() {
	queue=$(echo '#include <sys/queue.h>' | cc -E -x c - | sed -n 's/^# 1 "\(.*queue\.h\)".*/\1/p' | head -n 1)
	cppcheck "--include=$queue" --quiet --error-exitcode=1 --inline-suppr --std=c11 --language=c -j "$(nproc)" \
		--enable=warning,portability,performance \
		--suppress=missingIncludeSystem --suppress=missingInclude \
		--suppress=memleak --suppress=resourceLeak \
		-D_GNU_SOURCE -D__x86_64__ -D__linux__ '-DBELFRY_VERSION="0"' -I src -I include src
}

check_shell() {
	find tools tests bench demo -name '*.sh' -print0 | xargs -0 shellcheck .ci/run contrib/completion/belfry
}

check_python() {
	find tools tests bench contrib -name '*.py' -print0 |
		xargs -0 -r -n 1 python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])'
}

check_man() {
	mandoc -T lint -W warning man/*.[1358]
}

step 'modules' tools/check-modules.sh
step 'man pages' check_man
step 'scripts' check_shell
step 'python' check_python
step 'cppcheck' check_cpp
step 'clang-tidy' tidy
exit $status
