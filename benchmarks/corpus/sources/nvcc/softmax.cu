// Row-wise kernels of a transformer: softmax, layer norm, RMS norm, rotary embedding, top-k.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T> __device__ float up(T x) { return float(x); }
template <typename T, int WARPS> __global__ void __launch_bounds__(WARPS * 32, 2) softmax(T* y, const T* x, int cols) {
  __shared__ float red[WARPS];
  const T* row = x + size_t(blockIdx.x) * cols;
  float m = -INFINITY, s = 0;
  for (int i = threadIdx.x; i < cols; i += WARPS * 32) { float v = up(row[i]); float w = fmaxf(m, v); s = s * __expf(m - w) + __expf(v - w); m = w; }
  for (int d = 16; d; d /= 2) {
    float om = __shfl_xor_sync(~0u, m, d), os = __shfl_xor_sync(~0u, s, d), w = fmaxf(m, om);
    s = s * __expf(m - w) + os * __expf(om - w); m = w;
  }
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = m;
  __syncthreads();
  float g = red[0];
  for (int i = 1; i < WARPS; ++i) g = fmaxf(g, red[i]);
  __syncthreads();
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = s * __expf(m - g);
  __syncthreads();
  float t = 0;
  for (int i = 0; i < WARPS; ++i) t += red[i];
  for (int i = threadIdx.x; i < cols; i += WARPS * 32) y[size_t(blockIdx.x) * cols + i] = T(__expf(up(row[i]) - g) / t);
}
template __global__ void softmax<float, 4>(float*, const float*, int);
template __global__ void softmax<half, 8>(half*, const half*, int);
template __global__ void softmax<__nv_bfloat16, 8>(__nv_bfloat16*, const __nv_bfloat16*, int);
template <typename T> __global__ void rms_norm(T* y, const T* x, const T* w, int n, float eps) {
  extern __shared__ float buf[];
  float s = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { float v = up(x[blockIdx.x * n + i]); buf[i] = v; s += v * v; }
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  __shared__ float part[32];
  if (!(threadIdx.x & 31)) part[threadIdx.x >> 5] = s;
  __syncthreads();
  s = 0; for (int i = 0; i < (blockDim.x + 31) / 32; ++i) s += part[i];
  float r = rsqrtf(s / n + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = T(buf[i] * r * up(w[i]));
}
template __global__ void rms_norm<float>(float*, const float*, const float*, int, float);
template __global__ void rms_norm<half>(half*, const half*, const half*, int, float);
extern "C" __global__ void rotary(half2* q, const float* freq, int heads, int pos) {
  int i = threadIdx.x, h = blockIdx.x;
  float s, c; sincosf(freq[i] * pos, &s, &c);
  half2 v = q[h * blockDim.x + i];
  float a = __low2float(v), b = __high2float(v);
  q[h * blockDim.x + i] = __floats2half2_rn(a * c - b * s, a * s + b * c);
}
extern "C" __global__ void topk(float* val, int* idx, const float* x, int n, int k) {
  float best[8]; int at[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) best[i] = -1e30f, at[i] = -1;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = x[blockIdx.x * n + i]; int j = i;
#pragma unroll
    for (int s = 0; s < 8; ++s) if (v > best[s]) { float t = best[s]; int u = at[s]; best[s] = v; at[s] = j; v = t; j = u; }
  }
  for (int s = 0; s < k; ++s) { val[(blockIdx.x * blockDim.x + threadIdx.x) * k + s] = best[s]; idx[(blockIdx.x * blockDim.x + threadIdx.x) * k + s] = at[s]; }
}
