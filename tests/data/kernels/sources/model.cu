// Kernels of model inference: paged attention, grouped experts, selective scan, convolution, FFT.
#include <cuda_bf16.h>

// One block per (sequence, head), one warp; keys and values live in blocks of 16 tokens.
extern "C" __global__ void paged_attention(float *out, const float *q, const float *keys, const float *values, const int *tables,
                                           const int *lengths, int heads, int dim, int max_blocks, float scale) {
    extern __shared__ float scores[];
    int seq = blockIdx.x, head = blockIdx.y, lane = threadIdx.x, length = lengths[seq];
    const float *query = q + ((size_t)seq * heads + head) * dim;
    float top = -1.f / 0.f;
    for (int t = 0; t < length; ++t) {
        int block = tables[seq * max_blocks + t / 16];
        const float *key = keys + (((size_t)block * 16 + t % 16) * heads + head) * dim;
        float dot = 0.f;
        for (int d = lane; d < dim; d += 32) dot += query[d] * key[d];
        for (int s = 16; s; s >>= 1) dot += __shfl_xor_sync(~0u, dot, s);
        dot *= scale;
        if (lane == 0) scores[t] = dot;
        top = fmaxf(top, dot);
    }
    __syncwarp();
    float sum = 0.f;
    for (int t = lane; t < length; t += 32) { float e = __expf(scores[t] - top); scores[t] = e; sum += e; }
    for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);
    __syncwarp();
    for (int d = lane; d < dim; d += 32) {
        float acc = 0.f;
        for (int t = 0; t < length; ++t) {
            int block = tables[seq * max_blocks + t / 16];
            acc += scores[t] * values[(((size_t)block * 16 + t % 16) * heads + head) * dim + d];
        }
        out[((size_t)seq * heads + head) * dim + d] = length ? acc / sum : 0.f;
    }
}

// Grouped product: expert e multiplies its rows by its own matrix, found through pointer arrays.
extern "C" __global__ void grouped_gemm(float *const *c, const float *const *a, const float *const *b, const int *rows, int n, int k) {
    int e = blockIdx.z, m = rows[e];
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.f;
    for (int i = 0; i < k; ++i) sum = fmaf(a[e][row * k + i], b[e][i * n + col], sum);
    c[e][row * n + col] = sum;
}

extern "C" __global__ void route_top2(int *expert, float *weight, int *load, const float *logits, int tokens, int experts) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= tokens) return;
    int best = 0, second = -1;
    for (int e = 1; e < experts; ++e) {
        float v = logits[t * experts + e];
        if (v > logits[t * experts + best]) { second = best; best = e; }
        else if (second < 0 || v > logits[t * experts + second]) second = e;
    }
    float w = 1.f / (1.f + expf(logits[t * experts + second] - logits[t * experts + best]));
    expert[2 * t] = best; expert[2 * t + 1] = second;
    weight[2 * t] = w; weight[2 * t + 1] = 1.f - w;
    atomicAdd(&load[best], 1);
    atomicAdd(&load[second], 1);
}

// Selective scan (Mamba): one thread per channel, 16 states kept in registers.
extern "C" __global__ void selective_scan(float *y, const float *x, const float *delta, const float *a, const float *b, const float *c,
                                          const float *d, int length, int channels) {
    int ch = blockIdx.x * blockDim.x + threadIdx.x;
    if (ch >= channels) return;
    float state[16] = {};
    for (int t = 0; t < length; ++t) {
        float dt = delta[t * channels + ch], u = x[t * channels + ch], sum = 0.f;
        dt = dt > 20.f ? dt : log1pf(__expf(dt));
#pragma unroll
        for (int s = 0; s < 16; ++s) {
            state[s] = __expf(dt * a[ch * 16 + s]) * state[s] + dt * b[t * 16 + s] * u;
            sum += state[s] * c[t * 16 + s];
        }
        y[t * channels + ch] = sum + d[ch] * u;
    }
}

extern "C" __global__ void conv2d(float *out, const float *in, const float *w, int channels, int h, int width, int filters) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, f = blockIdx.z;
    if (x >= width || y >= h) return;
    float sum = 0.f;
    for (int c = 0; c < channels; ++c)
        for (int dy = -1; dy <= 1; ++dy)
            for (int dx = -1; dx <= 1; ++dx) {
                int yy = y + dy, xx = x + dx;
                if (yy < 0 || yy >= h || xx < 0 || xx >= width) continue;
                sum = fmaf(in[(c * h + yy) * width + xx], w[((f * channels + c) * 3 + dy + 1) * 3 + dx + 1], sum);
            }
    out[(f * h + y) * width + x] = sum;
}

extern "C" __global__ void depthwise1d(__nv_bfloat16 *out, const __nv_bfloat16 *in, const __nv_bfloat16 *w, int length, int channels) {
    int c = threadIdx.x, t = blockIdx.x;
    if (c >= channels) return;
    float sum = 0.f;
    for (int k = 0; k < 4; ++k)
        if (t + k >= 3) sum += __bfloat162float(in[(t + k - 3) * channels + c]) * __bfloat162float(w[c * 4 + k]);
    out[t * channels + c] = __float2bfloat16(sum / (1.f + __expf(-sum)));
}

extern "C" __global__ void fft256(float2 *out, const float2 *in) {
    __shared__ float2 buf[256];
    int t = threadIdx.x;
    const float2 *row = in + blockIdx.x * 256;
    for (int i = t; i < 256; i += 128) buf[__brev(i) >> 24] = row[i];
    for (int half = 1; half < 256; half <<= 1) {
        __syncthreads();
        int k = t & (half - 1), i = 2 * t - k, j = i + half;
        float s, c;
        sincospif(-(float)k / half, &s, &c);
        float2 u = buf[i], v = buf[j], w = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
        buf[i] = make_float2(u.x + w.x, u.y + w.y);
        buf[j] = make_float2(u.x - w.x, u.y - w.y);
    }
    __syncthreads();
    for (int i = t; i < 256; i += 128) out[blockIdx.x * 256 + i] = buf[i];
}

__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int r = 0; r < 10; ++r) {
        unsigned hi0 = __umulhi(0xD2511F53u, counter.x), lo0 = 0xD2511F53u * counter.x;
        unsigned hi1 = __umulhi(0xCD9E8D57u, counter.z), lo1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(hi1 ^ counter.y ^ key.x, lo1, hi0 ^ counter.w ^ key.y, lo0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

extern "C" __global__ void dropout(float *out, const float *in, float keep, unsigned long long seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * 4 >= n) return;
    uint4 r = philox(make_uint4(i, 0, 0, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
    unsigned words[4] = {r.x, r.y, r.z, r.w};
    for (int k = 0; k < 4; ++k) {
        int j = i * 4 + k;
        if (j < n) out[j] = words[k] * 2.3283064365386963e-10f < keep ? in[j] / keep : 0.f;
    }
}

extern "C" __global__ void threefry(unsigned *out, unsigned k0, unsigned k1, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int rotate[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    unsigned key[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDAu}, x = i + k0, y = k1;
    for (int r = 0; r < 20; ++r) {
        x += y;
        y = __funnelshift_l(y, y, rotate[r % 8]) ^ x;
        if (r % 4 == 3) { x += key[(r / 4 + 1) % 3]; y += key[(r / 4 + 2) % 3] + r / 4 + 1; }
    }
    out[2 * i] = x;
    out[2 * i + 1] = y;
}

extern "C" __global__ void embedding(float *out, const float *table, const long long *ids, int dim) {
    out[blockIdx.x * dim + threadIdx.x] = table[ids[blockIdx.x] * dim + threadIdx.x];
}

extern "C" __global__ void cross_entropy(float *loss, const float *logits, const int *target, int classes) {
    float top = -1.f / 0.f, sum = 0.f;
    const float *row = logits + blockIdx.x * classes;
    for (int c = threadIdx.x; c < classes; c += 32) {
        float v = row[c], next = fmaxf(top, v);
        sum = sum * __expf(top - next) + __expf(v - next);
        top = next;
    }
    for (int s = 16; s; s >>= 1) {
        float other = __shfl_xor_sync(~0u, top, s), part = __shfl_xor_sync(~0u, sum, s), next = fmaxf(top, other);
        sum = sum * __expf(top - next) + part * __expf(other - next);
        top = next;
    }
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + top - row[target[blockIdx.x]];
}
