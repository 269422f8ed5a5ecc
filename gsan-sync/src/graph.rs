//! Graphs of launches: plans, by capture or by hand, and their replays.
//!
//! A plan has a descriptor for each kernel node, in device memory, because the node's arguments name it
//! once and for all. What a node starts after is the same in every replay, so its rows are, too:
//!
//! - A node has a bank, in which the nodes before it in that bank are ordered before it, and a row
//!   for its completion. Its frontier is the row of the node before it in its own bank, and for each
//!   other bank the row of the last node there that is ordered before it.
//! - Where there is no such node, it is the *baseline*: a row over all ids into which everything that
//!   the stream knows is merged right before a replay. Its part for a bank is a row of that bank.
//! - What nodes acquire from outside goes into one row over all ids that the whole plan shares. So
//!   branches may count such things as ordered that only another branch acquired.
//! - Right after a replay the last rows of each bank are merged into rows that the stream's next launch
//!   names, and into the baseline. These rows are the stream's, one lineage for each bank, so that nothing
//!   of a graph stays when it is gone.
//!
//! A graph may contain copies of other graphs. A copy of a kernel has the same arguments, so it finds the
//! same descriptor: whoever replays writes the descriptors of the copies first, unless they are as it left
//! them, and waits for the others' replays before that ([`Home`]).
//!
//! When two rows of one bank would have to be named (banks have run out, or launches overtake each
//! other), the bank becomes *loose*: all its nodes share one row, which can only lose reports.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytemuck::Zeroable;
use gsan_core::launch_log::LaunchRecord;
use gsan_core::layout::{LaunchDescriptor, LaunchState, Overtaken, launch_flags};
use gsan_vmm::backend::{Backend, CaptureStatus, Device, FenceId};

use crate::blocks::{MOST_NUMBERS, MOST_OVERTAKEN};
use crate::capture::CapturedReplay;
use crate::error::Error;
use crate::host::Point;
use crate::kernels::Step;
use crate::launch::{LaunchInfo, release};
use crate::ordering::{AtomicCounts, DeviceState, Inner, Ordering};
use crate::rows::{Area, Completion, Knowledge, Pair};
use crate::state::{Region, entries};
use crate::stream::{Begun, OutOfRows, Stream, StreamKey, StreamState};

/// A node of a graph, in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// Descriptors that share a table.
const CHUNK: usize = 64;

/// How many of a plan's areas hold rows and launch states, which a restart clears.
const ROW_AREAS: usize = 4;

/// What a replay that was begun comes before.
const NEXT_REPLAY: &str = "the next one";

const DESCRIPTOR: u64 = size_of::<LaunchDescriptor>() as u64;
const STATE: u64 = size_of::<LaunchState>() as u64;

/// A graph that is being built.
pub struct PlanBuilder {
    inner: Arc<Inner>,
    device: usize,
    nodes: Vec<Node>,
    descriptors: Descriptors,
    kernels: usize,
    _counted: Counted,
}

/// Counts a graph that is being built.
struct Counted(Arc<Inner>);

impl Counted {
    fn new(inner: &Arc<Inner>) -> Counted {
        inner.builders.fetch_add(1, Relaxed);
        Counted(Arc::clone(inner))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.builders.fetch_sub(1, Relaxed);
    }
}

/// Descriptors for kernels, before they are nodes. Until one belongs to a graph that can be replayed,
/// launches with it are unchecked.
#[derive(Default)]
pub(crate) struct Descriptors {
    chunks: Vec<Arc<Area>>,
    /// How many of the chunks are taken.
    taken: usize,
}

impl Descriptors {
    /// One for a kernel of a device; `None` when there is no memory.
    pub(crate) fn reserve(
        &mut self,
        device: &DeviceState,
        info: &LaunchInfo,
    ) -> Option<KernelNode> {
        if self.taken == self.chunks.len() * CHUNK {
            let chunk = device.rows.lend(CHUNK as u64 * DESCRIPTOR)?;
            self.chunks.push(Arc::new(chunk));
        }
        let chunk = Arc::clone(&self.chunks[self.taken / CHUNK]);
        let index = self.taken % CHUNK;
        self.taken += 1;
        Some(KernelNode {
            info: *info,
            chunk,
            index,
            home: None,
        })
    }

    /// Takes one back that became no node, if it is the newest.
    pub(crate) fn take_back(&mut self, kernel: &KernelNode) {
        let last = self.taken - 1;
        if Arc::ptr_eq(&kernel.chunk, &self.chunks[last / CHUNK]) && kernel.index == last % CHUNK {
            self.taken = last;
        }
    }
}

#[derive(Clone)]
struct Node {
    dependencies: Vec<usize>,
    programmatic: Vec<usize>,
    role: Role,
}

#[derive(Clone)]
enum Role {
    Kernel(KernelNode),
    /// Copies, memsets, host functions: they carry order.
    Other,
    /// Records an event at each replay.
    Record(u64),
    /// Waits for an event at each replay.
    Wait(u64),
}

/// A kernel, and its descriptor.
#[derive(Clone)]
pub(crate) struct KernelNode {
    info: LaunchInfo,
    chunk: Arc<Area>,
    index: usize,
    /// The graph that it was made for, once that can be replayed.
    home: Option<Arc<Home>>,
}

/// The descriptors of one graph, which others that contain copies of its kernels write, too.
struct Home {
    backend: Arc<dyn Backend>,
    /// The graph itself.
    plan: Weak<Plan>,
    state: Mutex<HomeState>,
}

#[derive(Default)]
struct HomeState {
    /// For whose replays the descriptors are written, if they are not for the graph's own: the plan's number.
    written_for: Option<u32>,
    /// A replay of a graph that contains copies was begun and not finished.
    begun: bool,
    /// Behind the newest one.
    fence: Option<FenceId>,
}

impl Home {
    fn state(&self) -> MutexGuard<'_, HomeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(fence) = state.fence.take() {
            self.backend.forget(fence);
        }
    }
}

impl KernelNode {
    pub(crate) fn arguments(&self) -> NodeArguments {
        NodeArguments {
            table: self.chunk.address,
            index: self.index as u64,
        }
    }

    fn address(&self) -> u64 {
        self.chunk.address + self.index as u64 * DESCRIPTOR
    }
}

/// What a kernel node's launch is given: where the descriptors are, and which is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeArguments {
    /// Where the kernel finds the descriptors.
    pub table: u64,
    /// The launch index.
    pub index: u64,
}

impl Ordering {
    /// Starts a graph whose kernels run on `device`.
    ///
    /// # Errors
    /// When the device has no rank.
    pub fn begin_plan(&self, device: Device) -> Result<PlanBuilder, Error> {
        let place = self.inner.place(device)?;
        Ok(PlanBuilder::new(&self.inner, place))
    }
}

impl PlanBuilder {
    pub(crate) fn new(inner: &Arc<Inner>, device: usize) -> PlanBuilder {
        PlanBuilder {
            inner: Arc::clone(inner),
            device,
            nodes: Vec::new(),
            descriptors: Descriptors::default(),
            kernels: 0,
            _counted: Counted::new(inner),
        }
    }

    /// Adds a kernel. It starts after `dependencies`; of those in `programmatic` it starts when they
    /// let it. Returns what its launch is given.
    ///
    /// # Errors
    /// When a dependency is not there or in both lists, or there is no memory.
    pub fn kernel(
        &mut self,
        dependencies: &[NodeId],
        programmatic: &[NodeId],
        info: &LaunchInfo,
    ) -> Result<(NodeId, NodeArguments), Error> {
        self.check(dependencies)?;
        self.check(programmatic)?;
        if let Some(on) = programmatic.iter().find(|on| dependencies.contains(on)) {
            return Err(Error::TwoEdges {
                node: self.nodes.len(),
                on: on.0,
            });
        }
        let device = &self.inner.devices[self.device];
        let kernel = self.descriptors.reserve(device, info);
        let kernel = kernel.ok_or_else(|| self.no_room())?;
        let arguments = kernel.arguments();
        let node = self.reserved_kernel(dependencies, programmatic, kernel);
        Ok((node, arguments))
    }

    /// Adds a kernel whose descriptor was reserved. The dependencies are there.
    pub(crate) fn reserved_kernel(
        &mut self,
        dependencies: &[NodeId],
        programmatic: &[NodeId],
        kernel: KernelNode,
    ) -> NodeId {
        self.kernels += 1;
        self.add(dependencies, programmatic, Role::Kernel(kernel))
    }

    /// Adds a node that is no kernel: a copy, a memset, a host function, an empty node.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn other(&mut self, dependencies: &[NodeId]) -> Result<NodeId, Error> {
        self.check(dependencies)?;
        Ok(self.add(dependencies, &[], Role::Other))
    }

    /// Adds a node that records an event at each replay.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn record(&mut self, dependencies: &[NodeId], event: u64) -> Result<NodeId, Error> {
        self.check(dependencies)?;
        Ok(self.add(dependencies, &[], Role::Record(event)))
    }

    /// Adds a node that waits at each replay for the newest record of an event before it. The whole
    /// graph counts as ordered after the event.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn wait(&mut self, dependencies: &[NodeId], event: u64) -> Result<NodeId, Error> {
        self.check(dependencies)?;
        Ok(self.add(dependencies, &[], Role::Wait(event)))
    }

    /// Adds all nodes of another graph, which is part of this one from now on. Returns a node that
    /// comes after all of them.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn child(&mut self, dependencies: &[NodeId], child: PlanBuilder) -> Result<NodeId, Error> {
        self.check(dependencies)?;
        self.kernels += child.kernels;
        Ok(self.splice(dependencies, child.nodes))
    }

    /// Adds a copy of a graph that can be replayed. Returns a node that comes after all of it. A kernel of
    /// which there are several copies is unchecked here: they cannot be told apart.
    ///
    /// # Errors
    /// When a dependency is not there, or the graph was closed or is one of another device.
    pub fn graph(&mut self, dependencies: &[NodeId], graph: &Arc<Plan>) -> Result<NodeId, Error> {
        self.check(dependencies)?;
        graph.can_be_copied_to(&self.inner, self.device)?;
        Ok(self.copy(dependencies, graph))
    }

    /// The same of a graph that can be copied, or could when it was captured.
    pub(crate) fn copy(&mut self, dependencies: &[NodeId], graph: &Plan) -> NodeId {
        self.kernels += graph.kernels();
        self.splice(dependencies, graph.nodes.clone())
    }

    /// Adds nodes, those that come after none of them after `dependencies`. Returns a node that comes
    /// after all.
    fn splice(&mut self, dependencies: &[NodeId], nodes: Vec<Node>) -> NodeId {
        let first = self.nodes.len();
        for node in nodes {
            let mut before: Vec<usize> = node.dependencies.iter().map(|d| d + first).collect();
            let programmatic: Vec<usize> = node.programmatic.iter().map(|d| d + first).collect();
            if before.is_empty() && programmatic.is_empty() {
                before.extend(dependencies.iter().map(|d| d.0));
            }
            self.nodes.push(Node {
                dependencies: before,
                programmatic,
                role: node.role,
            });
        }
        let all: Vec<NodeId> = (first..self.nodes.len()).map(NodeId).collect();
        let ends = if all.is_empty() { dependencies } else { &all };
        self.add(ends, &[], Role::Other)
    }

    /// Something in the graph orders its kernels in a way that is not known.
    pub(crate) fn all_are_opaque(&mut self) {
        for node in &mut self.nodes {
            if let Role::Kernel(kernel) = &mut node.role {
                kernel.info.opaque = true;
            }
        }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn add(&mut self, dependencies: &[NodeId], programmatic: &[NodeId], role: Role) -> NodeId {
        let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
        self.nodes.push(Node {
            dependencies: numbers(dependencies),
            programmatic: numbers(programmatic),
            role,
        });
        NodeId(self.nodes.len() - 1)
    }

    fn check(&self, dependencies: &[NodeId]) -> Result<(), Error> {
        let known = self.nodes.len();
        match dependencies.iter().find(|on| on.0 >= known) {
            Some(on) => Err(Error::BadNode {
                node: known,
                on: on.0,
                known,
            }),
            None => Ok(()),
        }
    }

    fn no_room(&self) -> Error {
        Error::NoRoomForGraph {
            nodes: self.kernels,
            device: self.inner.devices[self.device].region.device,
        }
    }

    /// Chooses banks and rows, and writes the descriptors. The graph can be replayed then.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn finish(mut self) -> Result<Arc<Plan>, Error> {
        let ambiguous = self.leave_ambiguous_kernels_out();
        let device = &self.inner.devices[self.device];
        let mut banks = Vec::new();
        let shape = Shape::new(&self.nodes, || {
            let taken = device.banks().take(|left| self.inner.host.knows(left));
            banks.push(taken.0);
            taken
        });
        let made = self.lay_out(&shape);
        let layout = made.inspect_err(|_| {
            for &bank in &banks {
                device.banks().give_back(bank, &Knowledge::default());
            }
        })?;
        let plan_banks = shape
            .banks
            .iter()
            .map(|bank| PlanBank {
                bank: bank.bank,
                last: bank.last.iter().map(|&node| layout.rows[&node]).collect(),
            })
            .collect();
        let mut foreign_homes: Vec<Arc<Home>> = Vec::new();
        let mut place = |home: Option<Arc<Home>>| {
            let home = home?;
            let known = foreign_homes
                .iter()
                .position(|known| Arc::ptr_eq(known, &home));
            Some(known.unwrap_or_else(|| {
                foreign_homes.push(home);
                foreign_homes.len() - 1
            }))
        };
        let ambiguous = ambiguous.into_iter().map(|kernel| {
            let nothing = Box::from([0; DESCRIPTOR as usize / 8].as_slice());
            (kernel, nothing)
        });
        let kernels: Vec<KernelNode> = self
            .nodes
            .iter()
            .filter_map(Node::kernel)
            .cloned()
            .collect();
        let described = kernels.iter().cloned().zip(layout.descriptors);
        let described = described.chain(ambiguous).map(|(kernel, words)| Described {
            address: kernel.address(),
            home: place(kernel.home),
            words,
        });
        let described = described.collect();
        let plan = Arc::new_cyclic(|plan| {
            let home = Arc::new(Home {
                backend: Arc::clone(&self.inner.backend),
                plan: Weak::clone(plan),
                state: Mutex::default(),
            });
            let mut nodes = self.nodes.clone();
            for node in &mut nodes {
                if let Role::Kernel(kernel) = &mut node.role {
                    kernel.home.get_or_insert_with(|| Arc::clone(&home));
                }
            }
            Plan {
                number: self.inner.new_lineage(),
                nodes,
                home,
                foreign_homes,
                described,
                kernels,
                events: self.external(&shape, &layout.rows),
                waits: self
                    .nodes
                    .iter()
                    .filter_map(|node| match node.role {
                        Role::Wait(event) => Some(event),
                        _ => None,
                    })
                    .collect(),
                inner: Arc::clone(&self.inner),
                device: self.device,
                banks: plan_banks,
                taken_banks: banks,
                memory: layout.memory,
                baseline: layout.baseline,
                foreign: layout.foreign,
                states: layout.states,
                state: Mutex::new(PlanState::default()),
            }
        });
        let mut plans = self.inner.plans();
        plans.retain(|plan| plan.strong_count() > 0);
        plans.push(Arc::downgrade(&plan));
        drop(plans);
        Ok(plan)
    }

    /// The events that are recorded, and the rows that hold what comes before each.
    fn external(&self, shape: &Shape, rows: &BTreeMap<usize, u64>) -> Vec<(u64, Vec<ExternalRow>)> {
        let records = self.nodes.iter().enumerate();
        records
            .filter_map(|(at, node)| match node.role {
                Role::Record(event) => {
                    let tops = shape.tops(at).into_iter();
                    let rows = tops.flat_map(|(bank, tops)| {
                        let row = move |node| ExternalRow {
                            bank,
                            row: rows[&node],
                        };
                        tops.into_iter().map(row)
                    });
                    Some((event, rows.collect()))
                }
                _ => None,
            })
            .collect()
    }

    fn lay_out(&self, shape: &Shape) -> Result<Layout, Error> {
        let device = &self.inner.devices[self.device];
        let region = &device.region;
        let lend = |bytes| device.rows.lend(bytes).ok_or_else(|| self.no_room());
        let row_of = shape.rows();
        let rows = row_of.values().max().map_or(0, |last| last + 1);
        let row_memory = lend(rows as u64 * region.own_bytes() + 128)?;
        let baseline = lend(region.foreign_bytes())?;
        let foreign = lend(region.foreign_bytes())?;
        let kernels = self.kernels as u64;
        let states = lend(kernels * STATE + 128)?;
        let tables = lend(kernels * region.table_bytes() + 128)?;
        let list_bytes = (MOST_OVERTAKEN * size_of::<Overtaken>()) as u64;
        let chained = shape.overtaken.values().filter(|list| !list.is_empty());
        let lists = lend(chained.count() as u64 * list_bytes + 128)?;
        let rows: BTreeMap<usize, u64> = row_of
            .into_iter()
            .map(|(node, row)| (node, row_memory.address + row as u64 * region.own_bytes()))
            .collect();
        let mut layout = Layout {
            descriptors: Vec::new(),
            baseline: baseline.address,
            foreign: foreign.address,
            states: states.address,
            rows,
            memory: [row_memory, baseline, foreign, states, tables, lists]
                .map(Arc::new)
                .into(),
        };
        layout.descriptors = self.describe(shape, &layout)?;
        Ok(layout)
    }

    /// Writes the tables of the kernels, and the descriptors of those that no other graph has. Returns all
    /// descriptors.
    fn describe(&self, shape: &Shape, layout: &Layout) -> Result<Vec<Box<[u64]>>, Error> {
        let mut descriptors = Vec::new();
        let device = &self.inner.devices[self.device];
        let region = &device.region;
        let backend = &self.inner.backend;
        let (tables, lists) = (layout.memory[4].address, layout.memory[5].address);
        let mut state_of = BTreeMap::new();
        let mut listed = 0;
        let baseline = |bank| entries(layout.baseline) + 4 * u64::from(region.bank_first(bank));
        let kernel_nodes = self.nodes.iter().enumerate();
        let kernels = kernel_nodes.filter_map(|(at, node)| match &node.role {
            Role::Kernel(kernel) => Some((at, kernel)),
            _ => None,
        });
        for (order, (at, kernel)) in kernels.enumerate() {
            let state = layout.states + order as u64 * STATE;
            state_of.insert(at, (state, ctas(&kernel.info)));
            let own_bank = shape.bank_of[&at];
            let bank = &shape.banks[own_bank];
            let mut table: Vec<u64> = (0..region.topology.banks()).map(baseline).collect();
            table[bank.bank as usize] = 0;
            let mut own_row = baseline(bank.bank);
            for (other, tops) in shape.tops(at) {
                let named = &mut table[shape.banks[other].bank as usize];
                let mut rows = tops.iter().map(|node| layout.rows[node]);
                if other == own_bank {
                    own_row = rows.next().unwrap_or(own_row);
                }
                *named = rows.next().unwrap_or(*named);
            }
            let table_at = tables + order as u64 * region.table_bytes();
            backend.write(region.device, table_at, bytemuck::cast_slice(&table))?;

            let mut list: Vec<Overtaken> = Vec::new();
            for node in &shape.overtaken[&at] {
                let (state, ctas) = state_of[node];
                list.push(Overtaken {
                    own_row: layout.rows[node],
                    foreign_row: layout.foreign,
                    state,
                    ctas: self.inner.settings.ctas_to_learn_of(ctas),
                    reserved: 0,
                });
            }
            let mut list_at = 0;
            if !list.is_empty() {
                list_at = lists + listed * (MOST_OVERTAKEN * size_of::<Overtaken>()) as u64;
                listed += 1;
                backend.write(region.device, list_at, bytemuck::cast_slice(&list))?;
            }
            let mut flags = launch_flags::GRAPH;
            if !list.is_empty() {
                flags |= launch_flags::DEPENDENT;
            }
            if kernel.info.opaque {
                flags |= launch_flags::OPAQUE;
            }
            if bank.shared {
                flags |= launch_flags::SHARED_BANK;
            }
            let count = list.len() as u32;
            let descriptor = LaunchDescriptor {
                own_row,
                foreign_row: layout.foreign,
                named_rows: table_at,
                own_done: layout.rows[&at],
                foreign_done: layout.foreign,
                overtaken: list_at,
                state,
                slot_masks: region.slot_masks(bank.bank),
                ctas: ctas(&kernel.info),
                flags,
                kernel: kernel.info.kernel,
                bank: bank.bank,
                bank_first: region.bank_first(bank.bank),
                overtaken_count: count,
                waits_for: count,
                grid: kernel.info.grid,
                ..LaunchDescriptor::zeroed()
            };
            if kernel.home.is_none() {
                let bytes = bytemuck::bytes_of(&descriptor);
                backend.write(region.device, kernel.address(), bytes)?;
            }
            let words: [u64; DESCRIPTOR as usize / 8] = bytemuck::cast(descriptor);
            descriptors.push(Box::from(words.as_slice()));
        }
        Ok(descriptors)
    }

    /// Makes copies of one kernel nodes that are none, and returns each such kernel once.
    fn leave_ambiguous_kernels_out(&mut self) -> Vec<KernelNode> {
        let mut copies: BTreeMap<u64, usize> = BTreeMap::new();
        for kernel in self.nodes.iter().filter_map(Node::kernel) {
            *copies.entry(kernel.address()).or_default() += 1;
        }
        let mut left_out: BTreeMap<u64, KernelNode> = BTreeMap::new();
        for node in &mut self.nodes {
            let Some(kernel) = node.kernel() else {
                continue;
            };
            let address = kernel.address();
            if copies[&address] > 1 {
                left_out.insert(address, kernel.clone());
                node.role = Role::Other;
                self.kernels -= 1;
                AtomicCounts::add(&self.inner.counts.unchecked);
            }
        }
        if !left_out.is_empty() {
            let kernels = left_out.len();
            tracing::warn!(
                kernels,
                "a graph has several copies of kernels, which are unchecked"
            );
        }
        left_out.into_values().collect()
    }
}

impl Node {
    fn kernel(&self) -> Option<&KernelNode> {
        match &self.role {
            Role::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }
}

/// Steps that merge everything a stream knows into a row over all ids.
pub(crate) fn all_of_frontier(region: &Region, state: &StreamState, row: u64) -> Vec<Step> {
    let slots = region.topology.slots();
    let first = entries(row);
    let part = |bank| first + 4 * u64::from(region.bank_first(bank));
    let merge = |source, source_filled, target, entries| Step::Merge {
        target,
        source,
        entries,
        source_filled,
        target_filled: row,
    };
    let (pair, named) = state.frontier();
    let foreign = entries(pair.foreign);
    let mut steps = vec![
        merge(pair.own, 0, part(state.bank), slots),
        merge(foreign, pair.foreign, first, region.topology.ids()),
    ];
    for completion in named {
        let row = completion.pair.own;
        steps.push(merge(row, 0, part(completion.bank), slots));
    }
    steps
}

fn ctas(info: &LaunchInfo) -> u32 {
    let [x, y, z] = info.grid;
    x.saturating_mul(y).saturating_mul(z)
}

struct Layout {
    /// The descriptors of all kernels, in the order of nodes.
    descriptors: Vec<Box<[u64]>>,
    /// Rows, baseline, the foreign row, launch states, tables, lists of launches overtaken.
    memory: Vec<Arc<Area>>,
    baseline: u64,
    foreign: u64,
    states: u64,
    rows: BTreeMap<usize, u64>,
}

/// Sets of nodes.
#[derive(Clone, Default, PartialEq)]
struct Nodes(Vec<u64>);

impl Nodes {
    fn new(nodes: usize) -> Nodes {
        Nodes(vec![0; nodes.div_ceil(64)])
    }

    fn has(&self, node: usize) -> bool {
        self.0[node / 64] >> (node % 64) & 1 != 0
    }

    fn insert(&mut self, node: usize) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn join(&mut self, other: &Nodes) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }
}

/// Which node has which bank, and what comes before it.
struct Shape {
    banks: Vec<ShapeBank>,
    bank_of: BTreeMap<usize, usize>,
    /// The nodes that are over when a node starts.
    before: Vec<Nodes>,
    /// The nodes whose completions a node's completion contains.
    contains: Vec<Nodes>,
    /// The nodes that it may overtake; it waits for the last one.
    overtaken: BTreeMap<usize, Vec<usize>>,
}

struct ShapeBank {
    bank: u32,
    shared: bool,
    loose: bool,
    /// Its nodes, in order.
    nodes: Vec<usize>,
    /// Those whose completions no other one contains.
    last: Vec<usize>,
}

impl Shape {
    fn new(nodes: &[Node], mut take: impl FnMut() -> (u32, bool)) -> Shape {
        let count = nodes.len();
        let mut shape = Shape {
            banks: Vec::new(),
            bank_of: BTreeMap::new(),
            before: Vec::new(),
            contains: vec![Nodes::new(count); count],
            overtaken: BTreeMap::new(),
        };
        for (at, node) in nodes.iter().enumerate() {
            let (before, overtaken) = shape.start(node, count);
            shape.before.push(before);
            shape.overtaken.insert(at, overtaken);
            if matches!(node.role, Role::Kernel(_)) {
                let bank = shape.choose_bank(at, node, &mut take);
                shape.bank_of.insert(at, bank);
                shape.banks[bank].nodes.push(at);
            }
        }
        loop {
            shape.contain();
            if !shape.loosen(count) {
                break;
            }
        }
        for bank in 0..shape.banks.len() {
            let nodes = &shape.banks[bank].nodes;
            let contained = |node: &usize| {
                let others = nodes.iter().filter(|other| *other != node);
                others
                    .into_iter()
                    .any(|&other| shape.contains[other].has(*node))
            };
            let last = nodes.iter().copied().filter(|node| !contained(node));
            let last = if shape.banks[bank].loose {
                nodes.last().copied().into_iter().collect()
            } else {
                last.collect()
            };
            shape.banks[bank].last = last;
        }
        shape
    }

    /// What is over when a node starts, and what it may overtake.
    fn start(&self, node: &Node, count: usize) -> (Nodes, Vec<usize>) {
        let mut before = Nodes::new(count);
        let finished = |before: &mut Nodes, on: usize| {
            before.insert(on);
            before.join(&self.before[on]);
            for &overtaken in &self.overtaken[&on] {
                before.insert(overtaken);
            }
        };
        for &on in &node.dependencies {
            finished(&mut before, on);
        }
        let mut overtaken = Vec::new();
        for (nth, &on) in node.programmatic.iter().enumerate() {
            let kernel = self.bank_of.contains_key(&on);
            let room = self.overtaken[&on].len() < MOST_OVERTAKEN;
            if nth > 0 || !kernel || !room {
                finished(&mut before, on);
            } else {
                before.join(&self.before[on]);
                overtaken.extend(&self.overtaken[&on]);
                overtaken.push(on);
            }
        }
        overtaken.retain(|&node| !before.has(node));
        (before, overtaken)
    }

    fn choose_bank(
        &mut self,
        at: usize,
        node: &Node,
        take: &mut impl FnMut() -> (u32, bool),
    ) -> usize {
        // The rows of a launch that is overtaken are looked up in the own bank.
        if let Some(predecessor) = self.overtaken[&at].last() {
            return self.bank_of[predecessor];
        }
        let before = &self.before[at];
        let free = |bank: &usize| {
            let nodes = &self.banks[*bank].nodes;
            nodes.iter().all(|&node| before.has(node))
        };
        let direct = node
            .dependencies
            .iter()
            .filter_map(|on| self.bank_of.get(on));
        let direct = direct.copied().find(free);
        let found = direct.or_else(|| (0..self.banks.len()).find(free));
        found.unwrap_or_else(|| {
            let (bank, shared) = take();
            if let Some(known) = self.banks.iter().position(|known| known.bank == bank) {
                self.banks[known].loose = true;
                self.banks[known].shared = true;
                return known;
            }
            self.banks.push(ShapeBank {
                bank,
                shared,
                loose: false,
                nodes: Vec::new(),
                last: Vec::new(),
            });
            self.banks.len() - 1
        })
    }

    /// Works out which completions contain which: one takes over that of the node before it in its
    /// bank.
    fn contain(&mut self) {
        let kernels: Vec<usize> = self.bank_of.keys().copied().collect();
        for at in kernels {
            let bank = self.bank_of[&at];
            let previous = self.tops_in(at, bank).first().copied();
            let mut contains = Nodes::new(self.before.len());
            contains.insert(at);
            if let Some(previous) = previous {
                contains.join(&self.contains[previous]);
            }
            self.contains[at] = contains;
        }
    }

    /// Makes a bank loose of which more rows would have to be named than can be. Says whether it did.
    fn loosen(&mut self, count: usize) -> bool {
        for at in 0..count {
            for (bank, tops) in self.tops(at) {
                let own = self.bank_of.get(&at) == Some(&bank);
                if tops.len() > 1 + usize::from(own) {
                    self.banks[bank].loose = true;
                    return true;
                }
            }
        }
        false
    }

    /// The nodes of a bank whose rows together hold what comes before `at` there: the newest first.
    fn tops_in(&self, at: usize, bank: usize) -> Vec<usize> {
        let nodes = &self.banks[bank].nodes;
        let mut before = nodes
            .iter()
            .rev()
            .filter(|node| self.before[at].has(**node));
        if self.banks[bank].loose {
            return before.next().copied().into_iter().collect();
        }
        let mut tops: Vec<usize> = Vec::new();
        for &node in before {
            if !tops.iter().any(|&top| self.contains[top].has(node)) {
                tops.push(node);
            }
        }
        tops
    }

    /// The same for each bank.
    fn tops(&self, at: usize) -> Vec<(usize, Vec<usize>)> {
        let banks = (0..self.banks.len()).map(|bank| (bank, self.tops_in(at, bank)));
        banks.filter(|(_, tops)| !tops.is_empty()).collect()
    }

    /// The row of each kernel. A row is used again in its bank once only the next node there has
    /// read it.
    fn rows(&self) -> BTreeMap<usize, usize> {
        let mut readers: BTreeMap<usize, usize> = BTreeMap::new();
        for at in 0..self.before.len() {
            let own = self.bank_of.get(&at);
            for (bank, tops) in self.tops(at) {
                for (nth, node) in tops.into_iter().enumerate() {
                    if Some(&bank) != own || nth > 0 {
                        // Read by others, for as long as the replay lasts.
                        *readers.entry(node).or_default() += 2;
                    } else {
                        *readers.entry(node).or_default() += 1;
                    }
                }
            }
            for &node in &self.overtaken[&at] {
                *readers.entry(node).or_default() += 2;
            }
        }
        let mut rows = BTreeMap::new();
        let mut next = 0;
        let mut new = || {
            next += 1;
            next - 1
        };
        for (index, bank) in self.banks.iter().enumerate() {
            if bank.loose {
                let row = new();
                rows.extend(bank.nodes.iter().map(|&node| (node, row)));
                continue;
            }
            let mut free = Vec::new();
            for &at in &bank.nodes {
                let row = free.pop().unwrap_or_else(&mut new);
                rows.insert(at, row);
                // From the next node on, nobody reads the row before this one.
                let previous = self.tops_in(at, index).first().copied();
                let alone =
                    |node: &usize| readers.get(node) == Some(&1) && !bank.last.contains(node);
                free.extend(previous.filter(alone).map(|node| rows[&node]));
            }
        }
        rows
    }
}

/// A graph that can be replayed.
pub struct Plan {
    inner: Arc<Inner>,
    device: usize,
    /// Tells plans apart.
    number: u32,
    /// For graphs that contain a copy.
    nodes: Vec<Node>,
    home: Arc<Home>,
    /// Those of graphs that this one contains.
    foreign_homes: Vec<Arc<Home>>,
    described: Vec<Described>,
    kernels: Vec<KernelNode>,
    banks: Vec<PlanBank>,
    taken_banks: Vec<u32>,
    /// As in [`Layout`].
    memory: Vec<Arc<Area>>,
    baseline: u64,
    foreign: u64,
    states: u64,
    /// Events that a replay records, and the rows of what comes before.
    events: Vec<(u64, Vec<ExternalRow>)>,
    /// Events that a replay waits for.
    waits: Vec<u64>,
    state: Mutex<PlanState>,
}

/// A descriptor as this graph's replays need it.
struct Described {
    address: u64,
    /// Its place among the foreign homes; `None`: the own one.
    home: Option<usize>,
    words: Box<[u64]>,
}

/// A row of what comes before the record of an event.
struct ExternalRow {
    bank: usize,
    row: u64,
}

struct PlanBank {
    bank: u32,
    /// The rows that hold all completions in the bank.
    last: Vec<u64>,
}

#[derive(Default)]
struct PlanState {
    /// What comes before the end of the newest replay.
    known: Knowledge,
    /// What the newest replay completed into.
    last: Knowledge,
    begun: bool,
    closed: bool,
    /// The homes whose descriptors were written for the replay that was begun.
    rewrote: Vec<Option<usize>>,
    /// Behind the newest replay.
    fence: Option<FenceId>,
}

/// A replay that was begun. Nobody else uses its stream until it is finished; dropping it takes it
/// back.
pub struct Replay {
    plan: Arc<Plan>,
    stream: Arc<Stream>,
    held: Vec<Arc<Stream>>,
    first_number: u32,
    /// The stream is being captured, and the graph becomes part of another one.
    captured: Option<CapturedReplay>,
    finished: bool,
}

impl Plan {
    fn state(&self) -> MutexGuard<'_, PlanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> &DeviceState {
        &self.inner.devices[self.device]
    }

    /// Begins a replay on a stream: it starts after what the stream was given so far, and after the
    /// plan's earlier replays. If the stream is being captured, a copy of the graph becomes part of the
    /// capture.
    ///
    /// # Errors
    /// When the plan is closed, another replay of it or of a graph that shares kernels with it was begun and
    /// not finished, the stream is not known or has an unfinished launch of this thread, it is being captured
    /// into a graph of another device, or the backend fails.
    pub fn begin_replay(self: &Arc<Self>, key: StreamKey) -> Result<Replay, Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        let replay = |stream, held, first_number, captured| Replay {
            plan: Arc::clone(self),
            stream,
            held,
            first_number,
            captured,
            finished: false,
        };
        let status = inner.backend.capture_status(key.device, stream.queue)?;
        if status != CaptureStatus::None {
            stream.enter()?.keep(Begun::Replay, key);
            return match inner.begin_captured_replay(&stream, status, self) {
                Ok(captured) => Ok(replay(stream, Vec::new(), 0, Some(captured))),
                Err(error) => {
                    stream.leave(stream.reenter());
                    Err(error)
                }
            };
        }
        {
            let mut state = self.state();
            if state.closed {
                return Err(Error::GraphGone("was closed"));
            }
            if std::mem::replace(&mut state.begun, true) {
                return Err(Error::ReplayUnfinished {
                    shared: false,
                    next: NEXT_REPLAY,
                });
            }
        }
        let begun = self.begin_homes().and_then(|()| {
            let started = self.start_after(&stream);
            started.inspect_err(|_| self.end_homes())
        });
        match begun {
            Ok((held, first_number)) => Ok(replay(stream, held, first_number, None)),
            Err(error) => {
                self.state().begun = false;
                Err(error)
            }
        }
    }

    /// Whether a copy can be part of a graph on a device.
    pub(crate) fn can_be_copied_to(&self, inner: &Arc<Inner>, device: usize) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.inner, inner) {
            return Err(Error::GraphGone("is one from before a reset"));
        }
        if self.state().closed {
            return Err(Error::GraphGone("was closed"));
        }
        if self.device != device {
            return Err(Error::GraphElsewhere {
                of: self.device().region.device,
                device: inner.devices[device].region.device,
            });
        }
        Ok(())
    }

    /// The device of its kernels.
    pub(crate) fn place(&self) -> usize {
        self.device
    }

    /// The homes of all descriptors, and their places among the foreign ones.
    fn homes(&self) -> impl Iterator<Item = (Option<usize>, &Arc<Home>)> {
        let foreign = self.foreign_homes.iter().enumerate();
        let foreign = foreign.map(|(place, home)| (Some(place), home));
        std::iter::once((None, &self.home)).chain(foreign)
    }

    /// Nobody else replays what shares kernels with this graph until [`Self::end_homes`].
    fn begin_homes(&self) -> Result<(), Error> {
        for (at, (_, home)) in self.homes().enumerate() {
            if std::mem::replace(&mut home.state().begun, true) {
                for (_, begun) in self.homes().take(at) {
                    begun.state().begun = false;
                }
                return Err(Error::ReplayUnfinished {
                    shared: true,
                    next: NEXT_REPLAY,
                });
            }
        }
        Ok(())
    }

    fn end_homes(&self) {
        for (_, home) in self.homes() {
            home.state().begun = false;
        }
    }

    /// Waits, on the stream, for replays of others that use the same descriptors, and writes those that are
    /// not as this graph needs them. Returns the steps, and the homes that they are about.
    fn rewrite(&self, stream: &Stream) -> Result<(Vec<Step>, Vec<Option<usize>>), Error> {
        let backend = &self.inner.backend;
        let (mut steps, mut written) = (Vec::new(), Vec::new());
        for (place, home) in self.homes() {
            let others = place.and_then(|_| home.plan.upgrade());
            let others = others.and_then(|plan| plan.state().fence);
            let (fence, written_for) = {
                let state = home.state();
                (state.fence, state.written_for)
            };
            for fence in others.into_iter().chain(fence) {
                if !backend.passed(fence)? {
                    backend.wait_on(stream.key.device, stream.queue, fence)?;
                }
            }
            if written_for == place.map(|_| self.number) {
                continue;
            }
            written.push(place);
            let mine = self.described.iter().filter(|known| known.home == place);
            steps.extend(mine.map(|known| Step::Words {
                address: known.address,
                words: known.words.clone(),
            }));
        }
        Ok((steps, written))
    }

    /// The replay was given to its stream, or not. What it has written for others to wait for.
    fn fence_homes(&self, stream: &Stream, submitted: bool) -> Result<(), Error> {
        let backend = &self.inner.backend;
        let rewrote = std::mem::take(&mut self.state().rewrote);
        for (place, home) in self.homes() {
            let in_use = submitted && place.is_some() || rewrote.contains(&place);
            if !in_use {
                continue;
            }
            let fence = backend.fence(stream.key.device, stream.queue)?;
            if let Some(old) = home.state().fence.replace(fence) {
                backend.forget(old);
            }
        }
        Ok(())
    }

    fn start_after(&self, stream: &Arc<Stream>) -> Result<(Vec<Arc<Stream>>, u32), Error> {
        let inner = &self.inner;
        let (mut state, held) = inner.occupy_awake(stream, Begun::Replay)?;
        for event in &self.waits {
            if let Some(recorded) = inner.events.get(*event) {
                if let Err(error) = inner.wait_for(stream, recorded.fence.as_ref()) {
                    stream.leave(state);
                    release(&held);
                    return Err(error);
                }
                state.start_after(recorded.knowledge);
            }
        }
        inner.awake(self.device());
        let begun = self.fill_baseline(stream, &mut state);
        match begun {
            Ok(first) => {
                state.keep(Begun::Replay, stream.key);
                Ok((held, first))
            }
            Err(error) => {
                stream.leave(state);
                release(&held);
                Err(error)
            }
        }
    }

    /// Merges everything that the stream knows into the baseline, and makes the launches new ones.
    fn fill_baseline(&self, stream: &Stream, state: &mut StreamState) -> Result<u32, Error> {
        let inner = &self.inner;
        let device = self.device();
        let region = &device.region;
        if !inner.join_all(stream, state)? {
            return Err(self.no_rows());
        }
        // What the end of the replay needs: once the graph was given to the stream it is too late.
        for bank in &self.banks {
            let ready = state.graph_begins(bank.bank, &device.rows, || inner.new_lineage());
            ready.map_err(|OutOfRows| self.no_rows())?;
        }
        if let Some(fence) = self.state().fence
            && !inner.backend.passed(fence)?
        {
            inner
                .backend
                .wait_on(stream.key.device, stream.queue, fence)?;
        }
        let (mut steps, written) = self.rewrite(stream)?;
        steps.extend(all_of_frontier(region, state, self.baseline));
        let kernels = self.kernels.len() as u32;
        let first = inner.graph_numbers(kernels);
        if kernels > 0 {
            steps.push(Step::Zero {
                address: self.states,
                bytes: u64::from(kernels) * STATE,
            });
        }
        let mut number = first;
        let neighbours = self
            .kernels
            .chunk_by(|a, b| Arc::ptr_eq(&a.chunk, &b.chunk) && a.index + 1 == b.index);
        for run in neighbours {
            let words = run.len() as u32;
            steps.push(Step::Count {
                address: run[0].address() + offset_of!(LaunchDescriptor, number) as u64,
                stride: DESCRIPTOR as u32,
                words,
                first: number,
            });
            number += words;
        }
        inner.kernels.run(stream.key.device, stream.queue, steps)?;
        for &place in &written {
            let (home, mine) = match place {
                Some(at) => (&self.foreign_homes[at], Some(self.number)),
                None => (&self.home, None),
            };
            home.state().written_for = mine;
        }
        self.state().rewrote = written;
        Ok(first)
    }

    /// The stream goes on after all of the graph.
    fn end(&self, stream: &Arc<Stream>) -> Result<(), Error> {
        let inner = &self.inner;
        let region = &self.device().region;
        let slots = region.topology.slots();
        let ids = region.topology.ids();
        let baseline = entries(self.baseline);
        let mut steps = Vec::new();
        let mut done = Knowledge::default();
        let mut points = Vec::new();
        let mut entered = stream.reenter();
        for (at, bank) in self.banks.iter().enumerate() {
            let rows = entered.graph_rows(bank.bank);
            let rows = rows.map_err(|OutOfRows| self.no_rows())?;
            let external = self.events.iter().flat_map(|(_, external)| external);
            let recorded = external.filter(|external| external.bank == at).count();
            points.push(rows.points(recorded as u64));
            let completion = rows.complete();
            let completion = completion.map_err(|OutOfRows| self.no_rows())?;
            let pair = completion.pair;
            let part = baseline + 4 * u64::from(region.bank_first(bank.bank));
            let merge = |source, target| Step::Merge {
                target,
                source,
                entries: slots,
                source_filled: 0,
                target_filled: 0,
            };
            // The part has all earlier replays of the stream, whichever graphs these were of.
            steps.extend(bank.last.iter().map(|&row| merge(row, part)));
            steps.push(merge(part, pair.own));
            if done.completions.is_empty() {
                steps.push(Step::Merge {
                    target: entries(pair.foreign),
                    source: entries(self.foreign),
                    entries: ids,
                    source_filled: self.foreign,
                    target_filled: pair.foreign,
                });
            }
            done.add(&completion);
        }
        drop(entered);
        inner.kernels.run(stream.key.device, stream.queue, steps)?;
        let fence = inner.backend.fence(stream.key.device, stream.queue)?;
        if let Some(old) = self.state().fence.replace(fence) {
            inner.backend.forget(old);
        }
        let mut entered = stream.reenter();
        let frontier = entered.knowledge();
        for (event, rows) in &self.events {
            let mut recorded = Knowledge::clone(&frontier);
            for external in rows {
                let Some(point) = points[external.bank].next() else {
                    continue;
                };
                let pair = Pair {
                    own: external.row,
                    foreign: self.foreign,
                };
                let bank = self.banks[external.bank].bank;
                let areas = [0, 2].map(|area: usize| Arc::clone(&self.memory[area]));
                recorded.add(&Completion::lent(point, bank, pair, areas));
            }
            let point = Point {
                knowledge: Arc::new(recorded),
                fence: inner.fence_for_others(stream)?,
            };
            inner.events.set(*event, point);
        }
        let known = {
            let mut state = self.state();
            state.known.join(&frontier);
            state.known.join(&done);
            state.last = done;
            state.known.clone()
        };
        entered.graph_done(Arc::new(known));
        drop(entered);
        stream.changed();
        Ok(())
    }

    fn no_rows(&self) -> Error {
        let region = &self.device().region;
        Error::NoRoomForRows {
            device: region.device,
            room: 0,
            least: region.own_bytes() + region.foreign_bytes(),
        }
    }

    /// Gives the plan up.
    ///
    /// # Errors
    /// When it was closed before, or a replay was begun and not finished, or still runs. Nothing
    /// changes then.
    pub fn close(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::GraphGone("was closed"));
        }
        let running = match state.fence {
            Some(fence) => !self.inner.backend.passed(fence)?,
            None => false,
        };
        if state.begun {
            return Err(Error::ReplayUnfinished {
                shared: false,
                next: "closing the graph",
            });
        }
        if running {
            return Err(Error::GraphInFlight);
        }
        state.closed = true;
        Ok(())
    }

    /// Whether it can still be replayed.
    pub(crate) fn is_live(&self) -> bool {
        !self.state().closed
    }

    /// Whether a replay was begun and not finished.
    pub(crate) fn is_begun(&self) -> bool {
        self.state().begun
    }

    /// Forgets what was completed. Nothing runs.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        {
            let mut state = self.state();
            state.known = Knowledge::default();
            state.last = Knowledge::default();
        }
        let device = self.device().region.device;
        for area in &self.memory[..ROW_AREAS] {
            self.inner
                .backend
                .fill(device, area.address, area.bytes, 0)?;
        }
        Ok(())
    }

    /// How many kernels it launches.
    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let backend = &self.inner.backend;
        let fence = self.state().fence;
        if let Some(fence) = fence {
            if backend.passed(fence) == Ok(false)
                && let Err(error) = backend.synchronize(self.device().region.device)
            {
                tracing::debug!(%error, "a graph is dropped while it may run");
            }
            backend.forget(fence);
        }
        // Knowing the newest replay is knowing all: they come one after the other.
        let last = std::mem::take(&mut self.state().last);
        for &bank in &self.taken_banks {
            self.device().banks().give_back(bank, &last);
        }
    }
}

impl Replay {
    /// The number of the first kernel's launch on its device; the others follow. 0 if the stream is being
    /// captured.
    pub const fn first_number(&self) -> u32 {
        self.first_number
    }

    /// A kernel of the graph, by its node: what it is given, and what was said of it. `None` if there is no
    /// such kernel, or this replay runs none any more.
    pub fn kernel(&self, node: NodeId) -> Option<(NodeArguments, LaunchInfo)> {
        if self.finished || self.captured.is_some() {
            return None;
        }
        let kernel = self.plan.nodes.get(node.0)?.kernel()?;
        Some((kernel.arguments(), kernel.info))
    }

    /// The graph was given to its stream (`submitted`), or failed and never will be.
    ///
    /// # Errors
    /// When it was finished before, or the backend fails.
    pub fn finish(&mut self, submitted: bool) -> Result<(), Error> {
        if self.finished {
            return Err(Error::ReplayFinished);
        }
        self.finished = true;
        let plan = &self.plan;
        if let Some(captured) = self.captured.take() {
            let ended = captured.finish(&plan.inner, &self.stream, submitted);
            self.stream.leave(self.stream.reenter());
            return ended;
        }
        let ended = if submitted {
            for (nth, kernel) in (0..).zip(&plan.kernels) {
                plan.device().log.enter(&LaunchRecord {
                    number: self.first_number + nth,
                    kernel: kernel.info.kernel,
                    stream: self.stream.key.handle,
                    grid: kernel.info.grid,
                    opaque: kernel.info.opaque,
                });
                if kernel.info.opaque {
                    AtomicCounts::add(&plan.inner.counts.opaque);
                }
            }
            plan.end(&self.stream)
        } else {
            Ok(())
        };
        let ended = ended.and(plan.fence_homes(&self.stream, submitted));
        plan.end_homes();
        plan.state().begun = false;
        self.stream.leave(self.stream.reenter());
        release(&self.held);
        ended
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.finish(false);
        }
    }
}

impl Inner {
    pub(crate) fn plans(&self) -> MutexGuard<'_, Vec<Weak<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Graphs that were not closed.
    pub(crate) fn live_plans(&self) -> Vec<Arc<Plan>> {
        let plans = self.plans();
        let live = plans.iter().filter_map(Weak::upgrade);
        live.filter(|plan| plan.is_live()).collect()
    }

    /// Numbers for as many launches of a graph, one after the other.
    fn graph_numbers(&self, count: u32) -> u32 {
        let mut next = self.next_graph_number.load(Relaxed);
        loop {
            let first = match next.checked_add(count) {
                Some(_) if next >= MOST_NUMBERS => next,
                // Used again: reports may name another launch.
                _ => MOST_NUMBERS,
            };
            match self
                .next_graph_number
                .compare_exchange(next, first + count, Relaxed, Relaxed)
            {
                Ok(_) => return first,
                Err(other) => next = other,
            }
        }
    }
}
