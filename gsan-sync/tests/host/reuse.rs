//! Memory that is used on one stream, freed, and handed out to another one.

use crate::gpu::Do::{Read, Write};
use crate::gpu::Gpu;

#[test]
fn the_next_user_starts_after_the_noted_streams_at_the_free() {
    for noted in [false, true] {
        for known in [false, true] {
            let gpu = Gpu::new();
            let (a, b, c) = (gpu.open(1), gpu.open(2), gpu.open(3));
            gpu.launch(a, &[Write(0)]);
            if noted {
                gpu.ordering.memory_used(0x1000, 0x100, a).unwrap();
            }
            gpu.ordering.memory_freed(0x1000).unwrap();
            gpu.launch(a, &[Write(1)]);
            // A part of it is handed out.
            gpu.ordering
                .memory_handed_out(0x1080, 8, known.then_some(b))
                .unwrap();
            gpu.launch(b, &[Write(0)]);
            assert_eq!(gpu.races().is_empty(), noted);
            gpu.launch(b, &[Read(1)]);
            assert_eq!(gpu.races().len(), 1, "work after the free");
            gpu.launch(c, &[Read(0)]);
            // `b` wrote it last; `a` is ordered before if everybody is.
            assert!(!gpu.races().is_empty());
        }
    }
}

#[test]
fn memory_that_is_gone_brings_no_edge() {
    let gpu = Gpu::new();
    let (a, b) = (gpu.open(1), gpu.open(2));
    gpu.launch(a, &[Write(0)]);
    gpu.ordering.memory_used(0x1000, 0x100, a).unwrap();
    gpu.ordering.memory_freed(0x1000).unwrap();
    gpu.ordering.memory_gone(0x1000, 0x100);
    gpu.ordering
        .memory_handed_out(0x1000, 0x100, Some(b))
        .unwrap();
    gpu.launch(b, &[Read(0)]);
    assert_eq!(gpu.races().len(), 1);
}
