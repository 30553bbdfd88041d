// Work for the other slice of a GPU while a kernel is measured, and its clock. neighbours.ptx is made
// from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -o neighbours.ptx neighbours.cu
// and its .version is set to 7.0, which every supported driver reads.
//
// All end by themselves after `ns` nanoseconds: whatever goes wrong, nothing spins for ever.

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Arithmetic without memory.
extern "C" __global__ void neighbour_compute(unsigned long long ns, float *sink) {
    unsigned long long end = now_ns() + ns;
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 2.0f;
    while (now_ns() < end) {
#pragma unroll 64
        for (int i = 0; i < 1024; ++i) {
            a = fmaf(a, b, c);
            d = fmaf(d, b, a);
        }
    }
    if (a == 12345.678f) *sink = a + d;
}

// Reads and writes of memory that does not fit into caches.
extern "C" __global__ void neighbour_memory(unsigned long long ns, uint4 *target,
                                            const uint4 *source, unsigned long long count) {
    unsigned long long end = now_ns() + ns;
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    while (now_ns() < end)
        for (unsigned long long i = first, round = 0; i < count; i += step, ++round) {
            target[i] = source[i];
            if ((round & 63) == 63 && now_ns() >= end) break;
        }
}

// How many cycles an SM makes in `ns` nanoseconds: cycles and nanoseconds.
extern "C" __global__ void measure_clock(unsigned long long ns, unsigned long long *found) {
    unsigned long long begin = now_ns(), cycles = clock64();
    while (now_ns() < begin + ns) {
    }
    found[0] = clock64() - cycles;
    found[1] = now_ns() - begin;
}
