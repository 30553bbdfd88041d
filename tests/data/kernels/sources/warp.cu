// Warp-wide operations: votes, matches, redux, shuffles of every mode, elect, active masks.
extern "C" __global__ void votes(unsigned *out, const int *in) {
    int t = threadIdx.x, v = in[t];
    out[t * 4] = __ballot_sync(~0u, v > 0);
    out[t * 4 + 1] = __all_sync(~0u, v > -50) | __any_sync(~0u, v > 95) << 1;
    out[t * 4 + 2] = 0;
    out[t * 4 + 3] = 0;
    if (v & 1) {
        unsigned mask = __activemask();
        out[t * 4 + 2] = __ballot_sync(mask, v > 10);
        __syncwarp(mask);
        out[t * 4 + 3] = mask;
    }
}

extern "C" __global__ void matches(unsigned *out, const int *in) {
    int t = threadIdx.x, all;
    unsigned any = __match_any_sync(~0u, in[t] & 7);
    unsigned same = __match_all_sync(~0u, in[t & 32], &all);
    unsigned wide = __match_any_sync(~0u, (unsigned long long)(in[t] & 3) << 40);
    out[t * 3] = any;
    out[t * 3 + 1] = same + all;
    out[t * 3 + 2] = wide;
}

extern "C" __global__ void redux(unsigned *out, const int *in) {
    int t = threadIdx.x;
    unsigned mask = t & 1 ? 0xaaaaaaaau : 0x55555555u;
    unsigned r0, r1, r2, r3, r4;
    if (t & 1) {
        r0 = __reduce_add_sync(mask, in[t]); r1 = __reduce_min_sync(mask, in[t]); r2 = __reduce_max_sync(mask, (unsigned)in[t]);
        r3 = __reduce_and_sync(mask, in[t]); r4 = __reduce_xor_sync(mask, in[t]);
    } else {
        r0 = __reduce_add_sync(mask, (unsigned)in[t]); r1 = __reduce_min_sync(mask, (unsigned)in[t]); r2 = __reduce_max_sync(mask, in[t]);
        r3 = __reduce_or_sync(mask, in[t]); r4 = __reduce_xor_sync(mask, in[t]);
    }
    out[t * 5] = r0; out[t * 5 + 1] = r1; out[t * 5 + 2] = r2; out[t * 5 + 3] = r3; out[t * 5 + 4] = r4;
}

extern "C" __global__ void shuffles(int *out, const int *in) {
    int t = threadIdx.x, v = in[t];
    out[t * 6] = __shfl_sync(~0u, v, t * 7);
    out[t * 6 + 1] = __shfl_up_sync(~0u, v, 3, 16);
    out[t * 6 + 2] = __shfl_down_sync(~0u, v, 5, 8);
    out[t * 6 + 3] = __shfl_xor_sync(~0u, v, 21);
    double d = __shfl_xor_sync(~0u, v * 0.5, 9);
    out[t * 6 + 4] = (int)(d * 2);
    out[t * 6 + 5] = __shfl_sync(~0u, v, v & 3, 4);
}

extern "C" __global__ void compact(int *out, int *count, const int *in, int n) {
    // Keep the positive elements, in warp order, with one atomic per warp.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = i < n && in[i] > 0;
    unsigned mask = __ballot_sync(~0u, keep);
    int lane = threadIdx.x & 31, base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(~0u, base, 0);
    if (keep) out[base + __popc(mask & ((1u << lane) - 1))] = in[i];
}

extern "C" __global__ void lanes(unsigned *out) {
    unsigned lane, eq, le, ge, warp, smid;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm volatile("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm volatile("mov.u32 %0, %%lanemask_gt;" : "=r"(ge));
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%ntid.y;" : "=r"(smid));
    unsigned t = threadIdx.y * blockDim.x + threadIdx.x;
    unsigned *row = out + 6 * (blockIdx.x * blockDim.x * blockDim.y + t);
    row[0] = lane; row[1] = eq; row[2] = le; row[3] = ge; row[4] = warp; row[5] = smid;
}
