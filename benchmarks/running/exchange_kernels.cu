// Kernels of exchange_ways. exchange_kernels.ptx is made from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -o exchange_kernels.ptx exchange_kernels.cu
// and its .version is set to 7.0, which every supported driver reads.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 now_ns() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ u32 acquire(const u32 *word) {
    u32 seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
    return seen;
}

__device__ __forceinline__ void release(u32 *word, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// One side's work between two exchanges: every word of `inbox` must be *base + expected, every word
// of `outbox` becomes one more. `times` are when the first CTA began and the last one ended, `sms`
// a bit per SM that had a CTA.
extern "C" __global__ void step(const u32 *inbox, u32 *outbox, u64 words, const u32 *base,
                                u32 expected, u64 work_ns, u64 *times, u32 *wrong, u32 *sms) {
    u64 begun = now_ns();
    u32 value = *(const volatile u32 *)base + expected, bad = 0, sm;
    if (threadIdx.x == 0) {
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        atomicMin(times, begun);
        atomicOr(sms + sm / 32, 1u << (sm % 32));
    }
    u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    if (inbox)
        for (u64 i = first; i < words; i += all) bad += inbox[i] != value;
    if (bad) atomicAdd(wrong, bad);
    for (u64 i = first; i < words; i += all) outbox[i] = value + 1;
    while (now_ns() < begun + work_ns) {
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(times + 1, now_ns());
}

// Hold a stream until the host sets the word, or for `most_ns`.
extern "C" __global__ void gate(const u32 *word, u64 most_ns, u32 *late) {
    u64 until = now_ns() + most_ns;
    while (!acquire(word))
        if (now_ns() > until) {
            atomicAdd(late, 1);
            return;
        }
}

extern "C" __global__ void signal(u32 *word, u32 value) { release(word, value); }

// Wait with an SM.
extern "C" __global__ void spin(const u32 *word, u32 value, u64 most_ns, u32 *late) {
    u64 until = now_ns() + most_ns;
    while ((int)(acquire(word) - value) < 0)
        if (now_ns() > until) {
            atomicAdd(late, 1);
            return;
        }
}

// Copy, then let the last CTA write the word.
extern "C" __global__ void push(u32 *target, const u32 *source, u64 words, u32 *count, u32 *word,
                                u32 value) {
    u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    u64 quads = words / 4;
    for (u64 i = first; i < quads; i += all) ((uint4 *)target)[i] = ((const uint4 *)source)[i];
    for (u64 i = 4 * quads + first; i < words; i += all) target[i] = source[i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(count, 1) == gridDim.x - 1) {
        *count = 0;
        __threadfence_system();
        release(word, value);
    }
}

// A word holds twice the number of its request, and one more when it was signed. A signature of an
// earlier request changes nothing.
extern "C" __global__ void sign(u32 *word, const u32 *request) {
    u32 number = *(const volatile u32 *)request;
    __threadfence_system();
    atomicCAS_system(word, 2 * number, 2 * number + 1);
}

// After a request: the next one's number into all words, `stride` apart.
extern "C" __global__ void arm(u32 *words, u32 count, u32 stride, u32 *request) {
    u32 next = *(volatile u32 *)request + 1;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) words[i * stride] = 2 * next;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *request = next;
}

// Different values of the timer, one after the other.
extern "C" __global__ void ticks(u64 *times, u64 count) {
    u64 seen = 0;
    for (u64 i = 0; i < count; i++) {
        u64 now = now_ns();
        while (now == seen) now = now_ns();
        times[i] = seen = now;
    }
}
