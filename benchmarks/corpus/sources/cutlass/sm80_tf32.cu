// CUTLASS: TF32 tensor-core GEMM and plain SIMT GEMM.
#include <cutlass/gemm/device/gemm.h>
using Row = cutlass::layout::RowMajor; using Col = cutlass::layout::ColumnMajor;
using Tf32 = cutlass::gemm::device::Gemm<float, Row, float, Row, float, Row, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<64, 128, 32>, cutlass::gemm::GemmShape<32, 64, 32>, cutlass::gemm::GemmShape<16, 8, 8>>;
using Simt = cutlass::gemm::device::Gemm<float, Col, float, Row, float, Row, float, cutlass::arch::OpClassSimt, cutlass::arch::Sm80>;
template __global__ void cutlass::Kernel<Tf32::GemmKernel>(Tf32::GemmKernel::Params);
template __global__ void cutlass::Kernel<Simt::GemmKernel>(Simt::GemmKernel::Params);
