// Scientific kernels: stencils, n-body, sparse product, FFT butterflies, Monte Carlo, ray-sphere, dynamic programming.
#include <cuComplex.h>
template <typename T, int R> __global__ void star3d(T* out, const T* in, const T* c, int nx, int ny, int nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y; if (x < R || y < R || x >= nx - R || y >= ny - R) return;
  for (int z = R; z < nz - R; ++z) { size_t i = (size_t(z) * ny + y) * nx + x; T a = c[0] * in[i];
#pragma unroll
    for (int r = 1; r <= R; ++r) a += c[r] * (in[i - r] + in[i + r] + in[i - r * nx] + in[i + r * nx] + in[i - size_t(r) * nx * ny] + in[i + size_t(r) * nx * ny]); out[i] = a; }
}
template __global__ void star3d<float, 4>(float*, const float*, const float*, int, int, int);
template __global__ void star3d<double, 2>(double*, const double*, const double*, int, int, int);
extern "C" __global__ void nbody(float4* acc, const float4* pos, int n) {
  __shared__ float4 tile[256]; float4 me = pos[blockIdx.x * 256 + threadIdx.x]; float ax = 0, ay = 0, az = 0;
  for (int t = 0; t < n; t += 256) { tile[threadIdx.x] = pos[t + threadIdx.x]; __syncthreads();
#pragma unroll 16
    for (int j = 0; j < 256; ++j) { float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z, r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-9f), s = tile[j].w * r * r * r; ax += dx * s; ay += dy * s; az += dz * s; } __syncthreads(); }
  acc[blockIdx.x * 256 + threadIdx.x] = make_float4(ax, ay, az, 0);
}
extern "C" __global__ void spmv(double* y, const double* v, const int* col, const int* row, const double* x, int n) { int w = (blockIdx.x * blockDim.x + threadIdx.x) / 32, l = threadIdx.x % 32; if (w >= n) return; double s = 0; for (int j = row[w] + l; j < row[w + 1]; j += 32) s += v[j] * x[col[j]]; for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d); if (!l) y[w] = s; }
extern "C" __global__ void fft8(cuDoubleComplex* x) { cuDoubleComplex v[8]; for (int i = 0; i < 8; ++i) v[i] = x[threadIdx.x + i * blockDim.x];
  for (int s = 1; s < 8; s *= 2) for (int i = 0; i < 8; i += 2 * s) for (int j = 0; j < s; ++j) { double c, n; sincospi(-double(j) / s, &n, &c); auto t = cuCmul(make_cuDoubleComplex(c, n), v[i + j + s]); auto u = v[i + j]; v[i + j] = cuCadd(u, t); v[i + j + s] = cuCsub(u, t); } for (int i = 0; i < 8; ++i) x[threadIdx.x + i * blockDim.x] = v[i]; }
extern "C" __global__ void pi(unsigned long long* hits, unsigned seed, int n) { unsigned s = seed ^ (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u; int h = 0; for (int i = 0; i < n; ++i) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; float a = s * 2.3283064e-10f; s = s * 1664525u + 1013904223u; float b = s * 2.3283064e-10f; h += a * a + b * b < 1; } atomicAdd(hits, (unsigned long long)h); }
extern "C" __global__ void edit(int* d, const char* a, const char* b, int n) { extern __shared__ int row[]; for (int k = 0; k < 2 * n; ++k) { int i = threadIdx.x, j = k - i; if (j >= 0 && j < n) { int c = min(min(row[i] + 1, row[i + n] + 1), row[i + 2 * n] + (a[i] != b[j])); __syncwarp(); row[i] = c; } __syncthreads(); } d[threadIdx.x] = row[threadIdx.x]; }
extern "C" __global__ void bits128(unsigned __int128* x, __int128* y) { x[0] = x[1] * x[2] + x[3]; y[0] = y[1] / y[2]; x[4] = x[5] % x[6]; y[3] = y[4] << (int)y[5]; }
