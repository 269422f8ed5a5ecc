// Copies of boxes of tensors by the hardware (TMA), which tensor maps describe.
//
// A copy is checked when it is issued, which stands for its completion as well: that cannot be seen.
// All lanes of the warps that call share out the box, in units of 16 bytes.
//
// In a cluster, coordinates and shape are those of all its CTAs together, and which of them has the
// hardware move which part is not said. So a part may be recorded as another CTA's. That is sound
// towards CTAs outside: whatever one CTA of the cluster acquires or releases for all, by a scalar atomic
// or at its end, the others know through a cluster barrier or the completion of the launch. Between CTAs of
// the cluster it is not, and a race of a copy there is not told.
#pragma once

#include "gsan/access.cuh"
#include "gsan/warps.cuh"

namespace gsan {

constexpr u32 kMaxRank = 5;
// What a lane checks with two loads of cells in a row: two granules.
constexpr u32 kUnit = 2 * kGranule;

// A descriptor, as 32-bit words. Dimensions are counted from the innermost.
struct TensorMap {
  const u32* words;

  GSAN_DEVICE u32 word(u32 index) const { return ptx::load_tensor_map(words + index); }
  GSAN_DEVICE u64 base() const { return word(0) | u64(word(1)) << 32; }
  // How many elements; one more than 32 bits say.
  GSAN_DEVICE u64 size(u32 dimension) const { return u64(word(8 + dimension)) + 1; }
  // From one element to the next, in bytes. Not of the innermost dimension.
  GSAN_DEVICE u64 stride(u32 dimension) const { return u64(word(3 + dimension - 1)) << 4; }

  // The size of the innermost dimension, of elements of `bytes` bytes. Where a byte is two padded values
  // of 4 bits, the descriptor has twice that; rows then seem longer than they are apart.
  GSAN_DEVICE u64 inner_size(u32 rank, u32 bytes) const {
    u64 elements = size(0);
    return bytes == 1 && rank > 1 && elements > stride(1) ? elements / 2 : elements;
  }
};

// The indices of one dimension, clipped to the tensor.
struct Extent {
  u64 first;
  u32 count;
  // Whether the end of the tensor cut some off.
  bool cut;

  GSAN_DEVICE static Extent clip(int64_t first, u32 count, u64 size) {
    int64_t low = first < 0 ? 0 : first;
    int64_t end = first + count;
    int64_t high = end > int64_t(size) ? int64_t(size) : end;
    return {u64(low), high > low ? u32(high - low) : 0, end > int64_t(size)};
  }
};

// Rows of bytes, all of one length, that start at the same distance from a multiple of 16.
struct BoxRows {
  u32 count;
  // Before the first byte.
  u32 lead;
  u32 bytes;

  GSAN_DEVICE u32 units() const { return (lead + bytes + kUnit - 1) / kUnit; }

  // The bytes of unit `unit` of a row.
  GSAN_DEVICE u32 mask(u32 unit) const {
    u32 start = unit * kUnit, end = lead + bytes - start;
    u32 low = unit == 0 ? lead : 0;
    u32 high = end < kUnit ? end : kUnit;
    return bytes_between(low, high);
  }

  // The row of elements from `inner` on, at an address that is a multiple of 16. A store or reduction that
  // was cut off goes on up to the next multiple.
  GSAN_DEVICE static BoxRows of(u32 count, const Extent& inner, u32 element, bool stores) {
    u64 start = inner.first * element;
    u32 bytes = inner.count * element;
    u32 lead = u32(start) & (kUnit - 1);
    if (stores && inner.cut && bytes != 0) {
      u32 rounded = (bytes + kUnit - 1) & ~(kUnit - 1);
      u32 boundary = ((lead + bytes + kUnit - 1) & ~(kUnit - 1)) - lead;
      bytes = rounded < boundary ? rounded : boundary;
    }
    return {bytes == 0 ? 0 : count, lead, bytes};
  }
};

// Rows of a box that lie at one distance from each other.
struct EvenRows {
  u64 first;
  u64 stride;

  GSAN_DEVICE bool start(u32 row, u64& address) const {
    address = first + row * stride;
    return true;
  }
};

// Checks an access to the bytes of `mask` of a unit. Returns which granules are to be checked by check_bytes,
// a bit each. Kernels that copy boxes need their registers for products: no more of a cell is kept than is
// looked at.
template <unsigned S, u32 Action>
GSAN_DEVICE u32 access_unit(Accesses<S, Action>& accesses, u64 address, u32 mask) {
  AddressSpace<S> space = accesses.space();
  if (!accesses.may_be_common(space, address, mask)) {
    if (mask == 0 || !space.is_managed(address, kUnit)) return 0;
    u32 granules = u32((mask & kWholeGranule) != 0) | u32(mask > kWholeGranule) << 1;
    accesses.checked += ptx::count_bits(granules);
    return granules;
  }
  accesses.checked += 2;
  u64* words = space.shadow(address);
  Cell<S> cell = Cell<S>::load(words);
  bool two = alike(cell, Cell<S>::load(words + kNextCell<S>));
  u32 uncommon = 0;
#pragma unroll 1
  for (u32 bits = two ? 3 : 1; ; bits = 2) {
    if (!accesses.check_common(address, words, cell, bits == 3)) uncommon |= bits;
    if (bits != 1) break;
    words += kNextCell<S>;
    cell = Cell<S>::load(words);
  }
  return uncommon;
}

// Checks `rows`, of which the lanes take units from `first` on, `step` apart. `start.start(row, address)`
// says where the first unit of a row lies, and whether there is such a row.
template <unsigned S, u32 Action, class F>
GSAN_DEVICE void access_rows(Accesses<S, Action>& accesses, const BoxRows& rows, u32 first, u32 step,
                             F start) {
  // What is not common waits, two bits a unit, until all units of a batch are checked.
  constexpr u32 kBatch = 16;
  u32 units = rows.units();
  u32 total = rows.count * units;
  u32 step_rows = step / units, step_units = step % units;
  u32 row = first / units, unit = first % units;
#pragma unroll 1
  for (u32 at = first; at < total;) {
    u32 begin = at;
    u32 uncommon = 0;
#pragma unroll 1
    for (u32 bit = 0; bit < 2 * kBatch && at < total; bit += 2, at += step) {
      u64 address;
      u32 mask = start.start(row, address) ? rows.mask(unit) : 0;
      uncommon |= access_unit(accesses, address + unit * kUnit, mask) << bit;
      unit += step_units;
      row += step_rows;
      if (unit >= units) {
        unit -= units;
        ++row;
      }
    }
#pragma unroll 1
    for (; uncommon != 0; uncommon &= uncommon - 1) {
      u32 bit = ptx::lowest(uncommon);
      u32 item = begin + bit / 2 * step;
      u64 address = 0;
      start.start(item / units, address);
      u32 mask = rows.mask(item % units) >> (bit % 2 * kGranule) & kWholeGranule;
      accesses.check_bytes({address + item % units * kUnit + bit % 2 * kGranule, mask});
    }
  }
}

// A cluster copies: its races among its own CTAs are not told. By a warp.
GSAN_CALLED void note_cluster_copy(Cta cta, Warp warp, u32 site) {
  if (!warp.leads()) return;
  u32 width = ptx::cluster_width();
  u32 size = width == ptx::cluster_ctas() ? width : GSAN_LAUNCH_ONE_CLUSTER;
  ptx::store_relaxed(&cta.launch_state()->cluster, size);
  u32* flags = &cta.region.part<gsan_site>(cta.region.globals->offsets.sites)[site].flags;
  if (site != 0 && !(ptx::load_relaxed(flags) & GSAN_SITE_CLUSTER_COPY)) {
    ptx::or_relaxed(flags, GSAN_SITE_CLUSTER_COPY);
  }
  // Who finds a record of the copy finds these.
  ptx::fence();
}

// The planes of a box: rows of the innermost two dimensions, which lie at one distance from each other.
struct Planes {
  u64 base;
  // Of the dimensions but the innermost: how many indices, and how far they are apart.
  u32 counts[kMaxRank - 1];
  u64 strides[kMaxRank - 1];
  // Where the present plane is.
  u32 at[kMaxRank - 2];

  // Goes on to the next plane; returns false behind the last one.
  GSAN_DEVICE bool advance() {
#pragma unroll
    for (u32 k = 1; k + 1 < kMaxRank; ++k) {
      base += strides[k];
      if (++at[k - 1] < counts[k]) return true;
      base -= counts[k] * strides[k];
      at[k - 1] = 0;
    }
    return false;
  }
};

// Checks the rows of all planes.
template <unsigned S, u32 Action>
GSAN_DEVICE void access_planes(Accesses<S, Action>& accesses, const BoxRows& rows, Planes planes,
                               u32 first, u32 step) {
#pragma unroll 1
  while (true) {
    access_rows(accesses, rows, first, step, EvenRows{planes.base, planes.strides[0]});
    if (!planes.advance()) return;
    // The lanes share out the units of all planes.
    first = (first + step - rows.count * rows.units() % step) % step;
  }
}

// The copy of a box by all warps of a partition, in a cluster by those of all its CTAs. `coordinates` and
// `shape` are outermost first.
template <unsigned S, u32 Action>
GSAN_CALLED void access_box(gsan_global_state* globals, const void* map, const int32_t* coordinates,
                            u32 rank, const int16_t* shape, u32 bytes, u32 warp_id, u32 warps,
                            Position position) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot() || rank - 1 >= kMaxRank) return;
  Warp warp = Warp::current();
  Accesses<S, Action> accesses(cta, position);
  u32 ctas = ptx::cluster_ctas();
  u32 part = 0;
  if (ctas > 1) {
    // Warps of one number lie together, by the CTAs' ranks.
    part = warp_id % ctas;
    warp_id /= ctas;
    warps = (warps + ctas - 1) / ctas;
    note_cluster_copy(cta, warp, record_site(accesses.record));
  }
  TensorMap tensor = {static_cast<const u32*>(map)};
  Planes planes = {tensor.base(), {1, 1, 1, 1}, {}, {}};
  Extent inner = {};
  bool empty = false;
#pragma unroll
  for (u32 k = 0; k < kMaxRank; ++k) {
    if (k >= rank) continue;
    int64_t first = coordinates[rank - 1 - k];
    u32 extent = u16(shape[rank - 1 - k]);
    if (k + 1 == rank && ctas > 1) {
      // The hardware's own division is often this one.
      u32 skipped = extent * part / ctas;
      extent = extent * (part + 1) / ctas - skipped;
      first += skipped;
    }
    if (k == 0) {
      inner = Extent::clip(first, extent, tensor.inner_size(rank, bytes));
    } else {
      Extent clipped = Extent::clip(first, extent, tensor.size(k));
      planes.strides[k - 1] = tensor.stride(k);
      planes.counts[k - 1] = clipped.count;
      planes.base += clipped.first * planes.strides[k - 1];
      empty |= clipped.count == 0;
    }
  }
  constexpr bool kStores = (Action & GSAN_RACE_WRITE) != 0;
  BoxRows rows = BoxRows::of(planes.counts[0], inner, bytes, kStores);
  planes.base += inner.first * bytes & ~u64(kUnit - 1);
  if (rows.count != 0 && !empty) {
    u32 first = warp_id * warp.size() + warp.rank();
    access_planes(accesses, rows, planes, first, warps * warp.size());
  }
  accesses.finish(ptx::active_lanes());
}

// Rows of a tensor by their indices.
struct IndexedRows {
  u64 first;
  u64 stride;
  u64 size;
  const int32_t* indices;

  GSAN_DEVICE bool start(u32 row, u64& address) const {
    int32_t index = indices[row];
    address = first + u64(index) * stride;
    return index >= 0 && u64(index) < size;
  }
};

// The copy of rows of a tensor of two dimensions, `columns` elements from column `first_column` on: gather
// and scatter. Each warp calls for rows of its own.
template <unsigned S, u32 Action>
GSAN_CALLED void access_indexed(gsan_global_state* globals, const void* map, const int32_t* indices,
                                u32 count, int32_t first_column, u32 columns, u32 bytes,
                                Position position) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot()) return;
  Warp warp = Warp::current();
  Accesses<S, Action> accesses(cta, position);
  TensorMap tensor = {static_cast<const u32*>(map)};
  u64 base = tensor.base();
  u64 size = tensor.size(1), stride = tensor.stride(1);
  Extent inner = Extent::clip(first_column, columns, tensor.inner_size(2, bytes));
  constexpr bool kStores = (Action & GSAN_RACE_WRITE) != 0;
  BoxRows rows = BoxRows::of(count, inner, bytes, kStores);
  base += inner.first * bytes & ~u64(kUnit - 1);
  if (rows.count != 0) {
    IndexedRows start = {base, stride, size, indices};
    access_rows(accesses, rows, warp.rank(), warp.size(), start);
  }
  accesses.finish(ptx::active_lanes());
}

}  // namespace gsan
