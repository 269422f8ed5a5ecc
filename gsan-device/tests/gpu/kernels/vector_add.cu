// Vector add, checked and bare: 8 elements a thread, in two vectors of 4.
#include "kernel.cuh"

using Four = Values<float, 4>;

KERNEL vector_add(const float* a, const float* b, float* c, LAUNCH) {
  Kernel kernel(globals, table, index);
  u64 first = (ptx::cta_index() * 2 * threads() + thread()) * 4;
  u64 second = first + 4 * threads();
  auto four = [](auto* at) { return reinterpret_cast<const Four*>(at); };
  const Four* const from_a[] = {four(a + first), four(a + second)};
  const Four* const from_b[] = {four(b + first), four(b + second)};
  Four* const to[] = {reinterpret_cast<Four*>(c + first), reinterpret_cast<Four*>(c + second)};
  Four left[2], right[2];
  load_each(from_a, left);
  load_each(from_b, right);
  for (u32 i = 0; i < 2; ++i) {
    for (u32 j = 0; j < 4; ++j) left[i][j] += right[i][j];
  }
  store_each(to, left);
}

KERNEL vector_add_bare(const float* a, const float* b, float* c) {
  u64 first = (ptx::cta_index() * 2 * threads() + thread()) * 4;
  u64 second = first + 4 * threads();
  Four sums[2];
  u64 at[] = {first, second};
  for (u32 i = 0; i < 2; ++i) {
    Four left = bits_as<Four>(ptx::Bits<16>::load(a + at[i]));
    Four right = bits_as<Four>(ptx::Bits<16>::load(b + at[i]));
    for (u32 j = 0; j < 4; ++j) left[j] += right[j];
    sums[i] = left;
  }
  for (u32 i = 0; i < 2; ++i) bits_as<ptx::Bits<16>>(sums[i]).store(c + at[i]);
}
