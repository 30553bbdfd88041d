// Pointers and indices that CUDA C++ keeps in shared memory.

struct Row {
    float *out;
    int count;
    const float *more;
};

// A pointer per thread, and a struct of pointers that one thread fills.
extern "C" __global__ void pointers(float *a, float *b, float *out, const int *idx) {
    __shared__ float *own[64];
    __shared__ Row rows[2];
    int t = threadIdx.x, first = blockIdx.x * 64;
    own[t] = (t & 1) ? a + first + t : b + first + t;
    if (t == 0) {
        rows[0].out = out + first;
        rows[0].count = 64;
        rows[0].more = a;
    }
    __syncthreads();
    float v = *own[63 - t];
    if (t < rows[0].count) rows[0].out[t] = v + rows[0].more[t];
}

// The same bytes hold the sums of a reduction first, and pointers afterwards.
extern "C" __global__ void reused(float *a, float *b, float *out, const int *idx) {
    extern __shared__ char raw[];
    float **pointers = (float **)raw;
    float *sums = (float *)raw;
    int t = threadIdx.x;
    sums[t] = a[t];
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    float sum = sums[0];
    __syncthreads();
    pointers[t] = b + blockIdx.x * 64 + t;
    __syncthreads();
    out[blockIdx.x * 64 + t] = sum + *pointers[t ^ 5];
}

// One thread says where all of them go on, round after round.
extern "C" __global__ void rounds(float *a, float *b, float *out, const int *idx) {
    __shared__ float *current;
    int t = threadIdx.x;
    for (int i = 0; i < 4; i++) {
        if (t == 0) current = (i & 1) ? a + i * 64 : b + i * 64;
        __syncthreads();
        out[blockIdx.x * 256 + i * 64 + t] = current[t];
        __syncthreads();
    }
}

// A permutation that the threads make.
extern "C" __global__ void permuted(float *a, float *b, float *out, const int *idx) {
    __shared__ int to[64];
    int t = threadIdx.x;
    to[(t * 5) & 63] = t;
    __syncthreads();
    out[blockIdx.x * 64 + to[t]] = a[to[t]];
}

// A list that grows as data says: in which order, and how far, nobody knows.
extern "C" __global__ void listed(float *a, float *b, float *out, const int *idx) {
    __shared__ float *list[64];
    __shared__ int count;
    int t = threadIdx.x;
    if (t == 0) count = 0;
    __syncthreads();
    if (idx[t] & 1) list[atomicAdd(&count, 1)] = a + t;
    __syncthreads();
    out[blockIdx.x * 64 + t] = t < count ? *list[t] : b[t];
}

struct View {
    float *data;
};

__device__ __noinline__ float element(View *view, int i) { return view->data[i]; }

// A function that is given the address of shared memory.
extern "C" __global__ void called(float *a, float *b, float *out, const int *idx) {
    __shared__ View view;
    int t = threadIdx.x;
    if (t == 0) view.data = a;
    __syncthreads();
    out[blockIdx.x * 64 + t] = element(&view, t) + b[t];
}
