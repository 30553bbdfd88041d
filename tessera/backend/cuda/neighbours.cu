// Work for the other slice of a GPU while a kernel is measured. neighbours.ptx is made from this
// with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -o neighbours.ptx neighbours.cu
// and its .version is set to 7.0, which every supported driver reads.

// Arithmetic without memory, until the flag is set.
extern "C" __global__ void neighbour_compute(volatile unsigned *stop, float *sink) {
    float a = threadIdx.x, b = 1.0001f, c = 0.5f, d = 2.0f;
    while (!*stop) {
#pragma unroll 64
        for (int i = 0; i < 1024; ++i) {
            a = fmaf(a, b, c);
            d = fmaf(d, b, a);
        }
    }
    if (a == 12345.678f) *sink = a + d;
}

// Reads and writes of memory that does not fit into caches, until the flag is set.
extern "C" __global__ void neighbour_memory(volatile unsigned *stop, uint4 *target,
                                            const uint4 *source, unsigned long long count) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    while (!*stop)
        for (unsigned long long i = first; i < count; i += step) {
            target[i] = source[i];
            if (((i / step) & 255) == 255 && *stop) break;
        }
}
