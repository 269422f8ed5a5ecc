// The kernels of pipeline.cpp for GPUs, which check their own accesses through gsan/device.cuh.
//
//     nvcc -ptx -std=c++17 -arch=sm_80 -I $PREFIX/include kernels.cu
//
// or, without the CUDA toolkit,
//
//     clang++-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib \
//         -std=c++17 -O2 -S -I $PREFIX/include kernels.cu -o kernels.ptx
#include <gsan/device.cuh>

#ifndef __global__
#define __global__ __attribute__((global))
#endif

using gsan::u64;

// As threadIdx, blockIdx and blockDim say it.
GSAN_DEVICE u64 place() {
  return gsan::ptx::cta_index() * gsan::ptx::cta_threads() + gsan::ptx::thread_index();
}

extern "C" __global__ void fill(float* values, gsan_global_state* globals, const void* table,
                                u64 index) {
  gsan::Kernel kernel(globals, table, index);
  gsan::store(values + place(), 1.0f);
}

extern "C" __global__ void sum(const float* values, float* total, gsan_global_state* globals,
                               const void* table, u64 index) {
  gsan::Kernel kernel(globals, table, index);
  float value = gsan::load(values + place());
  gsan::atomic_add(total, value, gsan::Order::kRelaxed, gsan::Scope::kGpu);
}
