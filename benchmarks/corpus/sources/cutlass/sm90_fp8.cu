// CUTLASS: Hopper FP8 GEMM.
#include "builder.h"
using namespace cute;
using P = Build<cutlass::arch::Sm90, cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t, Shape<_128, _128, _128>, Shape<_1, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperativeFP8FastAccum, cutlass::epilogue::TmaWarpSpecializedCooperative>::Kernel;
template __global__ void cutlass::device_kernel<P>(CUTLASS_GRID_CONSTANT P::Params const);
