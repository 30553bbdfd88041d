"""CUDA sources that call every group of device functions, and random programs, for any NVRTC.

`sources()` gives name and text of each; `nvrtc_kernels.py` compiles them beside the files in
`nvrtc/`. What a version or an architecture does not have is left out when it does not compile.
"""

# ruff: noqa: E501

import random

UNARY = """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 exp10 expm1 log log2
log10 log1p sqrt rsqrt cbrt rcbrt erf erfc erfinv erfcinv erfcx tgamma lgamma j0 j1 y0 y1
ceil floor trunc round rint nearbyint fabs sinpi cospi normcdf normcdfinv logb""".split()  # noqa: SIM905
BINARY = """pow fmod remainder atan2 hypot rhypot nextafter fdim copysign fmax fmin""".split()  # noqa: SIM905
FAST = """__sinf __cosf __tanf __expf __exp10f __logf __log2f __log10f __saturatef __frsqrt_rn""".split()  # noqa: SIM905
ROUNDED = ["add", "sub", "mul", "div"]
WIDE_INTEGER = """__brev(u) __clz(i) __popc(u) __ffs(i) __byte_perm(u,v,w) __funnelshift_l(u,v,w)
__funnelshift_r(u,v,w) __funnelshift_lc(u,v,w) __funnelshift_rc(u,v,w) __mulhi(i,j)
__umulhi(u,v) __mul24(i,j) __umul24(u,v) __sad(i,j,u) __usad(u,v,w) __hadd(i,j) __uhadd(u,v)
__rhadd(i,j) __urhadd(u,v) __dp4a(i,j,i) __dp4a(u,v,w) __dp2a_lo(i,j,i) __dp2a_hi(i,j,i)
abs(i) min(i,j) max(u,v) __fns(u,v,i) i/j i%j u/v u%v i>>j u>>v u<<v (i<0?j:i)""".split()  # noqa: SIM905
LONG = """__brevll(l) __clzll(l) __popcll(l) __ffsll(l) __mul64hi(l,m) __umul64hi(l,m) l/m l%m l>>i
((size_t)l)/(unsigned)i ((size_t)l)%3 llabs(l) (l<<i)^m""".split()  # noqa: SIM905
PACKED = ["vabs2", "vabs4", "vabsss2", "vabsss4", "vneg2", "vneg4"]
PACKED_TWO = """vadd2 vadd4 vaddss2 vaddss4 vaddus2 vaddus4 vsub2 vsub4 vsubss4 vabsdiffu2 vabsdiffu4
vabsdiffs4 vavgs2 vavgu4 vhaddu4 vcmpeq2 vcmpeq4 vcmpges2 vcmpgtu4 vcmpleu2 vcmpltu4 vmaxs2
vmaxu4 vmins4 vminu2 vsads2 vsadu4 vseteq2 vsetgtu4 vsetles2""".split()  # noqa: SIM905
PACKED_THREE = """viaddmax_s32 viaddmax_s32_relu viaddmin_u32 viaddmax_s16x2 viaddmin_u16x2 vimax3_s32
vimin3_u32 vimax3_s16x2 vimax3_s32_relu""".split()  # noqa: SIM905
TO_INTEGER = [
    f"__{f}2{i}_{r}"
    for f in ("float", "double")
    for i in ["int", "uint", "ll", "ull"]
    for r in ["rn", "rz", "ru", "rd"]
]
FROM_INTEGER = [
    f"__{i}2float_{r}" for i in ["int", "uint", "ll", "ull"] for r in ["rn", "rz", "ru", "rd"]
]
HALF = """hadd hsub hmul hdiv hadd_sat hmul_sat hmax hmin hmax_nan hmin_nan hfma habs hneg hsqrt
hrsqrt hrcp hexp hexp2 hlog hlog2 hlog10 hsin hcos hceil hfloor htrunc hrint htanh""".split()  # noqa: SIM905
COMPARED = """heq hne hle hge hlt hgt hequ hneu hleu hgeu hltu hgtu hisnan""".split()  # noqa: SIM905
LOADS = ["ldg", "ldcg", "ldca", "ldcs", "ldlu", "ldcv"]
STORES = ["stwb", "stcg", "stcs", "stwt"]
TYPES = """char2 uchar4 short short4 int int2 int4 uint4 float float2 float4 double double2 longlong2
ulonglong2""".split()  # noqa: SIM905


def kernel(name, lines, head="", extra=""):
    """A kernel that reads some of each type, does the lines, and writes what they leave."""
    body = "\n  ".join(lines)
    return f"""{head}
extern "C" __global__ void {name}(int* ip, unsigned* up, long long* lp, float* fp, double* dp{extra}) {{
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int i = ip[t], j = ip[t + 1]; unsigned u = up[t], v = up[t + 1], w = up[t + 2];
  long long l = lp[t], m = lp[t + 1]; float f = fp[t], g = fp[t + 1], h = fp[t + 2];
  double d = dp[t], e = dp[t + 1], c = dp[t + 2];
  {body}
  ip[t] = i; up[t] = u; lp[t] = l; fp[t] = f; dp[t] = d;
}}
"""


def chunks(items, size):
    """The items in lists of a size."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def arithmetic():
    """Mathematics, conversions and integer functions."""
    for number, names in enumerate(chunks(UNARY, 5)):
        yield (
            f"unary_float_{number}",
            kernel("k", [f"f += {n}f(f * {k + 2});" for k, n in enumerate(names)]),
        )
        yield (
            f"unary_double_{number}",
            kernel("k", [f"d += {n}(d * {k + 2});" for k, n in enumerate(names)]),
        )
    for number, names in enumerate(chunks(BINARY, 4)):
        yield (
            f"binary_float_{number}",
            kernel("k", [f"f = {n}f(f, g + {k});" for k, n in enumerate(names)]),
        )
        yield (
            f"binary_double_{number}",
            kernel("k", [f"d = {n}(d, e + {k});" for k, n in enumerate(names)]),
        )
    yield (
        "fast",
        kernel(
            "k", [f"f += {n}(g * f);" for n in FAST] + ["f = __fdividef(f, g); f = __powf(f, h);"]
        ),
    )
    for r in ["rn", "rz", "ru", "rd"]:
        lines = [f"f = __f{n}_{r}(f, g);" for n in ROUNDED] + [
            f"d = __d{n}_{r}(d, e);" for n in ROUNDED
        ]
        lines += [f"f = __fmaf_{r}(f, g, h); f = __frcp_{r}(f); f = __fsqrt_{r}(f);"]
        lines += [f"d = __fma_{r}(d, e, c); d = __drcp_{r}(d); d = __dsqrt_{r}(d);"]
        lines += [f"f += __double2float_{r}(d);"]
        yield f"rounded_{r}", kernel("k", lines)
    for number, names in enumerate(chunks(TO_INTEGER, 8)):
        lines = [f"l += {n}({'f' if 'float' in n else 'd'});" for n in names]
        yield f"to_integer_{number}", kernel("k", lines)
    lines = [f"f += {n}({'l' if 'll' in n else 'i'});" for n in FROM_INTEGER]
    yield "from_integer", kernel("k", lines)
    yield (
        "special_values",
        kernel(
            "k",
            [
                "i += isnan(f) + isinf(d) + signbit(f) + isfinite(g);",
                "f = frexpf(f, &j); d = modf(d, &e); f = ldexpf(f, i); d = scalbn(d, j); sincosf(f, &g, &h);",
                "sincos(d, &e, &c); f += g * h; d += e * c; i += ilogbf(f); f = fmaf(f, g, h); d = fma(d, e, c);",
                "f = norm3df(f, g, h); d = rnorm3d(d, e, c); i ^= __float_as_int(f); f = __int_as_float(i ^ j);",
                "l ^= __double_as_longlong(d); d = __hiloint2double(i, j); i += __double2hiint(d);",
            ],
        ),
    )
    for number, names in enumerate(chunks(WIDE_INTEGER, 7)):
        yield f"integer_{number}", kernel("k", [f"i ^= {n}; u += i;" for n in names])
    yield "long", kernel("k", [f"l ^= {n};" for n in LONG])
    for number, names in enumerate(chunks(PACKED_TWO, 8)):
        lines = [f"u = __{n}(u, v);" for n in names] + [f"u ^= __{n}(u);" for n in PACKED]
        yield f"packed_{number}", kernel("k", lines)
    yield "packed_three", kernel("k", [f"u = __{n}(u, v, w);" for n in PACKED_THREE])


def memory():
    """Loads, stores, atomics and the functions of a warp."""
    for number, names in enumerate(chunks(TYPES, 3)):
        for kind, functions in (("load", LOADS), ("store", STORES)):
            lines = []
            for n in names:
                lines += [f"{{ {n}* q = ({n}*)lp + t; {n} s = *q;"]
                lines += [
                    f"s = __{x}(q + {k}); q[{k + 9}] = s;"
                    for k, x in enumerate(functions)
                    if kind == "load"
                ]
                lines += [f"__{x}(q + {k}, s);" for k, x in enumerate(functions) if kind == "store"]
                lines += ["}"]
            yield f"{kind}_{number}", kernel("k", lines)
    for scope in ("", "_block", "_system"):
        lines = [
            f"i += atomic{n}{scope}(ip + {k}, j);"
            for k, n in enumerate(["Add", "Sub", "Exch", "Min", "Max", "And", "Or", "Xor"])
        ]
        lines += [f"u += atomic{n}{scope}(up + 3, v);" for n in ["Add", "Inc", "Dec", "Max", "Xor"]]
        lines += [f"i += atomicCAS{scope}(ip, i, j); f += atomicAdd{scope}(fp, g);"]
        lines += [f"f += atomicExch{scope}(fp + 1, h);"]
        lines += [
            f"l += atomic{n}{scope}((unsigned long long*)lp, (unsigned long long)m);"
            for n in ["Add", "Exch", "Min", "Max", "And", "Or", "Xor"]
        ]
        yield f"atomic{scope}", kernel("k", lines)
        yield (
            f"atomic_double{scope}",
            kernel(
                "k",
                [
                    f"d += atomicAdd{scope}(dp, e);",
                    f"l += atomicCAS{scope}((unsigned long long*)lp, 1ull, 2ull);",
                ],
            ),
        )
    yield (
        "warp",
        kernel(
            "k",
            [
                f"{x} += __shfl_{n}sync(-1u, {x}, {k + 1});"
                for x in "iulfd"
                for k, n in enumerate(["", "up_", "down_", "xor_"])
            ],
        ),
    )
    yield (
        "vote",
        kernel(
            "k",
            [
                "u = __ballot_sync(-1u, i > j) + __activemask(); i += __all_sync(v, i);",
                "i += __any_sync(v, j); i += __uni_sync(-1u, i); __syncwarp(v);",
            ],
        ),
    )
    yield (
        "match",
        kernel(
            "k",
            ["int p; u = __match_any_sync(-1u, i); v = __match_all_sync(-1u, l, &p); u += v + p;"],
        ),
    )
    yield (
        "reduce",
        kernel(
            "k",
            [f"u += __reduce_{n}_sync(-1u, u);" for n in ["add", "min", "max", "and", "or", "xor"]],
        ),
    )
    yield (
        "barriers",
        kernel(
            "k",
            [
                "i += __syncthreads_count(i); i += __syncthreads_and(j);",
                "i += __syncthreads_or(j); __syncthreads(); __threadfence(); __threadfence_block();",
                "__threadfence_system(); __nanosleep(20); i += clock(); l += clock64(); __prof_trigger(3);",
            ],
        ),
    )
    yield (
        "spaces",
        kernel(
            "k",
            [
                "__shared__ int s[64]; __shared__ double z[4][5]; s[t & 63] = i; z[t & 3][i & 3] = d;",
                "__syncthreads(); i += s[j & 63]; d += z[i & 3][t & 3]; i += __isGlobal(ip) + __isShared(s);",
                "i += __isLocal(&i) + __isConstant(ip); int a[16]; for (int k = 0; k < 16; ++k) a[k] = ip[k * j];",
                "l += (long long)__cvta_generic_to_shared(s); i += a[u & 15]; extern __shared__ char y[]; y[t] = i;",
                "u += __ldg((unsigned char*)up); __builtin_assume(i > 3);",
            ],
            "__constant__ int table[100] = {1, 2, 3};",
        ),
    )


def halves():
    """Sixteen-bit and eight-bit floats."""
    for kind, header in (("half", "cuda_fp16.h"), ("nv_bfloat16", "cuda_bf16.h")):
        pair = {"half": "half2", "nv_bfloat16": "nv_bfloat162"}[kind]
        two = """hadd hsub hmul hdiv hadd_sat hmul_sat hmax hmin hmax_nan hmin_nan""".split()  # noqa: SIM905
        for number, names in enumerate(chunks(HALF, 7)):
            lines = [
                f"{kind}* q = ({kind}*)up + t; {pair}* r = ({pair}*)lp + t; {kind} x = q[0], y = q[1]; {pair} z = r[0];"
            ]
            for n in names:
                mark = "__" if n in (*two, "hfma", "habs", "hneg") else ""
                rest = ", y" if n in two else ", y, x" if n == "hfma" else ""
                lines.append(f"x = {mark}{n}(x{rest});")
            lines.append("q[0] = x; r[0] = z;")
            yield f"{kind}_{number}", kernel("k", lines, f"#include <{header}>")
        lines = [
            f"{kind}* q = ({kind}*)up + t; {kind} x = q[0], y = q[1]; {pair} z = *({pair}*)lp;"
        ]
        lines += [f"i += __{n}(x{'' if n == 'hisnan' else ', y'});" for n in COMPARED]
        lines += [f"z = __{n}2(z, z);" for n in ["hadd", "hsub", "hmul", "hmax"]]
        lines += [f"*({pair}*)lp = __hfma2(z, z, z);"]
        yield f"{kind}_compare", kernel("k", lines, f"#include <{header}>")
        word = "half" if kind == "half" else "bfloat16"
        lines = [
            f"{kind}* q = ({kind}*)up + t; {kind} x = __float2{word}(f); q[1] = x; f = __{word}2float(q[2]);"
        ]
        lines += [
            f"q[{k}] = __{a}2{word}_{r}({b});"
            for k, (a, b) in enumerate(
                [("int", "i"), ("uint", "u"), ("ll", "l"), ("short", "(short)i")]
            )
            for r in ("rn", "rz")
        ]
        lines += [
            f"l += __{word}2{a}_{r}(q[3]);"
            for a in ("int", "uint", "ll", "short")
            for r in ("rn", "rz", "ru")
        ]
        yield f"{kind}_convert", kernel("k", lines, f"#include <{header}>")
        atomic = [
            f"atomicAdd(({kind}*)up, __float2{word}(f)); atomicAdd(({pair}*)lp, __floats2{word}2_rn(f, g));"
        ]
        yield f"{kind}_atomic", kernel("k", atomic, f"#include <{header}>")
    lines = [
        "__nv_fp8_e4m3 a(f); __nv_fp8_e5m2 b(g); f = (float)a + (float)b; __nv_fp8x2_e4m3 p(make_float2(f, g));",
        "float2 s = (float2)p; f = s.x + s.y; __nv_fp8x4_e5m2 q(make_float4(f, g, h, f)); float4 r = (float4)q; f += r.w;",
    ]
    yield "fp8", kernel("k", lines, "#include <cuda_fp8.h>")


def fragments():
    """Matrix fragments of every shape."""
    rows = [
        ("half", "float", 16, 16, 16),
        ("half", "half", 32, 8, 16),
        ("half", "float", 8, 32, 16),
        ("signed char", "int", 16, 16, 16),
        ("unsigned char", "int", 32, 8, 16),
        ("__nv_bfloat16", "float", 16, 16, 16),
        ("double", "double", 8, 8, 4),
        ("precision::tf32", "float", 16, 16, 8),
        ("precision::s4", "int", 8, 8, 32),
        ("precision::b1", "int", 8, 8, 128),
    ]
    for number, (a, c, m, n, k) in enumerate(rows):
        for left, right in (("row", "col"), ("col", "row"), ("row", "row")):
            shape = f"{m}, {n}, {k}"
            element = {
                "precision::tf32": "float",
                "precision::s4": "int",
                "precision::b1": "int",
            }.get(a, a)
            prefix = "experimental::" if a in ("precision::s4", "precision::b1") else ""
            kind = prefix + a
            multiply = "bmma_sync(z, x, y, z)" if a.endswith("b1") else "mma_sync(z, x, y, z)"
            lines = [
                f"fragment<matrix_a, {shape}, {kind}, {left}_major> x; fragment<matrix_b, {shape}, {kind}, {right}_major> y;",
                f"fragment<accumulator, {shape}, {c}> z; fill_fragment(z, ({c})i); load_matrix_sync(x, (const {element}*)up, 128);",
                f"load_matrix_sync(y, (const {element}*)lp, 128); {multiply}; store_matrix_sync(({c}*)fp, z, 64, mem_{left}_major);",
            ]
            head = "#include <mma.h>\n#include <cuda_bf16.h>\nusing namespace nvcuda::wmma;"
            yield f"wmma_{number}_{left}_{right}", kernel("k", lines, head)


def textures():
    """Textures and surfaces."""
    for number, kind in enumerate(["float", "float4", "int2", "uchar4", "short", "unsigned"]):
        part = "" if kind in ("float", "short", "unsigned") else ".x"
        calls = [
            "1D<K>(x, f)",
            "1Dfetch<K>(x, i)",
            "2D<K>(x, f, g)",
            "3D<K>(x, f, g, h)",
            "1DLayered<K>(x, f, i)",
            "2DLayered<K>(x, f, g, i)",
            "Cubemap<K>(x, f, g, h)",
            "CubemapLayered<K>(x, f, g, h, i)",
            "2DLod<K>(x, f, g, h)",
            "1DGrad<K>(x, f, g, h)",
            "2DGrad<K>(x, f, g, make_float2(f, g), make_float2(g, h))",
            "3DLod<K>(x, f, g, h, f)",
        ]
        lines = [f"f += tex{call.replace('K', kind)}{part};" for call in calls]
        yield f"texture_{number}", kernel("k", lines, extra=", cudaTextureObject_t x")
        lines = [
            f"{kind} s; surf1Dread(&s, x, i); surf2Dwrite(s, x, i, j); surf2Dread(&s, x, j, i, cudaBoundaryModeClamp);",
            "surf3Dwrite(s, x, i, j, t); surf3Dread(&s, x, i, j, t, cudaBoundaryModeZero); surf1Dwrite(s, x, j);",
            "surf2DLayeredwrite(s, x, i, j, t); surf2DLayeredread(&s, x, i, j, 3); surf1DLayeredwrite(s, x, i, j);",
        ]
        yield f"surface_{number}", kernel("k", lines, extra=", cudaSurfaceObject_t x")
    yield (
        "gather",
        kernel(
            "k",
            [f"f += tex2Dgather<float4>(x, f, g, {k}).y;" for k in range(4)],
            extra=", cudaTextureObject_t x",
        ),
    )


def language():
    """Functions, tables, classes, structs and groups of threads."""
    yield (
        "functions",
        kernel(
            "k",
            ["i = pick[j & 3](i, j); i += deep(u & 7); i += loop(i, j);"],
            """
__device__ __noinline__ int one(int a, int b) { return a * b + 1; }
__device__ __noinline__ int two(int a, int b) { return a / (b | 1); }
__device__ __noinline__ int three(int a, int b) { return a << (b & 7); }
__device__ int (*const pick[4])(int, int) = {one, two, three, one};
__device__ __noinline__ int deep(int a) { return a < 2 ? 1 : a * deep(a - 1); }
__device__ __noinline__ int loop(int a, int b) { while (a > b) { a -= b | 1; if (a == 77) break; } return a; }""",
        ),
    )
    yield (
        "structs",
        kernel(
            "k",
            ["Big q = make(f, i); q = turn(q, g); f = q.x[j & 7]; d += q.z; l ^= q.n;"],
            """
struct Big { float x[8]; double z; long long n; char tag; };
__device__ __noinline__ Big make(float f, int i) { Big b; for (int k = 0; k < 8; ++k) b.x[k] = f * k; b.z = f; b.n = i; b.tag = 3; return b; }
__device__ __noinline__ Big turn(Big b, float g) { for (int k = 0; k < 8; ++k) b.x[k] = b.x[7 - k] * g; b.z *= g; return b; }""",
        ),
    )
    yield (
        "virtual",
        kernel(
            "k",
            [
                "Round r; Square s; Shape* q = i & 1 ? (Shape*)&r : (Shape*)&s; r.a = f; s.b = g; f = q->area(h);"
            ],
            """
struct Shape { __device__ virtual float area(float) const = 0; };
struct Round : Shape { float a; __device__ float area(float x) const override { return a * a * x; } };
struct Square : Shape { float b; __device__ float area(float x) const override { return b + x; } };""",
        ),
    )
    cases = " ".join(f"case {n}: i = i * {n * 7 + 1} + j; u ^= {n}; break;" for n in range(13))
    yield "switch", kernel("k", [f"switch (j) {{ {cases} default: i = -i; }}"])
    yield (
        "tables",
        kernel(
            "k",
            [
                "i += names[j & 3][u & 7] + grid[i & 1][j & 1].n; f += grid[j & 1][0].w; dp[7] = pi; d += *where;"
            ],
            """
struct Cell { int n; float w; };
__constant__ char names[4][8] = {"alpha", "beta", "gamma", "delta"};
__device__ Cell grid[2][2] = {{{1, 2.5f}, {3, 4.5f}}, {{5, 6.5f}, {7, 8.5f}}};
__device__ double pi = 3.14159265358979; __device__ double* where = &pi;
__device__ unsigned long long big[3] = {0x123456789abcdefull, 2, 3}; __device__ int empty[1000];""",
        ),
    )
    yield (
        "print",
        kernel(
            "k",
            [
                'printf("%d %f %s\\n", i, f, "text"); if (i == 7) __trap(); if (j == 9) __brkpt();',
                "int* q = (int*)malloc(64); if (q) { q[i & 15] = j; i = q[3]; free(q); }",
            ],
        ),
    )
    yield (
        "bounds",
        kernel("k", ["f *= 2;"]).replace(
            "__global__ void", "__global__ void __launch_bounds__(256, 4)"
        ),
    )
    yield (
        "cluster",
        kernel("k", ["u += __clusterDimIsSpecified();"]).replace(
            "__global__", "__global__ __cluster_dims__(2, 1, 1)"
        ),
    )
    yield (
        "wide",
        kernel(
            "k",
            [
                "__int128 q = (__int128)l * m; q += i; l = (long long)(q >> 64) ^ (long long)q; l += (long long)(q / (m | 1));"
            ],
        ),
    )
    yield (
        "groups",
        kernel(
            "k",
            [
                "auto b = this_thread_block(); auto p = tiled_partition<16>(b); i += p.shfl_down(i, 2); b.sync();",
                "auto c = coalesced_threads(); i += c.thread_rank() + p.ballot(j > 3); u += reduce(p, u, plus<unsigned>());",
                "p.sync(); i += p.any(j) + c.num_threads(); auto q = tiled_partition<4>(p); f += q.shfl_xor(f, 1);",
            ],
            "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nusing namespace cooperative_groups;",
        ),
    )
    yield (
        "bits",
        kernel(
            "k",
            [
                "struct B { unsigned a : 5, b : 11, c : 16; } q = *(B*)up; q.a += i; q.b ^= q.c; *(B*)up = q;",
                "struct C { long long a : 33; int b : 7; } s = *(C*)lp; s.a += s.b; *(C*)lp = s; bool z = i && j || !u; i += z;",
            ],
        ),
    )


def expression(rng, depth):
    """A random expression of one of the variables' types."""
    if depth == 0:
        return rng.choice(
            [
                "i",
                "j",
                "u",
                "v",
                "l",
                "m",
                "f",
                "g",
                "d",
                "e",
                str(rng.randint(-9, 99)),
                f"{rng.randint(1, 9)}.5f",
            ]
        )
    one, two = expression(rng, depth - 1), expression(rng, depth - 1)
    casts = ["char", "short", "int", "unsigned", "long", "float", "double", "bool"]
    return rng.choice(
        [
            f"({one} + {two})",
            f"({one} * {two})",
            f"({one} - {two})",
            f"(({one}) < ({two}) ? {one} : {two})",
            f"(int({one}) & int({two}))",
            f"(int({one}) >> (int({two}) & 31))",
            f"((unsigned)({one}) / (unsigned({two}) | 1u))",
            f"({rng.choice(casts)})({one})",
            f"((long long)({one}) % ((long long)({two}) | 1))",
            f"fmaf({one}, {two}, f)",
            f"(-({one}))",
            f"(~int({one}))",
            f"(!({one}))",
            f"max(float({one}), float({two}))",
            f"fabs(double({one}))",
        ]
    )


def statement(rng, depth):
    """A random statement."""
    target = rng.choice(["i", "j", "u", "l", "f", "d"])
    if depth == 0:
        return f"{target} = {expression(rng, rng.randint(1, 3))};"
    inner = " ".join(statement(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    k = f"k{rng.randint(0, 10**6)}"
    return rng.choice(
        [
            f"if ({expression(rng, 2)}) {{ {inner} }} else {{ {statement(rng, 0)} }}",
            f"for (int {k} = 0; {k} < (i & {rng.choice([3, 7, 255])}); ++{k}) {{ {inner} }}",
            f"{{ {rng.choice(['float', 'int', 'short', 'double'])} a[8]; a[i & 7] = {expression(rng, 1)}; {inner} f += a[j & 7]; }}",
            f"do {{ {inner} }} while (--j > {rng.randint(0, 50)});",
            f"{target} = {expression(rng, 3)}; {inner}",
            f"ip[u & 1023] = {expression(rng, 2)}; {inner}",
        ]
    )


def programs(count):
    """Random programs, always the same."""
    for number in range(count):
        rng = random.Random(number)
        yield (
            f"program_{number}",
            kernel("k", [statement(rng, rng.randint(1, 3)) for _ in range(rng.randint(2, 6))]),
        )


def sources(count=24):
    """Every source by name."""
    for group in (arithmetic, memory, halves, fragments, textures, language):
        yield from group()
    yield from programs(count)
