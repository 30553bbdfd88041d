// Control flow and calls: switch tables, recursion, function pointers, virtual calls, printf, assert, alloca, traps.
#include <cassert>
#include <cstdio>
struct Shape { __device__ virtual float area() const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { float s; __device__ Square(float x) : s(x) {} __device__ float area() const override { return s * s; } };
struct Circle : Shape { float r; __device__ Circle(float x) : r(x) {} __device__ float area() const override { return 3.14159f * r * r; } };
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ float f0(float x) { return x + 1; }
__device__ __noinline__ float f1(float x) { return x * 2; }
__device__ __noinline__ float f2(float x) { return sqrtf(x); }
typedef float (*Fn)(float);
__device__ Fn table[3] = {f0, f1, f2};
extern "C" __global__ void indirect(float* x, const int* which) { x[threadIdx.x] = table[which[threadIdx.x] % 3](x[threadIdx.x]); }
extern "C" __global__ void virtual_calls(float* out, int n) {
  Shape* s; Square sq(out[0]); Circle ci(out[1]);
  s = n > 3 ? (Shape*)&sq : (Shape*)&ci;
  out[2] = s->area();
  Shape* h = new Square(out[3]); out[4] = h->area(); delete h;
}
extern "C" __global__ void jump(int* x) {
  switch (x[threadIdx.x]) {
    case 0: x[1] = 7; break; case 1: x[2] ^= 3; break; case 2: x[3] = x[4] * x[5]; break; case 3: x[6] = fib(x[7]); break;
    case 4: __threadfence(); x[8] = 1; break; case 5: x[9] = __clz(x[9]); break; case 6: x[10] = __popc(x[10]); break; case 7: x[11] = __brev(x[11]); break;
    case 9: x[12] = __ffs(x[1]); break; case 10: x[13] = __byte_perm(x[1], x[2], 0x3715); break; case 12: x[14] = __funnelshift_l(x[1], x[2], x[3]); break;
    default: x[15] = -1;
  }
}
extern "C" __global__ void says(int n, float f, const char* s) { printf("%d %f %s\n", n, f, s); assert(n > 3 && "too small"); if (f > 9) __trap(); if (f < -9) __brkpt(); }
struct Big { int a[40]; double d; char c[3]; };
__device__ __noinline__ Big twist(Big b, int k) { for (int i = 0; i < 40; ++i) b.a[i] = b.a[(i * k) % 40] + 1; b.d *= 2; b.c[1] = k; return b; }
extern "C" __global__ void structs(Big* out, const Big in, __grid_constant__ const Big fixed) { *out = twist(in, fixed.a[out->a[0] % 40]); }
extern "C" __global__ void collatz(unsigned long long* x) {
  unsigned long long v = x[threadIdx.x]; int n = 0;
  while (v != 1) { v = v & 1 ? 3 * v + 1 : v / 2; if (++n > 1000) goto out; for (int i = 0; i < n % 5; ++i) { if (x[i] == v) continue; if (x[i] > v) break; v ^= x[i]; } }
out: x[threadIdx.x] = n;
}
extern "C" __global__ void clocks(long long* t) { t[0] = clock64(); t[1] = clock(); unsigned long long g; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g)); t[2] = g; __nanosleep(100); unsigned s; asm("mov.u32 %0, %%smid;" : "=r"(s)); t[3] = s; }
