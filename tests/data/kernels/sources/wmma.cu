// Matrix products through nvcuda::wmma: one warp per 16x16 tile of C = A B + C.
#include <cuda_bf16.h>
#include <mma.h>
#include <type_traits>
using namespace nvcuda::wmma;

template <typename Tin, typename Tacc, typename Load, int M, int N, int K, bool ROWS>
__device__ void product(Tacc *c, const Load *a, const Load *b, int n, int k) {
    fragment<matrix_a, M, N, K, Tin, row_major> fa;
    fragment<matrix_b, M, N, K, Tin, std::conditional_t<ROWS, row_major, col_major>> fb;
    fragment<accumulator, M, N, K, Tacc> fc;
    int row = blockIdx.y * M, col = blockIdx.x * N;
    load_matrix_sync(fc, c + row * n + col, n, mem_row_major);
    for (int i = 0; i < k; i += K) {
        load_matrix_sync(fa, a + row * k + i, k);
        load_matrix_sync(fb, ROWS ? b + i * n + col : b + col * k + i, ROWS ? n : k);
        mma_sync(fc, fa, fb, fc);
    }
    store_matrix_sync(c + row * n + col, fc, n, mem_row_major);
}

extern "C" __global__ void wmma_f16_f32(float *c, const __half *a, const __half *b, int n, int k) {
    product<__half, float, __half, 16, 16, 16, true>(c, a, b, n, k);
}
extern "C" __global__ void wmma_f16_f16(__half *c, const __half *a, const __half *b, int n, int k) {
    product<__half, __half, __half, 16, 16, 16, false>(c, a, b, n, k);
}
extern "C" __global__ void wmma_f16_32x8(float *c, const __half *a, const __half *b, int n, int k) {
    product<__half, float, __half, 32, 8, 16, true>(c, a, b, n, k);
}
extern "C" __global__ void wmma_bf16(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int n, int k) {
    product<__nv_bfloat16, float, __nv_bfloat16, 16, 16, 16, true>(c, a, b, n, k);
}
extern "C" __global__ void wmma_bf16_8x32(float *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int n, int k) {
    product<__nv_bfloat16, float, __nv_bfloat16, 8, 32, 16, false>(c, a, b, n, k);
}
extern "C" __global__ void wmma_tf32(float *c, const float *a, const float *b, int n, int k) {
    product<precision::tf32, float, float, 16, 16, 8, false>(c, a, b, n, k);
}
extern "C" __global__ void wmma_s8(int *c, const signed char *a, const signed char *b, int n, int k) {
    product<signed char, int, signed char, 16, 16, 16, false>(c, a, b, n, k);
}
extern "C" __global__ void wmma_u8(int *c, const unsigned char *a, const unsigned char *b, int n, int k) {
    product<unsigned char, int, unsigned char, 16, 16, 16, true>(c, a, b, n, k);
}
extern "C" __global__ void wmma_f64(double *c, const double *a, const double *b, int n, int k) {
    product<double, double, double, 8, 8, 4, true>(c, a, b, n, k);
}
