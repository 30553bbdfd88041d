// Memory: textures, surfaces, atomics of all scopes, caches, local arrays, managed and constant variables, unions, volatile.
#include <cstdint>
__managed__ int counter = 5;
__constant__ double weights[3][4] = {{1.5, -2.25, 1e-300}, {3}, {0, 0, 7.0}};
__device__ const char* names[] = {"alpha", "beta\n", "g\"amma", "\xc3\xa9"};
struct Mixed { char c; short s; int i; long long l; float f; double d; const void* p; };
__device__ int pointed[4] = {9, 8, 7, 6};
__device__ Mixed mixed = {'x', -3, 7, 1ll << 40, 2.5f, -0.0, &pointed[2]};
__device__ uint64_t addresses[2] = {0x123456789abcdef0ull, 42};
__shared__ int unused_shared[17];
extern "C" __global__ void textures(float4* out, cudaTextureObject_t t, cudaSurfaceObject_t s, float u, float v, int i) {
  float4 a = tex1D<float4>(t, u), b = tex2D<float4>(t, u, v), c = tex3D<float4>(t, u, v, u), d = tex2DLayered<float4>(t, u, v, i), e = tex1Dfetch<float4>(t, i);
  float4 f = tex2DLod<float4>(t, u, v, 1.f), g = tex2Dgather<float4>(t, u, v, 2), h = texCubemap<float4>(t, u, v, u);
  float4 k = tex2DGrad<float4>(t, u, v, make_float2(u, v), make_float2(v, u));
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = h; out[8] = k;
  int4 w; surf2Dread(&w, s, 16 * i, i); w.x += 1; surf2Dwrite(w, s, 16 * i, i, cudaBoundaryModeClamp);
  float2 z = surf1Dread<float2>(s, i); surf3Dwrite(z, s, i, i, i, cudaBoundaryModeZero);
}
extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  atomicAdd(i, 1); atomicSub(i, 2); atomicExch(i, 3); atomicMin(i, 4); atomicMax(i, 5); atomicAnd(i, 6); atomicOr(i, 7); atomicXor(i, 8); atomicCAS(i, 9, 10);
  u[1] = atomicInc(u, 11); u[2] = atomicDec(u, 12); l[1] = atomicAdd(l, 13ull); l[2] = atomicCAS(l, 14ull, 15ull); f[1] = atomicAdd(f, 1.f); d[1] = atomicAdd(d, 1.);
  atomicAdd_block(i, 16); atomicAdd_system(i, 17); f[2] = atomicExch(f, 2.f); l[3] = atomicMax(l, 3ull);
}
extern "C" __global__ void caches(float* o, const float* __restrict__ p, volatile int* v) {
  float a = __ldg(p), b = __ldcg(p + 1), c = __ldca(p + 2), d = __ldcs(p + 3), e = __ldlu(p + 4), f = __ldcv(p + 5);
  __stwb(o, a + b); __stcg(o + 1, c + d); __stcs(o + 2, e); __stwt(o + 3, f); v[0] = v[1] + v[2]; __threadfence_block(); __threadfence_system();
}
extern "C" __global__ void locals(int* out, int n) {
  int scratch[64]; double dyn[8];
  for (int i = 0; i < 64; ++i) scratch[i] = i * n;
  for (int i = 0; i < 8; ++i) dyn[i] = weights[i % 3][(i * n) & 3];
  int s = 0; for (int i = 0; i < n; ++i) s += scratch[(i * 7 + out[i]) & 63]; out[0] = s + (int)dyn[n & 7] + counter; 
  out[1] = names[n & 3][1] + mixed.s + (int)mixed.l + (int)addresses[n & 1];
}
__device__ int plain = 3; static __device__ short statics[5] = {1, 2, 3};
extern "C" __global__ void dynamic(char* raw) { extern __shared__ __align__(16) char pool[]; auto f = (float*)pool; auto d = (double*)(pool + 1024); f[threadIdx.x] = raw[threadIdx.x]; __syncthreads(); d[threadIdx.x] = f[255 - threadIdx.x] + plain + statics[threadIdx.x % 5]; __syncthreads(); raw[threadIdx.x] = (char)d[threadIdx.x]; }
