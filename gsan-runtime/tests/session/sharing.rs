//! Ranks that share memory. Two sessions are two ranks here, as two processes would be.

use std::sync::Arc;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_core::scope::Order;
use gsan_runtime::Session;
use gsan_runtime::host::AtomicOperation as Op;
use gsan_runtime::session::Meeting;
use gsan_vmm::backend::Device;

use crate::machine::{GPU, atomic, launch, read, session_with, write};

const LIMIT: Duration = Duration::from_secs(30);

/// Two ranks, each in a thread, that have shared memory: what each one finds.
fn ranks(
    name: &str,
    body: impl Fn(&Arc<Session>, u16, &[u64], &mut Meeting) + Send + Sync,
) -> Vec<usize> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = [0u16, 1]
            .into_iter()
            .map(|rank| {
                scope.spawn(move || {
                    let ranks = format!("device_ranks = {{ 0 = {rank} }}\nnum_devices = 2\n");
                    let session = session_with(&format!("[topology]\n{ranks}"));
                    let name = format!("{name} {}", std::process::id());
                    let mut meeting = Meeting::join(&name, rank, 2, LIMIT).unwrap();
                    let memory = session.allocate(2 << 20, GPU, 0).unwrap();
                    let addresses = meeting.share(&session, memory, GPU).unwrap();
                    assert_eq!(addresses[usize::from(rank)], memory);
                    body(&session, rank, &addresses, &mut meeting);
                    let report = session.report().unwrap();
                    meeting.exchange(&[]).unwrap();
                    report.races.len()
                })
            })
            .collect();
        let found = threads.into_iter().map(|thread| thread.join().unwrap());
        found.collect()
    })
}

#[test]
fn a_barrier_orders_ranks() {
    let found = ranks("barrier", |session, rank, addresses, _| {
        let memory = addresses[0];
        let group = session.open_group(GPU, &[0, 1].map(DeviceRank)).unwrap();
        if rank == 0 {
            let fill = launch("fill", 1);
            session
                .launch_on_host(GPU, 0, &fill, move |cta, _| write(cta, memory, 7, 1))
                .unwrap();
        }
        group.barrier(0, LIMIT).unwrap();
        if rank == 1 {
            let check = launch("check", 1);
            session
                .launch_on_host(GPU, 0, &check, move |cta, _| {
                    assert_eq!(read(cta, memory, 2), 7);
                })
                .unwrap();
        }
        session.stream_synchronized(GPU, 0).unwrap();
    });
    assert_eq!(found, [0, 0]);
}

#[test]
fn a_rank_may_have_a_later_device_alone() {
    let session = session_with("[topology]\ndevice_ranks = { 1 = 0 }\nnum_devices = 1\n");
    let device = Device(1);
    session.allocate(4096, device, 0).unwrap();
    let group = session.open_group(device, &[DeviceRank(0)]).unwrap();
    group.barrier(0, LIMIT).unwrap();
}

#[test]
fn a_rank_runs_kernels_while_the_others_have_not_come() {
    let session = session_with("[topology]\ndevice_ranks = { 0 = 1 }\nnum_devices = 3\n");
    let memory = session.allocate(4096, GPU, 0).unwrap();
    for round in 0..4 {
        session
            .launch_on_host(GPU, 0, &launch("pass", 8), move |cta, [x, ..]| {
                let flag = |x: u32| memory + 64 + 4 * u64::from(x);
                if x > 0 {
                    while atomic(cta, Op::Load, flag(x - 1), 0, Order::Acquire, 1) <= round {}
                }
                write(cta, memory, x, 2);
                atomic(cta, Op::Add, flag(x), 1, Order::AcqRel, 3);
            })
            .unwrap();
        let other = session.create_host_stream(GPU, true).unwrap();
        session
            .launch_on_host(GPU, other, &launch("more", 8), move |cta, _| {
                atomic(cta, Op::Add, memory + 512, 1, Order::AcqRel, 4);
            })
            .unwrap();
    }
    session.stream_synchronized(GPU, 0).unwrap();
    assert_eq!(session.report().unwrap().races, []);
}

#[test]
fn ranks_that_only_talk_to_each_other_race() {
    let found = ranks("race", |session, rank, addresses, meeting| {
        let memory = addresses[0];
        if rank == 0 {
            let fill = launch("fill", 2);
            session
                .launch_on_host(GPU, 0, &fill, move |cta, [x, ..]| {
                    if x == 1 {
                        write(cta, memory, 7, 1);
                    }
                })
                .unwrap();
            session.stream_synchronized(GPU, 0).unwrap();
        }
        let told = meeting.exchange(&rank.to_le_bytes()).unwrap();
        assert_eq!(told, [[0, 0], [1, 0]]);
        if rank == 1 {
            let check = launch("check", 1);
            session
                .launch_on_host(GPU, 0, &check, move |cta, _| {
                    read(cta, memory, 2);
                })
                .unwrap();
        }
        if rank == 1 {
            let report = session.report().unwrap();
            let race = &report.races[0];
            // The other side's names come from the other process's state.
            assert_eq!(race.earlier.who.kernel.as_deref(), Some("fill"));
            assert_eq!(race.earlier.place.as_ref().unwrap().line, 1);
            assert_eq!(race.earlier.who.device, Some(0));
            // How large its grid is, is not known.
            assert_eq!(race.earlier.who.cta, Some([1, 0, 0]));
            // Nor which stream it was, which is no stream 0 for that.
            assert_eq!(race.earlier.who.stream, None);
            assert_eq!(race.later.who.stream, Some(gsan_report::model::Hex(0)));
            assert_eq!(race.later.who.kernel.as_deref(), Some("check"));
        }
    });
    assert_eq!(found, [0, 1]);
}
