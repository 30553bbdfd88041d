// The C subset that oracle kernels are written in, for three compilers: NVRTC or nvcc, clang for
// CUDA without its headers, and the host's g++ (ORACLE_HOST), where blocks and threads are loops.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#if defined(ORACLE_HOST)

#define ENTRY void
#define DEVICE static
#define NOINLINE static __attribute__((noinline))
#define SHARED static __attribute__((section("oracle_shared")))
#define ALIGN(n) __attribute__((aligned(n)))
extern "C" u32 oracle_place[12];
#define TX (oracle_place[0])
#define TY (oracle_place[1])
#define BX (oracle_place[3])
#define BY (oracle_place[4])
#define BDX (oracle_place[6])
#define BDY (oracle_place[7])
#define GDX (oracle_place[9])
extern "C" void oracle_barrier();
extern "C" u32 oracle_exchange(u32 value, u32 lane);
extern "C" u32 oracle_atomic32(void *at, u32 value, int what);
extern "C" u64 oracle_atomic64(void *at, u64 value, int what);
#define SYNC() oracle_barrier()
#define LANE ((TY * BDX + TX) & 31u)
#define SHFL(v, lane) oracle_exchange((v), (lane) & 31u)
#define SHFL_XOR(v, mask) oracle_exchange((v), LANE ^ (mask))
#define ATOMIC_ADD(p, v) oracle_atomic32((p), (v), 0)
#define ATOMIC_MAX(p, v) oracle_atomic32((p), (v), 1)
#define ATOMIC_MIN(p, v) oracle_atomic32((p), (v), 2)
#define ATOMIC_AND(p, v) oracle_atomic32((p), (v), 3)
#define ATOMIC_OR(p, v) oracle_atomic32((p), (v), 4)
#define ATOMIC_XOR(p, v) oracle_atomic32((p), (v), 5)
#define ATOMIC_ADD64(p, v) oracle_atomic64((p), (v), 0)
#define SQRT(x) __builtin_sqrtf(x)
#define FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#define FMA64(a, b, c) __builtin_fma((a), (b), (c))

#elif defined(__clang__)

#define ENTRY extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device))
#define NOINLINE static __attribute__((device, noinline))
#define SHARED __attribute__((shared))
#define ALIGN(n) __attribute__((aligned(n)))
#define TX ((u32)__nvvm_read_ptx_sreg_tid_x())
#define TY ((u32)__nvvm_read_ptx_sreg_tid_y())
#define BX ((u32)__nvvm_read_ptx_sreg_ctaid_x())
#define BY ((u32)__nvvm_read_ptx_sreg_ctaid_y())
#define BDX ((u32)__nvvm_read_ptx_sreg_ntid_x())
#define BDY ((u32)__nvvm_read_ptx_sreg_ntid_y())
#define GDX ((u32)__nvvm_read_ptx_sreg_nctaid_x())
#define SYNC() __syncthreads()
#define LANE ((TY * BDX + TX) & 31u)
#define SHFL(v, lane) ((u32)__nvvm_shfl_sync_idx_i32(0xffffffffu, (i32)(v), (i32)((lane) & 31u), 31))
#define SHFL_XOR(v, mask) ((u32)__nvvm_shfl_sync_bfly_i32(0xffffffffu, (i32)(v), (i32)(mask), 31))
#define ATOMIC_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define ATOMIC_MAX(p, v) __nvvm_atom_max_gen_ui((p), (v))
#define ATOMIC_MIN(p, v) __nvvm_atom_min_gen_ui((p), (v))
#define ATOMIC_AND(p, v) __atomic_fetch_and((p), (v), __ATOMIC_RELAXED)
#define ATOMIC_OR(p, v) __atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define ATOMIC_XOR(p, v) __atomic_fetch_xor((p), (v), __ATOMIC_RELAXED)
#define ATOMIC_ADD64(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define SQRT(x) __nvvm_sqrt_rn_f(x)
#define FMA(a, b, c) __nvvm_fma_rn_f((a), (b), (c))
#define FMA64(a, b, c) __nvvm_fma_rn_d((a), (b), (c))

#else

#define ENTRY extern "C" __global__ void
#define DEVICE static __device__
#define NOINLINE static __device__ __noinline__
#define SHARED __shared__
#define ALIGN(n) __align__(n)
#define TX threadIdx.x
#define TY threadIdx.y
#define BX blockIdx.x
#define BY blockIdx.y
#define BDX blockDim.x
#define BDY blockDim.y
#define GDX gridDim.x
#define SYNC() __syncthreads()
#define LANE ((TY * BDX + TX) & 31u)
#define SHFL(v, lane) __shfl_sync(0xffffffffu, (v), (int)((lane) & 31u))
#define SHFL_XOR(v, mask) __shfl_xor_sync(0xffffffffu, (v), (int)(mask))
#define ATOMIC_ADD(p, v) atomicAdd((p), (v))
#define ATOMIC_MAX(p, v) atomicMax((p), (v))
#define ATOMIC_MIN(p, v) atomicMin((p), (v))
#define ATOMIC_AND(p, v) atomicAnd((p), (v))
#define ATOMIC_OR(p, v) atomicOr((p), (v))
#define ATOMIC_XOR(p, v) atomicXor((p), (v))
#define ATOMIC_ADD64(p, v) atomicAdd((p), (v))
#define SQRT(x) sqrtf(x)
#define FMA(a, b, c) fmaf((a), (b), (c))
#define FMA64(a, b, c) fma((a), (b), (c))

#endif

struct ALIGN(16) quad { u32 x, y, z, w; };
struct ALIGN(8) pair { u32 x, y; };
struct ALIGN(16) quadf { f32 x, y, z, w; };
struct ALIGN(16) wide { u64 x, y; };
