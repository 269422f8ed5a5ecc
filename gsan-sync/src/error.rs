//! What can go wrong between a program's calls and what its kernels are told.

use gsan_core::compressed::topology::TopologyError;
use gsan_core::ids::DeviceRank;
use gsan_core::layout::ShapeError;
use gsan_vmm::backend::{BackendError, Device};

use crate::stream::{Begun, StreamKey};

/// A call that was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device has no rank in the topology.
    #[error("{device} has no device rank: {known} devices of this process have one")]
    UnknownDevice {
        /// The device.
        device: Device,
        /// How many devices have a rank.
        known: usize,
    },
    /// Nobody has opened the stream.
    #[error("stream {:#x} of {} is not known: open it before its first use", .0.handle, .0.device)]
    UnknownStream(StreamKey),
    /// The stream was opened before, as another kind.
    #[error("stream {:#x} of {} is open already, as another kind of stream", .0.handle, .0.device)]
    StreamDiffers(StreamKey),
    /// This thread has begun a launch or a replay on the stream and has not finished it.
    #[error(
        "{} was begun and not finished: finish it before the next call on {}", told(*.begun, .on),
        if .on == .stream { "that stream".into() } else { named(.stream) + ", which waits for it" }
    )]
    LaunchUnfinished {
        /// The stream.
        stream: StreamKey,
        /// What was begun.
        begun: Begun,
        /// Which stream it was begun on.
        on: StreamKey,
    },
    /// Another thread has begun a launch or a replay on the stream, and does not finish it.
    #[error("{} cannot be used: {thread} has begun {}, and {why}", named(.stream), told(*.begun, .on))]
    StreamHeld {
        /// The stream.
        stream: StreamKey,
        /// What was begun.
        begun: Begun,
        /// Which stream it was begun on.
        on: StreamKey,
        /// The other thread.
        thread: String,
        /// Why it is not waited for any longer.
        why: Held,
    },
    /// The launch was finished before.
    #[error("launch {number} was finished already")]
    LaunchFinished {
        /// Its number.
        number: u32,
    },
    /// A rank of the group is not known here.
    #[error("device rank {0} has no state in this process: exchange states with its process first")]
    RankMissing(DeviceRank),
    /// A rank was named twice.
    #[error("rank {0} is named twice among the ranks of the group: each has one place")]
    RankTwice(DeviceRank),
    /// The device is in a group already.
    #[error("{0} is in a group already")]
    GroupExists(Device),
    /// The device's own rank is not among those of the group.
    #[error("rank {rank} of {device} is not among the ranks of the group")]
    NotInGroup {
        /// The device.
        device: Device,
        /// Its rank.
        rank: DeviceRank,
    },
    /// Ranks did not come to a barrier in time.
    #[error("a barrier was left after {limit:?}: {} did not come", list(missing))]
    BarrierTimeout {
        /// The ranks that did not come.
        missing: Vec<DeviceRank>,
        /// The time limit.
        limit: std::time::Duration,
    },
    /// The configuration was used already.
    #[error(
        "the configuration is fixed since its first use ({since}): change it before, or after a \
         reset"
    )]
    Frozen {
        /// What used it first.
        since: &'static str,
    },
    /// Allocations are live.
    #[error(
        "{count} {} live, {bytes} bytes in all, the first at {first:#x}: free all before a reset",
        if *count == 1 { "allocation is" } else { "allocations are" }
    )]
    LiveAllocations {
        /// How many.
        count: usize,
        /// Their bytes.
        bytes: u64,
        /// The address of one.
        first: u64,
    },
    /// Graphs are not closed, or not finished.
    #[error(
        "{} before a reset", both(
            (*graphs, "graph is not closed: close it", "graphs are not closed: close them"),
            (*builders, "graph is being built: finish it, and close it", "graphs are being built: finish them, and close them"),
        )
    )]
    LiveGraphs {
        /// How many can be replayed.
        graphs: usize,
        /// How many are being built.
        builders: usize,
    },
    /// Groups are open.
    #[error("{} in a group: leave it before a reset", list_devices(.0))]
    OpenGroups(Vec<Device>),
    /// Work is still running.
    #[error("stream {:#x} of {} still has work: wait for it before a reset", .0.handle, .0.device)]
    StillRunning(StreamKey),
    /// A node of a graph depends on one that comes later, or on itself, or on one of another graph.
    #[error("node {node} depends on node {on}, which is not there yet: {known} nodes are")]
    BadNode {
        /// The node.
        node: usize,
        /// What it depends on.
        on: usize,
        /// How many nodes there are.
        known: usize,
    },
    /// A node depends on another one by an ordinary and by a programmatic edge.
    #[error(
        "node {node} depends on node {on} twice: what comes after it by an ordinary edge waits for it, and \
         needs no programmatic one"
    )]
    TwoEdges {
        /// The node.
        node: usize,
        /// What it depends on.
        on: usize,
    },
    /// A replay of the graph still runs.
    #[error("the graph is in flight: wait for its stream before closing it")]
    GraphInFlight,
    /// A replay was begun and has not been finished.
    #[error(
        "a replay of the graph{} is in flight: it was begun and not finished. Finish it before {next}",
        if *shared { ", or of one that has kernels in common with it," } else { "" }
    )]
    ReplayUnfinished {
        /// It may be a replay of a graph that has kernels in common with this one.
        shared: bool,
        /// What it comes before.
        next: &'static str,
    },
    /// The graph was closed or became part of another one.
    #[error("the graph {0} and cannot be used any more")]
    GraphGone(&'static str),
    /// The graph has kernels of another device than the one that it is to be part of.
    #[error("the graph has kernels of {of}, and cannot become part of one of {device}")]
    GraphElsewhere {
        /// The device of its kernels.
        of: Device,
        /// That of the other graph.
        device: Device,
    },
    /// The stream is being captured.
    #[error(
        "stream {:#x} of {} is being captured, and {what} cannot become part of a graph", .key.handle,
        .key.device
    )]
    Captured {
        /// The stream.
        key: StreamKey,
        /// What it was to be given.
        what: &'static str,
    },
    /// A launch was said to be captured, and the capture holds no new kernel.
    #[error(
        "the capture of stream {:#x} of {} holds no new kernel after a launch: it was given to another \
         stream, or the capture was ended before the launch was finished", .0.handle, .0.device
    )]
    NotCaptured(StreamKey),
    /// The replay was finished before.
    #[error("this replay was finished already")]
    ReplayFinished,
    /// There is no memory for the graph's rows.
    #[error(
        "no room for the clock rows of a graph of {nodes} kernels on {device}; make \
         clock.snapshot_memory or clock.private_memory smaller"
    )]
    NoRoomForGraph {
        /// How many kernels it has.
        nodes: usize,
        /// The device.
        device: Device,
    },
    /// Two devices were given the same rank, or one outside the topology.
    #[error(
        "topology.device_ranks gives {device} the rank {rank}, which is {why}; each device needs \
         a rank of its own below topology.num_devices = {devices}"
    )]
    BadRank {
        /// The device.
        device: Device,
        /// The rank it was given.
        rank: DeviceRank,
        /// What is wrong with it.
        why: &'static str,
        /// How many devices the topology has.
        devices: u32,
    },
    /// There is not one site mirror for each device.
    #[error("{mirrors} site mirrors for {devices} devices: each needs its own, or 0")]
    SiteMirrors {
        /// How many were given.
        mirrors: usize,
        /// How many devices this process has.
        devices: usize,
    },
    /// Rows do not fit into the state region.
    #[error(
        "{room} bytes are left for clock rows on {device}, {least} are needed; make \
         clock.snapshot_memory or clock.private_memory smaller"
    )]
    NoRoomForRows {
        /// The device.
        device: Device,
        /// Bytes left in its state region.
        room: u64,
        /// Bytes that a single stream needs.
        least: u64,
    },
    /// The thread ids cannot be divided.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The state region cannot be laid out.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] gsan_vmm::Error),
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Why a stream that another thread keeps is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// The other thread waits, perhaps by way of others, for a stream that this one keeps.
    #[error(
        "waits for what this thread has begun and not finished: both would wait for ever. Finish one \
         launch or replay before the next call"
    )]
    Crosswise,
    /// The other thread is gone.
    #[error("has ended without finishing it: any thread can do that")]
    ThreadEnded,
    /// The other thread takes too long.
    #[error("has not finished it in {0:?}")]
    TooLong(std::time::Duration),
}

fn named(stream: &StreamKey) -> String {
    format!("stream {:#x} of {}", stream.handle, stream.device)
}

fn told(begun: Begun, on: &StreamKey) -> String {
    let what = match begun {
        Begun::Launch => "a launch",
        Begun::Replay => "a replay",
        Begun::Call => "a call",
    };
    format!("{what} on {}", named(on))
}

fn both(graphs: (usize, &str, &str), builders: (usize, &str, &str)) -> String {
    let said = |(count, one, more): (usize, &str, &str)| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {more}")),
    };
    let all: Vec<String> = [graphs, builders].into_iter().filter_map(said).collect();
    all.join(", and ")
}

fn list_devices(devices: &[Device]) -> String {
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

fn list(ranks: &[DeviceRank]) -> String {
    let names: Vec<String> = ranks.iter().map(|rank| format!("rank {rank}")).collect();
    names.join(", ")
}
