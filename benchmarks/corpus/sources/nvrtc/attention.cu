// A single-query attention step with half precision, as serving engines compile at run time.
#include <cuda_fp16.h>
template <int D, int WARPS> __global__ void decode(half* out, const half* q, const half* k, const half* v, const int* table, const int* len, float scale, int pages) {
  __shared__ float sm[WARPS], ss[WARPS]; __shared__ float acc[WARPS][D];
  int seq = blockIdx.x, head = blockIdx.y, w = threadIdx.x / 32, l = threadIdx.x % 32, n = len[seq];
  half2 rq[D / 64]; float2 o[D / 64]; float m = -1e30f, s = 0;
  for (int i = 0; i < D / 64; ++i) { rq[i] = reinterpret_cast<const half2*>(q + (seq * gridDim.y + head) * D)[l + 32 * i]; o[i] = make_float2(0, 0); }
  for (int t = w; t < n; t += WARPS) {
    long long base = ((long long)table[seq * pages + t / 16] * 16 + t % 16) * gridDim.y * D + head * D; float d = 0;
    for (int i = 0; i < D / 64; ++i) { float2 a = __half22float2(rq[i]), b = __half22float2(reinterpret_cast<const half2*>(k + base)[l + 32 * i]); d = fmaf(a.x, b.x, fmaf(a.y, b.y, d)); }
    for (int x = 16; x; x /= 2) d += __shfl_xor_sync(~0u, d, x); d *= scale; float z = fmaxf(m, d), c = __expf(m - z), p = __expf(d - z); s = s * c + p; m = z;
    for (int i = 0; i < D / 64; ++i) { float2 b = __half22float2(reinterpret_cast<const half2*>(v + base)[l + 32 * i]); o[i].x = o[i].x * c + p * b.x; o[i].y = o[i].y * c + p * b.y; }
  }
  if (!l) { sm[w] = m; ss[w] = s; } for (int i = 0; i < D / 64; ++i) { acc[w][2 * (l + 32 * i)] = o[i].x; acc[w][2 * (l + 32 * i) + 1] = o[i].y; } __syncthreads();
  for (int i = threadIdx.x; i < D; i += WARPS * 32) { float z = -1e30f, t = 0, r = 0; for (int j = 0; j < WARPS; ++j) z = fmaxf(z, sm[j]); for (int j = 0; j < WARPS; ++j) { float c = __expf(sm[j] - z); t += ss[j] * c; r += acc[j][i] * c; } out[(seq * gridDim.y + head) * D + i] = __float2half(r / t); }
}
template __global__ void decode<64, 4>(half*, const half*, const half*, const half*, const int*, const int*, float, int);
template __global__ void decode<128, 8>(half*, const half*, const half*, const half*, const int*, const int*, float, int);
