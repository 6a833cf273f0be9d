// SPDX-License-Identifier: MIT
/*
 * The gather/scatter kernel as PTX text, which the driver compiles for the
 * device at hand.  In C it is, for T of 16, 4 and 1 bytes:
 *
 *	void kvmm_copy(struct cu_copy_args a)
 *	{
 *		const struct cu_copy_desc *d = &a.desc[blockIdx.y];
 *
 *		for (f = blockIdx.x; f < d->count; f += gridDim.x) {
 *			src = d->src + f * d->src_stride;
 *			dst = d->dst + f * d->dst_stride;
 *			for (i = threadIdx.x; i < d->bytes / sizeof(T);
 *			     i += 4 * 256)
 *				load up to four T at i + {0, 1, 2, 3} * 256,
 *				then store them;
 *		}
 *	}
 *
 * Four loads are in flight per thread, as host memory is a microsecond away.
 * PTX 7.0 is what CUDA 11.0 knows; sm_70 code runs on everything since.
 * The layout of the argument is in cuda_abi.h.
 */
#include "cuda_abi.h"

/* One load of the four: it, and what depends on it, is skipped at the end. */
#define LOAD(N, OFF, TYPE, REG) \
	"	add.u32		%i" #N ", %i0, " OFF ";\n" \
	"	setp.lt.u32	%t" #N ", %i" #N ", %bytes;\n" \
	"	cvt.u64.u32	%o" #N ", %i" #N ";\n" \
	"	add.u64		%s" #N ", %src, %o" #N ";\n" \
	"	add.u64		%d" #N ", %dst, %o" #N ";\n" \
	"	@%t" #N " ld.global." TYPE " " REG ", [%s" #N "];\n"

#define STORE(N, TYPE, REG) \
	"	@%t" #N " st.global." TYPE " [%d" #N "], " REG ";\n"

#define KERNEL(NAME, SHIFT, STEP, STEP2, STEP3, STEP4, TYPE, R1, R2, R3, R4) \
	".visible .entry " NAME "(.param .align 8 .b8 args[4008])\n" \
	"{\n" \
	"	.reg .pred	%t<8>;\n" \
	"	.reg .b32	%f, %count, %bytes, %nx, %y, %start;\n" \
	"	.reg .b32	%i<5>, %v<17>;\n" \
	"	.reg .b16	%h<5>;\n" \
	"	.reg .b64	%arg, %desc, %src, %dst, %wide;\n" \
	"	.reg .b64	%src0, %dst0, %sstep, %dstep;\n" \
	"	.reg .b64	%o<5>, %s<5>, %d<5>;\n" \
	"	mov.b64		%arg, args;\n" \
	"	mov.u32		%y, %ctaid.y;\n" \
	"	mul.wide.u32	%desc, %y, 40;\n" \
	"	add.u64		%desc, %desc, %arg;\n" \
	"	ld.param.u64	%src0, [%desc+8];\n" \
	"	ld.param.u64	%dst0, [%desc+16];\n" \
	"	ld.param.u64	%sstep, [%desc+24];\n" \
	"	ld.param.u64	%dstep, [%desc+32];\n" \
	"	ld.param.u32	%bytes, [%desc+40];\n" \
	"	ld.param.u32	%count, [%desc+44];\n" \
	"	mov.u32		%f, %ctaid.x;\n" \
	"	mov.u32		%nx, %nctaid.x;\n" \
	"	mov.u32		%start, %tid.x;\n" \
	"	shl.b32		%start, %start, " SHIFT ";\n" \
	"NEXT_FRAGMENT:\n" \
	"	setp.ge.u32	%t5, %f, %count;\n" \
	"	@%t5 bra	DONE;\n" \
	"	cvt.u64.u32	%wide, %f;\n" \
	"	mad.lo.u64	%src, %wide, %sstep, %src0;\n" \
	"	mad.lo.u64	%dst, %wide, %dstep, %dst0;\n" \
	"	mov.u32		%i0, %start;\n" \
	"NEXT_FOUR:\n" \
	"	setp.ge.u32	%t6, %i0, %bytes;\n" \
	"	@%t6 bra	FRAGMENT_DONE;\n" \
	LOAD(1, "0", TYPE, R1) \
	LOAD(2, STEP, TYPE, R2) \
	LOAD(3, STEP2, TYPE, R3) \
	LOAD(4, STEP3, TYPE, R4) \
	STORE(1, TYPE, R1) \
	STORE(2, TYPE, R2) \
	STORE(3, TYPE, R3) \
	STORE(4, TYPE, R4) \
	"	add.u32		%i0, %i0, " STEP4 ";\n" \
	"	bra		NEXT_FOUR;\n" \
	"FRAGMENT_DONE:\n" \
	"	add.u32		%f, %f, %nx;\n" \
	"	bra		NEXT_FRAGMENT;\n" \
	"DONE:\n" \
	"	ret;\n" \
	"}\n"

const char gpu_cuda_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	KERNEL("kvmm_copy_16", "4", "4096", "8192", "12288", "16384", "v4.u32",
	       "{%v1, %v2, %v3, %v4}", "{%v5, %v6, %v7, %v8}",
	       "{%v9, %v10, %v11, %v12}", "{%v13, %v14, %v15, %v16}")
	KERNEL("kvmm_copy_4", "2", "1024", "2048", "3072", "4096", "u32",
	       "%v1", "%v2", "%v3", "%v4")
	KERNEL("kvmm_copy_1", "0", "256", "512", "768", "1024", "u8",
	       "%h1", "%h2", "%h3", "%h4");
