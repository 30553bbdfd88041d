// Layers of models as people write them by hand, for the tightness of access regions.
#include <cuda_fp16.h>

// --- rotary embeddings
extern "C" __global__ void rope_pairs(float* x, const float* cosine, const float* sine, int heads, int dim, int tokens) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, half = dim / 2;
  if (i >= tokens * heads * half) return;
  int d = i % half, t = i / half / heads;
  float2* p = reinterpret_cast<float2*>(x) + i;
  float c = cosine[t * half + d], s = sine[t * half + d];
  float2 v = *p;
  *p = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
extern "C" __global__ void rope_halves(half* out, const half* x, const float* angles, int dim) {
  int row = blockIdx.x, head = blockIdx.y, half_dim = dim / 2;
  const half* from = x + (row * gridDim.y + head) * dim;
  half* to = out + (row * gridDim.y + head) * dim;
  for (int d = threadIdx.x; d < half_dim; d += blockDim.x) {
    float a = angles[row * half_dim + d], u = __half2float(from[d]), v = __half2float(from[d + half_dim]);
    to[d] = __float2half(u * __cosf(a) - v * __sinf(a));
    to[d + half_dim] = __float2half(v * __cosf(a) + u * __sinf(a));
  }
}
// Only the first `rotary` of every head's values turn; the rest is copied.
extern "C" __global__ void rope_partial(float* out, const float* x, const float* cosine, const float* sine, int heads, int dim, int rotary) {
  int token = blockIdx.x, head = threadIdx.y, d = threadIdx.x;
  if (head >= heads || d >= dim) return;
  const float* row = x + (token * heads + head) * dim;
  float v = row[d];
  if (d < rotary) {
    int h = rotary / 2, k = d % h;
    float other = d < h ? -row[d + h] : row[d - h];
    v = v * cosine[token * h + k] + other * sine[token * h + k];
  }
  out[(token * heads + head) * dim + d] = v;
}

// --- transposes
extern "C" __global__ void transpose_tiled(float* out, const float* x, int rows, int cols) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (c < cols && r + j < rows) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * cols + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (c < rows && r + j < cols) out[(r + j) * rows + c] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_plain(half* out, const half* x, int rows, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) out[(i % cols) * rows + i / cols] = x[i];
}
// [batch, tokens, heads, dim] to [batch, heads, tokens, dim]
extern "C" __global__ void swap_heads(float* out, const float* x, int tokens, int heads, int dim) {
  int t = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    out[((b * heads + h) * tokens + t) * dim + d] = x[((b * tokens + t) * heads + h) * dim + d];
}
// A view of a fused projection: the middle third of every row, transposed.
extern "C" __global__ void transpose_slice(float* out, const float* qkv, int rows, int width) {
  int r = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < width) out[c * rows + r] = qkv[r * 3 * width + width + c];
}

// --- writes into caches of keys and values
extern "C" __global__ void kv_append(half* kcache, half* vcache, const half* k, const half* v, int position, int capacity, int width) {
  int t = blockIdx.x, b = blockIdx.y;
  for (int d = threadIdx.x; d < width; d += blockDim.x) {
    long long to = ((long long)b * capacity + position + t) * width + d;
    int from = (b * gridDim.x + t) * width + d;
    kcache[to] = k[from]; vcache[to] = v[from];
  }
}
// [batch, heads, capacity, dim], four values at a time
extern "C" __global__ void kv_heads(float* cache, const float* k, int position, int heads, int capacity, int dim) {
  int h = blockIdx.x, b = blockIdx.y, d = threadIdx.x * 4;
  if (d >= dim) return;
  float4 v = *reinterpret_cast<const float4*>(k + (b * heads + h) * dim + d);
  *reinterpret_cast<float4*>(cache + ((b * heads + h) * capacity + position) * dim + d) = v;
}
extern "C" __global__ void kv_bytes(signed char* cache, float* scales, const float* k, int position, int width) {
  __shared__ float top;
  int t = blockIdx.x;
  if (threadIdx.x == 0) { float m = 0; for (int d = 0; d < width; ++d) m = fmaxf(m, fabsf(k[t * width + d])); top = m; scales[position + t] = m / 127; }
  __syncthreads();
  for (int d = threadIdx.x; d < width; d += blockDim.x) cache[(position + t) * width + d] = (signed char)(k[t * width + d] / top * 127);
}
// A window that wraps: position modulo capacity, decided by the launch.
extern "C" __global__ void kv_ring(float* cache, const float* k, int position, int capacity, int width) {
  int t = blockIdx.x, slot = (position + t) % capacity;
  for (int d = threadIdx.x; d < width; d += blockDim.x) cache[slot * width + d] = k[t * width + d];
}
// Where a token goes is in memory: any slot.
extern "C" __global__ void kv_slots(half* cache, const half* k, const int* slots, int width) {
  int t = blockIdx.x, slot = slots[t];
  if (slot < 0) return;
  for (int d = threadIdx.x; d < width; d += blockDim.x) cache[(long long)slot * width + d] = k[t * width + d];
}

// --- products split along k
extern "C" __global__ void splitk_partial(float* work, const float* a, const float* b, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y, part = blockIdx.z;
  int step = (k + gridDim.z - 1) / gridDim.z, first = part * step, last = min(k, first + step);
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = first; i < last; ++i) sum += a[row * k + i] * b[i * n + col];
  work[(part * m + row) * n + col] = sum;
}
extern "C" __global__ void splitk_sum(float* c, const float* work, int parts, int count) {
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
  if (i + 1 < count) {
    float2 sum = make_float2(0, 0);
    for (int p = 0; p < parts; ++p) { sum.x += work[p * count + i]; sum.y += work[p * count + i + 1]; }
    c[i] = sum.x; c[i + 1] = sum.y;
  } else if (i < count) { float sum = 0; for (int p = 0; p < parts; ++p) sum += work[p * count + i]; c[i] = sum; }
}
extern "C" __global__ void splitk_atomic(float* c, const float* a, const float* b, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (col >= n) return;
  float sum = 0;
  for (int i = blockIdx.z; i < k; i += gridDim.z) sum += a[row * k + i] * b[i * n + col];
  atomicAdd(c + row * n + col, sum);
}
// A matrix times a vector: warps take parts of k, a block takes a row.
extern "C" __global__ void splitk_vector(float* y, const half* a, const half* x, int k) {
  __shared__ float part[8];
  int row = blockIdx.x, warp = threadIdx.x / 32;
  float sum = 0;
  for (int i = threadIdx.x; i < k; i += blockDim.x) sum += __half2float(a[(long long)row * k + i]) * __half2float(x[i]);
  for (int s = 16; s; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
  if (threadIdx.x % 32 == 0) part[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) { for (int w = 1; w < blockDim.x / 32; ++w) sum += part[w]; y[row] = sum; }
}

// --- persistent kernels and swizzled orders
extern "C" __global__ void persistent_scale(float* out, const float* x, float factor, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) out[i] = x[i] * factor;
}
extern "C" __global__ void persistent_gemm(float* c, const float* a, const float* b, int m, int n, int k, int group) {
  int across = (n + 15) / 16, down = (m + 15) / 16;
  for (int tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
    int width = group * across, g = tile / width, rows = min(down - g * group, group);
    int row = (g * group + tile % width % rows) * 16 + threadIdx.y, col = tile % width / rows * 16 + threadIdx.x;
    if (row >= m || col >= n) continue;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
  }
}
extern "C" __global__ void softmax_loop(float* out, const float* x, int cols) {
  __shared__ float part[8];
  const float* row = x + (long long)blockIdx.x * cols;
  float m = -1e30f, sum = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) { float v = row[c], z = fmaxf(m, v); sum = sum * __expf(m - z) + __expf(v - z); m = z; }
  float top = m;
  for (int s = 16; s; s /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, s));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
  __syncthreads();
  for (int w = 0; w < blockDim.x / 32; ++w) top = fmaxf(top, part[w]);
  __syncthreads();
  sum *= __expf(m - top);
  for (int s = 16; s; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  for (sum = 0, m = 0; m < blockDim.x / 32; ++m) sum += part[(int)m];
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[(long long)blockIdx.x * cols + c] = __expf(row[c] - top) / sum;
}
extern "C" __global__ void scan_chunks(float* out, float* sums, const float* x, int count) {
  __shared__ float s[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  s[threadIdx.x] = i < count ? x[i] : 0;
  for (int d = 1; d < 256; d *= 2) { __syncthreads(); float v = threadIdx.x >= d ? s[threadIdx.x - d] : 0; __syncthreads(); s[threadIdx.x] += v; }
  if (i < count) out[i] = s[threadIdx.x];
  if (threadIdx.x == 255) sums[blockIdx.x] = s[255];
}
extern "C" __global__ void conv1d_causal(float* out, const float* x, const float* w, int tokens, int channels, int taps) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (c >= channels) return;
  float sum = 0;
  for (int k = 0; k < taps; ++k) { int at = t - taps + 1 + k; if (at >= 0) sum += x[at * channels + c] * w[c * taps + k]; }
  out[t * channels + c] = sum;
}
