// Kernels of the CUDA backend itself. helpers.ptx is made from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -o helpers.ptx helpers.cu
// and its .version is set to 7.0, which every supported driver reads.

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// A link of a given bandwidth: take the next `ns` nanoseconds of it, and wait until they begin.
// `end` is where to leave when they are over.
extern "C" __global__ void link_turn(unsigned long long *free_at, unsigned long long ns,
                                     unsigned long long *end) {
    unsigned long long now = now_ns(), seen = *(volatile unsigned long long *)free_at, begin;
    for (;;) {
        begin = seen > now ? seen : now;
        unsigned long long found = atomicCAS(free_at, seen, begin + ns);
        if (found == seen) break;
        seen = found;
    }
    *end = begin + ns;
    while (now_ns() < begin) __nanosleep(256);
}

// Wait until the time that link_turn has left.
extern "C" __global__ void link_delay(const unsigned long long *end) {
    unsigned long long until = *end;
    while (now_ns() < until) __nanosleep(256);
}

// Many ranges at once: rows of `table` are source offset, target offset and bytes.
__device__ __forceinline__ void copy_rows(char *target, const char *source,
                                          const unsigned long long *table,
                                          unsigned long long rows) {
    for (unsigned long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const char *from = source + table[3 * row];
        char *to = target + table[3 * row + 1];
        unsigned long long bytes = table[3 * row + 2], done = 0;
        if ((((unsigned long long)from | (unsigned long long)to) & 15) == 0) {
            for (unsigned long long i = threadIdx.x; i < bytes / 16; i += blockDim.x)
                ((uint4 *)to)[i] = ((const uint4 *)from)[i];
            done = bytes / 16 * 16;
        }
        for (unsigned long long i = done + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
    }
}

extern "C" __global__ void copy_ranges(char *target, const char *source,
                                       const unsigned long long *table,
                                       unsigned long long rows) {
    copy_rows(target, source, table, rows);
}

// The same from wherever the word at `source` says: the host sets it for every request.
extern "C" __global__ void fetch_ranges(char *target, const char *const *source,
                                        const unsigned long long *table,
                                        unsigned long long rows) {
    copy_rows(target, *(const char *const volatile *)source, table, rows);
}

// The GPU's clock, in nanoseconds.
extern "C" __global__ void stamp(unsigned long long *where) { *where = now_ns(); }
