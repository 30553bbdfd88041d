// Control flow: recursion, calls, switches, divergence, early return, uneven loops, structs.
struct Point { short x, y; float weight; };
struct Params {
    float *out;
    const float *in;
    int n;
    char tag;
    double scale;
    Point points[3];
};
struct __attribute__((packed)) Packed { unsigned char kind; unsigned int value; unsigned short tail; };

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(int *out, const int *m, const int *n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = ackermann(m[i], n[i]);
}

__device__ __noinline__ float twice(float x) { return x * 2.f; }
__device__ __noinline__ float negate(float x) { return -x; }
__device__ __noinline__ float square(float x) { return x * x; }
typedef float (*Function)(float);
__device__ Function table[3] = {twice, negate, square};

extern "C" __global__ void indirect(float *out, const float *in, const int *which, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[which[i]](in[i]) + 1.f;
}

extern "C" __global__ void switches(int *out, const int *op, const int *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = a[i];
    switch (op[i]) {
        case 0: v += 17; break;
        case 1: v *= v; break;
        case 2: v = __brev(v); break;
        case 3: for (int k = 0; k < 5; ++k) v = v * 3 + k;  // falls through
        case 4: v ^= 0x5555; break;
        case 5: v = v / (op[i] + 2); break;
        case 6: v = out[i] - v; break;
        case 7: return;
        default: v = -1;
    }
    out[i] = v;
}

extern "C" __global__ void interpreter(int *out, const unsigned char *program, const int *seed, int n) {
    // A byte-code machine: the branch on the operation code is a jump table.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int acc = seed[i], other = i, pc = i % 5;
    for (int step = 0; step < 40; ++step) {
        switch (program[pc]) {
            case 0: acc += other; break;
            case 1: acc -= 3; break;
            case 2: other = acc ^ other; break;
            case 3: acc *= 5; break;
            case 4: if (acc & 1) pc += 2; break;
            case 5: other = __popc(acc); break;
            case 6: acc = (int)((unsigned)acc >> 1); break;
            case 7: { int t = acc; acc = other; other = t; } break;
            case 8: acc = max(acc, other); break;
            case 9: pc = (pc + other) & 15; break;
            case 10: acc = ~acc; break;
            case 11: out[i] = acc; return;
            case 12: other += program[(pc + 1) & 31]; break;
            default: acc = __clz(other); break;
        }
        pc = (pc + 1) & 31;
    }
    out[i] = acc + other;
}

extern "C" __global__ void collatz(int *steps, const unsigned *start, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = start[i];
    int count = 0;
    while (v != 1) {
        if (v & 1) v = 3 * v + 1;
        else v >>= 1;
        if (++count == 100) break;
    }
    steps[i] = count;
}

extern "C" __global__ void nested(int *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = in[i], sum = 0;
    for (int a = 0; a < (v & 7); ++a) {
        if (a == 5) continue;
        for (int b = a; b < ((v >> 3) & 7); ++b) {
            if ((a ^ b) == 6) break;
            if (v & (1 << b)) {
                sum += a * b + 1;
                if (sum > 60) { out[i] = -sum; return; }
            } else if (v & (2 << a)) sum -= 1;
            else { do { sum += 2; } while (sum & 3); }
        }
    }
    out[i] = sum;
}

extern "C" __global__ void barrier_in_loop(int *out, const int *in, int rounds) {
    __shared__ int stage[64];
    int t = threadIdx.x;
    stage[t] = in[blockIdx.x * 64 + t];
    for (int r = 0; r < rounds + (int)blockIdx.x; ++r) {
        __syncthreads();
        int v = stage[(t + r + 1) % 64];
        __syncthreads();
        stage[t] = stage[t] * 3 + v;
    }
    out[blockIdx.x * 64 + t] = stage[t];
}

extern "C" __global__ void struct_param(Params p) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) {
        Point q = p.points[i % 3];
        p.out[i] = p.in[i] * (float)p.scale + q.x - q.y * q.weight + p.tag;
    }
}

extern "C" __global__ void unaligned(Packed *out, const Packed *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Packed p = in[n - 1 - i];
        p.value += p.kind;
        p.tail ^= 0xff00;
        out[i] = p;
    }
}

extern "C" __global__ void local_array(int *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int stack[32], top = 0, v = in[i];
    for (int k = 0; k < 32; ++k) stack[k] = k * k;
    for (int k = 0; k < 20; ++k) stack[(v >> (k & 15)) & 31] += k + 1;
    while (v) { stack[top++ & 31] ^= v; v = (int)((unsigned)v >> 3); }
    int sum = 0;
    for (int k = 0; k < 32; ++k) sum = sum * 31 + stack[k];
    out[i] = sum;
}
