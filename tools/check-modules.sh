#!/bin/sh
# check-modules.sh: checks the #include lines of src/, tests/ and bench/. Dependencies between modules point one way, and
# a private header is included by its own module only, and by the tests that are named here.
set -eu
status=0

report() { # LINES WHY
	[ -z "$1" ] && return
	printf '%s\n' "$1" | sed "s|\$| <- $2|" >&2
	status=1
}

# may MODULE OTHER...: a file of MODULE may include headers of MODULE and of OTHER, and of no other module.
may() {
	module=$1
	allowed=$(printf '%s|' "$@")
	[ -d "src/$module" ] || report "$module" 'no such module'
	report "$(grep -rnE '^#include "[a-z_]+/' --include='*.[ch]' "src/$module" |
		grep -vE "#include \"(${allowed%|})/[a-z_]+\.h\"" || true)" "not allowed in $module"
}

# private HEADER [FILE...]: HEADER is included by its own module, by FILE and by no other file.
private() {
	header=$1
	shift
	allowed=$(printf '|%s:' "$@")
	[ -f "src/$header" ] || report "$header" 'no such header'
	report "$(grep -rn "^#include \"$header\"" --include='*.[ch]' src tests bench |
		grep -vE "^(src/${header%/*}/${allowed%|:})" || true)" 'private to its module'
}

may base
may rm base
may soft/ptx cuda base
may soft/hw soft/ptx soft base
may soft/link soft rm base
may soft/driver soft/hw soft/link soft rm base
may cuda base
may ptxas cuda base
may soft/cuda cuda soft/ptx soft/link soft rm base
may coro cuda probe belfry base
may gate rm base
may warden soft/link soft gate rm base
may sched belfry base
may policy belfry base
may replay policy sched belfry base
may probe policy cuda belfry base
may client belfry base
may gpu client replay probe policy sched belfry warden soft/link coro gate rm base
may router gpu client policy belfry soft/link warden base
may metrics client base
may attach client base
may slurm warden client base
may kube attach client base
may dra kube attach client base
may verify coro base
may cli attach client verify cuda replay probe policy sched belfry soft/link soft warden gate rm base

private gate/poller.h
private warden/state.h
private warden/proxy.h
private gate/trap.h
private warden/nv.h tests/unit/turns_buffer.c
private warden/nvml.h tests/unit/nvml.c
private sched/state.h
private gpu/gpu.h
private gpu/policy.h tests/unit/gpu_loader.c
private gpu/lease.h
private gpu/probes.h
private coro/coro.h
private probe/inside.h
private router/internal.h
private kube/plugin.h
private kube/wire.h src/dra/main.c
private router/config_sections.h
private soft/link/ask.h tests/e2e/test_soft_escapes.c
private soft/driver/state.h tests/unit/soft_load.c tests/e2e/card.c
private soft/hw/state.h tests/e2e/card.c
private soft/cuda/core.h
private soft/cuda/graph.h
private coro/coro.h
private coro/trace.h
private slurm/plugin.h
exit $status
