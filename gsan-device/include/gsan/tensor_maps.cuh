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
  // Whether they lie in global memory.
  bool global;

  GSAN_DEVICE explicit TensorMap(const void* map)
      : words(static_cast<const u32*>(map)), global(ptx::is_global(map)) {}

  GSAN_DEVICE u32 word(u32 index) const { return ptx::load_tensor_map(words + index, global); }
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

// What is not common waits, two bits a unit, until all units of a batch are checked.
constexpr u32 kBatch = 16;

// Checks a batch of the units of `rows`: those from `first` on, `step` apart. `start.start(row, address)` says
// where the first unit of a row lies, and whether there is such a row. Returns what is not common.
template <unsigned S, u32 Action, class F>
GSAN_DEVICE u32 check_batch(Accesses<S, Action>& accesses, const BoxRows& rows, u32 first, u32 step, F start) {
  u32 units = rows.units();
  u32 total = rows.count * units;
  u32 step_rows = step / units, step_units = step % units;
  u32 row = first / units, unit = first % units;
  u32 uncommon = 0;
#pragma unroll 1
  for (u32 bit = 0; bit < 2 * kBatch && first < total; bit += 2, first += step) {
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
  return uncommon;
}

// Checks what was not common in the batch that begins at `first`. What says where rows lie was read anew, and may
// have changed meanwhile.
template <unsigned S, u32 Action, class F>
GSAN_DEVICE void check_rest_of_batch(Accesses<S, Action>& accesses, const BoxRows& rows, u32 first, u32 step,
                                     u32 uncommon, F start) {
  u32 units = rows.units();
#pragma unroll 1
  for (; uncommon != 0; uncommon &= uncommon - 1) {
    u32 bit = ptx::lowest(uncommon);
    u32 item = first + bit / 2 * step;
    if (item >= rows.count * units) return;
    u64 address = 0;
    start.start(item / units, address);
    if (!accesses.space().is_managed(address + item % units * kUnit, kUnit)) continue;
    u32 mask = rows.mask(item % units) >> (bit % 2 * kGranule) & kWholeGranule;
    accesses.check_bytes({address + item % units * kUnit + bit % 2 * kGranule, mask});
  }
}

// Checks `rows`, of which the lanes take units from `first` on, `step` apart.
template <unsigned S, u32 Action, class F>
GSAN_DEVICE void access_rows(Accesses<S, Action>& accesses, const BoxRows& rows, u32 first, u32 step,
                             F start) {
  u32 total = rows.count * rows.units();
#pragma unroll 1
  for (; first < total; first += kBatch * step) {
    u32 uncommon = check_batch(accesses, rows, first, step, start);
    check_rest_of_batch(accesses, rows, first, step, uncommon, start);
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
  ptx::fence_release();
}

// The planes of a box of up to `Ranks` dimensions: rows of the innermost two, which lie at one distance from
// each other.
template <u32 Ranks>
struct Planes {
  u64 base;
  // Of the dimensions but the innermost: how many indices, and how far they are apart.
  u32 counts[Ranks - 1];
  u64 strides[Ranks - 1];
  // Where the present plane is.
  u32 at[Ranks - 1];

  // Goes on to the next plane; returns false behind the last one.
  GSAN_DEVICE bool advance() {
#pragma unroll
    for (u32 k = 1; k + 1 < Ranks; ++k) {
      base += strides[k];
      if (++at[k] < counts[k]) return true;
      base -= counts[k] * strides[k];
      at[k] = 0;
    }
    return false;
  }
};

// What is copied, by which part of those that copy it.
struct BoxCopy {
  const void* map;
  // Outermost first.
  const int32_t* coordinates;
  const int16_t* shape;
  u32 rank;
  u32 bytes;
  u32 warp;
  u32 warps;
};

// A box of up to `Ranks` dimensions, clipped to the tensor; and which units of all its planes the lane takes.
template <u32 Ranks>
struct Box {
  BoxRows rows;
  Planes<Ranks> planes;
  u32 first;
  u32 step;

  // `stores`: a store or reduction.
  GSAN_DEVICE static Box of(BoxCopy copy, Warp warp, bool stores) {
    u32 ctas = ptx::cluster_ctas();
    u32 part = 0;
    if (ctas > 1) {
      // Warps of one number lie together, by the CTAs' ranks.
      part = copy.warp % ctas;
      copy.warp /= ctas;
      copy.warps = (copy.warps + ctas - 1) / ctas;
    }
    TensorMap tensor(copy.map);
    Planes<Ranks> planes = {tensor.base(), {}, {}, {}};
    Extent inner = {};
    bool empty = false;
#pragma unroll
    for (u32 k = 0; k < Ranks; ++k) {
      if (k != 0) planes.counts[k - 1] = 1;
      if (k >= copy.rank) continue;
      int64_t first = copy.coordinates[copy.rank - 1 - k];
      u32 extent = u16(copy.shape[copy.rank - 1 - k]);
      if (k + 1 == copy.rank && ctas > 1) {
        // The hardware's own division is often this one.
        u32 skipped = extent * part / ctas;
        extent = extent * (part + 1) / ctas - skipped;
        first += skipped;
      }
      if (k == 0) {
        inner = Extent::clip(first, extent, tensor.inner_size(copy.rank, copy.bytes));
      } else {
        Extent clipped = Extent::clip(first, extent, tensor.size(k));
        planes.strides[k - 1] = tensor.stride(k);
        planes.counts[k - 1] = clipped.count;
        planes.base += clipped.first * planes.strides[k - 1];
        empty |= clipped.count == 0;
      }
    }
    BoxRows rows = BoxRows::of(empty ? 0 : planes.counts[0], inner, copy.bytes, stores);
    planes.base += inner.first * copy.bytes & ~u64(kUnit - 1);
    return {rows, planes, copy.warp * warp.size() + warp.rank(), copy.warps * warp.size()};
  }

  GSAN_DEVICE u32 units() const { return rows.count * rows.units(); }
  GSAN_DEVICE EvenRows start() const { return {planes.base, planes.strides[0]}; }

  // Goes on to the next plane; the lanes share out the units of all planes.
  GSAN_DEVICE bool advance() {
    first = (first + step - units() % step) % step;
    return planes.advance();
  }
};

// What of a box is not checked by access_box: all of it if it has many dimensions; else what was not common of the
// first batch, and the other batches.
template <unsigned S, u32 Action>
GSAN_CALLED void access_rest_of_box(gsan_global_state* globals, const void* map, const int32_t* coordinates,
                                    u32 rank, const int16_t* shape, u32 bytes, u32 warp_id, u32 warps,
                                    const char* file, u32 line, u32 lanes, u32 uncommon) {
  Warp warp = Warp::of(lanes);
  Accesses<S, Action> accesses(Cta::current(globals), {file, line});
  BoxCopy copy = {map, coordinates, shape, rank, bytes, warp_id, warps};
  Box<kMaxRank> box = Box<kMaxRank>::of(copy, warp, accesses.kWrites);
  if (rank <= 2) {
    check_rest_of_batch(accesses, box.rows, box.first, box.step, uncommon, box.start());
    box.first += kBatch * box.step;
  }
#pragma unroll 1
  while (box.rows.count != 0) {
    access_rows(accesses, box.rows, box.first, box.step, box.start());
    if (!box.advance()) break;
  }
  accesses.finish(warp.lanes);
  warp.leave_together();
}

// The copy of a box by all warps of a partition, in a cluster by those of all its CTAs. `coordinates` and
// `shape` are outermost first. Kernels that copy boxes have few registers to spare: each that is needed behind a
// call costs a store and a load here. So the first batch of a box of up to two dimensions is checked without calls.
template <unsigned S, u32 Action>
GSAN_CALLED void access_box(gsan_global_state* globals, const void* map, const int32_t* coordinates,
                            u32 rank, const int16_t* shape, u32 bytes, u32 warp_id, u32 warps,
                            const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot() || rank - 1 >= kMaxRank) return;
  Warp warp = Warp::current();
  u32 uncommon = 0;
  bool rest = rank > 2;
  Accesses<S, Action> accesses(cta, {file, line});
  if (ptx::cluster_ctas() > 1) note_cluster_copy(cta, warp, record_site(accesses.record));
  if (!rest) {
    BoxCopy copy = {map, coordinates, shape, rank, bytes, warp_id, warps};
    Box<2> box = Box<2>::of(copy, warp, accesses.kWrites);
    if (box.rows.count != 0) {
      uncommon = check_batch(accesses, box.rows, box.first, box.step, box.start());
      rest = box.first + kBatch * box.step < box.units() || uncommon != 0;
    }
    accesses.finish(warp.lanes);
  }
  if (warp.any(rest)) {
    access_rest_of_box<S, Action>(globals, map, coordinates, rank, shape, bytes, warp_id, warps, file, line,
                                  warp.lanes, uncommon);
  }
  warp.leave_together();
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
                                const char* file, u32 line) {
  Cta cta = Cta::current(globals);
  if (!cta.has_slot()) return;
  Warp warp = Warp::current();
  Accesses<S, Action> accesses(cta, {file, line});
  TensorMap tensor(map);
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
  accesses.finish(warp.lanes);
  warp.leave_together();
}

}  // namespace gsan
