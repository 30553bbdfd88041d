// Clusters: shared memory of other blocks, barriers that other blocks arrive at, bulk reductions.
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_ring(int* out, const int* x) {
  __shared__ int s[64];
  auto cluster = cg::this_cluster();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x] = x[i];
  cluster.sync();
  int* next = cluster.map_shared_rank(s, (cluster.block_rank() + 1) % cluster.num_blocks());
  int v = next[63 - threadIdx.x];
  cluster.sync();
  out[i] = v * 10 + cluster.block_rank();
}

extern "C" __global__ void __cluster_dims__(2, 2, 1) cluster_histogram(int* out, const int* x, int n) {
  __shared__ int bins[32];
  auto cluster = cg::this_cluster();
  int block = blockIdx.y * gridDim.x + blockIdx.x;
  if (threadIdx.x < 32) bins[threadIdx.x] = 0;
  cluster.sync();
  for (int k = block * blockDim.x + threadIdx.x; k < n; k += gridDim.x * gridDim.y * blockDim.x) {
    int v = x[k] & 127;
    atomicAdd(cluster.map_shared_rank(bins, v >> 5) + (v & 31), 1);
  }
  cluster.sync();
  if (threadIdx.x < 32) atomicAdd(out + cluster.block_rank() * 32 + threadIdx.x, bins[threadIdx.x]);
}

// Each block stores into the other's shared memory; the store itself arrives at its barrier.
extern "C" __global__ void __cluster_dims__(2, 1, 1) store_async(int* out, const int* x) {
  __shared__ int s[32];
  __shared__ uint64_t bar;
  auto cluster = cg::this_cluster();
  int i = blockIdx.x * 32 + threadIdx.x, other = cluster.block_rank() ^ 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &bar, 128);
  }
  cluster.sync();
  ptx::st_async(cluster.map_shared_rank(s, other) + threadIdx.x, x[i], cluster.map_shared_rank(&bar, other));
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {
  }
  out[i] = s[31 - threadIdx.x];
  cluster.sync();
}

extern "C" __global__ void bulk_reduce(int* out, const int* x) {
  __shared__ alignas(128) int s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, out, s, 256);
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_max, out + 64, s, 256);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}
