// Matrix products through mma.sync with ldmatrix and cp.async: C[m,n] = A[m,k] B[n,k]^T.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

// One warp makes a 16x8 tile; fragments are loaded as 32-bit words straight from global memory.
// WORDS is the number of k elements in a 32-bit word.
template <int K, int WORDS, typename Mma>
__device__ void tile(float *c, const unsigned *a, const unsigned *b, int n, int k, Mma mma) {
    int lane = threadIdx.x, group = lane / 4, quad = lane % 4, kw = k / WORDS;
    int row = blockIdx.y * 16, col = blockIdx.x * 8;
    float d[4] = {0.f, 0.f, 0.f, 0.f};
    for (int i = 0; i < k; i += K) {
        int w = i / WORDS + quad;
        unsigned fa[4] = {a[(row + group) * kw + w], a[(row + group + 8) * kw + w],
                          a[(row + group) * kw + w + 4], a[(row + group + 8) * kw + w + 4]};
        unsigned fb[2] = {b[(col + group) * kw + w], b[(col + group) * kw + w + 4]};
        mma(d, fa, fb);
    }
    float *out = c + (row + group) * n + col + quad * 2;
    out[0] = d[0]; out[1] = d[1]; out[8 * n] = d[2]; out[8 * n + 1] = d[3];
}

#define MMA_F32(name, k, words, shape)                                                             \
    extern "C" __global__ void name(float *c, const unsigned *a, const unsigned *b, int n, int kk) { \
        tile<k, words>(c, a, b, n, kk, [](float *d, const unsigned *fa, const unsigned *fb) {      \
            asm volatile("mma.sync.aligned." shape                                                 \
                         " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                  \
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                          \
                         : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1])); \
        });                                                                                        \
    }
#if __CUDA_ARCH__ >= 890
MMA_F32(mma_e4m3, 32, 4, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA_F32(mma_e5m2, 32, 4, "m16n8k32.row.col.f32.e5m2.e4m3.f32")
#else
MMA_F32(mma_f16, 16, 2, "m16n8k16.row.col.f32.f16.f16.f32")
MMA_F32(mma_bf16, 16, 2, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA_F32(mma_tf32, 8, 1, "m16n8k8.row.col.f32.tf32.tf32.f32")

extern "C" __global__ void mma_s8(int *c, const unsigned *a, const unsigned *b, int n, int k) {
    int lane = threadIdx.x, group = lane / 4, quad = lane % 4, kw = k / 4;
    int row = blockIdx.y * 16, col = blockIdx.x * 8;
    int d[4] = {0, 0, 0, 0};
    for (int w = quad; w < kw; w += 8)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                     : "r"(a[(row + group) * kw + w]), "r"(a[(row + group + 8) * kw + w]), "r"(a[(row + group) * kw + w + 4]),
                       "r"(a[(row + group + 8) * kw + w + 4]), "r"(b[(col + group) * kw + w]), "r"(b[(col + group) * kw + w + 4]));
    int *out = c + (row + group) * n + col + quad * 2;
    out[0] = d[0]; out[1] = d[1]; out[8 * n] = d[2]; out[8 * n + 1] = d[3];
}

// 64x64 block, four warps, two stages of cp.async, fragments through ldmatrix.
extern "C" __global__ void gemm_pipelined(__half *c, const __half *a, const __half *b, int m, int n, int k) {
    __shared__ __align__(16) __half as[2][64][40], bs[2][64][40];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int row = blockIdx.y * 64, col = blockIdx.x * 64, wr = warp / 2 * 32, wc = warp % 2 * 32;
    float acc[2][4][4] = {};
    auto fetch = [&](int stage, int k0) {
        for (int i = t; i < 256; i += 128) {
            int r = i / 4, q = i % 4 * 8;
            __pipeline_memcpy_async(&as[stage][r][q], a + (size_t)(row + r) * k + k0 + q, 16);
            __pipeline_memcpy_async(&bs[stage][r][q], b + (size_t)(col + r) * k + k0 + q, 16);
        }
        __pipeline_commit();
    };
    fetch(0, 0);
    for (int k0 = 0, stage = 0; k0 < k; k0 += 32, stage ^= 1) {
        if (k0 + 32 < k) { fetch(stage ^ 1, k0 + 32); __pipeline_wait_prior(1); }
        else __pipeline_wait_prior(0);
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            unsigned fa[2][4], fb[4][2];
            for (int i = 0; i < 2; ++i) {
                unsigned p = (unsigned)__cvta_generic_to_shared(&as[stage][wr + i * 16 + lane % 16][kk + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3]) : "r"(p));
            }
            for (int j = 0; j < 4; ++j) {
                unsigned p = (unsigned)__cvta_generic_to_shared(&bs[stage][wc + j * 8 + lane % 8][kk + lane / 8 % 2 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(fb[j][0]), "=r"(fb[j][1]) : "r"(p));
            }
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                                 : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                                 : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
            int r = row + wr + i * 16 + lane / 4, q = col + wc + j * 8 + lane % 4 * 2;
            *(__half2 *)(c + (size_t)r * n + q) = __floats2half2_rn(acc[i][j][0], acc[i][j][1]);
            *(__half2 *)(c + (size_t)(r + 8) * n + q) = __floats2half2_rn(acc[i][j][2], acc[i][j][3]);
        }
}

extern "C" __global__ void ldmatrix_trans(unsigned *out, const unsigned *in) {
    __shared__ __align__(16) unsigned tile[128];
    int t = threadIdx.x;
    for (int i = t; i < 128; i += 32) tile[i] = in[i];
    __syncwarp();
    unsigned p = (unsigned)__cvta_generic_to_shared(&tile[t * 4]), r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p));
    for (int i = 0; i < 4; ++i) out[i * 32 + t] = r[i];
}
#endif
