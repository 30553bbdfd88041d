// Element-wise kernels: templates, vector loads, math functions, grid-stride loops.
#include <cstdint>
template <typename T> struct Gelu {
  __device__ T operator()(T x) const { return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752))); }
};
template <typename T> struct Silu { __device__ T operator()(T x) const { return x / (T(1) + exp(-x)); } };
template <typename T> struct Softplus { __device__ T operator()(T x) const { return log1p(exp(x)); } };
template <typename T> struct Special {
  __device__ T operator()(T x) const { return sin(x) * cosh(x) + pow(x, T(3.3)) + atan2(x, T(2)) + tgamma(x) + fmod(x, T(7)); }
};
template <typename T, typename Op>
__global__ void map(T* __restrict__ y, const T* __restrict__ x, int64_t n) {
  Op op;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) y[i] = op(x[i]);
}
template __global__ void map<float, Gelu<float>>(float*, const float*, int64_t);
template __global__ void map<double, Gelu<double>>(double*, const double*, int64_t);
template __global__ void map<float, Silu<float>>(float*, const float*, int64_t);
template __global__ void map<float, Softplus<float>>(float*, const float*, int64_t);
template __global__ void map<double, Softplus<double>>(double*, const double*, int64_t);
template __global__ void map<float, Special<float>>(float*, const float*, int64_t);
template __global__ void map<double, Special<double>>(double*, const double*, int64_t);
extern "C" __global__ void axpy4(float4* y, const float4* x, float a, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 u = x[i], v = y[i];
  v.x = fmaf(a, u.x, v.x); v.y = fmaf(a, u.y, v.y); v.z = fmaf(a, u.z, v.z); v.w = fmaf(a, u.w, v.w);
  y[i] = v;
}
extern "C" __global__ void bytes(uchar4* out, const uchar4* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { uchar4 c = in[i]; out[i] = make_uchar4(255 - c.w, c.z >> 1, c.y | 3, c.x ^ 0x5a); }
}
