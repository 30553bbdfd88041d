// Kernels of the models that the GPU benchmarks run. model.ptx is made from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_80 -O3 -std=c++17 -o model.ptx model.cu
// No float atomics, and every sum has one order: results are equal to the byte on any device of
// one architecture.

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
using bf16 = __nv_bfloat16;

constexpr int TILE = 64, DEEP = 32;

__device__ __forceinline__ float silu(float x) { return x / (1.0f + __expf(-x)); }

// c = f(a @ b) (+ r): a is rows x inner, b is inner x cols, all row-major. One block per 64 x 64.
// MODE 0: plain, 1: silu, 2: add r.
template <int MODE>
__device__ __forceinline__ void gemm(const bf16 *a, const bf16 *b, const bf16 *r, bf16 *c,
                                     int inner, int cols) {
    __shared__ __align__(16) bf16 left[TILE][DEEP + 8];
    __shared__ __align__(16) bf16 right[DEEP][TILE + 8];
    __shared__ __align__(16) float sums[TILE][TILE];
    const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    const int warp = threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.0f);
    for (int k0 = 0; k0 < inner; k0 += DEEP) {
        for (int i = 0; i < 2; ++i) {
            int at = (threadIdx.x + i * 128) * 8;
            int row = at / DEEP, col = at % DEEP;
            *(uint4 *)&left[row][col] = *(const uint4 *)&a[(row0 + row) * inner + k0 + col];
            row = at / TILE, col = at % TILE;
            *(uint4 *)&right[row][col] = *(const uint4 *)&b[(k0 + row) * cols + col0 + col];
        }
        __syncthreads();
        for (int k = 0; k < DEEP; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> x[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> y[2];
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(x[i], &left[wr + 16 * i][k], DEEP + 8);
                wmma::load_matrix_sync(y[i], &right[k][wc + 16 * i], TILE + 8);
            }
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], x[i], y[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(&sums[wr + 16 * i][wc + 16 * j], acc[i][j], TILE,
                                    wmma::mem_row_major);
    __syncthreads();
    for (int at = threadIdx.x; at < TILE * TILE; at += 128) {
        int row = at / TILE, col = at % TILE, to = (row0 + row) * cols + col0 + col;
        float value = sums[row][col];
        if (MODE == 1) value = silu(value);
        if (MODE == 2) value += __bfloat162float(r[to]);
        c[to] = __float2bfloat16(value);
    }
}

extern "C" __global__ void __launch_bounds__(128) linear(const bf16 *a, const bf16 *b, bf16 *c,
                                                         int inner, int cols) {
    gemm<0>(a, b, nullptr, c, inner, cols);
}

extern "C" __global__ void __launch_bounds__(128) linear_silu(const bf16 *a, const bf16 *b, bf16 *c,
                                                              int inner, int cols) {
    gemm<1>(a, b, nullptr, c, inner, cols);
}

extern "C" __global__ void __launch_bounds__(128) linear_add(const bf16 *a, const bf16 *b,
                                                             const bf16 *r, bf16 *c, int inner,
                                                             int cols) {
    gemm<2>(a, b, r, c, inner, cols);
}

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float parts[128];
    parts[threadIdx.x] = value;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        __syncthreads();
    }
    float all = parts[0];
    __syncthreads();
    return all;
}

// y = x / rms(x) * w, one block of 128 threads per row.
extern "C" __global__ void __launch_bounds__(128) rms_norm(const bf16 *x, const bf16 *w, bf16 *y,
                                                           int cols) {
    const bf16 *row = x + blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 128) {
        float value = __bfloat162float(row[i]);
        sum += value * value;
    }
    float scale = rsqrtf(block_sum(sum) / cols + 1e-5f);
    for (int i = threadIdx.x; i < cols; i += 128)
        y[blockIdx.x * cols + i] =
            __float2bfloat16(__bfloat162float(row[i]) * scale * __bfloat162float(w[i]));
}

// Rows of q, k and v are tokens, heads of 64 side by side. Keys of a token: those before it and
// itself. One block of 64 threads per head (x) and token (y); a running maximum, key by key in
// steps of 64.
__device__ __forceinline__ void attend(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out,
                                       int width, int count, int token) {
    __shared__ float query[64], chance[64], most;
    const int lane = threadIdx.x, head = blockIdx.x * 64;
    query[lane] = __bfloat162float(q[token * width + head + lane]) * 0.125f;
    __syncthreads();
    float sum = 0.0f, total = 0.0f, top = -1e30f;
    for (int base = 0; base < count; base += 64) {
        float score = -1e30f;
        if (base + lane < count) {
            score = 0.0f;
            const bf16 *key = k + (base + lane) * width + head;
            for (int d = 0; d < 64; ++d) score += query[d] * __bfloat162float(key[d]);
        }
        chance[lane] = score;
        __syncthreads();
        if (lane == 0) {
            float best = top;
            for (int i = 0; i < 64; ++i) best = fmaxf(best, chance[i]);
            most = best;
        }
        __syncthreads();
        float rescale = __expf(top - most);
        top = most;
        float mine = __expf(score - top);
        __syncthreads();
        chance[lane] = mine;
        __syncthreads();
        sum *= rescale;
        total *= rescale;
        int here = min(64, count - base);
        for (int i = 0; i < here; ++i) {
            sum += chance[i] * __bfloat162float(v[(base + i) * width + head + lane]);
            total += chance[i];
        }
        __syncthreads();
    }
    out[token * width + head + lane] = __float2bfloat16(sum / total);
}

extern "C" __global__ void __launch_bounds__(64) attention(const bf16 *q, const bf16 *k,
                                                           const bf16 *v, bf16 *out, int width) {
    attend(q, k, v, out, width, blockIdx.y + 1, blockIdx.y);
}

// The cache of a lane is tokens x width. Row *position of keys and values is the new token's.
extern "C" __global__ void store_token(const bf16 *k, const bf16 *v, bf16 *keys, bf16 *values,
                                       const int *position, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    keys[*position * width + i] = k[i];
    values[*position * width + i] = v[i];
}

extern "C" __global__ void __launch_bounds__(64) decode_attention(const bf16 *q, const bf16 *keys,
                                                                  const bf16 *values, bf16 *out,
                                                                  const int *position, int width) {
    attend(q, keys, values, out, width, *position + 1, 0);
}

// y = x @ w for one row, a warp per column pair.
extern "C" __global__ void __launch_bounds__(128) row_linear(const bf16 *x, const bf16 *w, bf16 *y,
                                                             int inner, int cols) {
    int col = (blockIdx.x * 128 + threadIdx.x) * 2;
    if (col >= cols) return;
    float one = 0.0f, other = 0.0f;
    for (int k = 0; k < inner; ++k) {
        float value = __bfloat162float(x[k]);
        __nv_bfloat162 pair = *(const __nv_bfloat162 *)&w[k * cols + col];
        one += value * __bfloat162float(pair.x);
        other += value * __bfloat162float(pair.y);
    }
    y[col] = __float2bfloat16(one);
    y[col + 1] = __float2bfloat16(other);
}

extern "C" __global__ void add_rows(const bf16 *x, const bf16 *y, bf16 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __float2bfloat16(__bfloat162float(x[i]) + __bfloat162float(y[i]));
}

extern "C" __global__ void silu_rows(bf16 *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = __float2bfloat16(silu(__bfloat162float(x[i])));
}

// The expert of each token (largest of the first `experts` logits of its row), and the tokens in
// order of their experts. One block; the order is the same in every run.
extern "C" __global__ void route(const bf16 *logits, int *order, int *starts, int tokens,
                                 int experts, int stride) {
    __shared__ unsigned char chosen[4096];
    for (int t = threadIdx.x; t < tokens; t += blockDim.x) {
        int best = 0;
        for (int e = 1; e < experts; ++e)
            if (__bfloat162float(logits[t * stride + e]) >
                __bfloat162float(logits[t * stride + best]))
                best = e;
        chosen[t] = best;
    }
    __syncthreads();
    if (threadIdx.x < experts) {
        int start = 0, at = 0;
        for (int t = 0; t < tokens; ++t) start += chosen[t] < threadIdx.x;
        for (int t = 0; t < tokens; ++t)
            if (chosen[t] == threadIdx.x) order[start + at++] = t;
        starts[threadIdx.x] = start;
        if (threadIdx.x == experts - 1) starts[experts] = tokens;
    }
}

// For the tokens of one expert: y[token] = f(x[token] @ w). A block per 128 columns (x) and token
// of the list (y); blocks past the expert's last token do nothing.
extern "C" __global__ void __launch_bounds__(128) expert_linear(const bf16 *x, const bf16 *w,
                                                                bf16 *y, const int *order,
                                                                const int *starts, int expert,
                                                                int inner, int cols, int with_silu) {
    int at = starts[expert] + blockIdx.y;
    if (at >= starts[expert + 1]) return;
    int token = order[at], col = blockIdx.x * 128 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < inner; ++k)
        sum += __bfloat162float(x[token * inner + k]) * __bfloat162float(w[k * cols + col]);
    y[token * cols + col] = __float2bfloat16(with_silu ? silu(sum) : sum);
}
