#!/bin/bash
# Probes in running programs: attached before and while they run, all ways to load a module, dumps at any time, and processes
# that do not cooperate. Counts are exact, and results are the same with and without probes.
# Functions are called by name:
# shellcheck disable=SC1091,SC2015,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
: "${BELFRY_SOURCE_DIR:?}"
export BELFRY_SOFT="sms=8,mem=1G,linger=1,name=probe$$"
here=$(dirname "$0")
. "$here/probing.sh"

echo '== what is in a probe'
status 0 "$belfry" probe check kernelstat
told 'program: kernelstat_exit at kernel_exit' "what is in it"
grep -qE '^  map: kernels, hash of [0-9]+ entries, keys of 8 and values of [0-9]+ bytes$' "$work/out" ||
	fail "the map of kernelstat: $(cat "$work/out")"
# What attach would refuse.
status 1 "$belfry" probe check "$objects/huge.bpf.o"
says 'the limit is 16 MiB' "maps that are too large"
status 1 "$belfry" probe check "$objects/writes.bpf.o"
says 'writes.bpf.c:' "the line of a refusal"
status 1 "$belfry" probe check no_such
says 'neither a file nor a probe that comes with Belfry; those are' "a name that is not there"

echo '== results without probes'
status 0 "$belfry" create a
status 0 "$belfry" create plain
begin plain
for how in data library; do
	ordered plain "$how"
	ordered plain launch step 32 128 5
done
ordered plain result
expected=$answer
status 0 "$belfry" probe attach kernelstat --vgpu plain
told 'not reachable: started without --probes' "a program without the library"
status 0 "$belfry" probe ls --vgpu plain
told 'not reachable: started without --probes' "a program without the library"
told 'no kernel carries it yet' "a probe that is in no kernel"
status 0 "$belfry" probe dump --vgpu plain
told 'no process has carried it' "a dump of nothing"
finish plain

echo '== attached before the program starts'
status 0 "$belfry" probe attach kernelstat --vgpu a
begin a --probes
for how in data library; do
	ordered a "$how"
	ordered a launch step 32 128 5
done
ordered a result
[ "$answer" = "$expected" ] || fail "the result with a probe is $answer, not $expected"
exactly kernelstat 10 step
has_threads() { [ "$(counted kernelstat threads step)" = $((10 * 32 * 128)) ]; }
until_so has_threads
status 0 "$belfry" probe ls --vgpu a
told "in step, process $(process_of a)" "the kernels that carry it"

echo '== all ways to load a module'
cat >"$work/k.ptx" <<-'END'
	.version 7.0
	.target sm_70
	.address_size 64
	.visible .entry step(.param .u64 array)
	{
		.reg .u32 %r<3>;
		.reg .u64 %rd<2>;
		ld.param.u64 %rd1, [array];
		ld.global.u32 %r1, [%rd1];
		add.u32 %r2, %r1, 1;
		ret;
	}
END
# A fat binary with that PTX, not compressed and compressed, and one with machine code only.
python3 - "$work" <<-'END'
	import struct, sys
	folder = sys.argv[1]
	text = open(folder + "/k.ptx", "rb").read() + b"\0"
	def entry(kind, data, flags, packed, unpacked):
	    data += b"\0" * (-len(data) % 8)
	    head = struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(data), packed, 0, 0, 70, 0, 0, flags, 0, unpacked)
	    return head + data
	def lz4(data):
	    # One sequence of literals: a valid block that is not smaller.
	    rest = len(data) - 15
	    head = bytes([0xf0])
	    while rest >= 255:
	        head += b"\xff"
	        rest -= 255
	    return head + bytes([rest]) + data
	def write(name, one):
	    open(folder + name, "wb").write(struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(one)) + one)
	write("/k.fatbin", entry(1, text, 0x11, 0, 0))
	packed = lz4(text)
	write("/k.lz4.fatbin", entry(1, packed, 0x2011, len(packed), len(text)))
	elf = b"\x7fELF" + bytes(252)
	write("/code.fatbin", entry(2, elf, 0x11, 0, 0))
END
calls=10
for how in ex "file $work/k.ptx" "libfile $work/k.ptx" "fat $work/k.fatbin" "image $work/k.fatbin" "fat $work/k.lz4.fatbin" link; do
	ordered a "$how"
	ordered a launch step 3 64 2
	calls=$((calls + 2))
	exactly kernelstat "$calls" step
done

echo '== machine code only'
order a image "$work/code.fatbin"
status 0 "$belfry" probe ls --vgpu a
told 'machine code only, without PTX: not instrumentable' "a module without PTX"

echo '== a second probe, attached while the program runs'
status 0 "$belfry" probe attach "$objects/count.bpf.o" --vgpu a --kernel 'no_such*'
status 0 "$belfry" probe attach blocktime --vgpu a --kernel 'st*'
ordered a launch step 3 64 2
calls=$((calls + 2))
until_so dumps 'no kernel of it carries the probe' blocktime
ordered a data
ordered a launch step 3 64 2
ordered a launch none 3 64 2
calls=$((calls + 2))
exactly kernelstat "$calls" step
exactly kernelstat 2 none
until_so dumps 'time of a block' blocktime
status 0 "$belfry" probe ls --vgpu a
told "no kernel matches 'no_such*'" "a pattern that matches nothing"

echo '== in a capture, and in another context'
ordered a capture
exactly kernelstat "$calls" step
ordered a captured
calls=$((calls + 1))
exactly kernelstat "$calls" step
ordered a context
exactly kernelstat "$calls" step
ordered a data
ordered a launch step 3 64 2
calls=$((calls + 2))
exactly kernelstat "$calls" step

echo '== logs of the driver'
begin plain
ordered plain log
expected_log=$answer
finish plain
ordered a log
[ "$answer" = "$expected_log" ] || fail "with a probe the log is $answer, not $expected_log"

echo '== the program ends'
ordered a linger "$work/go"
leave_alone a
until_so dumps 'ended: its last copy' kernelstat
exactly kernelstat "$calls" step # and not twice, though the process lives
[ -d "/proc/$(process_of a)" ] || fail "the process has ended too early"
touch "$work/go"
wait "${probed[a]}" || fail "the program on a: $(cat "$work/a.err")"
exactly kernelstat "$calls" step
status 0 "$belfry" probe dump kernelstat --vgpu a
told 'ended: its last copy' "a process that has ended"

echo '== processes are added up'
begin a --probes
ordered a data
ordered a launch step 3 64 4
exactly kernelstat $((calls + 4)) step
echo leave >&"${inputs[a]}"
wait "${probed[a]}"
leave_alone a
until_so is_counted kernelstat "$calls" step
status 0 "$belfry" probe dump kernelstat --vgpu a
told 'it ended without a last copy' "a process that did not hand over a copy"

echo '== detach'
status 0 "$belfry" probe detach blocktime --vgpu a
status 1 "$belfry" probe detach blocktime --vgpu a
says "it has no probe 'blocktime'" "a probe that is not there"
begin a --probes
ordered a data
status 0 "$belfry" probe detach --all --vgpu a
ordered a launch step 32 128 5
ordered a library
ordered a launch step 32 128 5
ordered a result
[ "$answer" = "$expected" ] || fail "the result after detach is $answer, not $expected"
status 1 "$belfry" probe dump --vgpu a
says 'it has no probes' "a dump without probes"

echo '== one process only'
status 0 "$belfry" probe attach kernelstat --vgpu a --process 1
ordered a data
ordered a launch step 1 32 1
status 0 "$belfry" probe dump --vgpu a
told 'no process has carried it' "a probe for another process"
status 0 "$belfry" probe detach --all --vgpu a
status 0 "$belfry" probe attach kernelstat --vgpu a --process "$(process_of a)"
until_so dumps 'no kernel of it carries the probe' # the process has received it
ordered a data
ordered a launch step 1 32 3
exactly kernelstat 3 step

echo '== killed in a dump'
for _ in 1 2 3; do
	timeout 60 "$belfry" probe dump --vgpu a >"$work/dump" 2>&1 &
	dumping=$!
	kill -9 "$(process_of a)"
	wait "${probed[a]}"
	wait "$dumping" || fail "a dump of a process that was killed: $(cat "$work/dump")"
	leave_alone a
	begin a --probes
	ordered a data
done
finish a
status 0 "$belfry" probe detach --all --vgpu a

echo '== the most probes'
for _ in 1 2 3 4 5 6 7 8; do
	status 0 "$belfry" probe attach "$objects/count.bpf.o" --vgpu a
done
status 1 "$belfry" probe attach "$objects/count.bpf.o" --vgpu a
says 'it has 8 probes, the most there may be' "one too many"
status 1 "$belfry" probe detach count --vgpu a
says '8 probes have this name; give the number' "a name of several"
status 0 "$belfry" probe detach --all --vgpu a

echo '== objects that are no probes'
head -c 100000 /dev/urandom >"$work/garbage"
status 1 "$belfry" probe attach "$work/garbage" --vgpu a
head -c 2000000 /dev/zero >"$work/huge"
status 1 "$belfry" probe attach "$work/huge" --vgpu a
says 'a probe has at most 1 MiB' "a huge object"
status 1 "$belfry" probe attach "$objects/writes.bpf.o" --vgpu a
says 'writes.bpf' "a refusal"
status 2 "$belfry" probe attach kernelstat
status 1 "$belfry" probe attach kernelstat --vgpu no_such

echo '== processes that answer wrongly, or not at all'
status 0 "$belfry" probe attach kernelstat --vgpu a
status 0 "$belfry" probe ls --vgpu a --json
bytes=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["probes"][0]["area_bytes"])' <"$work/out")
socket=$(echo "$BELFRY_RUNTIME_DIR"/probe.*)
[ -S "$socket" ] || fail "no socket: $socket"
peers='unsealed short pipe random ones text flood garbage never'
if is_sanitized; then
	echo 'left out: python3 cannot load a libcuda.so.1 with a sanitizer in it'
	peers=
fi
for how in $peers; do
	mkfifo "$work/peer.$how"
	PEER_SOCKET=$socket timeout 300 "$belfry" run a -- python3 "$here/probe_peer.py" "$how" "$bytes" <"$work/peer.$how" \
		>"$work/peer.out" 2>"$work/peer.err" &
	peer=$!
	exec {in}>"$work/peer.$how"
	until_so has_line there "$work/peer.out"
	status 0 "$belfry" probe dump --vgpu a --json
	python3 -m json.tool <"$work/out" >/dev/null || fail "$how: not JSON"
	! grep -q $'\x1b' "$work/out" || fail "$how: control characters"
	case $how in
	unsealed | short) until_so dumps 'not a copy of the probe' ;;
	pipe) until_so dumps 'ended without a last copy' ;; # its connection is closed
	ones | random) until_so dumps 'the program has written to the memory of the probe' ;;
	never) until_so dumps 'it has not answered within 3 seconds' ;;
	*) status 0 "$belfry" probe dump --vgpu a ;;
	esac
	status 0 "$belfry" probe ls --vgpu a
	exec {in}>&-
	wait "$peer" || fail "the peer: $(cat "$work/peer.err")"
	status 0 "$belfry" probe detach --all --vgpu a
	status 0 "$belfry" probe attach kernelstat --vgpu a
done
# A process outside gets no probes.
cat >"$work/outside.py" <<-'END'
	import socket, sys
	sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	sock.connect(sys.argv[1])
	print(len(sock.recv(1000)))
END
[ "$(timeout 60 python3 "$work/outside.py" "$socket")" = 0 ] || fail "a process outside gets probes"
[ -n "$(server_pid a)" ] || fail "the GPU server has ended"

echo '== a program of the CUDA runtime'
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
status 0 "$belfry" probe detach --all --vgpu a
if is_sanitized || ! [ -x "$nvcc" ]; then
	echo "left out: nvcc is not here, or the libraries have a sanitizer"
else
	cat >"$work/runtime.cu" <<-'END'
		#include <cstdio>
		__device__ int seven = 7;
		namespace space {
		template <int by> __global__ void times(int *array) { array[threadIdx.x] = array[threadIdx.x] * by + seven; }
		}
		int main()
		{
			int *array, result[64];
			cudaMalloc(&array, sizeof(result));
			cudaMemset(array, 0, sizeof(result));
			for (int i = 0; i < 9; i++)
				space::times<3><<<1, 64>>>(array);
			if (cudaMemcpy(result, array, sizeof(result), cudaMemcpyDeviceToHost))
				return 1;
			printf("%d %d\n", result[0], result[63]);
			return 0;
		}
	END
	"$nvcc" -gencode arch=compute_90,code=compute_90 -o "$work/runtime" "$work/runtime.cu" >"$work/nvcc" 2>&1 ||
		fail "nvcc: $(cat "$work/nvcc")"
	status 0 "$belfry" run a -- "$work/runtime"
	without=$(cat "$work/out")
	status 0 "$belfry" probe attach kernelstat --vgpu a --kernel times
	status 0 "$belfry" run --probes a -- "$work/runtime"
	[ "$(cat "$work/out")" = "$without" ] || fail "the runtime's result: $(cat "$work/out"), not $without"
	exactly kernelstat 9 space::times
fi

echo '== the vGPU is removed'
begin a --probes
ordered a data
status 0 "$belfry" rm --force a
leave_alone a
wait "${probed[a]}"
status 1 "$belfry" probe ls --vgpu a

exit "$failed"
