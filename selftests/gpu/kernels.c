// SPDX-License-Identifier: MIT
/*
 * Two kernels as PTX text, which the driver compiles for the device at hand.
 *
 * kvmm_read sums frames where they are, in host memory.  In C, with 256 threads
 * a block and block (x, y) at work on frame y:
 *
 *	void kvmm_read(u64 base, u64 out, u32 bytes)
 *	{
 *		u64 sum = 0;
 *
 *		for (i = (blockIdx.x * 256 + threadIdx.x) * 16; i < bytes;
 *		     i += gridDim.x * 4096)
 *			for the four words at base + blockIdx.y * bytes + i:
 *				sum += word * (2 * its index + 1);
 *		atomicAdd(&out[blockIdx.y], sum);
 *	}
 *
 * The factors make a word in the wrong place show.
 *
 * kvmm_product is a matrix product for a GPU to be busy with.  A thread has
 * four rows of four columns; a block, 32 rows of 128 columns:
 *
 *	void kvmm_product(float *a, float *b, float *c, u32 n)
 *
 * No thread waits for another, so that an interpreter can run one by one.
 * PTX 7.0 and sm_70, as gpu-shim's.
 */
#include "check.h"

#define READ_WORD(R) \
	"	mad.wide.u32	%sum, " R ", %k, %sum;\n" \
	"	add.u32		%k, %k, 2;\n"

#define FMA_ROW(R) \
	"	fma.rn.f32	%c" R "0, %a" R ", %b0, %c" R "0;\n" \
	"	fma.rn.f32	%c" R "1, %a" R ", %b1, %c" R "1;\n" \
	"	fma.rn.f32	%c" R "2, %a" R ", %b2, %c" R "2;\n" \
	"	fma.rn.f32	%c" R "3, %a" R ", %b3, %c" R "3;\n"

#define ZERO_ROW(R) \
	"	mov.f32		%c" R "0, 0f00000000;\n" \
	"	mov.f32		%c" R "1, 0f00000000;\n" \
	"	mov.f32		%c" R "2, 0f00000000;\n" \
	"	mov.f32		%c" R "3, 0f00000000;\n"

const char check_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry kvmm_read(.param .u64 base, .param .u64 out,\n"
	"	.param .u32 bytes)\n"
	"{\n"
	"	.reg .pred	%t;\n"
	"	.reg .b32	%i, %x, %nx, %y, %thr, %step, %bytes, %k;\n"
	"	.reg .b32	%w0, %w1, %w2, %w3;\n"
	"	.reg .b64	%base, %out, %at, %off, %sum;\n"
	"	ld.param.u64	%base, [base];\n"
	"	ld.param.u64	%out, [out];\n"
	"	ld.param.u32	%bytes, [bytes];\n"
	"	mov.u32		%x, %ctaid.x;\n"
	"	mov.u32		%nx, %nctaid.x;\n"
	"	mov.u32		%y, %ctaid.y;\n"
	"	mov.u32		%thr, %tid.x;\n"
	"	mul.wide.u32	%off, %y, %bytes;\n"
	"	add.u64		%base, %base, %off;\n"
	"	mul.wide.u32	%off, %y, 8;\n"
	"	add.u64		%out, %out, %off;\n"
	"	mov.b64		%sum, 0;\n"
	"	shl.b32		%i, %x, 8;\n"
	"	add.u32		%i, %i, %thr;\n"
	"	shl.b32		%i, %i, 4;\n"
	"	shl.b32		%step, %nx, 12;\n"
	"NEXT:\n"
	"	setp.ge.u32	%t, %i, %bytes;\n"
	"	@%t bra		DONE;\n"
	"	cvt.u64.u32	%off, %i;\n"
	"	add.u64		%at, %base, %off;\n"
	"	ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%at];\n"
	"	shr.u32		%k, %i, 1;\n"
	"	add.u32		%k, %k, 1;\n"
	READ_WORD("%w0")
	READ_WORD("%w1")
	READ_WORD("%w2")
	READ_WORD("%w3")
	"	add.u32		%i, %i, %step;\n"
	"	bra		NEXT;\n"
	"DONE:\n"
	"	red.global.add.u64 [%out], %sum;\n"
	"	ret;\n"
	"}\n"
	".visible .entry kvmm_product(.param .u64 a, .param .u64 b,\n"
	"	.param .u64 c, .param .u32 n)\n"
	"{\n"
	"	.reg .pred	%t;\n"
	"	.reg .b32	%k, %n, %x, %y, %thr, %row, %col, %w;\n"
	"	.reg .f32	%a0, %a1, %a2, %a3, %b0, %b1, %b2, %b3;\n"
	"	.reg .f32	%c00, %c01, %c02, %c03, %c10, %c11, %c12, %c13;\n"
	"	.reg .f32	%c20, %c21, %c22, %c23, %c30, %c31, %c32, %c33;\n"
	"	.reg .b64	%pa0, %pa1, %pa2, %pa3, %pb, %pc, %line, %off;\n"
	"	ld.param.u64	%pa0, [a];\n"
	"	ld.param.u64	%pb, [b];\n"
	"	ld.param.u64	%pc, [c];\n"
	"	ld.param.u32	%n, [n];\n"
	"	mov.u32		%x, %ctaid.x;\n"
	"	mov.u32		%y, %ctaid.y;\n"
	"	mov.u32		%thr, %tid.x;\n"
	/* columns 128 x + 4 (tid % 32), rows 32 y + 4 (tid / 32) */
	"	shl.b32		%col, %x, 7;\n"
	"	and.b32		%w, %thr, 31;\n"
	"	shl.b32		%w, %w, 2;\n"
	"	add.u32		%col, %col, %w;\n"
	"	shl.b32		%row, %y, 5;\n"
	"	shr.u32		%w, %thr, 5;\n"
	"	shl.b32		%w, %w, 2;\n"
	"	add.u32		%row, %row, %w;\n"
	"	mul.wide.u32	%line, %n, 4;\n"
	"	mul.wide.u32	%off, %col, 4;\n"
	"	add.u64		%pb, %pb, %off;\n"
	"	add.u64		%pc, %pc, %off;\n"
	"	cvt.u64.u32	%off, %row;\n"
	"	mad.lo.u64	%pa0, %off, %line, %pa0;\n"
	"	mad.lo.u64	%pc, %off, %line, %pc;\n"
	"	add.u64		%pa1, %pa0, %line;\n"
	"	add.u64		%pa2, %pa1, %line;\n"
	"	add.u64		%pa3, %pa2, %line;\n"
	ZERO_ROW("0")
	ZERO_ROW("1")
	ZERO_ROW("2")
	ZERO_ROW("3")
	"	mov.u32		%k, 0;\n"
	"NEXT:\n"
	"	ld.global.v4.f32 {%b0, %b1, %b2, %b3}, [%pb];\n"
	"	ld.global.f32	%a0, [%pa0];\n"
	"	ld.global.f32	%a1, [%pa1];\n"
	"	ld.global.f32	%a2, [%pa2];\n"
	"	ld.global.f32	%a3, [%pa3];\n"
	FMA_ROW("0")
	FMA_ROW("1")
	FMA_ROW("2")
	FMA_ROW("3")
	"	add.u64		%pb, %pb, %line;\n"
	"	add.u64		%pa0, %pa0, 4;\n"
	"	add.u64		%pa1, %pa1, 4;\n"
	"	add.u64		%pa2, %pa2, 4;\n"
	"	add.u64		%pa3, %pa3, 4;\n"
	"	add.u32		%k, %k, 1;\n"
	"	setp.lt.u32	%t, %k, %n;\n"
	"	@%t bra		NEXT;\n"
	"	st.global.v4.f32 [%pc], {%c00, %c01, %c02, %c03};\n"
	"	add.u64		%pc, %pc, %line;\n"
	"	st.global.v4.f32 [%pc], {%c10, %c11, %c12, %c13};\n"
	"	add.u64		%pc, %pc, %line;\n"
	"	st.global.v4.f32 [%pc], {%c20, %c21, %c22, %c23};\n"
	"	add.u64		%pc, %pc, %line;\n"
	"	st.global.v4.f32 [%pc], {%c30, %c31, %c32, %c33};\n"
	"	ret;\n"
	"}\n";
