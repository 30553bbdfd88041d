// Producers and consumers: named barriers, mbarriers, warp specialisation (sm_80).
#include <cuda/barrier>

extern "C" __global__ void named_barriers(int *out, const int *in, int rounds) {
    // Warp 0 produces into two slots, warp 1 consumes; bar.arrive and bar.sync on four names.
    __shared__ int slot[2][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = 0;
    for (int r = 0; r < rounds; ++r) {
        int s = r & 1;
        if (warp == 0) {
            if (r >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + s) : "memory");
            slot[s][lane] = in[r * 32 + lane] + r;
            asm volatile("bar.arrive %0, 64;" ::"r"(1 + s) : "memory");
        } else {
            asm volatile("bar.sync %0, 64;" ::"r"(1 + s) : "memory");
            sum = sum * 3 + slot[s][31 - lane];
            if (r + 2 < rounds) asm volatile("bar.arrive %0, 64;" ::"r"(3 + s) : "memory");
        }
    }
    if (warp == 1) out[lane] = sum;
}

extern "C" __global__ void barrier_reduce(int *out, const int *in) {
    int v = in[threadIdx.x];
    int count = __syncthreads_count(v > 0), all = __syncthreads_and(v > -100), any = __syncthreads_or(v > 98);
    out[threadIdx.x] = count + 1000 * all + 10000 * any;
}

extern "C" __global__ void mbarrier_ring(int *out, const int *in, int rounds) {
    // A ring of three slots with full and empty barriers; one producer warp, three consumers.
    __shared__ unsigned long long full[3], empty[3];
    __shared__ int slot[3][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned pf = (unsigned)__cvta_generic_to_shared(full), pe = (unsigned)__cvta_generic_to_shared(empty);
    if (threadIdx.x == 0)
        for (int s = 0; s < 3; ++s) {
            asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(pf + 8 * s) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], 96;" ::"r"(pe + 8 * s) : "memory");
        }
    __syncthreads();
    auto wait = [](unsigned bar, unsigned parity) {
        unsigned done;
        do {
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(bar), "r"(parity) : "memory");
        } while (!done);
    };
    auto arrive = [](unsigned bar) { asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory"); };
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        int s = r % 3, turn = r / 3;
        if (warp == 0) {
            if (turn) wait(pe + 8 * s, (turn - 1) & 1);
            slot[s][lane] = in[r * 32 + lane];
            arrive(pf + 8 * s);
        } else {
            wait(pf + 8 * s, turn & 1);
            sum += slot[s][(lane + warp) % 32] * (r + warp);
            arrive(pe + 8 * s);
        }
    }
    if (warp) out[(warp - 1) * 32 + lane] = sum;
}

extern "C" __global__ void cuda_barrier(int *out, const int *in) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int data[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    data[threadIdx.x] = in[threadIdx.x];
    auto token = bar.arrive();
    int own = in[threadIdx.x] * 2;
    bar.wait(cuda::std::move(token));
    int other = data[63 - threadIdx.x];
    bar.arrive_and_wait();
    data[threadIdx.x] = other;
    bar.arrive_and_wait();
    out[threadIdx.x] = own + data[(threadIdx.x + 1) % 64] * 1000;
}

extern "C" __global__ void cp_async_mbarrier(float *out, const float *in, int n) {
    // cp.async completion reported to an mbarrier.
    __shared__ __align__(16) float stage[256];
    __shared__ unsigned long long bar;
    unsigned pb = (unsigned)__cvta_generic_to_shared(&bar);
    int t = threadIdx.x;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(pb) : "memory");
    __syncthreads();
    unsigned to = (unsigned)__cvta_generic_to_shared(&stage[t * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + t * 4) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(pb) : "memory");
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(pb) : "memory");
    } while (!done);
    for (int i = t; i < n; i += 64) out[i] = stage[n - 1 - i] + 1.f;
}
