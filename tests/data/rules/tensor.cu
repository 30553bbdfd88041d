// Tensor copies with maps passed by value: tiles, edges, reductions, data-dependent coordinates.
struct alignas(64) Map { char bytes[128]; };
typedef unsigned long long u64;

__device__ unsigned shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void open_barrier(u64 *bar, unsigned bytes) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(bar)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(shared_at(bar)), "r"(bytes) : "memory");
}

__device__ void wait_barrier(u64 *bar) {
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_at(bar)) : "memory");
    } while (!done);
}

__device__ void load_2d(void *to, const Map &map, int x, int y, u64 *bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_at(to)), "l"(&map), "r"(x), "r"(y), "r"(shared_at(bar)) : "memory");
}

__device__ void store_2d(const Map &map, int x, int y, const void *from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(x), "r"(y), "r"(shared_at(from)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

// Every block copies the tile of 32 x 8 floats at its place; tiles at the edge are clipped.
extern "C" __global__ void copy_tiles(const __grid_constant__ Map out, const __grid_constant__ Map in, int dx, int dy) {
    __shared__ __align__(128) float tile[256];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        open_barrier(&bar, sizeof tile);
        load_2d(tile, in, blockIdx.x * 32 + dx, blockIdx.y * 8 + dy, &bar);
    }
    __syncthreads();
    wait_barrier(&bar);
    tile[threadIdx.x] += 1.f;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) store_2d(out, blockIdx.x * 32, blockIdx.y * 8, tile);
}

// A loop over tiles with the stride of the grid, the row of each from a table, one thread elected.
extern "C" __global__ void gather_tiles(const __grid_constant__ Map out, const __grid_constant__ Map in, const int *rows, int tiles) {
    __shared__ __align__(128) float tile[256];
    __shared__ u64 bar;
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        if (threadIdx.x == 0) {
            open_barrier(&bar, sizeof tile);
            load_2d(tile, in, 0, rows[i], &bar);
        }
        __syncthreads();
        wait_barrier(&bar);
        __syncthreads();
        if (threadIdx.x < 32) {
            unsigned chosen;
            asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
            if (chosen) store_2d(out, 0, i * 8, tile);
        }
        __syncthreads();
    }
}

// Adds the tile of every block to one tile, and a row of it with a plain bulk reduction.
extern "C" __global__ void add_tiles(const __grid_constant__ Map total, float *row, int x, int y) {
    __shared__ __align__(128) float tile[256];
    tile[threadIdx.x] = (float)threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];"
                     ::"l"(&total), "r"(x), "r"(y), "r"(shared_at(tile)) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 128;"
                     ::"l"(row + blockIdx.x * 32), "r"(shared_at(tile)) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// A tensor of three axes; the block decides which of two maps is read.
extern "C" __global__ void pick_map(const __grid_constant__ Map out, const __grid_constant__ Map a, const __grid_constant__ Map b, int z) {
    __shared__ __align__(128) float tile[128];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        const Map *chosen = blockIdx.x & 1 ? &b : &a;
        open_barrier(&bar, sizeof tile);
        asm volatile("prefetch.tensormap [%0];" ::"l"(&a) : "memory");
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                     ::"r"(shared_at(tile)), "l"(chosen), "r"(0), "r"(blockIdx.x * 4), "r"(z), "r"(shared_at(&bar)) : "memory");
    }
    __syncthreads();
    wait_barrier(&bar);
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
                     ::"l"(&out), "r"(0), "r"(blockIdx.x * 4), "r"(z), "r"(shared_at(tile)) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// A map in memory: nothing is known of it.
extern "C" __global__ void map_in_memory(const Map *maps, float *out, int which) {
    __shared__ __align__(128) float tile[256];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        open_barrier(&bar, sizeof tile);
        load_2d(tile, maps[which], 0, 0, &bar);
    }
    __syncthreads();
    wait_barrier(&bar);
    out[threadIdx.x] = tile[threadIdx.x];
}
