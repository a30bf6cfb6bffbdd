# shellcheck shell=bash disable=SC2034,SC2154,SC2317
# Sourced by test_policy*.sh after common.sh: a belfryd for every user on the software GPU, two vGPUs a and b, and functions
# that read what belfry policy reports.
need_policies
export BELFRY_SOFT="mem=1G,linger=1,name=policy$$"
objects="$BELFRY_BUILD_DIR/tests/policies"
use_daemon
printf '[server]\naccess = everyone\n' >"$work/conf"
cd "$work" || exit 1
start_daemon
server=$(server_pids)

# start_two [OPTION...]: a load with these options on each of the new vGPUs a and b, until `stop_loads a b`.
start_two() {
	status 0 "$belfry" create a --time 25
	status 0 "$belfry" create b --time 60
	start_load a --kernel-us 2000 "$@"
	start_load b --kernel-us 2000 "$@"
	until_ready a b
}
# of_policy EXPRESSION: its value, from `belfry policy ls --json`: p are the policies, h the hooks of the first one by name.
of_policy() {
	timeout 20 "$belfry" policy ls --json 2>/dev/null | python3 -c '
import json, sys
p = json.load(sys.stdin)[0]["policies"]
h = {hook["hook"]: hook for hook in p[0].get("hooks", [])}
print(eval(sys.argv[1]))' "$1" 2>/dev/null
}
is_so() { [ "$(of_policy "$1")" = True ]; }
progress() { figure "$1" time.gpu_ns; }
has_run_since() { [ "$(progress "$1")" -gt "$2" ] 2>/dev/null; }
# go_on NAME...: wait until the GPU time of each has grown.
go_on() {
	local name
	for name; do
		until_so has_run_since "$name" "$(progress "$name")"
	done
}
is_policy() { is_figure "" gpus.0.policy "$1"; }
is_verifying() { grep -q belfry-loader "/proc/$server"/task/*/comm 2>/dev/null; }
