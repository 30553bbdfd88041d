// Integer division by variables, wide arithmetic, and bit manipulation intrinsics.
#define INDEX() (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void divide32(int *q, int *r, unsigned *uq, unsigned *ur, const int *a, const int *b, int n) {
    int i = INDEX();
    if (i >= n) return;
    q[i] = a[i] / b[i];
    r[i] = a[i] % b[i];
    uq[i] = (unsigned)a[i] / (unsigned)b[i];
    ur[i] = (unsigned)a[i] % (unsigned)b[i];
}

extern "C" __global__ void divide64(long long *q, unsigned long long *ur, const long long *a, const long long *b, int n) {
    int i = INDEX();
    if (i >= n) return;
    q[i] = a[i] / b[i];
    ur[i] = (unsigned long long)a[i] % (unsigned long long)b[i];
}

extern "C" __global__ void divide_constant(unsigned *out, const unsigned *a, int n) {
    int i = INDEX();
    if (i < n) out[i] = a[i] / 7 + a[i] % 1000 + (unsigned)((int)a[i] / 10) + (unsigned)((int)a[i] % 3);
}

extern "C" __global__ void wide(unsigned long long *out, const unsigned long long *a, const unsigned long long *b, int n) {
    int i = INDEX();
    if (i >= n) return;
    unsigned __int128 p = (unsigned __int128)a[i] * b[i] + a[i];
    out[2 * i] = (unsigned long long)p;
    out[2 * i + 1] = (unsigned long long)(p >> 64);
}

extern "C" __global__ void counts(int *out, const unsigned long long *a, int n) {
    int i = INDEX();
    if (i >= n) return;
    unsigned lo = (unsigned)a[i];
    out[8 * i] = __clz(lo);
    out[8 * i + 1] = __popc(lo);
    out[8 * i + 2] = (int)__brev(lo);
    out[8 * i + 3] = __ffs(lo);
    out[8 * i + 4] = __clzll(a[i]);
    out[8 * i + 5] = __popcll(a[i]);
    out[8 * i + 6] = (int)(__brevll(a[i]) >> 32);
    out[8 * i + 7] = __ffsll(a[i]);
}

extern "C" __global__ void mixes(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c, int n) {
    int i = INDEX();
    if (i >= n) return;
    unsigned x = a[i], y = b[i], z = c[i];
    out[12 * i] = __funnelshift_l(x, y, z);
    out[12 * i + 1] = __funnelshift_rc(x, y, z);
    out[12 * i + 2] = __byte_perm(x, y, z);
    out[12 * i + 3] = (unsigned)__dp4a((int)x, (int)y, (int)z);
    out[12 * i + 4] = __dp4a(x, y, z);
    out[12 * i + 5] = (unsigned)__dp2a_lo((int)x, (int)y, (int)z);
    out[12 * i + 6] = __umulhi(x, y) + (unsigned)__mulhi((int)x, (int)y);
    out[12 * i + 7] = __usad(x, y, z) + __sad((int)x, (int)y, z);
    out[12 * i + 8] = __vadd4(x, y) ^ __vabsdiffu2(y, z);
    out[12 * i + 9] = __uhadd(x, y) + (unsigned)__rhadd((int)x, (int)y);
    out[12 * i + 10] = (unsigned)__mul24((int)x, (int)y) + __umul24(y, z);
    out[12 * i + 11] = __vmaxs4(x, z) + __vcmpgtu2(x, y);
}

extern "C" __global__ void gcd_lcm(unsigned long long *out, const unsigned *a, const unsigned *b, int n) {
    int i = INDEX();
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    while (y) { unsigned t = x % y; x = y; y = t; }
    out[i] = x ? (unsigned long long)a[i] / x * b[i] : 0;
}

extern "C" __global__ void murmur(unsigned *out, const unsigned char *text, const int *offsets, int n) {
    int i = INDEX();
    if (i >= n) return;
    unsigned h = 0x9747b28c;
    int start = offsets[i], length = offsets[i + 1] - start;
    for (int k = 0; k + 4 <= length; k += 4) {
        unsigned w = text[start + k] | text[start + k + 1] << 8 | text[start + k + 2] << 16 | (unsigned)text[start + k + 3] << 24;
        w *= 0xcc9e2d51; w = w << 15 | w >> 17; w *= 0x1b873593;
        h ^= w; h = h << 13 | h >> 19; h = h * 5 + 0xe6546b64;
    }
    for (int k = length & ~3; k < length; ++k) h = (h ^ text[start + k]) * 16777619u;
    out[i] = h ^ (unsigned)length;
}
