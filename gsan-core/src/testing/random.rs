//! Random programs and schedules, which proptest shrinks.

use proptest::prelude::*;
use proptest::sample::select;

use super::program::{At, Code, HostOp, Kernel, Memory, Op, OpKind, Place, Program, Verb};
use crate::address::GRANULE;
use crate::event::{Completion, FenceKind, HostEvent, Launch, Proxy};
use crate::ids::{DeviceRank, LaunchId, SiteId, StreamId};
use crate::scope::{Order, Scope};

/// What random programs may contain.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The most kernels.
    pub kernels: usize,
    /// How many streams they use; stream `n` is on device `n % devices`.
    pub streams: u32,
    /// How many devices there are.
    pub devices: u32,
    /// The most CTAs of a kernel, in clusters of two if there are at least two.
    pub ctas: u32,
    /// The most threads of a CTA.
    pub threads: u32,
    /// How many granules of global memory they use.
    pub granules: u64,
    /// The most operations of a thread.
    pub ops: usize,
    /// Strong accesses go to the first granule only, weak ones to the others only.
    pub apart: bool,
    /// Every operation has a site of its own; otherwise four sites are shared.
    pub own_sites: bool,
    /// Barriers and mbarriers.
    pub barriers: bool,
    /// Asynchronous copies and proxy fences.
    pub copies: bool,
    /// Dependent launches.
    pub dependent: bool,
}

impl Shape {
    /// A bit of everything.
    pub const ALL: Shape = Shape {
        kernels: 3,
        streams: 2,
        devices: 2,
        ctas: 3,
        threads: 2,
        granules: 3,
        ops: 6,
        apart: false,
        own_sites: false,
        barriers: true,
        copies: true,
        dependent: true,
    };

    /// One kernel whose CTAs have one thread each: what the unit of the detector does not change.
    pub const ONE_KERNEL: Shape = Shape {
        kernels: 1,
        streams: 1,
        devices: 1,
        ctas: 3,
        threads: 1,
        granules: 2,
        ops: 8,
        apart: false,
        own_sites: true,
        barriers: false,
        copies: false,
        dependent: false,
    };
}

/// A program and the choices of a schedule, for [`execute`](super::execution::execute).
#[derive(Clone, Debug)]
pub struct Case {
    /// The program.
    pub program: Program,
    /// Which of the possible steps is taken next.
    pub schedule: Vec<u16>,
}

/// Random programs with random schedules.
pub fn cases(shape: Shape) -> impl Strategy<Value = Case> {
    let schedule = prop::collection::vec(any::<u16>(), 0..160);
    (programs(shape), schedule).prop_map(|(program, schedule)| Case { program, schedule })
}

/// Random programs.
pub fn programs(shape: Shape) -> impl Strategy<Value = Program> {
    let kernel = (prop::collection::vec(host_op(shape), 0..3), kernel(shape));
    prop::collection::vec(kernel, 1..=shape.kernels).prop_map(move |parts| {
        let mut program = Program::default();
        for (number, (before, mut kernel)) in parts.into_iter().enumerate() {
            kernel.launch.id = LaunchId(number as u32);
            program.host.extend(before.into_iter().map(HostOp::Host));
            program.host.push(HostOp::Launch(number));
            program.kernels.push(kernel);
        }
        if shape.own_sites {
            let threads = program.kernels.iter_mut().flat_map(|k| &mut k.threads);
            let ops = threads.flat_map(|thread| &mut thread.ops);
            for (number, op) in ops.enumerate() {
                op.site = SiteId(number as u32 + 1);
            }
        }
        program
    })
}

fn host_op(shape: Shape) -> impl Strategy<Value = HostEvent> {
    let stream = (0..shape.streams).prop_map(StreamId);
    let event = 0u32..2;
    prop_oneof![
        3 => (event.clone(), stream.clone())
            .prop_map(|(event, stream)| HostEvent::Record { event, stream }),
        3 => (event.clone(), stream.clone())
            .prop_map(|(event, stream)| HostEvent::Wait { event, stream }),
        1 => stream.prop_map(HostEvent::SyncStream),
        1 => event.prop_map(HostEvent::SyncEvent),
        1 => (0..shape.devices).prop_map(|d| HostEvent::SyncDevice(DeviceRank(d as u16))),
    ]
}

fn kernel(shape: Shape) -> impl Strategy<Value = Kernel> {
    let dependent = prop::bool::weighted(if shape.dependent { 0.3 } else { 0.0 });
    (
        0..shape.streams,
        1..=shape.ctas,
        1..=shape.threads,
        dependent,
    )
        .prop_flat_map(move |(stream, ctas, threads, programmatic)| {
            let cluster = if ctas >= 2 { 2 } else { 1 };
            let launch = Launch {
                id: LaunchId(0),
                device: DeviceRank((stream % shape.devices) as u16),
                stream: StreamId(stream),
                ctas: ctas.next_multiple_of(cluster),
                threads,
                cluster,
                programmatic,
            };
            let draft = prop::collection::vec((1u32..=4, draft(shape)), 0..=shape.ops);
            let count = (ctas * threads) as usize;
            prop::collection::vec(draft, count).prop_map(move |drafts| Kernel {
                threads: codes(drafts, threads),
                launch: launch.clone(),
            })
        })
}

/// An operation whose numbers may still name nothing.
#[derive(Clone, Copy, Debug)]
enum Draft {
    Op(OpKind),
    Barrier,
    Wait(usize, Completion),
    Complete(usize),
}

/// The mbarrier of each CTA, in its shared memory.
const MBARRIER: u64 = 0x100;

/// Makes drafts into code that never names a copy before its issue and in which all threads of a
/// CTA meet at as many barriers.
fn codes(drafts: Vec<Vec<(u32, Draft)>>, threads: u32) -> Vec<Code> {
    let barriers = |thread: &Vec<(u32, Draft)>| {
        let is_barrier = |draft: &&(u32, Draft)| matches!(draft.1, Draft::Barrier);
        thread.iter().filter(is_barrier).count()
    };
    let mut codes = Vec::new();
    for (cta, drafts) in drafts.chunks(threads as usize).enumerate() {
        let rounds = drafts.iter().map(barriers).min().unwrap_or(0);
        for (index, thread) in drafts.iter().enumerate() {
            let (mut met, mut issued, mut ops) = (0, 0, Vec::new());
            for &(site, draft) in thread {
                let mut push = |kind| {
                    ops.push(Op {
                        site: SiteId(site),
                        kind,
                    });
                };
                match draft {
                    Draft::Op(OpKind::Issue {
                        to, from, proxy, ..
                    }) => {
                        push(OpKind::Issue {
                            copy: issued,
                            to,
                            from,
                            proxy,
                        });
                        issued += 1;
                    }
                    Draft::Op(kind) => push(kind),
                    Draft::Barrier if met < rounds => {
                        met += 1;
                        let at = At::CtaBarrier {
                            id: 0,
                            count: threads,
                        };
                        push(OpKind::Arrive { at, releases: true });
                        push(OpKind::Leave { at, acquires: true });
                    }
                    Draft::Wait(copy, completion) if issued > 0 => push(OpKind::Wait {
                        copy: copy as u32 % issued,
                        completion,
                    }),
                    Draft::Complete(copy) if issued > 0 => push(OpKind::Complete {
                        copy: copy as u32 % issued,
                        at: At::Mbarrier {
                            owner: cta as u32,
                            offset: MBARRIER,
                            count: 1,
                        },
                    }),
                    Draft::Barrier | Draft::Wait(..) | Draft::Complete(_) => {}
                }
            }
            codes.push(Code {
                cta: cta as u32,
                index: index as u32,
                ops,
            });
        }
    }
    // Each thread's arrivals and waits at the mbarrier were drafted for CTA 0.
    for code in &mut codes {
        for op in &mut code.ops {
            if let OpKind::Arrive { at, .. } | OpKind::Leave { at, .. } = &mut op.kind
                && let At::Mbarrier { owner, .. } = at
            {
                *owner = code.cta;
            }
        }
    }
    codes
}

fn draft(shape: Shape) -> BoxedStrategy<Draft> {
    let op = |strategy: BoxedStrategy<OpKind>| strategy.prop_map(Draft::Op).boxed();
    let mut choices = vec![
        (8, op(weak(shape))),
        (8, op(strong(shape))),
        (3, op(fence())),
    ];
    if shape.barriers {
        let at = At::Mbarrier {
            owner: 0,
            offset: MBARRIER,
            count: 1,
        };
        let arrive = Draft::Op(OpKind::Arrive { at, releases: true });
        let leave = Draft::Op(OpKind::Leave { at, acquires: true });
        choices.push((3, Just(Draft::Barrier).boxed()));
        choices.push((1, Just(arrive).boxed()));
        choices.push((1, Just(leave).boxed()));
    }
    if shape.copies {
        let issue = (
            place(shape, Access::Weak),
            place(shape, Access::Weak),
            prop_oneof![Just(Proxy::Generic), Just(Proxy::Async)],
        );
        let issue = issue.prop_map(|(to, from, proxy)| OpKind::Issue {
            copy: 0,
            to,
            from,
            proxy,
        });
        let completion = prop_oneof![Just(Completion::Full), Just(Completion::ReadsOnly)];
        let wait = (0usize..4, completion).prop_map(|(copy, how)| Draft::Wait(copy, how));
        let proxy_fence = OpKind::Fence {
            kind: FenceKind::ProxyAsync,
            scope: Scope::Cta,
        };
        choices.push((2, op(issue.boxed())));
        choices.push((2, wait.boxed()));
        choices.push((1, (0usize..4).prop_map(Draft::Complete).boxed()));
        choices.push((1, Just(Draft::Op(proxy_fence)).boxed()));
    }
    if shape.dependent {
        choices.push((1, Just(Draft::Op(OpKind::GridDependencyWait)).boxed()));
    }
    prop::strategy::Union::new_weighted(choices).boxed()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Weak,
    Strong,
}

fn place(shape: Shape, access: Access) -> impl Strategy<Value = Place> {
    const BASE: u64 = 0x1000;
    let granules = match access {
        _ if !shape.apart => 0..shape.granules,
        Access::Strong => 0..1,
        Access::Weak => 1..shape.granules,
    };
    let bytes = prop_oneof![1 => Just(1u32), 1 => Just(2), 6 => Just(4), 2 => Just(8)];
    let shared = prop::bool::weighted(0.1);
    (granules, bytes, 0..GRANULE, shared).prop_map(|(granule, bytes, offset, shared)| Place {
        memory: if shared {
            Memory::OwnShared
        } else {
            Memory::Global
        },
        address: BASE + granule * GRANULE + offset / u64::from(bytes) * u64::from(bytes),
        bytes,
    })
}

fn weak(shape: Shape) -> BoxedStrategy<OpKind> {
    let verb = prop_oneof![
        Just(Verb::Load { expect: None }),
        (1u64..3).prop_map(Verb::Store)
    ];
    (verb, place(shape, Access::Weak))
        .prop_map(|(verb, place)| OpKind::Access {
            verb,
            order: Order::Weak,
            scope: Scope::Cta,
            place,
        })
        .boxed()
}

fn scopes() -> impl Strategy<Value = Scope> {
    prop_oneof![
        1 => Just(Scope::Cta),
        1 => Just(Scope::Cluster),
        4 => Just(Scope::Gpu),
        2 => Just(Scope::Sys),
    ]
}

fn strong(shape: Shape) -> BoxedStrategy<OpKind> {
    use Order::{AcqRel, Acquire, Relaxed, Release};
    let load = prop_oneof![4 => Just(None), 1 => (0u64..3).prop_map(Some)];
    let verb_and_order = prop_oneof![
        3 => (
            load.prop_map(|expect| Verb::Load { expect }),
            select(&[Relaxed, Acquire][..])
        ),
        3 => (
            (1u64..3).prop_map(Verb::Store),
            select(&[Relaxed, Release][..])
        ),
        3 => (
            Just(Verb::Add { value: 1, expect: None }),
            select(&[Relaxed, Acquire, Release, AcqRel][..])
        ),
        1 => (
            Just(Verb::Reduce(1)),
            select(&[Relaxed, Release][..])
        ),
        1 => (
            (0u64..3).prop_map(|compare| Verb::Swap {
                compare,
                value: 1,
                must_swap: false,
            }),
            select(&[Relaxed, Acquire, Release, AcqRel][..])
        ),
    ];
    (verb_and_order, scopes(), place(shape, Access::Strong))
        .prop_map(|((verb, order), scope, place)| OpKind::Access {
            verb,
            order,
            scope,
            place,
        })
        .boxed()
}

fn fence() -> BoxedStrategy<OpKind> {
    let kinds = &[
        FenceKind::AcqRel,
        FenceKind::Acquire,
        FenceKind::Release,
        FenceKind::Sc,
    ][..];
    (select(kinds), scopes())
        .prop_map(|(kind, scope)| OpKind::Fence { kind, scope })
        .boxed()
}
