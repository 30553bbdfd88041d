// CUB device-wide radix sort.
#include <cub/device/device_radix_sort.cuh>
void use(void* t, size_t& b, const unsigned* k, unsigned* ko, const int* v, int* vo, int n) { cub::DeviceRadixSort::SortPairs(t, b, k, ko, v, vo, n); }
