// Reductions and scans: a tree in shared memory, warp shuffles, atomics.

extern "C" __global__ void sum_tree(float *out, const float *in, int n) {
    __shared__ float part[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    part[t] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void sum_shuffle(long long *out, const int *in, int n) {
    __shared__ long long part[32];
    long long v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    for (int s = 16; s; s >>= 1) v += __shfl_down_sync(0xffffffffu, v, s);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int s = 16; s; s >>= 1) v += __shfl_xor_sync(0xffffffffu, v, s);
        if (threadIdx.x == 0) atomicAdd((unsigned long long *)out, (unsigned long long)v);
    }
}

extern "C" __global__ void minmax_atomic(int *lo, int *hi, unsigned *bits, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicMin(lo, in[i]);
    atomicMax(hi, in[i]);
    atomicOr(bits, (unsigned)in[i]);
    atomicXor(bits + 1, (unsigned)in[i]);
    atomicAnd(bits + 2, (unsigned)in[i] | 0xf0f0u);
}

extern "C" __global__ void argmax_row(int *where, float *top, const float *in, int cols) {
    float best = -1e30f;
    int at = -1;
    const float *row = in + (size_t)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += 32)
        if (row[c] > best) { best = row[c]; at = c; }
    for (int s = 16; s; s >>= 1) {
        float other = __shfl_down_sync(~0u, best, s);
        int other_at = __shfl_down_sync(~0u, at, s);
        if (other > best || (other == best && other_at < at)) { best = other; at = other_at; }
    }
    if (threadIdx.x == 0) { where[blockIdx.x] = at; top[blockIdx.x] = best; }
}

extern "C" __global__ void scan_block(int *out, int *sums, const int *in, int n) {
    __shared__ int buf[2][128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t, cur = 0;
    buf[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 1; s < 128; s <<= 1) {
        buf[1 - cur][t] = buf[cur][t] + (t >= s ? buf[cur][t - s] : 0);
        cur = 1 - cur;
        __syncthreads();
    }
    if (i < n) out[i] = buf[cur][t];
    if (t == 127) sums[blockIdx.x] = buf[cur][t];
}

extern "C" __global__ void scan_warp(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    float v = i < n ? in[i] : 0.f;
    for (int s = 1; s < 32; s <<= 1) {
        float other = __shfl_up_sync(~0u, v, s);
        if (lane >= s) v += other;
    }
    if (i < n) out[i] = v;
}

extern "C" __global__ void add_offsets(int *data, const int *sums, int n) {
    int base = 0;
    for (unsigned b = 0; b < blockIdx.x; ++b) base += sums[b];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += base;
}
