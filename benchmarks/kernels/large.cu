// What `benchmarks/parse.py --large` compiles to files above 1 MB: library kernels for several types.
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/sort.h>

template <class T> void several(T *a, T *b, int n) {
  size_t bytes = 0;
  cub::DeviceRadixSort::SortKeys(nullptr, bytes, a, b, n);
  cub::DeviceScan::ExclusiveSum(nullptr, bytes, a, b, n);
  cub::DeviceReduce::Sum(nullptr, bytes, a, b, n);
  cub::DeviceSelect::Unique(nullptr, bytes, a, b, reinterpret_cast<int *>(a), n);
}

void all() {
  several<float>(nullptr, nullptr, 1);
  several<int>(nullptr, nullptr, 1);
  several<double>(nullptr, nullptr, 1);
#ifdef MANY
  several<long long>(nullptr, nullptr, 1);
  several<short>(nullptr, nullptr, 1);
  several<unsigned char>(nullptr, nullptr, 1);
  thrust::device_vector<float> values(10);
  thrust::sort(values.begin(), values.end());
  thrust::stable_sort(values.begin(), values.end(), thrust::greater<float>());
#endif
}
