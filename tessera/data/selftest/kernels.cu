// The kernels of `tessc selftest`. kernels.ptx is made from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -fmad=false -o kernels.ptx kernels.cu
// and its .version is set to 7.0, which every supported driver reads.
//
// Every number is the same on every GPU: sums are taken in one order, all arithmetic is rounded as
// IEEE 754 says (no approximation, nothing fused but what is written so), and `exponential` is made
// of such arithmetic. So unlike GPUs can be compared to the byte.

#define TILE 64
#define DEPTH 16
#define WARP 32
#define THREADS 128
#define MOST_KEYS 1024

// For -87 <= x <= 0; below that, almost nothing.
__device__ __forceinline__ float exponential(float x) {
    float bounded = fmaxf(x, -87.0f);
    float whole = rintf(bounded * 1.44269504f);
    float rest = fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, bounded));
    float sum = 1.98756915e-4f;
    sum = fmaf(sum, rest, 1.39819995e-3f);
    sum = fmaf(sum, rest, 8.33345204e-3f);
    sum = fmaf(sum, rest, 4.16657962e-2f);
    sum = fmaf(sum, rest, 1.66666650e-1f);
    sum = fmaf(sum, rest, 0.5f);
    sum = fmaf(sum, rest * rest, rest) + 1.0f;
    return sum * __int_as_float(((int)whole + 127) << 23);
}

// The sum over a block of THREADS threads, the same for all of them.
__device__ __forceinline__ float total(float mine, float *shared) {
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    float sum = shared[0];
    __syncthreads();
    return sum;
}

// target[m,n] = left[m,k] right[k,n], and `skip` beside it if `adds`. A block has a tile of 64x64.
extern "C" __global__ void product(const float *left, const float *right, const float *skip,
                                   float *target, unsigned m, unsigned n, unsigned k,
                                   unsigned adds) {
    __shared__ float a[DEPTH][TILE], b[DEPTH][TILE];
    unsigned tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
    unsigned row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sums[4][4] = {};
    for (unsigned first = 0; first < k; first += DEPTH) {
        for (unsigned i = 0; i < 4; ++i) {
            unsigned at = thread + 256 * i;
            unsigned r = row + at / DEPTH, d = first + at % DEPTH;
            a[at % DEPTH][at / DEPTH] = r < m && d < k ? left[r * k + d] : 0.0f;
            unsigned c = column + at % TILE, e = first + at / TILE;
            b[at / TILE][at % TILE] = c < n && e < k ? right[e * n + c] : 0.0f;
        }
        __syncthreads();
#pragma unroll 2
        for (unsigned d = 0; d < DEPTH; ++d)
            for (unsigned i = 0; i < 4; ++i)
                for (unsigned j = 0; j < 4; ++j)
                    sums[i][j] = fmaf(a[d][ty + 16 * i], b[d][tx + 16 * j], sums[i][j]);
        __syncthreads();
    }
    for (unsigned i = 0; i < 4; ++i)
        for (unsigned j = 0; j < 4; ++j) {
            unsigned r = row + ty + 16 * i, c = column + tx + 16 * j;
            if (r < m && c < n)
                target[r * n + c] = adds ? skip[r * n + c] + sums[i][j] : sums[i][j];
        }
}

// target[m,n] = left[m,k] right[n,k] for few rows: a warp has a column. k is a multiple of 32.
extern "C" __global__ void thin_product(const float *left, const float *right, const float *skip,
                                        float *target, unsigned m, unsigned n, unsigned k,
                                        unsigned adds) {
    unsigned lane = threadIdx.x, column = blockIdx.x * 4 + threadIdx.y;
    if (column >= n) return;
    for (unsigned row = 0; row < m; ++row) {
        float sum = 0.0f;
        for (unsigned i = lane; i < k; i += WARP)
            sum = fmaf(left[row * k + i], right[column * k + i], sum);
        for (int half = WARP / 2; half > 0; half /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, half);
        if (lane == 0)
            target[row * n + column] = adds ? skip[row * n + column] + sum : sum;
    }
}

// Each row of `source` over its root mean square, times `weight`. A block has a row.
extern "C" __global__ void row_norm(const float *source, const float *weight, float *target,
                                    unsigned width) {
    __shared__ float shared[THREADS];
    unsigned row = blockIdx.x;
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < width; i += THREADS) {
        float x = source[row * width + i];
        sum = fmaf(x, x, sum);
    }
    float mean = __fdiv_rn(total(sum, shared), (float)width);
    float scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + 1.0e-5f));
    for (unsigned i = threadIdx.x; i < width; i += THREADS)
        target[row * width + i] = source[row * width + i] * scale * weight[i];
}

// Softmax of scores and the weighted sum of values; a block has a query and a head. Keys of a query
// begin at `keys` + batch * stride, and there are `count` of them.
__device__ __forceinline__ void attend(const float *query, const float *keys, const float *values,
                                       float *target, unsigned count, unsigned stride,
                                       unsigned head_width, float scale) {
    __shared__ float scores[MOST_KEYS], shared[THREADS];
    float largest = -1.0e30f;
    for (unsigned j = threadIdx.x; j < count; j += THREADS) {
        float sum = 0.0f;
#pragma unroll 2
        for (unsigned d = 0; d < head_width; ++d)
            sum = fmaf(query[d], keys[j * stride + d], sum);
        scores[j] = sum * scale;
        largest = fmaxf(largest, scores[j]);
    }
    shared[threadIdx.x] = largest;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    largest = shared[0];
    __syncthreads();
    float mine = 0.0f;
    for (unsigned j = threadIdx.x; j < count; j += THREADS) {
        scores[j] = exponential(scores[j] - largest);
        mine += scores[j];
    }
    float sum = total(mine, shared);
    for (unsigned d = threadIdx.x; d < head_width; d += THREADS) {
        float value = 0.0f;
#pragma unroll 2
        for (unsigned j = 0; j < count; ++j) value = fmaf(scores[j], values[j * stride + d], value);
        target[d] = __fdiv_rn(value, sum);
    }
}

// Causal attention over the rows of `mixed`: query, key and value of every token side by side.
extern "C" __global__ void attention(const float *mixed, float *target, unsigned heads,
                                     unsigned head_width, float scale) {
    unsigned token = blockIdx.x, head = blockIdx.y, width = heads * head_width;
    const float *first = mixed + head * head_width;
    attend(first + token * 3 * width, first + width, first + 2 * width,
           target + token * width + head * head_width, token + 1, 3 * width, head_width, scale);
}

// The same for one token of each of some sequences, over a cache of keys and values.
extern "C" __global__ void cached_attention(const float *mixed, const float *cache, float *target,
                                            unsigned heads, unsigned head_width, unsigned context,
                                            float scale) {
    unsigned row = blockIdx.x, head = blockIdx.y, width = heads * head_width;
    const float *first = cache + (row * context * 2) * width + head * head_width;
    attend(mixed + row * 3 * width + head * head_width, first, first + width,
           target + row * width + head * head_width, context, 2 * width, head_width, scale);
}

// Keys and values of a token into the cache, at the place that `position` (-1 to 1) says.
extern "C" __global__ void keep(const float *mixed, const float *position, float *cache,
                                unsigned width, unsigned context) {
    unsigned row = blockIdx.y, i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= 2 * width) return;
    unsigned at = (unsigned)(fabsf(position[row]) * (float)context) % context;
    cache[(row * context + at) * 2 * width + i] = mixed[row * 3 * width + width + i];
}

// target = x / (1 + exp(-x)) * gate, with x and gate side by side in each row of `mixed`.
extern "C" __global__ void gate(const float *mixed, float *target, unsigned width,
                                unsigned count) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const float *row = mixed + (i / width) * 2 * width + i % width;
    float x = row[0], small = exponential(-fabsf(x));
    float share = __fdiv_rn(x < 0.0f ? small : 1.0f, 1.0f + small);
    target[i] = x * share * row[width];
}

// target = source where that is above zero.
extern "C" __global__ void positive(const float *source, float *target, unsigned count) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) target[i] = fmaxf(source[i], 0.0f);
}

// How many numbers are above zero, added to `count`.
extern "C" __global__ void count_positive(const float *source, unsigned *found, unsigned count) {
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count && source[i] > 0.0f) atomicAdd(found, 1u);
}
