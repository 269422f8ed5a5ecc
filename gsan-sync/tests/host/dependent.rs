//! Programmatic dependent launches, resident at the same time.

use gsan_sync::{LaunchInfo, StreamKey};

use crate::gpu::Do::{Read, Wait, Write};
use crate::gpu::{GPU, Gpu, RunningCta};

fn begin(gpu: &Gpu, stream: StreamKey, programmatic: bool, kernel: u32) -> (u64, u64) {
    let info = LaunchInfo {
        kernel,
        grid: [1, 1, 1],
        programmatic,
        opaque: false,
    };
    let mut launch = gpu.ordering.begin_launch(stream, &info).unwrap();
    let given = (launch.table(), launch.index());
    launch.finish(true).unwrap();
    given
}

/// A launch and four dependent ones, each on an SM of its own except the last.
fn chain(gpu: &Gpu, stream: StreamKey) -> Vec<(u64, u64)> {
    (0..5)
        .map(|at| begin(gpu, stream, at > 0, 10 + at))
        .collect()
}

fn granules(gpu: &Gpu) -> Vec<u32> {
    gpu.races().iter().map(|race| race.granule).collect()
}

#[test]
fn a_chain_of_five_learns_what_has_exited_when_it_starts() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    gpu.launch(stream, &[Write(9)]);
    let launches = chain(&gpu, stream);
    let first = gpu.resident(launches[0], 0, 0);
    first.does(Write(0));
    let second = gpu.resident(launches[1], 1, 0);
    second.does(Write(1));
    second.does(Read(9));
    first.exit();
    second.exit();
    // Both have exited: nobody needs to wait for them.
    let third = gpu.resident(launches[2], 0, 0);
    third.does(Read(0));
    third.does(Read(1));
    third.does(Write(2));
    // The third is resident: the fourth overtakes it, and knows the others.
    let fourth = gpu.resident(launches[3], 1, 0);
    fourth.does(Read(0));
    fourth.does(Read(1));
    assert!(granules(&gpu).is_empty());
    fourth.does(Read(2));
    assert_eq!(granules(&gpu), [2]);
    third.exit();
    fourth.does(Write(3));
    fourth.exit();
    let fifth = gpu.resident(launches[4], 2, 0);
    fifth.does(Wait);
    (0..4).for_each(|granule| fifth.does(Read(granule)));
    fifth.exit();
    // A normal launch starts after all of them.
    gpu.launch(stream, &[Write(0), Write(1), Write(2), Write(3), Write(9)]);
    assert!(gpu.races().is_empty());
}

#[test]
fn waiting_is_for_the_launch_before_only() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let launches = chain(&gpu, stream);
    let running: Vec<RunningCta> = (0..4)
        .map(|at| gpu.resident(launches[at], at as u32, 0))
        .collect();
    running[0].does(Write(0));
    running[1].does(Write(1));
    running[1].exit();
    running[2].does(Wait);
    running[2].does(Read(1));
    assert!(granules(&gpu).is_empty());
    running[2].does(Read(0));
    assert_eq!(granules(&gpu), [0], "the first one still runs");
    running.iter().enumerate().for_each(|(at, cta)| {
        if at != 1 {
            cta.exit();
        }
    });
}

#[test]
fn a_chain_longer_than_can_be_told_apart_starts_after_all_of_it() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    begin(&gpu, stream, false, 1);
    for _ in 0..16 {
        begin(&gpu, stream, true, 1);
    }
    let joins = gpu.ordering.counts().joins;
    assert_eq!(joins, 1, "the seventeenth joins all sixteen before it");
}

#[test]
fn kernels_that_never_wait_are_told_once() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    for _ in 0..200 {
        gpu.backend.hold(true);
        let first = begin(&gpu, stream, false, 1);
        let second = begin(&gpu, stream, true, 2);
        let third = begin(&gpu, stream, true, 3);
        gpu.backend.hold(false);
        let first = gpu.resident(first, 0, 0);
        let second = gpu.resident(second, 1, 0);
        let third = gpu.resident(third, 2, 0);
        first.exit();
        second.exit();
        third.does(Wait);
        third.exit();
    }
    assert_eq!(gpu.ordering.take_never_waited(), [2]);
    assert!(gpu.ordering.take_never_waited().is_empty());
    assert!(gpu.ordering.counts().never_waited > 100);
}

#[test]
fn reports_can_name_kernels_and_ctas() {
    let gpu = Gpu::new();
    let stream = gpu.open(1);
    let copy = gpu.ordering.kernel_number("copy", false).unwrap();
    let add = gpu.ordering.kernel_number("add", true).unwrap();
    assert_eq!(gpu.ordering.kernel_number("copy", false), Ok(copy));
    assert_ne!(copy, add);
    assert_eq!(gpu.ordering.kernel_name(add).as_deref(), Some("add"));
    assert_eq!(gpu.ordering.kernel_name(99), None);
    let number = gpu.launch_as(stream, false, &[&[Write(0)], &[], &[Write(0)]]);
    let [race] = gpu.told()[..] else {
        panic!("one race")
    };
    let thread = gsan_core::ids::ThreadId(race.earlier.thread);
    let epoch = gsan_core::clock::Epoch::new(race.earlier.epoch).unwrap();
    let cta = gpu.ordering.past_cta(thread, epoch).unwrap().unwrap();
    assert_eq!((cta.launch.0, cta.coordinates), (number, 0));
    let record = gpu.ordering.launch_record(GPU, number).unwrap().unwrap();
    assert_eq!((record.kernel, record.grid), (1, [3, 1, 1]));
    let nobody = gsan_core::ids::ThreadId(u16::MAX);
    assert_eq!(gpu.ordering.past_cta(nobody, epoch), Ok(None));
}
