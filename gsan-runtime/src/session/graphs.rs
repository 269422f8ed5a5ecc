//! Graphs: captured or built by hand, and replayed.

use std::sync::{Arc, Mutex, PoisonError};

use gsan_sync::{CaptureId, NodeArguments, NodeId, Plan, PlanBuilder};
use gsan_vmm::backend::Device;
use rustc_hash::FxHashSet;

use super::{KernelLaunch, Session};
use crate::error::{Error, Result};
use crate::host::HostCta;

/// A graph that is being built. Nodes are numbered in the order in which they are added.
pub struct GraphBuilder {
    session: Arc<Session>,
    builder: PlanBuilder,
}

/// A graph that can be replayed. Dropping it closes it.
pub struct Graph {
    session: Arc<Session>,
    plan: Arc<Plan>,
}

/// A replay that was begun. Its stream is this thread's until it is finished; dropping it takes it back.
pub struct Replay {
    session: Arc<Session>,
    device: Device,
    stream: u64,
    replay: gsan_sync::Replay,
    /// Other streams of the host backend that kernels were given to.
    beside: Mutex<Vec<u64>>,
    /// Kernels that were launched on the host backend.
    launched: Mutex<FxHashSet<NodeId>>,
}

impl Session {
    /// Starts a graph whose kernels run on `device`.
    ///
    /// # Errors
    /// When the device has no rank.
    pub fn begin_graph(self: &Arc<Self>, device: Device) -> Result<GraphBuilder> {
        Ok(GraphBuilder {
            builder: self.ordering.begin_plan(device)?,
            session: Arc::clone(self),
        })
    }

    /// The number of the capture that a stream takes part in; 0 if it is not being captured.
    ///
    /// # Errors
    /// When the stream is not there, or the driver fails.
    pub fn capture_id(&self, device: Device, stream: u64) -> Result<u64> {
        let capture = self.with_stream(device, stream, |key| self.ordering.capture_of(key))?;
        Ok(capture.map_or(0, |capture| capture.0))
    }

    /// A capture has ended well. Returns the graph by which it is replayed; `None` if nothing in it has to
    /// be told at a replay.
    ///
    /// # Errors
    /// When there is no memory: the graph's launches are unchecked then.
    pub fn capture_ended(self: &Arc<Self>, capture: u64) -> Result<Option<Graph>> {
        let plan = self.ordering.capture_ended(CaptureId(capture))?;
        Ok(plan.map(|plan| Graph {
            plan,
            session: Arc::clone(self),
        }))
    }

    /// A capture has ended, and there is no graph of it.
    pub fn capture_abandoned(&self, capture: u64) {
        self.ordering.capture_abandoned(CaptureId(capture));
    }
}

impl GraphBuilder {
    /// Adds a kernel, which starts after `dependencies`, and when those in `programmatic` let it. Returns
    /// what its launch is given.
    ///
    /// # Errors
    /// When a dependency is not there or in both lists, grid or block are none that a kernel of a graph can
    /// have, or there is no memory.
    pub fn kernel(
        &mut self,
        dependencies: &[NodeId],
        programmatic: &[NodeId],
        launch: &KernelLaunch<'_>,
    ) -> Result<(NodeId, NodeArguments)> {
        if launch.ctas()? == 0 {
            let [x, y, z] = launch.grid;
            return Err(Error::Argument(format!(
                "a grid of {x} x {y} x {z} CTAs: a kernel of a graph has one at least"
            )));
        }
        let info = self.session.launch_info(launch)?;
        Ok(self.builder.kernel(dependencies, programmatic, &info)?)
    }

    /// Adds a node that is no kernel: a copy, a memset, a host function.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn other(&mut self, dependencies: &[NodeId]) -> Result<NodeId> {
        Ok(self.builder.other(dependencies)?)
    }

    /// Adds a node that records an event at each replay.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn record(&mut self, dependencies: &[NodeId], event: u64) -> Result<NodeId> {
        Ok(self.builder.record(dependencies, event)?)
    }

    /// Adds a node that waits at each replay for the newest record of an event before it.
    ///
    /// # Errors
    /// When a dependency is not there.
    pub fn wait(&mut self, dependencies: &[NodeId], event: u64) -> Result<NodeId> {
        Ok(self.builder.wait(dependencies, event)?)
    }

    /// Adds all nodes of another graph. Returns a node that comes after all of them.
    ///
    /// # Errors
    /// When a dependency is not there, or the other graph is one of an earlier session.
    pub fn child(&mut self, dependencies: &[NodeId], child: GraphBuilder) -> Result<NodeId> {
        if !Arc::ptr_eq(&self.session, &child.session) {
            return Err(Error::WrongOrder(
                "the child graph is one from before a reset".into(),
            ));
        }
        Ok(self.builder.child(dependencies, child.builder)?)
    }

    /// Adds a copy of a graph that can be replayed. Returns a node that comes after all of it.
    ///
    /// # Errors
    /// When a dependency is not there, or the graph was closed, is one of another device or of an earlier
    /// session.
    pub fn graph(&mut self, dependencies: &[NodeId], graph: &Graph) -> Result<NodeId> {
        Ok(self.builder.graph(dependencies, &graph.plan)?)
    }

    /// Chooses what each kernel starts with. The graph can be replayed then.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn finish(self) -> Result<Graph> {
        Ok(Graph {
            plan: self.builder.finish()?,
            session: self.session,
        })
    }
}

impl Graph {
    /// Begins a replay on a stream, which is this thread's until [`Replay::finish`].
    ///
    /// # Errors
    /// When the graph is closed or in flight, the stream is not there or has an unfinished launch of this
    /// thread, or the device fails.
    pub fn begin_replay(&self, device: Device, stream: u64) -> Result<Replay> {
        let begin = |key| self.plan.begin_replay(key);
        let replay = self.session.with_stream(device, stream, begin)?;
        Ok(Replay {
            session: Arc::clone(&self.session),
            device,
            stream,
            replay,
            beside: Mutex::default(),
            launched: Mutex::default(),
        })
    }

    /// Gives the graph up. Nobody replays it any more.
    ///
    /// # Errors
    /// When it was closed, or is still running.
    pub fn close(&self) -> Result<()> {
        Ok(self.plan.close()?)
    }

    /// How many kernels it launches.
    pub fn kernels(&self) -> usize {
        self.plan.kernels()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // What is still running keeps its memory until it is done.
        let _ = self.plan.close();
    }
}

impl Replay {
    /// Runs a kernel of the graph, which is a function, on a stream of the host backend: like
    /// [`Session::replay_on_host`].
    ///
    /// # Errors
    /// When devices are GPUs, the stream is not there, the node is no kernel or was launched by this replay
    /// already, or the replay was finished.
    pub fn run_on_host(
        &self,
        stream: u64,
        node: NodeId,
        body: impl Fn(&HostCta<'_>, [u32; 3]) + Send + Sync + 'static,
    ) -> Result<()> {
        let (arguments, info) = self.replay.kernel(node).ok_or_else(|| {
            Error::NotFound(format!(
                "node {} is no kernel that this replay runs",
                node.0
            ))
        })?;
        let launch = KernelLaunch {
            kernel: "a kernel of a graph",
            grid: info.grid,
            block: [1, 1, 1],
            ..KernelLaunch::default()
        };
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        if launched.contains(&node) {
            return Err(Error::WrongOrder(format!(
                "node {} was launched already by this replay: each kernel runs once in a replay",
                node.0
            )));
        }
        let session = &self.session;
        if stream != self.stream {
            let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
            if !beside.contains(&stream) {
                // The replay starts after what its stream was given.
                session.wait_on_host(self.device, stream, self.stream)?;
                beside.push(stream);
            }
        }
        session.replay_on_host(self.device, stream, &launch, arguments, body)?;
        launched.insert(node);
        Ok(())
    }

    /// The graph was given to its stream (`submitted`), or failed and never will be.
    ///
    /// # Errors
    /// When it was finished before, or the device fails.
    pub fn finish(&mut self, submitted: bool) -> Result<()> {
        let beside = self.beside.get_mut();
        for other in std::mem::take(beside.unwrap_or_else(PoisonError::into_inner)) {
            // What follows on the stream comes after all of the graph.
            self.session.wait_on_host(self.device, self.stream, other)?;
        }
        self.replay.finish(submitted)?;
        if let Some(host) = &self.session.host {
            host.runner.ring();
        }
        Ok(())
    }
}
