//! Captures as CUDA makes them: what a stream is given comes after what the stream was given before,
//! and a stream that waits for an event of a capture takes part in it.
//!
//! Nodes are what their user says; running them is up to the user, too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::queues::{Key, key};
use super::{BackendError, Device, HostBackend, Result, Stream, invalid};
use crate::backend::capture::{CaptureStatus, Captured, CapturedNode, Dependency, NodeKind, walk};

/// All captures that go on.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// How many streams take part in one: every launch looks here first.
    streams: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    captures: HashMap<u64, Capture>,
    /// Which capture a stream takes part in, and what its next node comes after.
    streams: HashMap<Key, (u64, Vec<u64>)>,
    /// What was captured before an event was recorded.
    events: HashMap<u64, (u64, Vec<u64>)>,
}

#[derive(Debug)]
struct Capture {
    origin: Key,
    valid: bool,
    nodes: HashMap<u64, CapturedNode>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The capture of a stream, if it is valid.
    fn of(&mut self, call: &'static str, key: Key) -> Result<(&mut Capture, &mut Vec<u64>)> {
        let (id, ends) = self
            .streams
            .get_mut(&key)
            .ok_or_else(|| invalid(call, "the stream is not being captured"))?;
        match self.captures.get_mut(id) {
            Some(capture) if capture.valid => Ok((capture, ends)),
            _ => Err(invalid(call, "the capture is invalid")),
        }
    }

    /// Everything of a capture before `ends`, and these.
    fn before(
        &self,
        id: u64,
        ends: &[u64],
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<CapturedNode>> {
        let nodes = self.captures.get(&id).map(|capture| &capture.nodes);
        walk(ends, is_known, |node| {
            let found = nodes.and_then(|nodes| nodes.get(&node)).cloned();
            found.ok_or_else(|| invalid("walk", format!("there is no node {node}")))
        })
    }
}

impl Captures {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostBackend {
    /// Begins a capture, and returns its number. What the stream is given until it ends goes into
    /// the capture, by [`Self::capture_node`].
    ///
    /// # Errors
    /// When the stream is being captured, or is the default stream or one of another backend.
    pub fn begin_capture(&self, device: Device, stream: Stream) -> Result<u64> {
        const CALL: &str = "begin_capture";
        self.device(CALL, device)?;
        let key = key(CALL, device, stream)?;
        if stream == Stream::DEFAULT {
            return Err(invalid(CALL, "the default stream cannot be captured"));
        }
        let mut state = self.captures.state();
        if state.streams.contains_key(&key) {
            return Err(invalid(CALL, "the stream is being captured already"));
        }
        let id = state.number();
        let capture = Capture {
            origin: key,
            valid: true,
            nodes: HashMap::new(),
        };
        state.captures.insert(id, capture);
        state.streams.insert(key, (id, Vec::new()));
        self.captures.streams.store(state.streams.len(), Relaxed);
        Ok(id)
    }

    /// Adds a node that comes after what the stream was given before, and returns its handle; if it is
    /// `programmatic`, what it comes after need not have finished.
    ///
    /// # Errors
    /// When the stream is not being captured, or the capture is invalid.
    pub fn capture_node(
        &self,
        device: Device,
        stream: Stream,
        kind: NodeKind,
        programmatic: bool,
    ) -> Result<u64> {
        const CALL: &str = "capture_node";
        let key = key(CALL, device, stream)?;
        let mut state = self.captures.state();
        let node = state.number();
        let (capture, ends) = state.of(CALL, key)?;
        let dependency = |&node: &u64| Dependency { node, programmatic };
        let captured = CapturedNode {
            node,
            kind,
            dependencies: ends.iter().map(dependency).collect(),
        };
        capture.nodes.insert(node, captured);
        *ends = vec![node];
        Ok(node)
    }

    /// Records an event: whoever waits for it comes after what the stream was given so far.
    ///
    /// # Errors
    /// When the stream is not being captured, or the capture is invalid.
    pub fn capture_record(&self, device: Device, stream: Stream, event: u64) -> Result<()> {
        const CALL: &str = "capture_record";
        let key = key(CALL, device, stream)?;
        let mut state = self.captures.state();
        let ends = state.of(CALL, key)?.1.clone();
        let id = state.streams[&key].0;
        state.events.insert(event, (id, ends));
        Ok(())
    }

    /// Lets a stream wait for an event that was recorded in a capture, of which it is a part from now
    /// on.
    ///
    /// # Errors
    /// When the event was not recorded in a capture that goes on, or the stream takes part in another.
    pub fn capture_wait(&self, device: Device, stream: Stream, event: u64) -> Result<()> {
        const CALL: &str = "capture_wait";
        let key = key(CALL, device, stream)?;
        let mut state = self.captures.state();
        let recorded = state.events.get(&event).cloned();
        let (id, before) =
            recorded.ok_or_else(|| invalid(CALL, "the event was not recorded in a capture"))?;
        if state.captures.get(&id).is_none_or(|capture| !capture.valid) {
            return Err(invalid(CALL, "the capture of the event is over"));
        }
        let (own, ends) = state.streams.entry(key).or_insert((id, Vec::new()));
        if *own != id {
            return Err(invalid(CALL, "the stream takes part in another capture"));
        }
        ends.extend(before);
        ends.sort_unstable();
        ends.dedup();
        self.captures.streams.store(state.streams.len(), Relaxed);
        Ok(())
    }

    /// Makes the capture of a stream invalid, as a call that is forbidden during capture does.
    ///
    /// # Errors
    /// When the stream is not being captured, or the capture is invalid.
    pub fn break_capture(&self, device: Device, stream: Stream) -> Result<()> {
        const CALL: &str = "break_capture";
        let key = key(CALL, device, stream)?;
        self.captures.state().of(CALL, key)?.0.valid = false;
        Ok(())
    }

    /// Ends the capture that began on a stream.
    ///
    /// # Errors
    /// When none began there. When it is invalid, or another stream that takes part was given something
    /// that nothing of this stream comes after; the capture is over then, too.
    pub fn end_capture(&self, device: Device, stream: Stream) -> Result<()> {
        const CALL: &str = "end_capture";
        let key = key(CALL, device, stream)?;
        let mut state = self.captures.state();
        let began = state.streams.get(&key).cloned();
        let (id, ends) = began.ok_or_else(|| invalid(CALL, "the stream is not being captured"))?;
        if state.captures.get(&id).is_none_or(|c| c.origin != key) {
            return Err(invalid(CALL, "the capture began on another stream"));
        }
        let joined = state.before(id, &ends, &mut |_| false)?;
        let is_joined = |end: &u64| joined.iter().any(|node| node.node == *end);
        let parts = state.streams.values().filter(|(of, _)| *of == id);
        let all_joined = parts.flat_map(|(_, ends)| ends).all(is_joined);
        let capture = state.captures.remove(&id);
        state.streams.retain(|_, (of, _)| *of != id);
        self.captures.streams.store(state.streams.len(), Relaxed);
        if capture.is_none_or(|capture| !capture.valid) {
            return Err(invalid(CALL, "the capture is invalid"));
        }
        if !all_joined {
            return Err(invalid(CALL, "a stream of the capture was not joined"));
        }
        Ok(())
    }

    /// What is given to a stream that is being captured must not run.
    pub(super) fn refuse_captured(&self, call: &'static str, key: Key) -> Result<()> {
        if self.captures.streams.load(Relaxed) == 0 {
            return Ok(());
        }
        match self.captures.state().streams.contains_key(&key) {
            false => Ok(()),
            true => Err(refused(call)),
        }
    }

    pub(super) fn status_of(&self, device: Device, stream: Stream) -> Result<CaptureStatus> {
        if self.captures.streams.load(Relaxed) == 0 {
            return Ok(CaptureStatus::None);
        }
        let key = key("capture_status", device, stream)?;
        let state = self.captures.state();
        let Some((id, _)) = state.streams.get(&key) else {
            return Ok(CaptureStatus::None);
        };
        Ok(match state.captures.get(id) {
            Some(capture) if capture.valid => CaptureStatus::Active(*id),
            _ => CaptureStatus::Invalid,
        })
    }

    pub(super) fn captured_by(
        &self,
        device: Device,
        stream: Stream,
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Captured> {
        let status = self.status_of(device, stream)?;
        let CaptureStatus::Active(id) = status else {
            return Ok(Captured {
                status,
                ..Captured::default()
            });
        };
        let key = key("captured", device, stream)?;
        let state = self.captures.state();
        let part = state.streams.get(&key);
        let ends = part.map_or_else(Vec::new, |(_, ends)| ends.clone());
        let nodes = state.before(id, &ends, is_known)?;
        Ok(Captured {
            status,
            ends,
            nodes,
        })
    }
}

fn refused(call: &'static str) -> BackendError {
    invalid(call, "the stream is being captured, and runs nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, host::HostOptions};

    const GPU: Device = Device(0);

    fn stream(number: u64) -> Stream {
        Stream::host(number)
    }

    #[test]
    fn a_stream_joins_a_capture_by_waiting_for_its_event() {
        let backend = HostBackend::new(HostOptions::default()).unwrap();
        let id = backend.begin_capture(GPU, stream(1)).unwrap();
        let add = |number, kind| {
            backend
                .capture_node(GPU, stream(number), kind, false)
                .unwrap()
        };
        let first = add(1, NodeKind::Kernel);
        backend.capture_record(GPU, stream(1), 7).unwrap();
        let status = |number| backend.capture_status(GPU, stream(number)).unwrap();
        assert_eq!(status(2), CaptureStatus::None);
        backend.capture_wait(GPU, stream(2), 7).unwrap();
        assert_eq!(status(2), CaptureStatus::Active(id));
        let copy = add(2, NodeKind::Other);
        let captured = backend
            .captured(GPU, stream(2), &mut |node| node == first)
            .unwrap();
        let after_first = Dependency {
            node: first,
            programmatic: false,
        };
        assert_eq!(captured.ends, [copy]);
        assert_eq!(
            captured.nodes,
            [CapturedNode {
                node: copy,
                kind: NodeKind::Other,
                dependencies: vec![after_first],
            }]
        );
        let error = backend.enqueue(GPU, stream(2), || {}).unwrap_err();
        assert_eq!(error, refused("enqueue"));
        let error = backend.end_capture(GPU, stream(1)).unwrap_err();
        assert!(error.reason.contains("not joined"), "{error}");
        assert_eq!(status(1), CaptureStatus::None);
        backend.enqueue(GPU, stream(2), || {}).unwrap();
    }

    #[test]
    fn an_invalid_capture_takes_nothing_and_cannot_end_well() {
        let backend = HostBackend::new(HostOptions::default()).unwrap();
        backend.begin_capture(GPU, stream(1)).unwrap();
        backend.break_capture(GPU, stream(1)).unwrap();
        let status = backend.capture_status(GPU, stream(1)).unwrap();
        assert_eq!(status, CaptureStatus::Invalid);
        let node = backend.capture_node(GPU, stream(1), NodeKind::Kernel, false);
        assert!(node.unwrap_err().reason.contains("invalid"));
        assert!(backend.end_capture(GPU, stream(1)).is_err());
        backend.begin_capture(GPU, stream(1)).unwrap();
        backend.end_capture(GPU, stream(1)).unwrap();
    }
}
