#!/bin/bash
# Kernels that Triton compiles carry probes: belfry-ptxas adds the PTX to what ptxas makes. A program that does what Triton does
# stands for Triton, and a script for its ptxas.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRY_SOURCE_DIR:?}"
export BELFRY_SOFT="sms=8,mem=1G,linger=1,name=triton$$"
here=$(cd "$(dirname "$0")" && pwd)
. "$here/probing.sh"
front="$BELFRY_BUILD_DIR/belfry-ptxas"
package="$work/site-packages/triton"
mkdir -p "$package/_C" "$package/backends/nvidia/bin" "$work/bin" "$work/empty"
echo library >"$package/_C/libtriton.so"
unset TRITON_PTXAS_PATH BELFRY_PTXAS

# fake_ptxas PATH: writes an ELF file of 100 bytes, as ptxas 12.8 would begin it.
fake_ptxas() {
	cat >"$1" <<-'END'
		#!/bin/bash
		for ((i = 1; i <= $#; i++)); do
			case ${!i} in
			--version) printf 'ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 12.8, V12.8.93\n'; exit ;;
			-o) i=$((i + 1)) output=${!i} ;;
			--output-file=*) output=${!i#*=} ;;
			*.bad) echo "ptxas fatal : bad" >&2; exit 255 ;;
			*.crash) kill -TERM $$ ;;
			esac
		done
		{ printf '\177ELF\002\001\001\063\007'; head -c 91 /dev/zero; } >"$output"
		echo 'ptxas info : 0 bytes gmem' >&2
	END
	chmod +x "$1"
}
fake_ptxas "$package/backends/nvidia/bin/ptxas"
real=$package/backends/nvidia/bin/ptxas
ptx=$BELFRY_SOURCE_DIR/tests/data/ptx/triton.ptx
starts_with() { [ "$(head -c 4 "$1" | od -An -tx1 | tr -d ' \n')" = "$2" ]; }
elf=7f454c46 fat=50ed55ba

echo '== belfry-ptxas by itself'
export BELFRY_PTXAS=$real
status 0 "$front" --version
told 'release 12.8, V12.8.93' "the version of the real one"
[ "$("$front" --version)" != "$("$real" --version)" ] || fail "a cache cannot tell the two apart"
status 0 "$front" -lineinfo -v --gpu-name=sm_90a "$ptx" -o "$work/o"
starts_with "$work/o" "$fat" || fail "the output is not a fat binary"
says 'ptxas info' "the messages of ptxas"
status 0 "$front" --output-file="$work/o2" "$ptx" -arch sm_90a
cmp -s "$work/o" "$work/o2" || fail "another order of the same arguments gives another output"
for options in --fmad=false '--opt-level 0' -O0 -g -c; do
	# shellcheck disable=SC2086
	status 0 "$front" $options --gpu-name=sm_90a "$ptx" -o "$work/o"
	starts_with "$work/o" "$elf" || fail "$options: the output is changed"
done
status 0 "$front" --gpu-name=sm_100a "$ptx" -o "$work/o"
starts_with "$work/o" "$elf" || fail "a target that is not known: the output is changed"
echo .version >"$work/x.bad"
cp "$work/x.bad" "$work/x.crash"
status 255 "$front" --gpu-name=sm_90a "$work/x.bad" -o "$work/o"
says 'ptxas fatal : bad' "why ptxas failed"
status 143 "$front" --gpu-name=sm_90a "$work/x.crash" -o "$work/o"
status 0 "$front" --gpu-name=sm_90a "$work/x.bad.txt" "$ptx" -o "$work/o"
BELFRY_PTXAS=/nonexistent status 127 "$front" --version
says 'ptxas: not found' "no ptxas"
BELFRY_PTXAS=$front status 127 "$front" --version
says 'ptxas: not found' "itself as ptxas"
unset BELFRY_PTXAS
[ -z "$(find "$work" -maxdepth 1 -name '*.belfry-*')" ] || fail "a file is left"

echo '== what belfry run sets'
status 0 "$belfry" create a
status 0 "$belfry" run --probes a -- sh -c 'echo "$TRITON_PTXAS_PATH"'
told "$front" "the path of belfry-ptxas"
status 0 "$belfry" run a -- sh -c 'echo "<$TRITON_PTXAS_PATH>"'
told '<>' "nothing without --probes"
TRITON_PTXAS_PATH=/mine status 0 "$belfry" run --probes a -- sh -c 'echo "$TRITON_PTXAS_PATH"'
told /mine "the user's own path"

echo '== the measurement, with a program in the place of Triton'
python=$(command -v python3)
cat >"$work/bin/python3" <<-END
	#!/bin/bash
	case \${2:-} in
	check) ;;
	run) exec "$python" "$here/fake_triton.py" "$package" "$programs/probed" "$ptx" ;;
	*) exec "$python" "\$@" ;;
	esac
END
chmod +x "$work/bin/python3"
PATH=$work/bin:$PATH timeout 300 bash "$BELFRY_SOURCE_DIR/bench/probe_triton.sh" 2 >"$work/out" 2>&1 ||
	fail "bench/probe_triton.sh: $(cat "$work/out")"
[ "$(grep -c ' exact$' "$work/out")" = 4 ] || fail "not all counts are exact: $(cat "$work/out")"
grep -q DIFFER "$work/out" && fail "a probe changes the result: $(cat "$work/out")"
told 'in belfry_add' "which kernel carries the probe"
grep -q '^add *time .* same$' "$work/out" || fail "no row for the time probe: $(cat "$work/out")"

exit "$failed"
