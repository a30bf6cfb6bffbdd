#!/bin/sh
# The table of third_party.sh: each result from a program that must get it. The .cu programs need nvcc.
set -eu
if grep -qE '__(asan|tsan)_init' "$BELFRY"; then
	echo 'skipped: programs that nvcc makes do not load a library with a sanitizer in it'
	exit 77
fi
folder=$(mktemp -d /tmp/belfry-third-test.XXXXXX)
trap 'rm -rf "$folder"' EXIT
programs=$folder/programs
mkdir -p "$programs/apart" "$programs/made" "$programs/parts"

# program FILE TEXT: a script that does this
program() {
	printf '#!/bin/sh\n%s\n' "$2" >"$1"
	chmod +x "$1"
}
program "$programs/good" 'exit 0'
program "$programs/bad" 'echo "row 3 is wrong"; exit 3'
program "$programs/slow" 'exec sleep 100'
# shellcheck disable=SC2016
program "$programs/asks" '[ "$1 $2" = "-n 5" ]'
echo "-n 5" >"$programs/asks.args"
# shellcheck disable=SC2016
program "$programs/apart/inside" '[ "$(basename "$PWD")" = apart ]'
echo 'int main() { return this is no program; }' >"$programs/made/needs_make.cu"
touch "$programs/made/Makefile"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ -x "$nvcc" ]; then
	cat >"$programs/sums.cu" <<'CU'
__global__ void sum(int *out) { atomicAdd(out, (int)threadIdx.x); }
int main()
{
	int *out, got = 0;
	cudaMalloc(&out, sizeof(got));
	cudaMemset(out, 0, sizeof(got));
	sum<<<2, 64>>>(out);
	cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost);
	return got != 2 * 63 * 32;
}
CU
	cat >"$programs/video.cu" <<'CU'
__global__ void video(unsigned *out) { asm volatile("vadd.u32.u32.u32 %0, %1, %2;" : "=r"(*out) : "r"(1u), "r"(2u)); }
int main()
{
	video<<<1, 1>>>(nullptr);
	return cudaDeviceSynchronize() != cudaSuccess || cudaGetLastError() != cudaSuccess;
}
CU
	echo 'int main() { return none; }' >"$programs/broken.cu"
	echo 'int other() { return 0; }' >"$programs/parts/other.cu"
	echo 'int other(); int main() { return other(); }' >"$programs/parts/main.cu"
else
	echo "nvcc is not here: programs from sources are left out"
fi

fail() {
	cat "$folder/table" >&2
	echo "third_party.sh: $1" >&2
	exit 1
}
# has LINE: the table has a line that matches
has() {
	grep -q "^$1" "$folder/table" || fail "no line '$1'"
}

status=0
"$BELFRY_SOURCE_DIR/tests/third_party.sh" "$programs" 5 >"$folder/table" || status=$?
[ "$status" -eq 1 ] || fail "exit status $status, not 1"
has '| good | right |  |'
has '| bad | wrong | exit status 3: row 3 is wrong |'
has '| slow | timed out | 5 s |'
has '| asks | right |'
has '| apart/inside | right |'
! grep -q needs_make "$folder/table" || fail "it built what has a Makefile"
if [ -x "$nvcc" ]; then
	has '| sums | right |'
	has '| video | refused | PTX line [0-9]*: instruction vadd.u32.u32.u32 is not supported (in _Z5videoPj) |'
	has '| broken | not built | .*error'
	has '| parts | right |'
	has '5 right, 1 wrong, 1 refused, 1 timed out, 1 not built'
else
	has '3 right, 1 wrong, 0 refused, 1 timed out, 0 not built'
fi
rm "$programs/bad" "$programs/slow"
"$BELFRY_SOURCE_DIR/tests/third_party.sh" "$programs" 60 >"$folder/table" || fail "exit status $? without wrong programs"
status=0
"$BELFRY_SOURCE_DIR/tests/third_party.sh" "$folder/nothing" 2>/dev/null || status=$?
[ "$status" -eq 2 ] || fail "exit status $status for a folder that is not there"
