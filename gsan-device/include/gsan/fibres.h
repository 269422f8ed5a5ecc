// The lanes of warps as fibres of one host thread, for tests.
//
// A lane runs until it meets others: at a shuffle, a vote or a barrier of the warp, all lanes of its
// warp that its mask names must come to the same kind of meeting; at a barrier of the CTA, as many
// lanes of the CTA as it says. Which lanes count as being together at `active_lanes` is chosen at
// random when `splits` is set; otherwise those that wait there.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <vector>

#include "gsan/ptx.cuh"

namespace gsan::host {

constexpr u32 kLanes = GSAN_LANES;
static_assert(kLanes == 32, "a warp has 32 lanes, or the program has no warps");

enum class Meeting : u32 {
  kActive,
  kShare,
  kExchange,
  kBallot,
  kAlike,
  kLargest,
  kSum,
  kBarrier,
  kGroup
};

// A warp: where it is, which of its lanes run, and what they do.
struct WarpTask {
  u32 sm;
  u64 cta_index;
  // The position of its first lane in the CTA.
  u32 thread_index;
  u32 lanes;
  std::function<void(u32)> body;
};

class Fibres {
 public:
  // Whether lanes that come to `active_lanes` together may be parted.
  bool splits = false;
  // Whether warps take turns at random, at accesses to memory too. One warp alone is not disturbed.
  bool mixes = false;
  u32 random = 1;

  // The lane that runs, in its warp; 0 outside of a warp.
  u32 lane() const { return current_ % kLanes; }
  bool runs() const { return running_; }

  // Runs `body(lane)` for each lane of `lanes`, as the warp where the host thread is.
  void run(u32 lanes, std::function<void(u32)> body) {
    run({{sm, cta_index, thread_index, lanes, std::move(body)}});
  }

  // Runs warps of any CTAs at the same time.
  void run(std::vector<WarpTask> warps) {
    u32 before_sm = sm, before_thread = thread_index;
    u64 before_cta = cta_index;
    if (lanes_.size() < warps.size() * kLanes) lanes_.resize(warps.size() * kLanes);
    warps_.clear();
    for (WarpTask& task : warps) warps_.push_back({std::move(task), &lanes_[warps_.size() * kLanes]});
    running_ = true;
    for (Warp& warp : warps_) {
      for (u32 in = warp.task.lanes; in != 0; in &= in - 1) {
        u32 i = __builtin_ctz(in);
        Lane& lane = warp.lanes[i];
        if (!lane.stack) lane.stack.reset(new char[kStackBytes]);
        warp.set(i, kReady);
        lane.asked = 0;
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = lane.stack.get();
        lane.context.uc_stack.ss_size = kStackBytes;
        lane.context.uc_link = &scheduler_;
        makecontext(&lane.context, enter, 0);
      }
    }
    while (step()) {
    }
    running_ = false;
    current_ = 0;
    sm = before_sm;
    thread_index = before_thread;
    cta_index = before_cta;
  }

  // Waits for the lanes of `mask`, or for as many of the CTA as it says; what comes back depends on the
  // kind.
  u64 meet(Meeting kind, u32 mask, u64 value, u32 argument) {
    Lane& lane = here();
    lane.kind = kind;
    lane.mask = mask;
    lane.value = value;
    lane.argument = argument;
    lane.asked += kind == Meeting::kActive;
    leave(kMeets);
    return lane.result;
  }

  // Lets other lanes run.
  void pause() { leave(kPaused); }

  // An access to memory: others may run before it.
  void access() {
    if (running_ && mixes && warps_.size() > 1 && next() % 8 == 0) leave(kReady);
  }

  static Fibres& instance() {
    static Fibres fibres;
    return fibres;
  }

 private:
  static constexpr size_t kStackBytes = 1 << 18;
  enum State : u32 { kReady, kMeets, kPaused, kStates };

  struct Lane {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Meeting kind;
    u32 mask;
    u32 argument;
    // How often it asked who is here.
    u32 asked;
    u64 value;
    u64 result;
  };

  // A warp that runs: its lanes, and which of them are in each state. Those in none are done.
  struct Warp {
    WarpTask task;
    Lane* lanes;
    u32 in[kStates] = {};

    void set(u32 lane, State state) {
      for (u32& lanes : in) lanes &= ~(1u << lane);
      in[state] |= 1u << lane;
    }
  };

  static void enter() {
    Fibres& fibres = instance();
    Warp& warp = fibres.warp();
    u32 lane = fibres.lane();
    warp.task.body(lane);
    for (u32& lanes : warp.in) lanes &= ~(1u << lane);
  }

  Warp& warp() { return warps_[current_ / kLanes]; }
  Lane& here() { return lanes_[current_]; }

  void leave(State state) {
    warp().set(lane(), state);
    swapcontext(&here().context, &scheduler_);
  }

  bool any_in(State state) const {
    for (const Warp& warp : warps_) {
      if (warp.in[state] != 0) return true;
    }
    return false;
  }

  // The first lane in `state` behind lane `last`, around.
  u32 in_state(State state, u32 last) const {
    u32 warps = u32(warps_.size());
    u32 of_last = last / kLanes;
    u32 later = warps_[of_last].in[state] & ~((2u << last % kLanes) - 1);
    if (later != 0) return of_last * kLanes + __builtin_ctz(later);
    for (u32 i = 1; i <= warps; ++i) {
      u32 index = (of_last + i) % warps;
      if (warps_[index].in[state] != 0) {
        return index * kLanes + __builtin_ctz(warps_[index].in[state]);
      }
    }
    return current_;
  }

  // Does one thing; false when all lanes are done.
  bool step() {
    State from = kReady;
    // A warp that runs does not keep others waiting.
    if (mixes && warps_.size() > 1 && next() % 2 == 0) resolve();
    if (!any_in(kReady)) {
      if (resolve()) return true;
      from = kPaused;
      if (!any_in(kPaused)) {
        if (!any_in(kMeets)) return false;
        fputs("lanes wait for each other:", stderr);
        for (Warp& warp : warps_) {
          for (u32 in = warp.in[kMeets]; in != 0; in &= in - 1) {
            const Lane& lane = warp.lanes[__builtin_ctz(in)];
            fprintf(stderr, " lane %u at %u with %08x;", __builtin_ctz(in), u32(lane.kind),
                    lane.mask);
          }
        }
        abort();
      }
    }
    u32 lanes = u32(warps_.size()) * kLanes;
    u32 last = lanes - 1;
    if (splits) {
      last = next() % lanes;
    } else if (mixes) {
      // A warp's lanes stay in order.
      last = (next() % u32(warps_.size()) * kLanes + lanes - 1) % lanes;
    } else if (from == kPaused) {
      // Those that pause take turns.
      last = current_;
    }
    current_ = in_state(from, last);
    warp().set(lane(), kReady);
    const WarpTask& task = warp().task;
    sm = task.sm;
    cta_index = task.cta_index;
    thread_index = task.thread_index;
    swapcontext(&scheduler_, &here().context);
    return true;
  }

  u32 next() { return random = random * 1664525 + 1013904223, random >> 8; }

  // Lets lanes go on whose meeting is complete. Those that ask who is here come last: as many of a warp
  // as can come together do, so none of them runs.
  bool resolve() {
    Warp* asking = nullptr;
    u32 asks = 0;
    u32 count = u32(warps_.size());
    u32 first = mixes && count > 1 ? next() % count : 0;
    for (u32 index = 0; index < count; ++index) {
      Warp& warp = warps_[(first + index) % count];
      if (warp.in[kReady] != 0) continue;
      u32 together = 0;
      for (u32 in = warp.in[kMeets]; in != 0; in &= in - 1) {
        u32 i = __builtin_ctz(in);
        const Lane& lane = warp.lanes[i];
        if (lane.kind == Meeting::kActive) {
          // Those that have asked as often are at the same place.
          if (together == 0 || warp.lanes[__builtin_ctz(together)].asked == lane.asked) {
            together |= 1u << i;
          }
        } else if (lane.kind == Meeting::kGroup) {
          if (meet_group(warp, lane)) return true;
        } else if (meet_warp(warp, i)) {
          return true;
        }
      }
      if (together != 0 && (asking == nullptr || (mixes && next() % 2))) {
        asking = &warp;
        asks = together;
      }
    }
    if (asking == nullptr) return false;
    u32 here = asks;
    if (splits && next() % 2 == 0) {
      here &= next() ^ next() << 16;
      if (here == 0) here = asks;
    }
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(here >> i & 1)) continue;
      asking->lanes[i].result = here;
      asking->set(i, kReady);
    }
    return true;
  }

  // Whether all have come that lane `i` waits for.
  static bool meet_warp(Warp& warp, u32 i) {
    const Lane& lane = warp.lanes[i];
    if (!(lane.mask >> i & 1)) {
      fputs("a lane meets others without being one of them\n", stderr);
      abort();
    }
    if ((lane.mask & warp.in[kMeets]) != lane.mask) return false;
    for (u32 mask = lane.mask; mask != 0; mask &= mask - 1) {
      const Lane& other = warp.lanes[__builtin_ctz(mask)];
      if (other.kind != lane.kind || other.mask != lane.mask) return false;
    }
    u32 met = lane.mask;
    meet_all(lane.kind, met, warp.lanes);
    warp.in[kMeets] &= ~met;
    warp.in[kReady] |= met;
    return true;
  }

  // Whether the barrier of the CTA at which `first` waits is complete.
  bool meet_group(const Warp& of, const Lane& first) {
    u32 threads = first.mask, id = first.argument, sm = of.task.sm, here = 0;
    auto waits = [&](const Warp& warp, u32 i) {
      const Lane& lane = warp.lanes[i];
      return warp.task.sm == sm && warp.in[kMeets] >> i & 1 && lane.kind == Meeting::kGroup &&
             lane.argument == id;
    };
    for (const Warp& warp : warps_) {
      for (u32 i = 0; i < kLanes; ++i) here += waits(warp, i);
    }
    if (here < threads) return false;
    for (Warp& warp : warps_) {
      for (u32 i = 0; i < kLanes; ++i) {
        if (waits(warp, i)) warp.set(i, kReady);
      }
    }
    return true;
  }

  static void meet_all(Meeting kind, u32 mask, Lane* lanes) {
    u32 ballot = 0, sum = 0, largest = 0;
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(mask >> i & 1)) continue;
      u32 value = u32(lanes[i].value);
      ballot |= u32(value != 0) << i;
      sum += value;
      if (value > largest) largest = value;
    }
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(mask >> i & 1)) continue;
      Lane& lane = lanes[i];
      u32 from = kind == Meeting::kExchange ? i ^ lane.argument : lane.argument;
      switch (kind) {
        case Meeting::kShare:
        case Meeting::kExchange:
          // What a lane has that is not here is not defined.
          lane.result = from < kLanes && mask >> from & 1 ? lanes[from].value : ~lane.value;
          break;
        case Meeting::kBallot:
          lane.result = ballot;
          break;
        case Meeting::kAlike:
          lane.result = 0;
          for (u32 j = 0; j < kLanes; ++j) {
            bool same = mask >> j & 1 && lanes[j].value == lane.value;
            lane.result |= u64(same) << j;
          }
          break;
        case Meeting::kLargest:
          lane.result = largest;
          break;
        case Meeting::kSum:
          lane.result = sum;
          break;
        default:
          break;
      }
    }
  }

  std::vector<Warp> warps_;
  std::vector<Lane> lanes_;
  ucontext_t scheduler_;
  u32 current_ = 0;
  bool running_ = false;
};

// The same for a lane on its own, outside of a warp.
inline u64 meet(Meeting kind, u32 mask, u64 value, u32 argument, u64 alone) {
  Fibres& fibres = Fibres::instance();
  return fibres.runs() ? fibres.meet(kind, mask, value, argument) : alone;
}

}  // namespace gsan::host
