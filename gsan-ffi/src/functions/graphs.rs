//! Graphs: captured, or built by hand.

use std::ffi::{c_int, c_void};

use std::sync::{Mutex, PoisonError};

use gsan_runtime::session::{Graph, GraphBuilder, Replay};
use gsan_sync::NodeId;

use crate::arguments::{Output, output, slice};
use crate::call::status;
use crate::functions::host::body;
use crate::functions::ordering::kernel_launch;
use crate::handles::{self, Object};
use crate::session::{number, session_with};
use crate::status::{Failure, gsan_status};
use crate::types::{
    gsan_graph, gsan_graph_builder, gsan_host_kernel, gsan_launch_info, gsan_replay,
};

impl Object for Graph {
    type C = gsan_graph;
    const KIND: &'static str = "graph";
}

/// A replay that was begun.
struct Begun(Mutex<Replay>);

impl Object for Begun {
    type C = gsan_replay;
    const KIND: &'static str = "replay";
}

/// A graph that is being built; `None`: it was ended meanwhile.
struct Building(Mutex<Option<GraphBuilder>>);

impl Object for Building {
    type C = gsan_graph_builder;
    const KIND: &'static str = "graph builder";
}

impl Building {
    fn with<T>(
        &self,
        call: impl FnOnce(&mut GraphBuilder) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut builder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call(builder.as_mut().ok_or_else(gone)?)
    }

    fn take(&self) -> Result<GraphBuilder, Failure> {
        let mut builder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        builder.take().ok_or_else(gone)
    }
}

fn gone() -> Failure {
    Failure::invalid("the graph builder was ended by another thread")
}

fn nodes(numbers: &[u32]) -> Vec<NodeId> {
    numbers
        .iter()
        .map(|&number| NodeId(number as usize))
        .collect()
}

/// What a node comes after, and where its number goes.
///
/// # Safety
/// Pointers that are not refused point to what C says.
unsafe fn in_graph<'a>(
    dependencies: *const u32,
    count: usize,
    node: *mut u32,
) -> Result<(Vec<NodeId>, Output<'a, u32>), Failure> {
    if u32::try_from(count).is_err() {
        return Err(Failure::invalid(format!(
            "dependencies: {count} nodes are more than any graph has"
        )));
    }
    // SAFETY: as of this function.
    let (dependencies, node) = unsafe {
        (
            slice(dependencies, count, "dependencies")?,
            output(node, "node")?,
        )
    };
    Ok((nodes(dependencies), node))
}

/// Adds a node and says its number.
fn add(
    builder: *mut gsan_graph_builder,
    node: &Output<'_, u32>,
    call: impl FnOnce(&mut GraphBuilder) -> gsan_runtime::error::Result<NodeId>,
) -> Result<(), Failure> {
    let building = handles::get::<Building>(builder)?;
    let added = building.with(|builder| Ok(call(builder)?))?;
    node.set(number_of(added)?);
    Ok(())
}

fn number_of(node: NodeId) -> Result<u32, Failure> {
    u32::try_from(node.0).map_err(|_| Failure::invalid("the graph has too many nodes"))
}

/// Which capture a stream takes part in; 0: none. It is the id of cuStreamGetCaptureInfo.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_capture_id(
    device: c_int,
    stream: *mut c_void,
    id: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let id = unsafe { output(id, "id") }?;
        let (session, device) = session_with("gsan_capture_id", device)?;
        id.set(session.capture_id(device, number(stream))?);
        Ok(())
    })
}

/// A capture has ended: its launches, records and waits are a graph now. GSAN_NOT_FOUND if there were
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_capture_ended(
    device: c_int,
    capture_id: u64,
    graph: *mut *mut gsan_graph,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let graph = unsafe { output(graph, "graph") }?;
        let (session, _) = session_with("gsan_capture_ended", device)?;
        let captured = session.capture_ended(capture_id)?.ok_or_else(|| {
            Failure::new(
                gsan_status::GSAN_NOT_FOUND,
                format!("nothing that GSan was told of was captured by capture {capture_id}"),
            )
        })?;
        graph.set(handles::insert(captured));
        Ok(())
    })
}

/// A capture has ended, and there is no graph of it: it was invalidated, or its graph thrown away.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_capture_abandoned(device: c_int, capture_id: u64) -> gsan_status {
    status(|| {
        let (session, _) = session_with("gsan_capture_abandoned", device)?;
        session.capture_abandoned(capture_id);
        Ok(())
    })
}

/// Begins a replay of a graph. From here to gsan_replay_end() the stream is this thread's; in between the
/// program launches the graph. While the stream is captured, a copy of the graph becomes part of the new one;
/// see gsan_graph_copy().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_replay_begin(
    graph: *mut gsan_graph,
    device: c_int,
    stream: *mut c_void,
    replay: *mut *mut gsan_replay,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let replay = unsafe { output(replay, "replay") }?;
        let graph = handles::get::<Graph>(graph)?;
        let (_, device) = session_with("gsan_replay_begin", device)?;
        let begun = graph.begin_replay(device, number(stream))?;
        replay.set(handles::insert(Begun(Mutex::new(begun))));
        Ok(())
    })
}

/// On the host backend, which has no graphs of its own: launches a function as a kernel of the graph, between
/// the begin and the end of a replay. Call it once for each kernel, in an order and on streams that go with
/// the graph's edges; gsan_event_recorded() and gsan_event_waited() order streams. `node` is the kernel's
/// number; nodes of another graph that was added have the numbers right before that of the node that stands
/// for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_host_replay(
    replay: *mut gsan_replay,
    stream: *mut c_void,
    node: u32,
    kernel: gsan_host_kernel,
    user: *mut c_void,
) -> gsan_status {
    status(|| {
        let body = body(kernel, user)?;
        let begun = handles::get::<Begun>(replay)?;
        let replay = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(replay.run_on_host(number(stream), NodeId(node as usize), body)?)
    })
}

/// Ends a replay: `submitted` not 0 if the graph was given to the stream. The handle is gone, whatever is
/// returned.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_replay_end(replay: *mut gsan_replay, submitted: c_int) -> gsan_status {
    status(|| {
        let begun = handles::remove::<Begun>(replay)?;
        let mut replay = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(replay.finish(submitted != 0)?)
    })
}

/// Gives a graph up, when no replay of it runs any more. GSAN_LIVE if one does: the handle stays then.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_graph_close(graph: *mut gsan_graph) -> gsan_status {
    status(|| {
        handles::get::<Graph>(graph)?.close()?;
        handles::remove::<Graph>(graph).map(drop)
    })
}

/// Begins a graph that is built by hand, with cuGraphAdd…Node for instance. Nodes are numbered from 0 in
/// the order in which they are added, and depend on earlier ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_begin(
    device: c_int,
    builder: *mut *mut gsan_graph_builder,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let builder = unsafe { output(builder, "builder") }?;
        let (session, device) = session_with("gsan_graph_begin", device)?;
        let begun = session.begin_graph(device)?;
        builder.set(handles::insert(Building(Mutex::new(Some(begun)))));
        Ok(())
    })
}

/// Adds a kernel, which gets `*table` and `*index` at every replay. `programmatic`: dependencies by
/// programmatic edges, which `dependencies` must not list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_kernel(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    programmatic: *const u32,
    programmatic_count: usize,
    info: *const gsan_launch_info,
    node: *mut u32,
    table: *mut u64,
    index: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, programmatic, info, to_node, to_table, to_index) = unsafe {
            (
                nodes(slice(dependencies, count, "dependencies")?),
                nodes(slice(programmatic, programmatic_count, "programmatic")?),
                kernel_launch(info)?,
                output(node, "node")?,
                output(table, "table")?,
                output(index, "index")?,
            )
        };
        let building = handles::get::<Building>(builder)?;
        let (node, arguments) =
            building.with(|builder| Ok(builder.kernel(&dependencies, &programmatic, &info)?))?;
        to_node.set(number_of(node)?);
        to_table.set(arguments.table);
        to_index.set(arguments.index);
        Ok(())
    })
}

/// Adds a node that is no kernel of ours: a copy, a memset, another kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_other(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    node: *mut u32,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, node) = unsafe { in_graph(dependencies, count, node)? };
        add(builder, &node, |builder| builder.other(&dependencies))
    })
}

/// Adds a node that records an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_record(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    event: u64,
    node: *mut u32,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, node) = unsafe { in_graph(dependencies, count, node)? };
        add(builder, &node, |builder| {
            builder.record(&dependencies, event)
        })
    })
}

/// Adds a node that waits for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_wait(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    event: u64,
    node: *mut u32,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, node) = unsafe { in_graph(dependencies, count, node)? };
        add(builder, &node, |builder| builder.wait(&dependencies, event))
    })
}

/// Adds another graph that is built by hand as a node. The child's handle is gone, unless it or the builder's is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_child(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    child: *mut gsan_graph_builder,
    node: *mut u32,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, node) = unsafe { in_graph(dependencies, count, node)? };
        if builder == child {
            return Err(Failure::invalid("a graph cannot be its own child"));
        }
        let building = handles::get::<Building>(builder)?;
        let child = handles::remove::<Building>(child)?.take()?;
        let added = building.with(|builder| Ok(builder.child(&dependencies, child)?))?;
        node.set(number_of(added)?);
        Ok(())
    })
}

/// Adds a copy of a graph that can be replayed already, as cuGraphAddChildGraphNode() does with one that was
/// captured. The graph stays as it is. If a kernel is in the new graph more than once, it is unchecked
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_copy(
    builder: *mut gsan_graph_builder,
    dependencies: *const u32,
    count: usize,
    graph: *mut gsan_graph,
    node: *mut u32,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let (dependencies, node) = unsafe { in_graph(dependencies, count, node)? };
        let graph = handles::get::<Graph>(graph)?;
        add(builder, &node, |builder| {
            builder.graph(&dependencies, &graph)
        })
    })
}

/// Ends the building. The builder's handle is gone, whatever is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_graph_finish(
    builder: *mut gsan_graph_builder,
    graph: *mut *mut gsan_graph,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let graph = unsafe { output(graph, "graph") };
        let building = handles::remove::<Building>(builder);
        let graph = graph?;
        let builder = building?.take()?;
        graph.set(handles::insert(builder.finish()?));
        Ok(())
    })
}
