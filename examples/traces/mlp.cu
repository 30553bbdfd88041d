// The kernels of mlp.ptx. Compiled with CUDA 13.0: nvcc -ptx -arch=sm_80 -O3 -o kernels.ptx mlp.cu

// y[row, col] = bias[col] + sum over k of x[row, k] * w[k, col]; one thread per element of y.
extern "C" __global__ void linear(const float *__restrict__ x, const float *__restrict__ w,
                                  const float *__restrict__ bias, float *__restrict__ y,
                                  int rows, int inner, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    float sum = bias[col];
    for (int k = 0; k < inner; ++k) sum = fmaf(x[row * inner + k], w[k * cols + col], sum);
    y[row * cols + col] = sum;
}

// x = max(x, 0) in place.
extern "C" __global__ void relu(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fmaxf(x[i], 0.0f);
}

// y = a * x + y.
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}

// Each row of y divided by its largest magnitude; one block of 64 threads per row.
extern "C" __global__ void __launch_bounds__(64) scale_rows(float *y, int cols) {
    __shared__ float largest[64];
    float *row = y + blockIdx.x * cols;
    float here = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 64) here = fmaxf(here, fabsf(row[i]));
    largest[threadIdx.x] = here;
    __syncthreads();
    for (int step = 32; step > 0; step /= 2) {
        if (threadIdx.x < step)
            largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + step]);
        __syncthreads();
    }
    float all = largest[0];
    for (int i = threadIdx.x; i < cols; i += 64) row[i] = all > 0.0f ? row[i] / all : 0.0f;
}

// count[0] += the number of positive elements.
extern "C" __global__ void count_positive(const float *x, unsigned *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0.0f) atomicAdd(count, 1u);
}
