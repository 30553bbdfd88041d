// Row kernels of neural networks: softmax, layer and RMS normalisation, rotary embedding.
#include <cuda_fp16.h>

__device__ float block_sum(float v, float *part) {
    for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(~0u, v, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.f;
    for (int w = 0; w < blockDim.x / 32; ++w) v += part[w];
    __syncthreads();
    return v;
}

extern "C" __global__ void softmax(float *out, const float *in, int cols) {
    __shared__ float part[32];
    const float *row = in + (size_t)blockIdx.x * cols;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) top = fmaxf(top, row[c]);
    for (int s = 16; s; s >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, s));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) top = fmaxf(top, part[w]);
    __syncthreads();
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(row[c] - top);
    sum = block_sum(sum, part);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) out[(size_t)blockIdx.x * cols + c] = expf(row[c] - top) / sum;
}

extern "C" __global__ void layernorm(float *out, const float *in, const float *weight, const float *bias, int cols, float eps) {
    __shared__ float part[32];
    const float *row = in + (size_t)blockIdx.x * cols;
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += row[c];
    float mean = block_sum(sum, part) / cols, var = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) var += (row[c] - mean) * (row[c] - mean);
    float scale = rsqrtf(block_sum(var, part) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[(size_t)blockIdx.x * cols + c] = (row[c] - mean) * scale * weight[c] + bias[c];
}

extern "C" __global__ void rmsnorm(__half *out, const __half *in, const __half *weight, int cols, float eps) {
    __shared__ float part[32];
    float sum = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float v = __half2float(in[blockIdx.x * cols + c]);
        sum += v * v;
    }
    float scale = rsqrtf(block_sum(sum, part) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[blockIdx.x * cols + c] = __float2half(__half2float(in[blockIdx.x * cols + c]) * scale * __half2float(weight[c]));
}

extern "C" __global__ void rope(float *q, const int *positions, int heads, int half_dim, float base) {
    int token = blockIdx.x, head = blockIdx.y, d = threadIdx.x;
    float angle = positions[token] * powf(base, -(float)d / half_dim), s, c;
    sincosf(angle, &s, &c);
    float *row = q + ((size_t)token * heads + head) * 2 * half_dim;
    float x = row[d], y = row[d + half_dim];
    row[d] = x * c - y * s;
    row[d + half_dim] = y * c + x * s;
}
