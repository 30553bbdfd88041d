// Relocatable code: external functions and variables, weak and visible linkage, device-side launches left out.
extern __device__ float outside(float, int*);
extern __device__ int outside_counter;
extern __constant__ float outside_table[];
__device__ __noinline__ __attribute__((weak)) float weakly(float x) { return x + outside_counter; }
__device__ float shared_by_all(float x) { int k = 3; return outside(x, &k) + k; }
template <typename T> __device__ __noinline__ T twice(T x) { return x + x; }
template __device__ float twice<float>(float);
template __device__ double twice<double>(double);
__device__ int exported[4] = {1, 2, 3, 4};
__global__ void kernel(float* x) { x[0] = weakly(x[1]) + shared_by_all(x[2]) + twice(x[3]) + outside_table[threadIdx.x] + exported[threadIdx.x & 3]; }
