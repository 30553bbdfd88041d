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

// --- contents from a seed: the words of NumPy's PCG64, as `tessera.ir.program.seeded` has them ---

struct Wide { unsigned long long high, low; };

__device__ __forceinline__ Wide times(Wide a, Wide b) {
    return {a.high * b.low + a.low * b.high + __umul64hi(a.low, b.low), a.low * b.low};
}

__device__ __forceinline__ Wide plus(Wide a, Wide b) {
    unsigned long long low = a.low + b.low;
    return {a.high + b.high + (low < a.low), low};
}

// So many steps of the generator as one: a state times `factor` plus `added` is the one after them.
__device__ __forceinline__ void steps_as_one(unsigned long long steps, Wide increment, Wide *factor,
                                             Wide *added) {
    Wide one = {0, 1}, by = {0x2360ed051fc65da4ull, 0x4385df649fccf645ull}, and_add = increment;
    Wide all = one, sum = {0, 0};
    for (; steps; steps >>= 1) {
        if (steps & 1) {
            all = times(all, by);
            sum = plus(times(sum, by), and_add);
        }
        and_add = times(plus(by, one), and_add);
        by = times(by, by);
    }
    *factor = all;
    *added = sum;
}

// 24 bits of a word as a value: a multiple of 2^-23 in [-1, 1), cut off toward zero.
__device__ __forceinline__ unsigned int float_bits(unsigned int word) {
    return __float_as_uint((float)((int)(word >> 8) - (1 << 23)) * 0x1p-23f);
}

// The same with `digits` bits behind the point and a least exponent of `least`.
__device__ __forceinline__ unsigned int narrow_bits(unsigned int word, int digits, int least,
                                                    int sign) {
    int value = (int)(word >> 8) - (1 << 23);
    unsigned int size = value < 0 ? -value : value, code = 0;
    int top = 31 - __clz(size);
    if (top - 23 < least) code = digits - least - 23 >= 0 ? size << (digits - least - 23)
                                                         : size >> (23 + least - digits);
    else code = ((top - 23 - least + 1) << digits) | (((size << (23 - top)) & 0x7fffff) >> (23 - digits));
    return code | (value < 0 ? sign : 0);
}

// `count` values at `target`. Kinds: 0 f32, 1 f64, 2 bf16, 3 f16, 4 e5m2, 5 e4m3.
extern "C" __global__ void seed_values(void *target, unsigned long long count,
                                       unsigned long long kind, unsigned long long state_high,
                                       unsigned long long state_low,
                                       unsigned long long increment_high,
                                       unsigned long long increment_low) {
    unsigned long long first = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    unsigned long long threads = gridDim.x * (unsigned long long)blockDim.x;
    unsigned long long words = kind == 1 ? count : (count + 1) / 2;
    if (first >= words) return;
    Wide increment = {increment_high, increment_low}, factor, added;
    steps_as_one(first + 1, increment, &factor, &added);
    Wide state = plus(times({state_high, state_low}, factor), added);
    steps_as_one(threads, increment, &factor, &added);
    for (unsigned long long at = first; at < words; at += threads) {
        unsigned long long mixed = state.high ^ state.low;
        unsigned int turn = state.high >> 58;
        unsigned long long word = (mixed >> turn) | (mixed << (-turn & 63));
        unsigned int low = (unsigned int)word, high = (unsigned int)(word >> 32);
        bool both = 2 * at + 1 < count;
        if (kind == 0) {
            ((unsigned int *)target)[2 * at] = float_bits(low);
            if (both) ((unsigned int *)target)[2 * at + 1] = float_bits(high);
        } else if (kind == 1) {
            double value = (double)((long long)(word >> 11) - (1ll << 52)) * 0x1p-52;
            ((double *)target)[at] = value;
        } else if (kind <= 3) {
            unsigned int one = kind == 2 ? float_bits(low) >> 16 : narrow_bits(low, 10, -14, 0x8000);
            unsigned int two =
                kind == 2 ? float_bits(high) >> 16 : narrow_bits(high, 10, -14, 0x8000);
            ((unsigned short *)target)[2 * at] = one;
            if (both) ((unsigned short *)target)[2 * at + 1] = two;
        } else {
            unsigned int one = kind == 4 ? narrow_bits(low, 10, -14, 0x8000) >> 8
                                         : narrow_bits(low, 3, -6, 0x80);
            unsigned int two = kind == 4 ? narrow_bits(high, 10, -14, 0x8000) >> 8
                                         : narrow_bits(high, 3, -6, 0x80);
            ((unsigned char *)target)[2 * at] = one;
            if (both) ((unsigned char *)target)[2 * at + 1] = two;
        }
        state = plus(times(state, factor), added);
    }
}

// --- memory that nothing has written, in a verified run: as `tessera.backend.unwritten` has it ---

__device__ __forceinline__ unsigned int mixed(unsigned int x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// Bytes `start` to `end` of a buffer at `target`, for the request that the word says.
extern "C" __global__ void fill_unwritten(unsigned char *target, unsigned long long start,
                                          unsigned long long end,
                                          const unsigned long long *request,
                                          unsigned long long buffer, unsigned long long device,
                                          unsigned long long side) {
    unsigned int number = (unsigned int)*(const volatile unsigned long long *)request;
    unsigned int common = mixed(number ^ (unsigned int)buffer);
    unsigned int own = mixed(common ^ (unsigned int)device);
    unsigned long long threads = gridDim.x * (unsigned long long)blockDim.x;
    unsigned long long at = start + blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    for (; at < end; at += threads) {
        unsigned int word = mixed(own + (unsigned int)(at >> 2) * 0x9e3779b1u);
        unsigned int byte = ((word >> (8 * (at & 3))) & 0x8e) | 0x40 | (unsigned int)side;
        bool is_zero = (mixed(common + (unsigned int)(at >> 4) * 0x85ebca6bu) & 3) == side;
        target[at] = is_zero ? 0 : byte;
    }
}
