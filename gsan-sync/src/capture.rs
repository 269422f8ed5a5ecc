//! Graphs that the program captures: launches become nodes of a plan by themselves.
//!
//! What comes before what, the driver knows. After each launch and each event that it is told of, the
//! capture is looked at: nodes that are not known yet are remembered, with what they come after.
//! The launch's own node is the one that its stream's next node would come after. Nodes of others
//! (copies, kernels that are not checked) carry order and are nothing else.
//!
//! The plan is made when the capture has ended. The driver's graph may be gone by then, so nothing
//! is asked any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gsan_vmm::backend::{CaptureStatus, CapturedNode, Dependency, Device, NodeKind};
use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::graph::{Descriptors, KernelNode, NodeArguments, NodeId, Plan, PlanBuilder};
use crate::launch::LaunchInfo;
use crate::ordering::{AtomicCounts, Inner, Ordering};
use crate::stream::{Stream, StreamKey};

/// A capture, by the number that the driver gave it. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureId(pub u64);

/// How many captures are kept of which nobody says that they have ended.
const MOST_CAPTURES: usize = 256;

/// Captures that were met and have not ended, the oldest first.
#[derive(Default)]
pub(crate) struct Captures {
    running: Mutex<Vec<Arc<Capture>>>,
}

/// One capture.
pub(crate) struct Capture {
    id: u64,
    held: Mutex<Held>,
}

/// What a capture holds, as far as it was looked at.
#[derive(Default)]
struct Held {
    /// The device of the first launch: launches on others are unchecked.
    device: Option<Device>,
    descriptors: Descriptors,
    nodes: Vec<Node>,
    /// Places among the nodes, by the driver's handles.
    places: FxHashMap<u64, usize>,
    /// There is a collective, of which a replay tells nothing.
    meets: bool,
    ended: bool,
}

struct Node {
    dependencies: Vec<Dependency>,
    role: Role,
}

enum Role {
    /// One that was announced.
    Kernel(KernelNode),
    /// A kernel that was not announced, or not yet.
    Unannounced,
    /// A graph whose replay was announced.
    Graph(Arc<Plan>),
    /// One that was not announced, or not yet.
    UnannouncedGraph,
    Record(u64),
    Wait(u64),
    Other,
}

/// A launch on a stream that is being captured.
pub(crate) struct CapturedLaunch {
    capture: Arc<Capture>,
    kernel: KernelNode,
    /// How many nodes were there before.
    before: usize,
}

/// A replay on a stream that is being captured: the graph becomes part of the capture.
pub(crate) struct CapturedReplay {
    capture: Arc<Capture>,
    plan: Arc<Plan>,
    /// How many nodes were there before.
    before: usize,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Capture>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, id: u64) -> Option<Arc<Capture>> {
        let mut running = self.lock();
        let at = running.iter().position(|capture| capture.id == id)?;
        Some(running.remove(at))
    }
}

impl Capture {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Remembers nodes.
    fn add(&mut self, nodes: Vec<CapturedNode>) {
        for node in nodes {
            let role = match node.kind {
                NodeKind::RecordEvent(event) => Role::Record(event),
                NodeKind::WaitEvent(event) => Role::Wait(event),
                NodeKind::Kernel => Role::Unannounced,
                NodeKind::Graph => Role::UnannouncedGraph,
                NodeKind::Other => Role::Other,
            };
            self.places.insert(node.node, self.nodes.len());
            self.nodes.push(Node {
                dependencies: node.dependencies,
                role,
            });
        }
    }

    /// The one node among `ends` that is there since there were `before`, and is what was announced. Others
    /// may have met it already.
    fn newest(&self, ends: &[u64], before: usize, is_new: impl Fn(&Role) -> bool) -> Option<usize> {
        let places = ends.iter().filter_map(|end| self.places.get(end).copied());
        let mut new = places.filter(|&at| at >= before && is_new(&self.nodes[at].role));
        let first = new.next()?;
        new.next().is_none().then_some(first)
    }

    /// The nodes' places, each after all that it depends on; apart from that in the order in which they
    /// were met.
    fn in_order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        // 0: not visited, 1: what it depends on comes first, 2: it is in the order.
        let mut states = vec![0u8; self.nodes.len()];
        for first in 0..self.nodes.len() {
            let mut open = vec![first];
            while let Some(&at) = open.last() {
                if states[at] == 0 {
                    states[at] = 1;
                    let before = &self.nodes[at].dependencies;
                    let places = before.iter().filter_map(|on| self.places.get(&on.node));
                    open.extend(places.copied().filter(|&place| states[place] == 0));
                    continue;
                }
                open.pop();
                if states[at] == 1 {
                    states[at] = 2;
                    order.push(at);
                }
            }
        }
        order
    }

    /// Makes the plan of what was captured, if a replay has to do anything for it.
    fn plan(self, inner: &Arc<Inner>) -> Result<Option<Arc<Plan>>, Error> {
        let other = |node: &Node| {
            let role = &node.role;
            matches!(
                role,
                Role::Other | Role::Unannounced | Role::UnannouncedGraph
            )
        };
        if self.nodes.iter().all(other) {
            return Ok(None);
        }
        let order = self.in_order();
        let places = self.places;
        // A graph without launches belongs to no device in particular.
        let device = match self.device {
            Some(device) => device,
            None => inner.settings.device_at(0),
        };
        let mut builder = PlanBuilder::new(inner, inner.place(device)?);
        let meets = self.meets;
        let mut ids: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut nodes: Vec<Option<Node>> = self.nodes.into_iter().map(Some).collect();
        for at in order {
            let Some(node) = nodes[at].take() else {
                continue;
            };
            let id = |on: &Dependency| places.get(&on.node).and_then(|&place| ids[place]);
            let (programmatic, finished): (Vec<&Dependency>, Vec<_>) =
                node.dependencies.iter().partition(|on| on.programmatic);
            let mut before: Vec<NodeId> = finished.into_iter().filter_map(id).collect();
            let programmatic: Vec<NodeId> = programmatic.into_iter().filter_map(id).collect();
            let made = match node.role {
                Role::Kernel(kernel) => builder.reserved_kernel(&before, &programmatic, kernel),
                // Whether it waits for what it may overtake is not known: as if it did.
                role => {
                    before.extend(programmatic);
                    match role {
                        Role::Record(event) => builder.record(&before, event)?,
                        Role::Wait(event) => builder.wait(&before, event)?,
                        Role::Graph(graph) => builder.copy(&before, &graph),
                        Role::Other
                        | Role::Unannounced
                        | Role::UnannouncedGraph
                        | Role::Kernel(_) => builder.other(&before)?,
                    }
                }
            };
            ids[at] = Some(made);
        }
        if meets {
            builder.all_are_opaque();
        }
        builder.finish().map(Some)
    }
}

impl CapturedLaunch {
    pub(crate) fn arguments(&self) -> NodeArguments {
        self.kernel.arguments()
    }

    /// The launch was given to the stream, or never will be.
    pub(crate) fn finish(
        self,
        inner: &Inner,
        stream: &Stream,
        submitted: bool,
    ) -> Result<(), Error> {
        let CapturedLaunch {
            capture,
            kernel,
            before,
        } = self;
        let mut held = capture.held();
        if !submitted {
            held.descriptors.take_back(&kernel);
            AtomicCounts::add(&inner.counts.taken_back);
            return Ok(());
        }
        let ends = inner.look(&mut held, capture.id, stream)?;
        let is_new = |role: &Role| matches!(role, Role::Unannounced);
        let Some(new) = held.newest(&ends, before, is_new) else {
            AtomicCounts::add(&inner.counts.unchecked);
            return Err(Error::NotCaptured(stream.key));
        };
        held.nodes[new].role = Role::Kernel(kernel);
        AtomicCounts::add(&inner.counts.captured);
        Ok(())
    }
}

impl CapturedReplay {
    /// The graph was given to the stream, or never will be.
    pub(crate) fn finish(
        self,
        inner: &Inner,
        stream: &Stream,
        submitted: bool,
    ) -> Result<(), Error> {
        if !submitted {
            return Ok(());
        }
        let mut held = self.capture.held();
        let ends = inner.look(&mut held, self.capture.id, stream)?;
        let is_new = |role: &Role| matches!(role, Role::UnannouncedGraph);
        let Some(new) = held.newest(&ends, self.before, is_new) else {
            return Err(Error::NotCaptured(stream.key));
        };
        held.nodes[new].role = Role::Graph(self.plan);
        Ok(())
    }
}

impl Inner {
    /// Refuses what cannot become part of a graph.
    pub(crate) fn refuse_captured(&self, stream: &Stream, what: &'static str) -> Result<(), Error> {
        let key = stream.key;
        match self.backend.capture_status(key.device, stream.queue)? {
            CaptureStatus::None => Ok(()),
            CaptureStatus::Active(_) | CaptureStatus::Invalid => Err(Error::Captured { key, what }),
        }
    }

    /// A collective is put into a stream. False if that is not being captured.
    pub(crate) fn capture_meets(&self, stream: &Stream) -> Result<bool, Error> {
        let (key, queue) = (stream.key, stream.queue);
        match self.backend.capture_status(key.device, queue)? {
            CaptureStatus::None => return Ok(false),
            CaptureStatus::Invalid => {}
            CaptureStatus::Active(id) => self.capture(id).held().meets = true,
        }
        Ok(true)
    }

    /// Looks at the capture of a stream. False if there is none.
    pub(crate) fn note_captured(&self, stream: &Stream) -> Result<bool, Error> {
        let status = self
            .backend
            .capture_status(stream.key.device, stream.queue)?;
        match status {
            CaptureStatus::None => Ok(false),
            CaptureStatus::Invalid => Ok(true),
            CaptureStatus::Active(id) => {
                self.look(&mut self.capture(id).held(), id, stream)?;
                Ok(true)
            }
        }
    }

    /// Begins a launch on a stream that is being captured; `None`: it will be unchecked.
    pub(crate) fn begin_captured(
        &self,
        stream: &Stream,
        status: CaptureStatus,
        info: &LaunchInfo,
    ) -> Result<Option<CapturedLaunch>, Error> {
        let CaptureStatus::Active(id) = status else {
            // The driver will refuse it.
            return Ok(None);
        };
        let capture = self.capture(id);
        let mut held = capture.held();
        // What others launched meanwhile is not taken for this launch.
        self.look(&mut held, id, stream)?;
        let device = stream.key.device;
        if *held.device.get_or_insert(device) != device {
            tracing::warn!(%device, "a capture has launches of another device, which are unchecked");
            return Ok(None);
        }
        let reserved = held.descriptors.reserve(&self.devices[stream.device], info);
        let before = held.nodes.len();
        drop(held);
        if reserved.is_none() {
            tracing::warn!(%device, "no memory for a captured launch: it is unchecked");
        }
        Ok(reserved.map(|kernel| CapturedLaunch {
            capture,
            kernel,
            before,
        }))
    }

    /// Begins a replay on a stream that is being captured.
    pub(crate) fn begin_captured_replay(
        self: &Arc<Self>,
        stream: &Stream,
        status: CaptureStatus,
        plan: &Arc<Plan>,
    ) -> Result<CapturedReplay, Error> {
        let key = stream.key;
        let refused = |what| Error::Captured { key, what };
        let CaptureStatus::Active(id) = status else {
            return Err(refused("a replay"));
        };
        let capture = self.capture(id);
        let mut held = capture.held();
        self.look(&mut held, id, stream)?;
        let place = plan.place();
        plan.can_be_copied_to(self, place)?;
        let device = self.devices[place].region.device;
        if *held.device.get_or_insert(device) != device {
            return Err(refused("a graph of another device"));
        }
        let before = held.nodes.len();
        drop(held);
        Ok(CapturedReplay {
            capture,
            plan: Arc::clone(plan),
            before,
        })
    }

    /// Remembers what is new in a capture. Returns the nodes that the stream's next one comes after.
    fn look(&self, held: &mut Held, id: u64, stream: &Stream) -> Result<Vec<u64>, Error> {
        let places = &held.places;
        let mut is_known = |node| places.contains_key(&node);
        let (device, queue) = (stream.key.device, stream.queue);
        let captured = self.backend.captured(device, queue, &mut is_known)?;
        if held.ended || captured.status != CaptureStatus::Active(id) {
            return Ok(Vec::new());
        }
        held.add(captured.nodes);
        Ok(captured.ends)
    }

    /// The capture of this number.
    fn capture(&self, id: u64) -> Arc<Capture> {
        let mut running = self.captures.lock();
        if let Some(known) = running.iter().find(|capture| capture.id == id) {
            return Arc::clone(known);
        }
        if running.len() >= MOST_CAPTURES {
            running.remove(0);
        }
        let capture = Arc::new(Capture {
            id,
            held: Mutex::default(),
        });
        running.push(Arc::clone(&capture));
        capture
    }
}

impl Ordering {
    /// The capture that a stream takes part in, if it is being captured.
    ///
    /// # Errors
    /// When the stream is not known, or the driver fails.
    pub fn capture_of(&self, key: StreamKey) -> Result<Option<CaptureId>, Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        let status = inner.backend.capture_status(key.device, stream.queue)?;
        Ok(match status {
            CaptureStatus::Active(id) => Some(CaptureId(id)),
            CaptureStatus::None | CaptureStatus::Invalid => None,
        })
    }

    /// A capture has ended well. Returns the plan by which its graph is replayed; `None` when it holds
    /// no launch that was announced and no event that a replay records or waits for, or was never met.
    ///
    /// # Errors
    /// When there is no memory: the graph's launches are unchecked then.
    pub fn capture_ended(&self, id: CaptureId) -> Result<Option<Arc<Plan>>, Error> {
        let Some(capture) = self.inner.captures.take(id.0) else {
            return Ok(None);
        };
        let mut held = capture.held();
        let ended = Held {
            ended: true,
            ..Held::default()
        };
        let captured = std::mem::replace(&mut *held, ended);
        drop(held);
        captured.plan(&self.inner)
    }

    /// A capture has ended, and there is no graph of it.
    pub fn capture_abandoned(&self, id: CaptureId) {
        if let Some(capture) = self.inner.captures.take(id.0) {
            *capture.held() = Held {
                ended: true,
                ..Held::default()
            };
        }
    }
}
