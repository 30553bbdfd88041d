// CUTLASS: Hopper warp-specialised GEMMs with TMA and wgmma, ping-pong and cooperative.
#include "builder.h"
using namespace cute;
using P = Build<cutlass::arch::Sm90, cutlass::half_t, cutlass::half_t, cutlass::half_t, Shape<_64, _128, _64>, Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong, cutlass::epilogue::TmaWarpSpecialized>::Kernel;
template __global__ void cutlass::device_kernel<P>(CUTLASS_GRID_CONSTANT P::Params const);
