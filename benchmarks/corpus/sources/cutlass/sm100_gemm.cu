// CUTLASS: Blackwell GEMM with tcgen05 and tensor memory.
#include "builder.h"
using namespace cute;
using P = Build<cutlass::arch::Sm100, cutlass::half_t, cutlass::half_t, cutlass::half_t, Shape<_256, _128, _64>, Shape<_2, _1, _1>, cutlass::gemm::collective::KernelScheduleAuto, cutlass::epilogue::collective::EpilogueScheduleAuto>::Kernel;
template __global__ void cutlass::device_kernel<P>(CUTLASS_GRID_CONSTANT P::Params const);
