// CUTLASS 2.x style GEMMs for Ampere: half, TF32, int8, SIMT float, split-K.
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/device/gemm_universal.h>
#include <cutlass/epilogue/thread/linear_combination_relu.h>
using Row = cutlass::layout::RowMajor; using Col = cutlass::layout::ColumnMajor;
using Half = cutlass::gemm::device::Gemm<cutlass::half_t, Row, cutlass::half_t, Col, cutlass::half_t, Row, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>, cutlass::epilogue::thread::LinearCombinationRelu<cutlass::half_t, 8, float, float>, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 4>;
using Int8 = cutlass::gemm::device::Gemm<int8_t, Row, int8_t, Col, int32_t, Row, int32_t, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 64, 64>, cutlass::gemm::GemmShape<64, 32, 64>, cutlass::gemm::GemmShape<16, 8, 32>>;
template __global__ void cutlass::Kernel<Half::GemmKernel>(Half::GemmKernel::Params);
template __global__ void cutlass::Kernel<Int8::GemmKernel>(Int8::GemmKernel::Params);
