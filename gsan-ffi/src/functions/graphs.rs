//! Graphs: captured, or built by hand.

use std::ffi::{c_int, c_void};

use crate::arguments::{output, slice, versioned};
use crate::call::status;
use crate::status::{Failure, gsan_status};
use crate::types::{gsan_graph, gsan_graph_builder, gsan_launch_info, gsan_replay};

/// Which capture a stream takes part in; 0: none. It is the id of cuStreamGetCaptureInfo.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_capture_id(
    device: c_int,
    stream: *mut c_void,
    id: *mut u64,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _id = unsafe { output(id, "id") }?;
        let _ = (device, stream);
        Err(Failure::not_yet())
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
        let _graph = unsafe { output(graph, "graph") }?;
        let _ = (device, capture_id);
        Err(Failure::not_yet())
    })
}

/// Begins a replay of a graph. From here to gsan_replay_end() the stream is this thread's; in between the
/// program launches the graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_replay_begin(
    graph: *mut gsan_graph,
    device: c_int,
    stream: *mut c_void,
    replay: *mut *mut gsan_replay,
) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let _replay = unsafe { output(replay, "replay") }?;
        let _ = (graph, device, stream);
        Err(Failure::not_yet())
    })
}

/// Ends a replay: `submitted` not 0 if the graph was given to the stream. The handle is gone, whatever is
/// returned.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_replay_end(replay: *mut gsan_replay, submitted: c_int) -> gsan_status {
    status(|| {
        let _ = (replay, submitted);
        Err(Failure::not_yet())
    })
}

/// Gives a graph up, when no replay of it runs any more. GSAN_LIVE if one does: the handle stays then.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_graph_close(graph: *mut gsan_graph) -> gsan_status {
    status(|| {
        let _ = graph;
        Err(Failure::not_yet())
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
        let _builder = unsafe { output(builder, "builder") }?;
        let _ = device;
        Err(Failure::not_yet())
    })
}

/// Adds a kernel, which gets `*table` and `*index` at every replay. `programmatic`: dependencies by
/// programmatic edges, which `dependencies` does not list.
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
        let _arguments = unsafe {
            (
                slice(dependencies, count, "dependencies")?,
                slice(programmatic, programmatic_count, "programmatic")?,
                versioned(info, "info")?,
                output(node, "node")?,
                output(table, "table")?,
                output(index, "index")?,
            )
        };
        let _ = builder;
        Err(Failure::not_yet())
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
        let _arguments = unsafe {
            (
                slice(dependencies, count, "dependencies")?,
                output(node, "node")?,
            )
        };
        let _ = builder;
        Err(Failure::not_yet())
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
        let _arguments = unsafe {
            (
                slice(dependencies, count, "dependencies")?,
                output(node, "node")?,
            )
        };
        let _ = (builder, event);
        Err(Failure::not_yet())
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
        let _arguments = unsafe {
            (
                slice(dependencies, count, "dependencies")?,
                output(node, "node")?,
            )
        };
        let _ = (builder, event);
        Err(Failure::not_yet())
    })
}

/// Adds another graph as a node. The child's handle is gone if this succeeds.
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
        let _arguments = unsafe {
            (
                slice(dependencies, count, "dependencies")?,
                output(node, "node")?,
            )
        };
        let _ = (builder, child);
        Err(Failure::not_yet())
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
        let _graph = unsafe { output(graph, "graph") }?;
        let _ = builder;
        Err(Failure::not_yet())
    })
}
