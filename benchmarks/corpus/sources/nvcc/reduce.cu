// Reductions: warp shuffles, shared memory, atomics, votes, cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__device__ unsigned int finished_blocks;
__constant__ float scale_table[64] = {1.0f, 0.5f, 0.25f};
template <typename T, int BLOCK> __global__ void block_sum(T* out, const T* in, int n) {
  __shared__ T tile[BLOCK / 32];
  T acc = 0;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) acc += in[i];
  for (int d = 16; d; d >>= 1) acc += __shfl_xor_sync(0xffffffffu, acc, d);
  if (threadIdx.x % 32 == 0) tile[threadIdx.x / 32] = acc;
  __syncthreads();
  if (threadIdx.x < 32) {
    acc = threadIdx.x < BLOCK / 32 ? tile[threadIdx.x] : T(0);
    for (int d = 16; d; d >>= 1) acc += __shfl_down_sync(0xffffffffu, acc, d);
    if (threadIdx.x == 0) atomicAdd(out, acc);
  }
}
template __global__ void block_sum<float, 256>(float*, const float*, int);
template __global__ void block_sum<double, 512>(double*, const double*, int);
template __global__ void block_sum<int, 128>(int*, const int*, int);
extern "C" __global__ void last_block(float* out, float* partial, const float* in, int n) {
  __shared__ bool last;
  float s = 0;
  for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) s += in[i] * scale_table[i & 63];
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  s = cg::reduce(warp, s, cg::plus<float>());
  if (warp.thread_rank() == 0) partial[blockIdx.x] = s;
  __threadfence();
  if (threadIdx.x == 0) last = atomicInc(&finished_blocks, gridDim.x) == gridDim.x - 1;
  __syncthreads();
  if (last) { float t = 0; for (int i = 0; i < gridDim.x; ++i) t += partial[i]; *out = t; finished_blocks = 0; }
}
extern "C" __global__ void cg_scan(int* out, const int* in) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  int v = in[block.thread_rank()];
  int s = cg::inclusive_scan(tile, v, cg::plus<int>());
  int e = cg::exclusive_scan(tile, v, cg::bit_xor<int>());
  auto active = cg::coalesced_threads();
  int m = cg::reduce(active, v, cg::greater<int>());
  auto label = cg::labeled_partition(active, v & 3);
  out[block.thread_rank()] = s + e + m + label.size() + tile.match_any(v) + tile.ballot(v > 3);
}
extern "C" __global__ void grid_sync(float* x, int n) {
  auto grid = cg::this_grid();
  for (int step = 0; step < 4; ++step) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = x[i] * 0.5f + x[(i + 1) % n] * 0.5f;
    grid.sync();
  }
}
extern "C" __global__ void votes(unsigned* out, const int* in) {
  int v = in[threadIdx.x];
  unsigned b = __ballot_sync(~0u, v > 0), m = __match_any_sync(~0u, v), a = __activemask();
  int p; unsigned all = __match_all_sync(~0u, v, &p);
  out[threadIdx.x] = b + m + a + all + p + __any_sync(~0u, v == 1) + __all_sync(~0u, v == 2);
}
