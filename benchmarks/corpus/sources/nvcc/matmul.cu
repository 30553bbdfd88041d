// Matrix products: shared-memory tiles, wmma, inline mma, ldmatrix, cp.async.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cuda_pipeline.h>
#include <cstdint>
using namespace nvcuda;
template <typename T, int B> __global__ void tiled(T* c, const T* a, const T* b, int m, int n, int k) {
  __shared__ T as[B][B + 1], bs[B][B + 1];
  int row = blockIdx.y * B + threadIdx.y, col = blockIdx.x * B + threadIdx.x;
  T acc = 0;
  for (int t = 0; t < k; t += B) {
    as[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < k ? a[row * k + t + threadIdx.x] : T(0);
    bs[threadIdx.y][threadIdx.x] = col < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + col] : T(0);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < B; ++i) acc += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = acc;
}
template __global__ void tiled<float, 16>(float*, const float*, const float*, int, int, int);
template __global__ void tiled<double, 16>(double*, const double*, const double*, int, int, int);
template __global__ void tiled<int, 32>(int*, const int*, const int*, int, int, int);
template <typename T, typename A> __global__ void wmma_gemm(A* c, const T* a, const T* b, int n, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, A> fc;
  wmma::fill_fragment(fc, A(0));
  int row = blockIdx.y * 16, col = blockIdx.x * 16;
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + row * k + i, k);
    wmma::load_matrix_sync(fb, b + col * k + i, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c + row * n + col, fc, n, wmma::mem_row_major);
}
template __global__ void wmma_gemm<half, float>(float*, const half*, const half*, int, int);
template __global__ void wmma_gemm<half, half>(half*, const half*, const half*, int, int);
template __global__ void wmma_gemm<signed char, int>(int*, const signed char*, const signed char*, int, int);
#if __CUDA_ARCH__ >= 800
template __global__ void wmma_gemm<__nv_bfloat16, float>(float*, const __nv_bfloat16*, const __nv_bfloat16*, int, int);
extern "C" __global__ void mma_async(float* out, const half* __restrict__ a, const half* __restrict__ b, int k) {
  __shared__ alignas(128) half sa[2][16 * 64], sb[2][8 * 64];
  float d[4] = {0, 0, 0, 0};
  int lane = threadIdx.x & 31;
  for (int stage = 0, i = 0; i < k; i += 64, stage ^= 1) {
    for (int v = lane; v < 16 * 64 / 8; v += 32) __pipeline_memcpy_async(&sa[stage][v * 8], a + (v / 8) * k + i + (v % 8) * 8, 16);
    for (int v = lane; v < 8 * 64 / 8; v += 32) __pipeline_memcpy_async(&sb[stage][v * 8], b + (v / 8) * k + i + (v % 8) * 8, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();
#pragma unroll
    for (int kk = 0; kk < 64; kk += 16) {
      uint32_t ra[4], rb[2];
      uint32_t pa = (uint32_t)__cvta_generic_to_shared(&sa[stage][(lane % 16) * 64 + kk + (lane / 16) * 8]);
      uint32_t pb = (uint32_t)__cvta_generic_to_shared(&sb[stage][(lane % 8) * 64 + kk + ((lane / 8) % 2) * 8]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    }
  }
  for (int i = 0; i < 4; ++i) out[(lane / 4 + (i / 2) * 8) * 8 + (lane % 4) * 2 + i % 2] = d[i];
}
#endif
