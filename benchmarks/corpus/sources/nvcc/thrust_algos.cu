// Thrust algorithms.
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/copy.h>
#include <thrust/fill.h>
#include <thrust/sequence.h>
#include <thrust/gather.h>
struct Saxpy { float a; __host__ __device__ float operator()(float x, float y) const { return a * x + y; } };
struct Square { __host__ __device__ float operator()(float x) const { return x * x; } };
float use(thrust::device_vector<float>& x, thrust::device_vector<float>& y, thrust::device_vector<int>& k) {
  thrust::sequence(k.begin(), k.end()); thrust::fill(y.begin(), y.end(), 1.f);
  thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), Saxpy{2});
  thrust::inclusive_scan(x.begin(), x.end(), y.begin()); thrust::gather(k.begin(), k.end(), x.begin(), y.begin());
  auto e = thrust::copy_if(x.begin(), x.end(), y.begin(), [] __device__(float v) { return v > 0; }); (void)e;
  return thrust::transform_reduce(x.begin(), x.end(), Square(), 0.f, thrust::plus<float>()) + thrust::inner_product(x.begin(), x.end(), y.begin(), 0.f);
}
