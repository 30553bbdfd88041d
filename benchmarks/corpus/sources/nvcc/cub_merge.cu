// CUB merge sort, segmented reduce, transform, batched copies.
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cub/device/device_for.cuh>
#include <cub/device/device_memcpy.cuh>
struct Less { template <class T> __device__ bool operator()(T a, T b) const { return a < b; } };
struct Twice { __device__ void operator()(float& x) const { x *= 2; } };
void use(void* t, size_t& b, double* x, int* v, float* f, float* o, const int* off, int n) {
  cub::DeviceMergeSort::SortPairs(t, b, x, v, n, Less());
  cub::DeviceSegmentedReduce::Max(t, b, f, o, n, off, off + 1);
  cub::DeviceFor::ForEachN(f, n, Twice());
}
