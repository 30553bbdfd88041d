// CUB selection, partition, run-length encoding, histogram.
#include <cub/device/device_select.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_histogram.cuh>
struct Even { __device__ bool operator()(int x) const { return x % 2 == 0; } };
void use(void* t, size_t& b, const int* x, int* y, int* c, float* f, int n) {
  cub::DeviceSelect::If(t, b, x, y, c, n, Even());
  cub::DeviceSelect::Unique(t, b, x, y, c, n);
  cub::DeviceRunLengthEncode::Encode(t, b, x, y, c, c, n);
  cub::DeviceHistogram::HistogramEven(t, b, f, c, 128, 0.f, 1.f, n);
}
