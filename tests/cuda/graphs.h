/* Nodes for the tests of graphs: a kernel that mixes two numbers into a third, a fill, a copy. */
#ifndef TESTS_CUDA_GRAPHS_H
#define TESTS_CUDA_GRAPHS_H

#include "check.h"

/* mix(slots, to, a, b, k): slots[to] = slots[a] * 31 + slots[b] * 7 + k. It takes its time, so that what does not wait
 * for it is seen. meet(flag, want, say, out): sets `say` in *flag and waits for `want` there, for a while; *out = 1 if it
 * came. stamp(out): out[block] is the SM that it runs on. */
static const char graphs_ptx[] = PTX_HEAD
	".visible .entry mix(.param .u64 slots, .param .u32 to, .param .u32 a, .param .u32 b, .param .u32 k)\n"
	"{\n"
	".reg .b32 %r<10>; .reg .b64 %d<8>; .reg .pred %p<2>;\n"
	"ld.param.u64 %d0, [slots];\n"
	"ld.param.u32 %r0, [to];\n"
	"ld.param.u32 %r1, [a];\n"
	"ld.param.u32 %r2, [b];\n"
	"ld.param.u32 %r3, [k];\n"
	"and.b32 %r8, %r3, 255;\n"
	"slow:\n"
	"setp.eq.u32 %p0, %r8, 0;\n"
	"@%p0 bra go;\n"
	"sub.u32 %r8, %r8, 1;\n"
	"bra slow;\n"
	"go:\n"
	"mul.wide.u32 %d1, %r1, 4;\n"
	"add.u64 %d1, %d1, %d0;\n"
	"ld.global.u32 %r4, [%d1];\n"
	"mul.wide.u32 %d2, %r2, 4;\n"
	"add.u64 %d2, %d2, %d0;\n"
	"ld.global.u32 %r5, [%d2];\n"
	"mad.lo.u32 %r6, %r4, 31, %r3;\n"
	"mad.lo.u32 %r6, %r5, 7, %r6;\n"
	"mul.wide.u32 %d3, %r0, 4;\n"
	"add.u64 %d3, %d3, %d0;\n"
	"st.global.u32 [%d3], %r6;\n"
	"ret;\n}\n"
	".visible .entry meet(.param .u64 flag, .param .u32 want, .param .u32 say, .param .u64 out)\n"
	"{\n"
	".reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p<2>;\n"
	"ld.param.u64 %d0, [flag];\n"
	"ld.param.u64 %d1, [out];\n"
	"ld.param.u32 %r0, [want];\n"
	"ld.param.u32 %r1, [say];\n"
	"atom.global.or.b32 %r2, [%d0], %r1;\n"
	"mov.u32 %r3, 0;\n"
	"again:\n"
	"ld.volatile.global.u32 %r2, [%d0];\n"
	"and.b32 %r4, %r2, %r0;\n"
	"setp.ne.u32 %p0, %r4, 0;\n"
	"@%p0 bra met;\n"
	"add.u32 %r3, %r3, 1;\n"
	"setp.lt.u32 %p0, %r3, 30000000;\n"
	"@%p0 bra again;\n"
	"bra done;\n"
	"met:\n"
	"mov.u32 %r5, 1;\n"
	"st.global.u32 [%d1], %r5;\n"
	"done:\n"
	"ret;\n}\n"
	".visible .entry stamp(.param .u64 out)\n"
	"{\n"
	".reg .b32 %r<4>; .reg .b64 %d<4>;\n"
	"ld.param.u64 %d0, [out];\n"
	"mov.u32 %r0, %smid;\n"
	"mov.u32 %r1, %ctaid.x;\n"
	"mul.wide.u32 %d1, %r1, 4;\n"
	"add.u64 %d1, %d1, %d0;\n"
	"st.global.u32 [%d1], %r0;\n"
	"ret;\n}\n";

/* What it computes. */
static inline uint32_t graphs_mixed(uint32_t a, uint32_t b, uint32_t k)
{
	return a * 31 + b * 7 + k;
}

static CUfunction graphs_mix, graphs_meet, graphs_stamp;

static inline void graphs_begin(void)
{
	CUmodule module;

	if (graphs_mix)
		return;
	CU(cuModuleLoadData(&module, graphs_ptx));
	CU(cuModuleGetFunction(&graphs_mix, module, "mix"));
	CU(cuModuleGetFunction(&graphs_meet, module, "meet"));
	CU(cuModuleGetFunction(&graphs_stamp, module, "stamp"));
}

static inline CUgraphNode graphs_add_mix(CUgraph graph, const CUgraphNode *deps, size_t count,
					 CUdeviceptr slots, uint32_t to, uint32_t a, uint32_t b, uint32_t k)
{
	void *list[] = { &slots, &to, &a, &b, &k };
	CUDA_KERNEL_NODE_PARAMS params = { .func = graphs_mix,
					   .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = list };
	CUgraphNode node;

	CU(cuGraphAddKernelNode_v2(&node, graph, deps, count, &params));
	return node;
}

static inline CUgraphNode graphs_add_fill(CUgraph graph, const CUgraphNode *deps, size_t count,
					  CUdeviceptr to, uint32_t value)
{
	CUDA_MEMSET_NODE_PARAMS params = {
		.dst = to, .value = value, .elementSize = 4, .width = 1, .height = 1
	};
	CUcontext context;
	CUgraphNode node;

	CU(cuCtxGetCurrent(&context));
	CU(cuGraphAddMemsetNode(&node, graph, deps, count, &params, context));
	return node;
}

static inline CUgraphNode graphs_add_copy(CUgraph graph, const CUgraphNode *deps, size_t count,
					  CUdeviceptr from, CUdeviceptr to, size_t bytes)
{
	CUDA_MEMCPY3D params = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				 .srcDevice = from,
				 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				 .dstDevice = to,
				 .WidthInBytes = bytes,
				 .Height = 1,
				 .Depth = 1 };
	CUcontext context;
	CUgraphNode node;

	CU(cuCtxGetCurrent(&context));
	CU(cuGraphAddMemcpyNode(&node, graph, deps, count, &params, context));
	return node;
}

#endif
