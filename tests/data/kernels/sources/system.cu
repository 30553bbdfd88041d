// What a kernel asks of the machine: printf, assert, clocks, sleep, special registers.
#include <cassert>
#include <cstdio>

extern "C" __global__ void hello(const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 3) printf("thread %d of %d: x=%.3f hex=%#x str=%s %c %lld %u%%\n", i, n, x[i], 255, "text", 'z', -1234567890123LL, 4000000000u);
    if (i == 3) printf("plain\n");
}

extern "C" __global__ void checked(int *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i < n) { assert(in[i] >= 0); out[i] = in[i] * 2; }
}

extern "C" __global__ void clocks(int *out) {
    long long a = clock64();
    unsigned g0, g1;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(g0));
    __nanosleep(2000);
    long long b = clock64();
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(g1));
    unsigned c = clock(), d = clock();
    out[threadIdx.x] = (b > a) + 2 * (g1 - g0 < 1000000000u) + 4 * (d - c < 1000000u);
}
