// Cooperative groups: tiles, reductions over tiles, groups of the threads that are active.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles(int *out, const int *in) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int v = in[block.thread_rank()];
    int sum = cg::reduce(tile, v, cg::plus<int>());
    int most = cg::reduce(cg::tiled_partition<32>(block), v, cg::greater<int>());
    int rotated = tile.shfl(v, (tile.thread_rank() + 3) % 8);
    int any = tile.any(v > 90), ballot = tile.ballot(v & 1);
    out[block.thread_rank()] = sum + 1000 * most + 100000 * rotated + any * 7 + ballot * 3;
}

extern "C" __global__ void coalesced(int *out, const int *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        int leader = active.shfl(i, 0);
        out[i] = active.thread_rank() + 100 * active.size() + 10000 * leader;
    }
}
