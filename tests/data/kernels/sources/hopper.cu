// sm_90: clusters with distributed shared memory, bulk copies, elect, stmatrix.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_exchange(int *out, const int *in) {
    __shared__ int mine[64];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    mine[t] = in[i];
    cluster.sync();
    int *theirs = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
    int got = theirs[63 - t];
    cluster.sync();
    out[i] = got * 2 + (int)cluster.block_rank() + 100 * (int)cluster.num_blocks();
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(unsigned *bins, const unsigned char *in, int n) {
    // 256 bins spread over the shared memory of four blocks.
    __shared__ unsigned local[64];
    cg::cluster_group cluster = cg::this_cluster();
    local[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) {
        unsigned *home = cluster.map_shared_rank(local, in[i] / 64);
        atomicAdd(&home[in[i] % 64], 1u);
    }
    cluster.sync();
    atomicAdd(&bins[cluster.block_rank() * 64 + threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void bulk_copy(float *out, const float *in, int n) {
    // cp.async.bulk in with a transaction barrier, cp.async.bulk out with a bulk group.
    __shared__ __align__(128) float stage[512];
    __shared__ unsigned long long bar;
    unsigned pb = (unsigned)__cvta_generic_to_shared(&bar), ps = (unsigned)__cvta_generic_to_shared(stage);
    unsigned bytes = n * 4;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(pb) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(pb), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(ps), "l"(in + blockIdx.x * n), "r"(bytes), "r"(pb) : "memory");
    }
    __syncthreads();
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(pb) : "memory");
    } while (!done);
    for (int i = threadIdx.x; i < n; i += blockDim.x) stage[i] = stage[i] * 2.f + 1.f;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * n), "r"(ps), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

extern "C" __global__ void elect(unsigned *out) {
    unsigned leader = 0, picked = 0;
    if (threadIdx.x % 32 >= 5 || threadIdx.x >= 32) {
        unsigned mask = threadIdx.x >= 32 ? ~0u : 0xffffffe0u;
        asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p; }" : "=r"(leader), "=r"(picked) : "r"(mask));
    }
    out[threadIdx.x] = leader * 2 + picked;
}

extern "C" __global__ void stmatrix(unsigned *out, const unsigned *in) {
    __shared__ __align__(16) unsigned tile[256];
    int t = threadIdx.x;
    unsigned p = (unsigned)__cvta_generic_to_shared(&tile[t * 4]), q = (unsigned)__cvta_generic_to_shared(&tile[128 + t % 16 * 4]);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                 ::"r"(p), "r"(in[t]), "r"(in[32 + t]), "r"(in[64 + t]), "r"(in[96 + t]) : "memory");
    tile[192 + t] = 0; tile[224 + t] = 0;
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(q), "r"(in[t]), "r"(in[32 + t]) : "memory");
    __syncwarp();
    for (int i = t; i < 256; i += 32) out[i] = tile[i];
}

extern "C" __global__ void dependent(int *out, const int *in) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x] + 1;
    asm volatile("griddepcontrol.launch_dependents;");
}
