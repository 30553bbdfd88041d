// Thrust sorts and sets.
#include <thrust/device_vector.h>
#include <thrust/sort.h>
#include <thrust/unique.h>
#include <thrust/set_operations.h>
#include <thrust/binary_search.h>
struct ByAbs { __host__ __device__ bool operator()(float a, float b) const { return (a < 0 ? -a : a) < (b < 0 ? -b : b); } };
void use(thrust::device_vector<float>& x, thrust::device_vector<int>& k, thrust::device_vector<int>& o) {
  thrust::stable_sort(x.begin(), x.end(), ByAbs()); thrust::sort_by_key(k.begin(), k.end(), x.begin());
  k.erase(thrust::unique(k.begin(), k.end()), k.end()); thrust::set_union(k.begin(), k.end(), o.begin(), o.end(), o.begin()); thrust::lower_bound(k.begin(), k.end(), o.begin(), o.end(), o.begin());
}
