//! Kernels that are functions.

use gsan_core::scope::Order;
use gsan_runtime::host::AtomicOperation;

use crate::machine::{GPU, atomic, launch, read, session, write};

#[test]
fn a_kernel_writes_memory_and_is_counted() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("fill", 100), move |cta, [x, ..]| {
            write(cta, memory + 4 * u64::from(x), x, 1);
        })
        .unwrap();
    session
        .launch_on_host(GPU, 0, &launch("sum", 10), move |cta, [x, ..]| {
            let mut sum = 0;
            for at in 0..10 {
                sum += read(cta, memory + 4 * u64::from(10 * x + at), 2);
            }
            write(cta, memory + 2048 + 4 * u64::from(x), sum, 3);
        })
        .unwrap();
    session.stream_synchronized(GPU, 0).unwrap();
    let mut sums = [0u8; 40];
    let backend = session.allocator().backend();
    backend.read(GPU, memory + 2048, &mut sums).unwrap();
    let sums: Vec<u32> = sums
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let expected: Vec<u32> = (0..10).map(|x| 100 * x + 45).collect();
    assert_eq!(sums, expected);
    let usage = session.usage().unwrap();
    assert_eq!(usage.launches, 2);
    assert_eq!(usage.accesses, 100 + 100 + 10);
    assert_eq!(usage.losses, []);
}

#[test]
fn ctas_can_wait_for_each_other() {
    let session = session();
    let memory = session.allocate(4096, GPU, 0).unwrap();
    session
        .launch_on_host(GPU, 0, &launch("chain", 40), move |cta, [x, ..]| {
            let flag = |x: u32| memory + 4 * u64::from(x);
            if x > 0 {
                while atomic(
                    cta,
                    AtomicOperation::Load,
                    flag(x - 1),
                    0,
                    Order::Acquire,
                    1,
                ) == 0
                {}
            }
            let old = read(cta, memory + 2048, 2);
            write(cta, memory + 2048, old + 1, 3);
            atomic(cta, AtomicOperation::Store, flag(x), 1, Order::Release, 4);
        })
        .unwrap();
    session.stream_synchronized(GPU, 0).unwrap();
    let mut count = [0u8; 4];
    let backend = session.allocator().backend();
    backend.read(GPU, memory + 2048, &mut count).unwrap();
    assert_eq!(u32::from_le_bytes(count), 40);
}
