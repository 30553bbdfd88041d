"""LLVM IR for the corpus, lowered by LLVM's NVPTX back end: `python llvm_kernels.py OUT`.

Needs llvmlite. The IR is written by hand to reach what C compilers rarely emit: odd vector
widths, aggregate parameters, indirect calls, jump tables, atomics of every order, inline asm.
"""

# ruff: noqa: E501

import pathlib
import sys

import llvmlite.binding as llvm

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
TID = "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndeclare void @llvm.nvvm.barrier0()\n"

KERNELS = {
    "add": """
define ptx_kernel void @add(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %c = icmp ult i32 %t, %n
  br i1 %c, label %body, label %exit
body:
  %i = zext i32 %t to i64
  %pa = getelementptr float, ptr addrspace(1) %a, i64 %i
  %pb = getelementptr float, ptr addrspace(1) %b, i64 %i
  %x = load float, ptr addrspace(1) %pa, align 4
  %y = load float, ptr addrspace(1) %pb, align 4
  %s = fadd float %x, %y
  store float %s, ptr addrspace(1) %pa, align 4
  br label %exit
exit:
  ret void
}""",
    "vectors": """
define ptx_kernel void @vectors(ptr %p, ptr %q) {
  %a = load <4 x float>, ptr %p, align 16
  %b = load <3 x i32>, ptr %q, align 16
  %c = load <8 x half>, ptr %p, align 16
  %d = load <16 x i8>, ptr %q, align 16
  %e = load <2 x double>, ptr %p, align 16
  %f = fmul <4 x float> %a, %a
  %g = add <3 x i32> %b, <i32 1, i32 2, i32 3>
  %h = fadd <8 x half> %c, %c
  %k = xor <16 x i8> %d, %d
  %l = shufflevector <4 x float> %f, <4 x float> %a, <4 x i32> <i32 7, i32 0, i32 5, i32 2>
  store <4 x float> %l, ptr %p, align 16
  store <3 x i32> %g, ptr %q, align 4
  store <8 x half> %h, ptr %p, align 2
  store <16 x i8> %k, ptr %q, align 16
  store <2 x double> %e, ptr %q, align 8
  ret void
}""",
    "switch": """
define ptx_kernel void @switch(ptr %p, i32 %n) {
  switch i32 %n, label %d [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %a
    i32 4, label %e
    i32 5, label %f
    i32 6, label %c ]
a:
  store i32 1, ptr %p
  br label %x
b:
  store i32 20, ptr %p
  br label %x
c:
  %v = load i32, ptr %p
  %w = mul i32 %v, %n
  store i32 %w, ptr %p
  br label %x
d:
  call void @llvm.trap()
  unreachable
e:
  store i64 7, ptr %p
  br label %x
f:
  store float 0x3FF8000000000000, ptr %p
  br label %x
x:
  ret void
}
declare void @llvm.trap()""",
    "calls": """
%pair = type { i32, double }
%big = type { [6 x i32], <2 x float>, i8 }
declare i32 @external(ptr, i64)
define internal %pair @make(i32 %a, double %b) noinline {
  %r = insertvalue %pair undef, i32 %a, 0
  %s = insertvalue %pair %r, double %b, 1
  ret %pair %s
}
define i32 @walk(ptr byval(%big) align 8 %x, i32 %i) noinline {
  %p = getelementptr %big, ptr %x, i32 0, i32 0, i32 %i
  %v = load i32, ptr %p
  ret i32 %v
}
define ptx_kernel void @calls(ptr byval(%big) align 16 %x, ptr %f, ptr %out, i1 %flag, i8 %small) {
  %a = call %pair @make(i32 3, double 2.5)
  %b = extractvalue %pair %a, 0
  %c = call i32 @walk(ptr byval(%big) align 8 %x, i32 %b)
  %d = call i32 %f(i32 %c, float 1.0)
  %e = zext i8 %small to i64
  %g = call i32 @external(ptr %out, i64 %e)
  %h = select i1 %flag, i32 %d, i32 %g
  store i32 %h, ptr %out
  ret void
}""",
    "atomics": """
define ptx_kernel void @atomics(ptr addrspace(1) %p, ptr addrspace(3) %s, ptr %g) {
  %a = atomicrmw add ptr addrspace(1) %p, i32 1 monotonic
  %b = atomicrmw xchg ptr addrspace(3) %s, i32 %a acquire
  %c = atomicrmw umax ptr %g, i64 7 release
  %d = atomicrmw fadd ptr addrspace(1) %p, float 1.0 seq_cst
  %e = cmpxchg ptr %g, i32 %a, i32 %b acq_rel monotonic
  %f = extractvalue { i32, i1 } %e, 0
  %h = load atomic i32, ptr addrspace(1) %p acquire, align 4
  store atomic i32 %h, ptr %g release, align 4
  %k = atomicrmw nand ptr %g, i32 %f monotonic
  fence seq_cst
  %v = load volatile i32, ptr %g
  store volatile i32 %v, ptr addrspace(1) %p
  ret void
}""",
    "globals": """
@table = addrspace(4) constant [5 x i32] [i32 1, i32 -2, i32 3, i32 4, i32 5], align 4
@counter = addrspace(1) global i64 -1, align 8
@text = private unnamed_addr addrspace(1) constant [12 x i8] c"caf\\C3\\A9 \\22q\\22\\0A\\00\\00"
@tile = internal addrspace(3) global [32 x [33 x float]] undef, align 4
@dyn = external addrspace(3) global [0 x i8], align 16
@pointers = addrspace(1) global [3 x ptr addrspace(1)] [ptr addrspace(1) @counter, ptr addrspace(1) null, ptr addrspace(1) getelementptr (i8, ptr addrspace(1) @mixed, i64 4)], align 8
@mixed = addrspace(1) global { i8, i32, double, [2 x half] } { i8 7, i32 -1, double 0x7FF0000000000000, [2 x half] [half 0xH3C00, half 0xH8000] }, align 8
@nan = addrspace(1) global [2 x float] [float 0x7FF8000000000000, float -0.0]
define ptx_kernel void @globals(ptr %out, i32 %i) {
  %p = getelementptr [5 x i32], ptr addrspace(4) @table, i32 0, i32 %i
  %v = load i32, ptr addrspace(4) %p
  %q = getelementptr [32 x [33 x float]], ptr addrspace(3) @tile, i32 0, i32 %i, i32 %v
  store float 1.0, ptr addrspace(3) %q
  call void @llvm.nvvm.barrier0()
  %w = load float, ptr addrspace(3) @tile
  store float %w, ptr %out
  %c = getelementptr [12 x i8], ptr addrspace(1) @text, i32 0, i32 %i
  %b = load i8, ptr addrspace(1) %c
  store i8 %b, ptr addrspace(3) @dyn
  %z = getelementptr [3 x ptr addrspace(1)], ptr addrspace(1) @pointers, i32 0, i32 %i
  %y = load ptr addrspace(1), ptr addrspace(1) %z
  store i32 1, ptr addrspace(1) %y
  ret void
}""",
    "integers": """
define ptx_kernel void @integers(ptr %p, i128 %w, i64 %a, i16 %s, i1 %f) {
  %b = load i128, ptr %p, align 16
  %c = mul i128 %b, %w
  %d = udiv i64 %a, 1000000007
  %e = srem i16 %s, 13
  %g = call i32 @llvm.ctpop.i32(i32 77)
  %h = call i64 @llvm.cttz.i64(i64 %a, i1 false)
  %k = call i64 @llvm.fshl.i64(i64 %a, i64 %h, i64 7)
  %l = call i32 @llvm.bitreverse.i32(i32 %g)
  %m = call { i32, i1 } @llvm.sadd.with.overflow.i32(i32 %g, i32 %l)
  %n = extractvalue { i32, i1 } %m, 0
  %o = sext i16 %e to i32
  %q = add i32 %o, %n
  %r = select i1 %f, i64 %d, i64 %k
  %t = ashr i128 %c, 5
  store i128 %t, ptr %p, align 16
  store i64 %r, ptr %p
  store i32 %q, ptr %p
  %u = trunc i64 %a to i8
  store i8 %u, ptr %p
  ret void
}
declare i32 @llvm.ctpop.i32(i32)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i32 @llvm.bitreverse.i32(i32)
declare { i32, i1 } @llvm.sadd.with.overflow.i32(i32, i32)""",
    "inline_asm": """
define ptx_kernel void @inline_asm(ptr %p, i32 %n) {
  %a = call i32 asm sideeffect "{ .reg .pred p; .reg .b32 t; setp.ne.s32 p, $1, 0; @p mov.b32 t, 5; @!p mov.b32 t, 6; mov.b32 $0, t; }", "=r,r"(i32 %n)
  %b = call { i32, i32 } asm "mov.b64 {$0, $1}, $2;", "=r,=r,l"(i64 77)
  %c = extractvalue { i32, i32 } %b, 1
  %d = add i32 %a, %c
  call void asm sideeffect "st.global.cg.u32 [$0], $1; // comment", "l,r"(ptr %p, i32 %d)
  ret void
}""",
    "loops": """
define ptx_kernel void @loops(ptr %p, i64 %n) "nvvm.maxntid"="256,1,1" {
entry:
  %s = alloca [16 x i32], align 4
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j, %latch ]
  %q = getelementptr i32, ptr %p, i64 %i
  %v = load i32, ptr %q
  %k = and i32 %v, 15
  %slot = getelementptr [16 x i32], ptr %s, i32 0, i32 %k
  store i32 %v, ptr %slot
  %odd = trunc i32 %v to i1
  br i1 %odd, label %inner, label %latch
inner:
  %x = phi i32 [ %v, %head ], [ %y, %inner ]
  %y = lshr i32 %x, 1
  %z = icmp eq i32 %y, 0
  br i1 %z, label %latch, label %inner
latch:
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, %n
  br i1 %done, label %exit, label %head, !llvm.loop !0
exit:
  %l = load i32, ptr %s
  store i32 %l, ptr %p
  ret void
}
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}""",
    "floats": """
define ptx_kernel void @floats(ptr %p, half %h, bfloat %b, double %d, float %f) {
  %a = fpext half %h to float
  %c = call float @llvm.fma.f32(float %a, float %f, float 3.0)
  %e = call fast float @llvm.sqrt.f32(float %c)
  %g = fdiv arcp float %e, %f
  %k = frem float %g, 7.0
  %l = fptosi float %k to i16
  %m = uitofp i16 %l to double
  %n = fdiv double %m, %d
  %o = call double @llvm.maxnum.f64(double %n, double 0x7FF0000000000000)
  %q = fcmp uno double %o, %d
  %r = select i1 %q, double 1.0, double -0.0
  store double %r, ptr %p
  %s = fadd bfloat %b, %b
  store bfloat %s, ptr %p
  %t = call float @llvm.copysign.f32(float %k, float %f)
  %u = call float @llvm.floor.f32(float %t)
  store float %u, ptr %p
  ret void
}
declare float @llvm.fma.f32(float, float, float)
declare float @llvm.sqrt.f32(float)
declare double @llvm.maxnum.f64(double, double)
declare float @llvm.copysign.f32(float, float)
declare float @llvm.floor.f32(float)""",
}


def main(out):
    """Every kernel at three levels of optimisation and architecture."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in KERNELS.items():
        for cpu, features, level in (
            ("sm_75", "+ptx63", 0),
            ("sm_80", "+ptx70", 2),
            ("sm_90", "+ptx80", 3),
        ):
            try:
                module = llvm.parse_assembly(HEAD + TID + text)
                machine = target.create_target_machine(cpu=cpu, features=features, opt=level)
                (folder / f"{name}.{cpu}.ptx").write_text(machine.emit_assembly(module))
            except RuntimeError as failure:
                print(f"left out {name}.{cpu}: {str(failure)[:300]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
