#!/bin/bash
# belfry policy new, and policies that the configuration names: at the start, after a reload, and when they cannot be
# loaded.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2034,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/policy.sh"

# The template compiles.
status 0 "$belfry" policy new mine
has_line '@NAME@' mine.bpf.c && fail "the new policy has no name"
status 1 "$belfry" policy new mine
says 'is there already' "a new policy over another"
status 1 "$belfry" policy new '../x'
status 2 "$belfry" policy new
status 2 "$belfry" policy
status 2 "$belfry" policy load fair --set nothing
if command -v clang >/dev/null; then
	clang -target bpf -mcpu=v3 -O2 -g -Wall -I "${BELFRY_SOURCE_DIR:-.}/include" -idirafter "/usr/include/$(uname -m)-linux-gnu" \
		-c mine.bpf.c -o mine.bpf.o || fail "the new policy does not compile"
	status 0 "$belfry" policy check mine.bpf.o
	status 0 "$belfry" policy load mine.bpf.o
	status 0 "$belfry" policy unload
fi

# The policy of the configuration is loaded at the start and after a reload. If it cannot be loaded, the built-in decides.
status 0 "$belfry" policy load fair
printf '[sharing]\npolicy = %s\npolicy_set = slice_us=7000 is_strict=0\n' "$objects/least.bpf.o" >>"$work/conf"
status 0 "$belfry" reload
until_so is_policy least
status 0 "$belfry" policy load fair
status 0 "$belfry" reload
is_policy fair || fail "a reload that changes nothing takes a policy away that was loaded by hand"
sed -i '/^policy/d' "$work/conf"
status 0 "$belfry" reload
until_so is_policy built-in
# --check and reload report an error with its line. Such a reload changes nothing.
lines=$(wc -l <"$work/conf")
while IFS='|' read -r text line; do
	head -n "$lines" "$work/conf" >"$work/wrong"
	printf '%b\n' "$line" >>"$work/wrong"
	status 1 "$BELFRYD" --check --config "$work/wrong"
	says "$work/wrong:$((lines + 1))" "--check of '$line'"
	says "$text" "--check of '$line'"
	cp "$work/conf" "$work/conf.good"
	cp "$work/wrong" "$work/conf"
	status 1 "$belfry" reload
	says "$text" "reload with '$line'"
	is_policy built-in || fail "a reload that was refused changed something: '$line'"
	mv "$work/conf.good" "$work/conf"
done <<'END'
policy no_such_policy: neither a file|policy = no_such_policy
policy /no/such.bpf.o: No such file|policy = /no/such.bpf.o
'bogus' cannot be set|policy_set = bogus=5\npolicy = edf
'margin_ns=x': not a whole number|policy_set = margin_ns=x\npolicy = edf
'margin_ns': not NAME=VALUE|policy_set = margin_ns\npolicy = edf
the built-in has nothing to set|policy_set = margin_ns=5
the built-in has nothing to set|policy_set = margin_ns=5\npolicy = built-in
END
# Only the kernel can verify a policy. --check asks it. A reload does not, and the GPU server logs the error.
echo "policy = $objects/unverified.bpf.o" >>"$work/conf"
status 1 "$BELFRYD" --check --config "$work/conf"
says "the kernel's verifier refuses program" "--check of what the verifier refuses"
status 0 "$belfry" reload
until_so grep -q 'the configured policy is not loaded: .*unverified.bpf.o: the kernel' "$work/log"
is_policy built-in || fail "a policy that is refused decides"
end_daemon
# belfryd starts without a policy that does not exist.
sed -i 's/^policy = .*/policy = no_such_policy/' "$work/conf"
start_daemon
grep -q "$work/conf:.*: policy no_such_policy: neither a file" "$work/log" || fail "a start without its policy is not told of"
until_so grep -q 'the configured policy is not loaded: no_such_policy' "$work/log"
is_policy built-in || fail "a policy that is not there decides"
end_daemon
sed -i 's/^policy = .*/policy = fair/' "$work/conf"
status 0 "$BELFRYD" --check --config "$work/conf"
start_daemon
is_policy fair || fail "the configured policy does not decide from the start on"
server=$(server_pids)
"$belfry" policy load "$objects/slow_to_verify.bpf.o" >"$work/slow" 2>&1 &
until_so is_verifying
end_daemon # while the policy is being verified
exit "$failed"
