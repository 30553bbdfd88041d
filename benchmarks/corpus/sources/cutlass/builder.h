// One CUTLASS 3.x GEMM kernel through the collective builders.
#pragma once
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
template <class Arch, class A, class B, class C, class Tile, class Cluster, class Main, class Epi, class Tag = cutlass::arch::OpClassTensorOp> struct Build {
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<Arch, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, cutlass::layout::RowMajor, 128 / cutlass::sizeof_bits<C>::value, C, cutlass::layout::RowMajor, 128 / cutlass::sizeof_bits<C>::value, Epi>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<Arch, Tag, A, cutlass::layout::RowMajor, 128 / cutlass::sizeof_bits<A>::value, B, cutlass::layout::ColumnMajor, 128 / cutlass::sizeof_bits<B>::value, float, Tile, Cluster, cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>, Main>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue, void>;
};
