#!/bin/sh
# lint.sh BUILD-DIR: static analysis of the sources, the scripts and the man pages. Every check runs; any finding fails.
# shellcheck disable=SC2317 # the checks are called through step()
set -u
build=$1
status=0

step() {
	echo "== $1"
	shift
	"$@" || status=1
}

# cppcheck does not know the cleanup attribute, so the address sanitizer looks for leaks instead. cppcheck reads no system
# headers, but it cannot parse lists without the macros of sys/queue.h.
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
step 'clang-tidy' tools/tidy.py "$build"
exit $status
