// Two accesses by two CTAs, one after the other in time. The test says which accesses, and what, if
// anything, orders them. `@name` marks the line of an access.
#include "kernel.cuh"

namespace {

GSAN_DEVICE void first_access(u32 which, u32* at) {
  if (which == 0) store(at, 1);                                    // @first write
  if (which == 1) load(at);                                        // @first read
  if (which == 2) atomic_add(at, 1, Order::kRelaxed, Scope::kGpu);  // @first add
  if (which == 3) atomic_add(at, 1, Order::kRelaxed, Scope::kCta);  // @first cta add
  if (which == 4) atomic_store(at, 1, Order::kRelaxed, Scope::kSystem);  // @first store
  if (which == 5) atomic_load(at, Order::kRelaxed, Scope::kGpu);    // @first load
}

GSAN_DEVICE void second_access(u32 which, u32* at) {
  if (which == 0) store(at, 2);                                    // @second write
  if (which == 1) load(at);                                        // @second read
  if (which == 2) atomic_add(at, 1, Order::kRelaxed, Scope::kGpu);  // @second add
  if (which == 3) atomic_add(at, 1, Order::kRelaxed, Scope::kCta);  // @second cta add
  if (which == 4) atomic_store(at, 2, Order::kRelaxed, Scope::kSystem);  // @second store
  if (which == 5) atomic_load(at, Order::kRelaxed, Scope::kGpu);    // @second load
}

GSAN_DEVICE void send(u32 form, u32* flag, Order order, Scope scope) {
  if (form == 1) atomic_store(flag, 1, order, scope);                // @send by store
  if (form == 2) atomic_exchange(flag, 1, order, scope);             // @send by exchange
  if (form == 3) atomic_compare_exchange(flag, 0, 1, order, scope);  // @send by compare
  if (form == 4) atomic_add(flag, 1, order, scope);                  // @send by add
}

GSAN_DEVICE void receive(u32 form, u32* flag, Order order, Scope scope) {
  if (form == 1) atomic_load(flag, order, scope);                    // @receive by load
  if (form == 2) atomic_exchange(flag, 2, order, scope);             // @receive by exchange
  if (form == 3) atomic_compare_exchange(flag, 1, 2, order, scope);  // @receive by compare
  if (form == 4) atomic_add(flag, 1, order, scope);                  // @receive by add
}

}  // namespace

// `form` of the message from the first CTA to the second; 0: there is none.
KERNEL pair(u32* data, u32* flag, u32* hidden, u32* gave_up, u32 first, u32 second, u32 form,
            u32 send_order, u32 receive_order, u32 scope, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  if (cta() == 0) {
    first_access(first, data);
    send(form, flag, Order(send_order), Scope(scope));
    hidden_signal(hidden);
  } else {
    hidden_wait(hidden, 1, gave_up);
    receive(form, flag, Order(receive_order), Scope(scope));
    second_access(second, data);
  }
}

// Each CTA has `per_cta` elements of `bytes` bytes, of which the first `overlap` belong to its
// predecessor as well. CTAs that come at the same moment may miss each other, so each comes later than the
// one before.
KERNEL neighbours(void* data, u32 bytes, u32 per_cta, u32 overlap, LAUNCH) {
  Kernel kernel(globals, table, index);
  ptx::pause_for(cta() * 10000);
  if (thread() >= per_cta) return;
  u32 element = cta() * (per_cta - overlap) + thread();
  if (bytes == 1) store(static_cast<u8*>(data) + element, u8(element));    // @byte
  if (bytes == 2) store(static_cast<u16*>(data) + element, u16(element));  // @half
}

// CTAs of one SM write to one word, or each to its own. `meets`: two of an SM are there at once.
KERNEL same_sm(u32* words, u32* hidden, u32* gave_up, u32 meets, u32 own, LAUNCH) {
  Kernel kernel(globals, table, index);
  if (thread() != 0) return;
  u32 sm = ptx::sm();
  if (meets != 0) {
    hidden_signal(hidden + sm);
    hidden_wait(hidden + sm, 2, gave_up);
  }
  store(words + (own != 0 ? cta() : sm), cta());  // @on the sm
}

// Writes, or reads, one element a thread.
KERNEL touch(u32* data, u32 write, LAUNCH) {
  Kernel kernel(globals, table, index);
  u32* at = data + cta() * threads() + thread();
  if (write != 0) {
    store(at, cta());  // @touch by write
  } else {
    load(at);  // @touch by read
  }
}
