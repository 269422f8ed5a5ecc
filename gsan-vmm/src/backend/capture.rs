//! Streams that are being captured into a graph: which capture, and what it holds so far.

use super::Result;

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureStatus {
    /// What the stream is given runs.
    #[default]
    None,
    /// What it is given becomes part of the capture of this number; numbers are never used again.
    Active(u64),
    /// The capture was made invalid, and has not been ended: the stream takes nothing.
    Invalid,
}

/// What a node of a graph is, as far as it carries order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A kernel.
    Kernel,
    /// Records an event, by its handle, whenever the graph runs.
    RecordEvent(u64),
    /// Waits for an event, by its handle, whenever the graph runs.
    WaitEvent(u64),
    /// Another graph.
    Graph,
    /// Copies, memsets, host functions, nodes that do nothing, and whatever else there is.
    Other,
}

/// A node that another one comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// The node, by its handle.
    pub node: u64,
    /// It need not have finished: a programmatic edge.
    pub programmatic: bool,
}

/// A node of a capture that goes on. Handles are numbers; no call takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedNode {
    /// Its handle, unique in its capture.
    pub node: u64,
    /// What it is.
    pub kind: NodeKind,
    /// The nodes that it comes after.
    pub dependencies: Vec<Dependency>,
}

/// What a capture holds, as a stream of it sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Whether there is one.
    pub status: CaptureStatus,
    /// The nodes that the stream's next one comes after.
    pub ends: Vec<u64>,
    /// These and all before them, apart from known ones and what comes before those.
    pub nodes: Vec<CapturedNode>,
}

/// Looks at `ends` and at everything before them, once each; what is known is not looked at.
pub(super) fn walk(
    ends: &[u64],
    is_known: &mut dyn FnMut(u64) -> bool,
    mut look: impl FnMut(u64) -> Result<CapturedNode>,
) -> Result<Vec<CapturedNode>> {
    let mut met = std::collections::HashSet::new();
    let mut open: Vec<u64> = ends.to_vec();
    let mut nodes = Vec::new();
    while let Some(node) = open.pop() {
        if is_known(node) || !met.insert(node) {
            continue;
        }
        let looked = look(node)?;
        open.extend(looked.dependencies.iter().map(|on| on.node));
        nodes.push(looked);
    }
    Ok(nodes)
}
