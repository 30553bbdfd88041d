// CUB block and warp primitives.
#include <cub/cub.cuh>
template <typename T, int B, int I> __global__ void block_all(T* out, const T* in, int n) {
  using Load = cub::BlockLoad<T, B, I, cub::BLOCK_LOAD_WARP_TRANSPOSE>; using Store = cub::BlockStore<T, B, I, cub::BLOCK_STORE_TRANSPOSE>;
  using Scan = cub::BlockScan<T, B>; using Reduce = cub::BlockReduce<T, B>; using Disc = cub::BlockDiscontinuity<T, B>; using Exchange = cub::BlockExchange<T, B, I>;
  __shared__ union { typename Load::TempStorage l; typename Store::TempStorage s; typename Scan::TempStorage c; typename Reduce::TempStorage r; typename Disc::TempStorage d; typename Exchange::TempStorage e; } t;
  T v[I]; Load(t.l).Load(in + blockIdx.x * B * I, v, n, T(0)); __syncthreads();
  Scan(t.c).InclusiveSum(v, v); __syncthreads();
  T sum = Reduce(t.r).Sum(v); __syncthreads();
  int flags[I]; Disc(t.d).FlagHeads(flags, v, ::cuda::std::not_equal_to<>{}); __syncthreads();
  Exchange(t.e).StripedToBlocked(v); __syncthreads();
  for (int i = 0; i < I; ++i) v[i] += T(flags[i]);
  Store(t.s).Store(out + blockIdx.x * B * I, v, n); if (threadIdx.x == 0) out[0] = sum;
}
template __global__ void block_all<int, 128, 4>(int*, const int*, int);
template __global__ void block_all<float, 256, 7>(float*, const float*, int);
template <typename K, typename V, int B, int I> __global__ void block_sort(K* k, V* v) {
  using Sort = cub::BlockRadixSort<K, B, I, V>; __shared__ typename Sort::TempStorage t; K ks[I]; V vs[I];
  cub::LoadDirectBlocked(threadIdx.x, k, ks); cub::LoadDirectBlocked(threadIdx.x, v, vs); Sort(t).Sort(ks, vs); cub::StoreDirectStriped<B>(threadIdx.x, k, ks); cub::StoreDirectStriped<B>(threadIdx.x, v, vs);
}
template __global__ void block_sort<unsigned, int, 128, 4>(unsigned*, int*);
template __global__ void block_sort<double, float, 64, 3>(double*, float*);
template <typename K, int B, int I> __global__ void merge_sort(K* k) { using Sort = cub::BlockMergeSort<K, B, I>; __shared__ typename Sort::TempStorage t; K ks[I]; cub::LoadDirectBlocked(threadIdx.x, k, ks); Sort(t).Sort(ks, ::cuda::std::less<>{}); cub::StoreDirectBlocked(threadIdx.x, k, ks); }
template __global__ void merge_sort<float, 128, 5>(float*);
extern "C" __global__ void warp_all(int* x) { using W = cub::WarpScan<int>; using R = cub::WarpReduce<float>; __shared__ W::TempStorage a[4]; __shared__ R::TempStorage b[4]; int w = threadIdx.x / 32; int v = x[threadIdx.x], s; W(a[w]).ExclusiveSum(v, v, s); float f = R(b[w]).Reduce(float(v), ::cuda::maximum<>{}); x[threadIdx.x] = v + s + int(f); }
extern "C" __global__ void histogram(unsigned char* in, unsigned* bins) { using H = cub::BlockHistogram<unsigned char, 128, 8, 256>; __shared__ H::TempStorage t; __shared__ unsigned b[256]; unsigned char v[8]; cub::LoadDirectStriped<128>(threadIdx.x, in, v); H(t).Histogram(v, b); __syncthreads(); for (int i = threadIdx.x; i < 256; i += 128) bins[i] = b[i]; }
