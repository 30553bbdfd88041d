// Hopper and later: clusters, distributed shared memory, TMA, mbarriers, wgmma through inline PTX, DPX, elect, setmaxnreg.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cstdint>
namespace cg = cooperative_groups;
namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_hist(int* bins, const int* in, int n) {
  extern __shared__ int hist[];
  auto cl = cg::this_cluster();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) hist[i] = 0;
  cl.sync();
  for (int i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().size()) {
    int b = in[i] & 1023; int* dst = cl.map_shared_rank(hist, b / 256); atomicAdd(dst + b % 256, 1);
  }
  cl.sync();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[cl.block_rank() * 256 + i], hist[i]);
}
extern "C" __global__ void tma_copy(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap out_map, float* out, int x, int y) {
  __shared__ alignas(128) float tile[32][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) { init(&bar, blockDim.x); cde::fence_proxy_async_shared_cta(); }
  __syncthreads();
  barrier::arrival_token token;
  if (threadIdx.x == 0) { cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &map, x, y, bar); token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile)); } else token = bar.arrive();
  bar.wait(std::move(token));
  tile[threadIdx.x / 32][threadIdx.x % 32] *= 2;
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) { cde::cp_async_bulk_tensor_2d_shared_to_global(&out_map, x, y, &tile); cde::cp_async_bulk_commit_group(); cde::cp_async_bulk_wait_group_read<0>(); }
}
extern "C" __global__ void bulk(int* g, size_t n) {
  __shared__ alignas(16) int s[1024];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) cuda::memcpy_async(s, g, cuda::aligned_size_t<16>(sizeof(s)), bar);
  bar.arrive_and_wait();
  s[threadIdx.x] += 1;
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) { cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, g, s, sizeof(s)); cuda::ptx::cp_async_bulk_commit_group(); cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>()); cuda::ptx::cp_reduce_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, cuda::ptx::op_add, g + 1024, s, sizeof(s)); }
}
extern "C" __global__ void dpx(int* o, const int* a) { int i = threadIdx.x; o[i] = __viaddmax_s32(a[i], a[i + 1], a[i + 2]) + __vimax3_s32_relu(a[i], o[i], 5) + __viaddmin_u16x2(a[i], o[i], 3); }
extern "C" __global__ void __maxnreg__(64) reg_limited(float* x) { x[threadIdx.x] = __sinf(x[threadIdx.x]); }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
extern "C" __global__ void __launch_bounds__(128) wgmma(float* out, uint64_t da, uint64_t db) {
  float d[16]; for (int i = 0; i < 16; ++i) d[i] = 0;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
    : "l"(da), "l"(db), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  for (int i = 0; i < 16; ++i) out[threadIdx.x * 16 + i] = d[i];
}
#endif
