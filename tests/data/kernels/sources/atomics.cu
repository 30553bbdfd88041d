// Atomics: every operation of cuda::atomic_ref, floats in shared memory, locks, grid barriers.
#include <cuda/atomic>
#include <cuda_fp16.h>

extern "C" __global__ void atomic_ref_ops(unsigned *words, unsigned long long *wide, unsigned *old) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> a(words[0]), b(words[1]), c(words[2]), d(words[3]), e(words[4]);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> w(wide[0]);
    cuda::atomic_ref<int, cuda::thread_scope_block> s((int &)words[5]);
    unsigned t = threadIdx.x;
    a.fetch_add(t + 1);
    b.fetch_sub(t, cuda::memory_order_relaxed);
    c.fetch_and(~(1u << (t & 31)), cuda::memory_order_acquire);
    d.fetch_or(1u << (t & 31), cuda::memory_order_release);
    e.fetch_xor(t * 77, cuda::memory_order_acq_rel);
    w.fetch_add((unsigned long long)t << 33);
    s.fetch_max((int)t - 20);
    __syncthreads();
    if (t == 0) {
        old[0] = a.exchange(5u);
        unsigned want = 5u;
        old[1] = a.compare_exchange_strong(want, 9u);
        old[2] = a.compare_exchange_strong(want, 10u);
        old[3] = want;
        old[4] = a.load(cuda::memory_order_acquire);
        b.store(b.load() + 1, cuda::memory_order_release);
    }
}

extern "C" __global__ void shared_atomics(float *out, unsigned *bits, const float *in, int n) {
    __shared__ float sum;
    __shared__ int lo, hi;
    __shared__ unsigned up, down, turns, swapped;
    __shared__ unsigned long long wide;
    int t = threadIdx.x;
    if (t == 0) { sum = 0.f; lo = 1 << 30; hi = -(1 << 30); up = 0; down = 3; turns = 0; swapped = 0; wide = 0; }
    __syncthreads();
    if (t < n) {
        atomicAdd(&sum, in[t]);
        atomicMin(&lo, __float_as_int(in[t]));
        atomicMax(&hi, __float_as_int(in[t]));
        atomicInc(&up, 6u);
        atomicDec(&down, 10u);
        atomicAdd(&wide, (unsigned long long)t * t);
        unsigned seen = turns, assumed;
        do { assumed = seen; seen = atomicCAS(&turns, assumed, assumed * 3 + 1); } while (seen != assumed);
        unsigned before = atomicExch(&swapped, (unsigned)t + 1);
        atomicAdd(&bits[8], before);
    }
    __syncthreads();
    if (t == 0) {
        out[0] = sum;
        bits[0] = lo; bits[1] = hi; bits[2] = up; bits[3] = down; bits[4] = turns;
        atomicAdd(&bits[8], swapped);
        bits[6] = (unsigned)wide; bits[7] = (unsigned)(wide >> 32);
    }
}

extern "C" __global__ void float_atomics(float *f, double *d, __half2 *h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(f, (float)(i % 16));
    atomicAdd(d, (double)i * 0.25);
    atomicAdd(h, __floats2half2_rn(1.f, (float)(i & 1)));
}

extern "C" __global__ void spin_lock(int *lock, int *counter, int *log) {
    // One thread per block takes the lock; the critical section is a plain read-modify-write.
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
        __threadfence();
        int v = *(volatile int *)counter;
        *(volatile int *)counter = v + (int)blockIdx.x + 1;
        log[v >= 0 ? blockIdx.x : 0] = 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

extern "C" __global__ void spin_lock_lanes(int *lock, int *counter) {
    // Every lane of a warp takes the lock: needs independent thread scheduling.
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)counter = *(volatile int *)counter + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void grid_barrier(int *data, unsigned *arrived, int rounds) {
    unsigned block = blockIdx.x, blocks = gridDim.x;
    for (int r = 0; r < rounds; ++r) {
        int left = ((volatile int *)data)[(r & 1) * blocks * 32 + (block + blocks - 1) % blocks * 32 + threadIdx.x];
        ((volatile int *)data)[((r + 1) & 1) * blocks * 32 + block * 32 + threadIdx.x] = left * 3 + (int)threadIdx.x + r;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(arrived, 1u);
            while (*(volatile unsigned *)arrived < blocks * (unsigned)(r + 1)) {}
            __threadfence();
        }
        __syncthreads();
    }
}

extern "C" __global__ void last_block(float *out, float *part, unsigned *done, const float *in, int n) {
    // The block that finishes last sums what the others left.
    __shared__ bool last;
    __shared__ float buf[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    buf[t] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int s = 32; s; s >>= 1) { if (t < s) buf[t] += buf[t + s]; __syncthreads(); }
    if (t == 0) {
        part[blockIdx.x] = buf[0];
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0.f;
        for (unsigned b = 0; b < gridDim.x; ++b) sum += ((volatile float *)part)[b];
        *out = sum;
    }
}
