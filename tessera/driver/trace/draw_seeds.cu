// What `torch.randint` over all of int64 does on a GPU, as compiled code draws its seeds.
// draw_seeds.ptx is made from this with CUDA 13.0:
//   nvcc -ptx -arch=sm_75 -O3 -o draw_seeds.ptx draw_seeds.cu
// and its .version is set to 7.0, which every supported driver reads.

// `state` is the generator's: its seed, and how many 32-bit numbers each of its threads has drawn.
// Element i is the first number of thread i (Philox4x32-10); one block, so that all of it is read
// before it moves on by the four numbers that each thread draws.
extern "C" __global__ void draw_seeds(unsigned long long *state, long long *seeds,
                                      unsigned int count) {
    unsigned long long seed = state[0], offset = state[1];
    for (unsigned int i = threadIdx.x; i < count; i += blockDim.x) {
        unsigned int c0 = (unsigned int)(offset >> 2), c1 = (unsigned int)(offset >> 34);
        unsigned int c2 = i, c3 = 0;
        unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)(seed >> 32);
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            unsigned int h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
            unsigned int h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
            c0 = h1 ^ c1 ^ k0;
            c1 = l1;
            c2 = h0 ^ c3 ^ k1;
            c3 = l0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        unsigned long long drawn = (unsigned long long)c0 << 32 | c1;
        // Modulo 2**64 - 1, and on from the smallest number.
        drawn = drawn == ~0ull ? 0 : drawn;
        seeds[i] = (long long)(drawn + (1ull << 63));
    }
    __syncthreads();
    if (threadIdx.x == 0) state[1] = offset + 4;
}
