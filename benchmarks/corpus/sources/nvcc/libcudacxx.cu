// libcu++: atomics, barriers, latches, semaphores, pipelines, complex numbers, tuples, variants, mdspan.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/complex>
#include <cuda/std/mdspan>
#include <cuda/std/optional>
#include <cuda/std/tuple>
#include <cuda/std/variant>
#include <cuda/std/array>
extern "C" __global__ void atomic_ref(int* p, float* f) {
  cuda::atomic_ref<int, cuda::thread_scope_device> a(*p); cuda::atomic_ref<float, cuda::thread_scope_system> b(*f);
  a.fetch_add(1, cuda::memory_order_relaxed); a.store(2, cuda::memory_order_release); p[1] = a.load(cuda::memory_order_acquire); int e = 3; p[2] = a.compare_exchange_strong(e, 4);
  b.fetch_add(2.f); f[1] = b.exchange(3.f, cuda::memory_order_acq_rel); cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device); p[3] = a.fetch_max(7);
}
extern "C" __global__ void waits(cuda::atomic<int, cuda::thread_scope_device>* flag, int* x) { if (threadIdx.x == 0) { x[0] = 7; flag->store(1); flag->notify_all(); } else { flag->wait(0); x[threadIdx.x] = x[0]; } }
extern "C" __global__ void semaphores(cuda::binary_semaphore<cuda::thread_scope_device>* s, cuda::latch<cuda::thread_scope_device>* l, int* x) { s->acquire(); x[0]++; s->release(); l->arrive_and_wait(); x[1]++; }
template <int STAGES> __device__ void stream(float* out, const float* in, int n) {
  __shared__ float buf[STAGES][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
  auto block_rank = threadIdx.x; (void)block_rank;
  auto pipe = cuda::make_pipeline();
  for (int i = 0, f = 0; i < n; ++i) {
    for (; f < n && f < i + STAGES; ++f) { pipe.producer_acquire(); cuda::memcpy_async(&buf[f % STAGES][threadIdx.x], in + f * 128 + threadIdx.x, sizeof(float), pipe); pipe.producer_commit(); }
    pipe.consumer_wait(); out[i * 128 + threadIdx.x] = buf[i % STAGES][threadIdx.x] * 2; pipe.consumer_release();
  }
}
extern "C" __global__ void pipeline3(float* out, const float* in, int n) { stream<3>(out, in, n); }
extern "C" __global__ void complexes(cuda::std::complex<float>* z, cuda::std::complex<double>* w) { int i = threadIdx.x; z[i] = z[i] * z[i + 1] + cuda::std::exp(z[i]); w[i] = w[i] / w[i + 1] + cuda::std::sqrt(w[i]); }
extern "C" __global__ void spans(float* p, int a, int b) {
  cuda::std::mdspan<float, cuda::std::dextents<int, 2>> m(p, a, b); cuda::std::mdspan<float, cuda::std::extents<int, 8, 8>, cuda::std::layout_left> l(p + a * b);
  m(threadIdx.x, threadIdx.y) += l(threadIdx.x & 7, threadIdx.y & 7);
  cuda::std::variant<int, float> v = a > b ? cuda::std::variant<int, float>(a) : cuda::std::variant<int, float>(1.5f);
  p[0] = cuda::std::visit([](auto x) { return float(x); }, v); cuda::std::optional<int> o; if (a) o = b; p[1] = o.value_or(3);
  auto t = cuda::std::make_tuple(a, p[2], 3.0); p[3] = cuda::std::get<0>(t) + cuda::std::get<2>(t); cuda::std::array<int, 5> r{1, 2, 3, 4, 5}; p[4] = r[a % 5];
}
