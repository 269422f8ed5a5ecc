// The lanes of a warp as fibres of one host thread, for tests.
//
// A lane runs until it meets others: at a shuffle, a vote or a barrier of the warp, all lanes that its
// mask names must come to the same kind of meeting. Which lanes count as being together at
// `active_lanes` is chosen at random when `splits` is set; otherwise those that wait there.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <functional>
#include <memory>

#include "gsan/ptx.cuh"

namespace gsan::host {

constexpr u32 kLanes = GSAN_LANES;
static_assert(kLanes == 32, "a warp has 32 lanes, or the program has no warps");

enum class Meeting : u32 { kActive, kShare, kExchange, kBallot, kAlike, kLargest, kSum, kBarrier };

class FibreWarp {
 public:
  // Whether lanes that come to `active_lanes` together may be parted.
  bool splits = false;
  u32 random = 1;

  // The lane that runs; 0 outside of a warp.
  u32 lane() const { return lane_; }
  bool runs() const { return running_; }

  // Runs `body(lane)` for each lane of `lanes`.
  void run(u32 lanes, std::function<void(u32)> body) {
    body_ = std::move(body);
    running_ = true;
    for (u32 i = 0; i < kLanes; ++i) {
      Lane& lane = lanes_[i];
      lane.state = State::kDone;
      if (!(lanes >> i & 1)) continue;
      if (!lane.stack) lane.stack.reset(new char[kStackBytes]);
      lane.state = State::kReady;
      lane.asked = 0;
      getcontext(&lane.context);
      lane.context.uc_stack.ss_sp = lane.stack.get();
      lane.context.uc_stack.ss_size = kStackBytes;
      lane.context.uc_link = &scheduler_;
      makecontext(&lane.context, enter, 0);
    }
    while (step()) {
    }
    running_ = false;
    lane_ = 0;
  }

  // Waits for the lanes of `mask`; what comes back depends on the kind.
  u64 meet(Meeting kind, u32 mask, u64 value, u32 argument) {
    Lane& lane = lanes_[lane_];
    lane.kind = kind;
    lane.mask = mask;
    lane.value = value;
    lane.argument = argument;
    lane.asked += kind == Meeting::kActive;
    leave(State::kMeets);
    return lane.result;
  }

  // Lets the other lanes run.
  void pause() { leave(State::kPaused); }

  static FibreWarp& instance() {
    static FibreWarp warp;
    return warp;
  }

 private:
  static constexpr size_t kStackBytes = 1 << 18;
  enum class State : u32 { kDone, kReady, kMeets, kPaused };

  struct Lane {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    State state = State::kDone;
    Meeting kind;
    u32 mask;
    u32 argument;
    // How often it asked who is here.
    u32 asked;
    u64 value;
    u64 result;
  };

  static void enter() {
    FibreWarp& warp = instance();
    warp.body_(warp.lane_);
    warp.lanes_[warp.lane_].state = State::kDone;
  }

  void leave(State state) {
    Lane& lane = lanes_[lane_];
    lane.state = state;
    swapcontext(&lane.context, &scheduler_);
  }

  u32 in_state(State state) const {
    u32 lanes = 0;
    for (u32 i = 0; i < kLanes; ++i) lanes |= u32(lanes_[i].state == state) << i;
    return lanes;
  }

  // Does one thing; false when all lanes are done.
  bool step() {
    u32 ready = in_state(State::kReady);
    if (ready == 0 && !resolve()) {
      ready = in_state(State::kPaused);
      if (ready == 0) {
        if (in_state(State::kMeets) == 0) return false;
        fputs("the lanes of a warp wait for each other:", stderr);
        for (u32 i = 0; i < kLanes; ++i) {
          const Lane& lane = lanes_[i];
          if (lane.state != State::kMeets) continue;
          fprintf(stderr, " lane %u at %u with %08x;", i, u32(lane.kind), lane.mask);
        }
        abort();
      }
    }
    if (ready == 0) return true;
    u32 chosen = ready & -ready;
    if (splits) {
      chosen = 1u << next() % kLanes;
      if (!(chosen & ready)) return true;
    } else if (in_state(State::kReady) == 0) {
      // Those that pause take turns.
      u32 later = ready & ~((2u << lane_) - 1);
      if (later != 0) chosen = later & -later;
    }
    lane_ = __builtin_ctz(chosen);
    lanes_[lane_].state = State::kReady;
    swapcontext(&scheduler_, &lanes_[lane_].context);
    return true;
  }

  u32 next() { return random = random * 1664525 + 1013904223, random >> 8; }

  // Lets lanes go on whose meeting is complete. Those that ask who is here come last: as many as can
  // come together do.
  bool resolve() {
    u32 waiting = in_state(State::kMeets);
    u32 asking = 0;
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(waiting >> i & 1)) continue;
      Lane& lane = lanes_[i];
      if (lane.kind == Meeting::kActive) {
        // Those that have asked as often are at the same place.
        if (asking == 0 || lanes_[__builtin_ctz(asking)].asked == lane.asked) asking |= 1u << i;
        continue;
      }
      if (!(lane.mask >> i & 1)) {
        fputs("a lane meets others without being one of them\n", stderr);
        abort();
      }
      bool complete = true;
      for (u32 j = 0; j < kLanes; ++j) {
        if (!(lane.mask >> j & 1)) continue;
        const Lane& other = lanes_[j];
        complete &= other.state == State::kMeets && other.kind == lane.kind &&
                    other.mask == lane.mask;
      }
      if (!complete) continue;
      meet_all(lane.kind, lane.mask);
      return true;
    }
    if (asking == 0) return false;
    u32 here = asking;
    if (splits && next() % 2 == 0) {
      here &= next() ^ next() << 16;
      if (here == 0) here = asking;
    }
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(here >> i & 1)) continue;
      lanes_[i].result = here;
      lanes_[i].state = State::kReady;
    }
    return true;
  }

  void meet_all(Meeting kind, u32 mask) {
    u32 ballot = 0, sum = 0, largest = 0;
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(mask >> i & 1)) continue;
      u32 value = u32(lanes_[i].value);
      ballot |= u32(value != 0) << i;
      sum += value;
      if (value > largest) largest = value;
    }
    for (u32 i = 0; i < kLanes; ++i) {
      if (!(mask >> i & 1)) continue;
      Lane& lane = lanes_[i];
      u32 from = kind == Meeting::kExchange ? i ^ lane.argument : lane.argument;
      switch (kind) {
        case Meeting::kShare:
        case Meeting::kExchange:
          // What a lane has that is not here is not defined.
          lane.result = from < kLanes && mask >> from & 1 ? lanes_[from].value : ~lane.value;
          break;
        case Meeting::kBallot:
          lane.result = ballot;
          break;
        case Meeting::kAlike:
          lane.result = 0;
          for (u32 j = 0; j < kLanes; ++j) {
            bool same = mask >> j & 1 && lanes_[j].value == lane.value;
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
    for (u32 i = 0; i < kLanes; ++i) {
      if (mask >> i & 1) lanes_[i].state = State::kReady;
    }
  }

  Lane lanes_[kLanes];
  ucontext_t scheduler_;
  std::function<void(u32)> body_;
  u32 lane_ = 0;
  bool running_ = false;
};

// The same for a lane on its own, outside of a warp.
inline u64 meet(Meeting kind, u32 mask, u64 value, u32 argument, u64 alone) {
  FibreWarp& warp = FibreWarp::instance();
  return warp.runs() ? warp.meet(kind, mask, value, argument) : alone;
}

}  // namespace gsan::host
