// What a kernel asks of the machine: blocks that run together, waiting, registers that vary, text.
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

// A barrier over the grid: each block then reads what its neighbour wrote.
extern "C" __global__ void grid_sync(int *out, int *stage) {
    cg::grid_group grid = cg::this_grid();
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    stage[i] = i * 3;
    grid.sync();
    out[i] = stage[(i + blockDim.x) % n];
}

// Waits for a flag that another block sets.
extern "C" __global__ void wait_flag(int *out, volatile int *flag) {
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) *flag = 1;
    } else {
        while (*flag == 0) { }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

// A lock: waits for the block that holds it.
extern "C" __global__ void take_lock(int *lock, int *sum) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { }
        *(volatile int *)sum += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// No waiting: a compare-and-swap loop that only fails when another thread got further,
__device__ double slow_add(double *at, double value) {
    unsigned long long *bits = (unsigned long long *)at, old = *bits, seen;
    do {
        seen = old;
        old = atomicCAS(bits, seen, __double_as_longlong(value + __longlong_as_double(seen)));
    } while (seen != old);
    return __longlong_as_double(old);
}
// and a queue of tiles.
extern "C" __global__ void tile_queue(double *out, int *next, const double *in, int n) {
    for (int i = atomicAdd(next, 1); i < n; i = atomicAdd(next, 1)) slow_add(out, in[i]);
}

// An index from the multiprocessor that a block happens to run on.
extern "C" __global__ void per_sm(int *counts) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) atomicAdd(&counts[sm], 1);
}

// A time.
extern "C" __global__ void stamp(long long *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = clock64();
}

extern "C" __global__ void prints(const int *in) {
    printf("thread %d: %d\n", threadIdx.x, in[threadIdx.x]);
}

extern "C" __global__ void prints_strings(const char *in) {
    printf("text %s\n", in + 16);
}

extern "C" __global__ void allocates(int **out) {
    int *p = (int *)malloc(64);
    if (p != nullptr) { p[0] = 7; out[0] = p; }
}

extern "C" __global__ void frees(void *p) { free(p); }

extern "C" __global__ void samples(float *out, cudaTextureObject_t texture) {
    out[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x);
}

extern "C" __global__ void paints(cudaSurfaceObject_t surface) {
    surf1Dwrite(1.f, surface, threadIdx.x * 4);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) in_clusters(int *out) {
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = (int)cluster.block_rank();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(int *out) {
    out[cg::this_cluster().block_rank()] = 1;
}

// Recursion that touches memory only through what it is given, and recursion that touches none.
__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}
extern "C" __global__ void recursive(int *out, const int *in) {
    out[threadIdx.x] = ackermann(in[threadIdx.x] & 1, in[threadIdx.x] & 3);
}
__device__ __noinline__ int walk(const int *tree, int at) {
    return at <= 0 ? 1 : tree[at] * walk(tree, tree[at] >> 1) - walk(tree, at - 1);
}
extern "C" __global__ void walks(int *out, const int *tree) {
    out[threadIdx.x] = walk(tree, threadIdx.x);
}

struct Link { const int *value; const Link *next; };
__device__ __noinline__ int chase(const Link *link, int depth) {
    if (link == nullptr || depth == 0) return 1;
    return *link->value * chase(link->next, depth - 1) - chase(link + 1, depth - 1);
}
extern "C" __global__ void walks_pointers(int *out, const Link *links) {
    out[threadIdx.x] = chase(links, threadIdx.x);
}

// Calls through a pointer: functions that touch no memory, and one that does.
__device__ int twice(int v) { return 2 * v; }
__device__ int thrice(int v) { return 3 * v; }
__device__ int (*const pure[2])(int) = {twice, thrice};
extern "C" __global__ void dispatches(int *out, const int *in) {
    out[threadIdx.x] = pure[in[threadIdx.x] & 1](in[threadIdx.x]);
}

// Pointers in initialisers of module variables.
__device__ int table_a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ int table_b[8] = {8, 7, 6, 5, 4, 3, 2, 1};
struct Entry { int tag; int *where; };
__device__ Entry entries[2] = {{1, table_a + 2}, {2, table_b}};
__device__ int *cursor = table_b + 1;
extern "C" __global__ void follows(int *out, int which) {
    out[threadIdx.x] = entries[which].where[threadIdx.x & 3] + *cursor;
}
extern "C" __global__ void moves_cursor(int step) { cursor += step; }
