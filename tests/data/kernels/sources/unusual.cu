// Kernels whose code leans on corners: mixed carries, irreducible loops, groups made at run time,
// barriers that threads leave, roles in a pipeline, barriers over the grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
using u64 = unsigned long long;
using u128 = unsigned __int128;

// nvcc's 128-bit division: `addc` after `sub.cc`.
extern "C" __global__ void divide128(u64* out, const u64* a, const u64* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u128 x = (u128)a[2 * i] << 64 | a[2 * i + 1], y = (u128)b[2 * i] << 64 | b[2 * i + 1];
  u128 q = x / y, r = x % y;
  out[4 * i] = q >> 64;
  out[4 * i + 1] = (u64)q;
  out[4 * i + 2] = r >> 64;
  out[4 * i + 3] = (u64)r;
}

extern "C" __global__ void irreducible(int* out, const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = x[i], c = 0;
  if (v & 1) goto second;
first:
  c += 3;
  if (c > 40) goto end;
  if (v >> 1 & 1) goto third;
second:
  c += 5;
  v >>= 1;
  if (c > 30) goto end;
  goto first;
third:
  c ^= 1;
  v = v >> 2 | 1;
  c += 2;
  if (c & 4) goto second;
  goto first;
end:
  out[i] = c * 1000 + (v & 255);
}

extern "C" __global__ void append_positive(int* out, int* count, const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0) {
    cg::coalesced_group group = cg::coalesced_threads();
    int base = 0;
    if (group.thread_rank() == 0) base = atomicAdd(count, group.size());
    out[group.shfl(base, 0) + group.thread_rank()] = x[i];
  }
}

extern "C" __global__ void label_sums(int* out, const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int v = x[min(i, n - 1)];
  auto group = cg::labeled_partition(warp, v & 7);
  int sum = cg::reduce(group, v, cg::plus<int>());
  if (i < n) out[i] = sum * 100 + group.size();
}

extern "C" __global__ void half_maximum(__half* out, const __half* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned short* word = (unsigned short*)(out + i % 3);
  unsigned short old = *word, seen;
  do {
    seen = old;
    old = atomicCAS(word, seen, __half_as_ushort(__hmax(x[i], __ushort_as_half(seen))));
  } while (old != seen);
}

// A quarter of the threads leaves the barrier after each round.
extern "C" __global__ void leave_barrier(int* out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int rounds;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    rounds = 0;
  }
  __syncthreads();
  for (int r = 0;; r++) {
    atomicAdd(&rounds, 1);
    if (r == (threadIdx.x & 3)) {
      (void)bar.arrive_and_drop();
      break;
    }
    bar.arrive_and_wait();
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = rounds;
}

// The first warp copies tiles in, the others use them, through two stages.
extern "C" __global__ void pipeline_roles(int* out, const int* x, int tiles) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ int tile[2][64];
  auto block = cg::this_thread_block();
  auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  int lane = threadIdx.x, sum = 0;
  if (lane < 32) {
    for (int t = 0; t < tiles; t++) {
      pipe.producer_acquire();
      cuda::memcpy_async(&tile[t % 2][lane * 2], x + t * 64 + lane * 2, cuda::aligned_size_t<8>(8),
                         pipe);
      pipe.producer_commit();
    }
    pipe.quit();
    return;
  }
  for (int t = 0; t < tiles; t++) {
    pipe.consumer_wait();
    sum += tile[t % 2][lane - 32] * (t + 1) + tile[t % 2][95 - lane];
    pipe.consumer_release();
  }
  out[lane - 32] = sum;
}

// A cooperative launch: every round reads what other blocks wrote in the one before.
extern "C" __global__ void grid_rounds(int* out, int rounds) {
  auto grid = cg::this_grid();
  int rank = grid.thread_rank(), size = grid.size();
  out[rank] = rank;
  for (int k = 0; k < rounds; k++) {
    grid.sync();
    int v = out[(rank + size / 2 + 1) % size];
    grid.sync();
    out[rank] = v + 1;
  }
}

struct Shape {
  __device__ virtual float area(float s) const = 0;
};
struct Square : Shape {
  float scale;
  __device__ Square(float k) : scale(k) {}
  __device__ float area(float s) const override { return s * s * scale; }
};
struct Strip : Shape {
  __device__ float area(float s) const override { return s * 3.0f; }
};

extern "C" __global__ void virtual_call(float* out, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Square square(2.0f);
  Strip strip;
  const Shape* shape = i % 3 ? (const Shape*)&square : (const Shape*)&strip;
  out[i] = shape->area(x[i]);
}
