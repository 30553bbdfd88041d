// Constant memory, module variables, vector accesses, byte kernels, cp.async with zero fill.
__constant__ float filter[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
__constant__ int lookup[2][4] = {{1, 2, 3, 4}, {-1, -2, -3, -4}};
__device__ int counter = 41;
__device__ float scratch[64];
__device__ unsigned char message[] = "tessera";
__device__ int *where = &counter;
__device__ const char *names[2] = {"zero", "one"};

extern "C" __global__ void blur(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.f;
    for (int k = 0; k < 5; ++k) {
        int j = min(max(i + k - 2, 0), n - 1);
        sum = fmaf(in[j], filter[k], sum);
    }
    out[i] = sum + lookup[i & 1][i & 3];
}

extern "C" __global__ void write_global(const float *in) {
    scratch[threadIdx.x] = in[threadIdx.x] * 2.f;
    if (threadIdx.x == 0) atomicAdd(&counter, 1);
}

extern "C" __global__ void read_global(float *out, int *count, unsigned char *text) {
    out[threadIdx.x] = scratch[63 - threadIdx.x];
    if (threadIdx.x < 8) text[threadIdx.x] = message[threadIdx.x];
    if (threadIdx.x == 0) { count[0] = *where; count[1] = names[1][0] + names[0][3]; }
}

extern "C" __global__ void vectors(float4 *out, const float4 *in, const uchar4 *color, const double2 *pair, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = in[i];
    uchar4 c = color[i];
    double2 d = pair[i];
    out[i] = make_float4(v.w + c.x, v.z * c.y, (float)d.x + c.z, (float)d.y - c.w);
}

extern "C" __global__ void copy_bytes(unsigned char *out, const unsigned char *in, int n) {
    for (int i = threadIdx.x; i < n / 16; i += blockDim.x) ((uint4 *)out)[i] = ((const uint4 *)in)[i];
    for (int i = n / 16 * 16 + threadIdx.x; i < n; i += blockDim.x) out[i] = in[i];
}

extern "C" __global__ void rgb_to_gray(unsigned char *gray, const uchar3 *rgb, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) gray[i] = (unsigned char)((77 * rgb[i].x + 150 * rgb[i].y + 29 * rgb[i].z + 128) >> 8);
}

extern "C" __global__ void rgb_to_yuv(uchar3 *yuv, const uchar3 *rgb, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float r = rgb[i].x, g = rgb[i].y, b = rgb[i].z;
    float y = 0.299f * r + 0.587f * g + 0.114f * b;
    yuv[i] = make_uchar3((unsigned char)__float2int_rn(y), (unsigned char)__float2int_rn(__saturatef((b - y) * 0.00221f + 0.5f) * 255.f),
                         (unsigned char)__float2int_rn(__saturatef((r - y) * 0.0028f + 0.5f) * 255.f));
}

extern "C" __global__ void lengths(int *out, const char *pool, const int *starts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const char *s = pool + starts[i];
    int length = 0;
    while (s[length]) ++length;
    out[i] = length;
}

extern "C" __global__ void upper_case(char *text, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && text[i] >= 'a' && text[i] <= 'z') text[i] -= 32;
}

extern "C" __global__ void zero_fill(int *out, const int *in, int n) {
    __shared__ __align__(16) int stage[256];
    int t = threadIdx.x;
    for (int part = 0; part < 2; ++part) {
        int first = (part * 32 + t) * 4, valid = max(0, min(4, n - first)) * 4;
        unsigned to = (unsigned)__cvta_generic_to_shared(&stage[first]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + min(first, n)), "r"(valid) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[t * 4 + k] = stage[t * 4 + k];
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[128 + t * 4 + k] = stage[128 + t * 4 + k];
}

extern "C" __global__ void caches(float *out, const float *__restrict__ in, volatile float *bounce, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = __ldg(in + i) + __ldcg(in + n - 1 - i) + __ldcs(in + i);
    bounce[i] = v;
    __threadfence();
    __stwt(out + i, bounce[i] * 2.f);
}
