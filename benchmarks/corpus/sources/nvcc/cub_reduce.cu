// CUB device-wide reductions and scans.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
void use(void* t, size_t& b, const float* f, float* o, const long long* l, long long* p, int n) {
  cub::DeviceReduce::Sum(t, b, f, o, n);
  cub::DeviceReduce::ArgMin(t, b, l, p, (long long*)p, n);
  cub::DeviceScan::ExclusiveSum(t, b, l, p, n);
}
