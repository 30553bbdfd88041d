// Shared memory: transposes, histograms, sorting networks, a tiled product, dynamic sizes.
extern "C" __global__ void transpose(float *out, const float *in, int rows, int cols) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < cols && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < rows && y < cols) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void histogram(unsigned *bins, const unsigned char *in, int n) {
    __shared__ unsigned local[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (local[b]) atomicAdd(&bins[b], local[b]);
}

extern "C" __global__ void bitonic(unsigned *keys, unsigned *values) {
    extern __shared__ unsigned pool[];
    unsigned *k = pool, *v = pool + 2 * blockDim.x, n = 2 * blockDim.x, t = threadIdx.x;
    unsigned base = blockIdx.x * n;
    for (unsigned i = t; i < n; i += blockDim.x) { k[i] = keys[base + i]; v[i] = values[base + i]; }
    for (unsigned size = 2; size <= n; size <<= 1)
        for (unsigned stride = size / 2; stride; stride >>= 1) {
            __syncthreads();
            unsigned i = 2 * t - (t & (stride - 1)), j = i + stride;
            bool up = (i & size) == 0;
            if ((k[i] > k[j]) == up) {
                unsigned a = k[i]; k[i] = k[j]; k[j] = a;
                a = v[i]; v[i] = v[j]; v[j] = a;
            }
        }
    __syncthreads();
    for (unsigned i = t; i < n; i += blockDim.x) { keys[base + i] = k[i]; values[base + i] = v[i]; }
}

extern "C" __global__ void sgemm(float *c, const float *a, const float *b, int m, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0.f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        as[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0.f;
        bs[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum = fmaf(as[ty][i], bs[i][tx], sum);
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" __global__ void reverse_dynamic(double *out, const double *in, int n) {
    extern __shared__ double stage[];
    if (threadIdx.x < n) stage[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = stage[n - 1 - threadIdx.x];
}

extern "C" __global__ void radix_count(unsigned *ranks, const unsigned *in, unsigned bit) {
    // Stable split by one bit, through ballots and a scan of warp counts.
    __shared__ unsigned zeros[8], total;
    unsigned t = threadIdx.x, lane = t & 31, warp = t >> 5;
    unsigned set = (in[t] >> bit) & 1;
    unsigned votes = __ballot_sync(~0u, !set);
    if (lane == 0) zeros[warp] = __popc(votes);
    __syncthreads();
    unsigned before = __popc(votes & ((1u << lane) - 1));
    unsigned sum = 0;
    for (unsigned w = 0; w < 8; ++w) { if (w < warp) before += zeros[w]; sum += zeros[w]; }
    if (t == 0) total = sum;
    __syncthreads();
    ranks[t] = set ? total + (t - before) : before;
}
