// CUTLASS: Hopper cooperative GEMM in bfloat16 with a cluster of two.
#include "builder.h"
using namespace cute;
using P = Build<cutlass::arch::Sm90, cutlass::bfloat16_t, cutlass::bfloat16_t, float, Shape<_128, _256, _64>, Shape<_1, _2, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative, cutlass::epilogue::TmaWarpSpecializedCooperative>::Kernel;
template __global__ void cutlass::device_kernel<P>(CUTLASS_GRID_CONSTANT P::Params const);
