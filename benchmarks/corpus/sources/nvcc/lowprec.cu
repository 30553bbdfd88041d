// Low precision: half, bfloat16, fp8, fp6, fp4 conversions and packed arithmetic.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
extern "C" __global__ void halves(half2* y, const half2* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  half2 a = x[i], b = __hfma2(a, a, __float2half2_rn(0.5f)); b = __hmul2_sat(b, h2exp(a)); b = h2rcp(b) + h2sin(a) + h2log(a) + h2sqrt(b);
  if (__hbgt2(a, b)) b = __hneg2(b); b = __hmax2(b, __habs2(a)); y[i] = __lowhigh2highlow(b);
}
extern "C" __global__ void bf16s(__nv_bfloat162* y, const __nv_bfloat162* x, float* f) {
  auto a = x[threadIdx.x]; auto b = __hfma2(a, a, a); b = __hadd2(b, h2exp2(a)); y[threadIdx.x] = b; f[threadIdx.x] = __low2float(b) + __bfloat162float(hsqrt(a.x));
  atomicAdd(&y[0], b); atomicAdd(&y[1].x, a.y);
}
extern "C" __global__ void fp8(__nv_fp8x4_e4m3* q, float4* x, __nv_fp8_e5m2* r, half* h) {
  float4 v = x[threadIdx.x]; q[threadIdx.x] = __nv_fp8x4_e4m3(v); r[threadIdx.x] = __nv_fp8_e5m2(v.x); h[threadIdx.x] = half(r[threadIdx.x]); x[threadIdx.x] = float4(q[threadIdx.x]);
}
extern "C" __global__ void fp46(__nv_fp4x4_e2m1* q, __nv_fp6x4_e3m2* s, __nv_fp6x4_e2m3* t, float4* x) {
  float4 v = x[threadIdx.x]; q[threadIdx.x] = __nv_fp4x4_e2m1(v); s[threadIdx.x] = __nv_fp6x4_e3m2(v); t[threadIdx.x] = __nv_fp6x4_e2m3(v);
  float4 a = float4(q[threadIdx.x]), b = float4(s[threadIdx.x]), c = float4(t[threadIdx.x]); x[threadIdx.x] = make_float4(a.x + b.x, b.y + c.y, a.z + c.z, a.w);
}
extern "C" __global__ void int_dots(int* o, const int* a, const int* b) { int i = threadIdx.x; o[i] = __dp4a(a[i], b[i], o[i]); o[i] += __dp2a_lo(a[i], b[i], 0) + __vadd4(a[i], b[i]) + __vabsdiffu4(a[i], b[i]) + __vmaxs2(a[i], b[i]) + __vcmpgtu4(a[i], b[i]) + __sad(a[i], b[i], 1) + __mulhi(a[i], b[i]) + __hadd(a[i], b[i]) + __usad(a[i], b[i], 2); }
extern "C" __global__ void conversions(double* d, float* f, long long* l, int* i, half* h) {
  d[0] = __ll2double_rd(l[0]); f[0] = __double2float_rz(d[1]); l[1] = __double2ll_ru(d[2]); i[0] = __float2int_rn(f[1]); h[0] = __float2half_rz(f[2]); f[3] = __uint2float_ru(i[1]); d[3] = __hiloint2double(i[2], i[3]); f[4] = __int_as_float(i[4]);
  i[5] = (signed char)f[5]; i[6] = (unsigned short)d[4]; f[6] = __fdiv_ru(f[7], f[8]); d[5] = __drcp_rz(d[6]); f[9] = __fsqrt_rd(f[10]); d[7] = __dadd_rd(d[8], d[9]); f[11] = rintf(f[12]); f[13] = truncf(f[14]); d[10] = ceil(d[11]); f[15] = fabsf(f[16]) + copysignf(f[17], f[18]); f[19] = isnan(f[20]) ? 1 : isinf(f[21]);
}
