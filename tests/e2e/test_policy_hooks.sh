#!/bin/bash
# What the hooks of policies decide on the software GPU: memory, contexts, faults and memory pressure. A policy that returns
# an error is disabled.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/policy.sh"
exact=("$BELFRY_BUILD_DIR/tests/gpu/gpu_exact" --elements 4096)
start_two --kernel-us 500 --sync --gap-us 3000 # enough for decisions, and processors are left for the rest

# The hooks for memory and contexts, and policy dump.
status 0 "$belfry" policy load "$objects/refuses.bpf.o" --set most_bytes=$((1 << 20))
status 0 "$belfry" create c --mem 512M --time 15
status 0 "$belfry" policy dump
has_line '^v3' "$work/out" || fail "the policy does not know of its vGPUs: $(cat "$work/out")"
status 1 "$belfry" policy load "$objects/seven.bpf.o"
says 'nothing has changed' "one that fails at its start"
status 0 "$belfry" policy dump
has_line '^v3' "$work/out" || fail "the policy has noticed that another could not take its place: $(cat "$work/out")"
timeout 60 "$belfry" run c -- "${exact[@]}" --limit $((512 << 20)) >"$work/exact" 2>&1 &&
	fail "a policy's refusal of memory is not heard"
status 0 "$belfry" policy dump
has_line '^v3mc-$' "$work/out" || fail "the policy was not asked for memory and contexts: $(cat "$work/out"; timeout 20 "$belfry" policy ls)"
timeout 20 "$belfry" explain c >"$work/out"
has_line 'by its hook mem_alloc: refuse' "$work/out" || fail "explain does not tell of the refusal: $(cat "$work/out")"
status 0 "$belfry" policy load "$objects/refuses.bpf.o" --set most_contexts=0
timeout 60 "$belfry" run c -- "$load" --per-us 1 --launches 1 >"$work/refused" 2>&1 &&
	fail "a policy's refusal of a context is not heard"
status 0 "$belfry" policy load "$objects/refuses.bpf.o" --set timeslice_us=500
status 0 "$belfry" run c -- "$load" --per-us 1 --launches 1
is_so 'h["ctx_init"]["clamped"] == 0' || fail "turns that there are, are called changed: $(timeout 20 "$belfry" policy ls)"
status 0 "$belfry" policy load "$objects/refuses.bpf.o" --set timeslice_us=5000000
status 0 "$belfry" run c -- "$load" --per-us 1 --launches 1
until_so is_so 'h["ctx_init"]["clamped"] == 1'
timeout 20 "$belfry" explain c >"$work/out"
has_line 'by its hook ctx_init: allow' "$work/out" && has_line 'the timeslice, the interleave level or the ride was out of range' "$work/out" ||
	fail "explain does not tell of turns that cannot be had: $(cat "$work/out")"
status 0 "$belfry" rm c
status 0 "$belfry" policy dump
has_line '^v2' "$work/out" || fail "the policy does not know that a vGPU is gone: $(cat "$work/out"; timeout 20 "$belfry" policy ls)"
status 0 "$belfry" policy unload

# A fault on the GPU is reported everywhere, and a policy may refuse the next program of that vGPU.
faulty=("$BELFRY_BUILD_DIR/tests/gpu/gpu_fault" illegal)
fault_count() { is_figure c faults.count "$1"; }
status 0 "$belfry" create c --mem 512M --time 15
status 0 "$belfry" policy load quarantine --set faults_most=2 --set within_ns=600000000000 --set out_ns=600000000000
status 0 "$belfry" run c -- "${faulty[@]}"
until_so fault_count 1
status 0 "$belfry" run c -- "$load" --per-us 1 --launches 1
status 0 "$belfry" run c -- "${faulty[@]}"
until_so fault_count 2
until_so is_so 'h["fault"]["calls"] == 2'
timeout 60 "$belfry" run c -- "$load" --per-us 1 --launches 1 >"$work/refused" 2>&1 && fail "quarantine lets it back in"
[ "$(figure c faults.xid)" = 31 ] || fail "stats do not tell the Xid: $(timeout 20 "$belfry" stats --json c)"
timeout 20 "$belfry" explain c >"$work/out"
has_line 'A fault on the GPU ended a context of process [0-9]*, .* ago: Xid 31' "$work/out" ||
	fail "explain does not tell of the fault: $(cat "$work/out")"
grep -q 'c: a fault on the GPU ended a context of process [0-9]*: Xid 31' "$work/log" || fail "the log does not tell of the fault"
status 0 "$belfry" trace -o "$work/trace"
grep -q '"name":"fault (Xid)".*"value":31' "$work/trace" || fail "the trace does not tell of the fault"
status 0 "$belfry" policy unload
status 0 "$belfry" run c -- "$load" --per-us 1 --launches 1
status 0 "$belfry" rm c
[ "$(figure a faults.count)$(figure b faults.count)" = 00 ] || fail "somebody else's fault is counted"
status 0 "$belfry" run --mem 64M -- "${faulty[@]}"
until_so grep -q 'gpu_fault-[0-9]*: a fault on the GPU' "$work/log" # a vGPU that goes with its program
go_on a b

# A policy may move memory from one vGPU of an owner to another, never below what is in use.
status 0 "$belfry" create giver --mem 128M
status 0 "$belfry" create taker --mem 32M
status 0 "$belfry" run taker -- "${exact[@]}" --limit $((32 << 20))
mem_of() { figure "$1" mem.limit; }
status 0 "$belfry" policy load "$objects/makes_room.bpf.o"
status 0 "$belfry" run taker -- "${exact[@]}"
until_so is_so 'h["mem_pressure"]["calls"] > 0'
[ $(($(mem_of giver) + $(mem_of taker))) = $((160 << 20)) ] && [ "$(mem_of taker)" -gt $((64 << 20)) ] ||
	fail "memory did not move: giver $(mem_of giver), taker $(mem_of taker): $(grep -E 'room|memory' "$work/log" | tail -3)"
status 0 "$belfry" rm giver
status 0 "$belfry" rm taker
status 0 "$belfry" policy unload

# A policy that returns an error is disabled, with a reason. Programs continue, and the next policy can be loaded.
status 0 "$belfry" policy load "$objects/errs_later.bpf.o"
until_so is_so 'p[0]["out"] and "returned 7" in p[0]["why"]'
grep -q 'policy errs_later is out' "$work/log" || fail "the log does not tell: $(tail -3 "$work/log")"
[ "$(figure "" gpus.0.policy)" = built-in ] || fail "one that is out still decides"
timeout 20 "$belfry" explain a >"$work/out"
has_line 'Policy errs_later is out' "$work/out" || fail "explain does not tell who is out: $(cat "$work/out")"
go_on a b
status 1 "$belfry" policy dump
says 'errs_later: is out, since its hook pick returned 7' "a dump of one that is out"
status 0 "$belfry" policy load fair
has_line 'in place of errs_later' "$work/out" || fail "in the place of one that is out: $(cat "$work/out")"
stop_loads a b
end_daemon
exit "$failed"
