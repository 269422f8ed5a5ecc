//! Order between launches: what each launch starts after, worked out from streams, events, host
//! waits and programmatic launches.
//!
//! Both detectors ask here, so that they agree on every edge the host makes. The answers name
//! launches whose *completions* are joined: what a launch was ordered after is part of its
//! completion, so only the newest ones are named.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{HostEvent, Launch};
use crate::ids::{DeviceRank, LaunchId, StreamId};

/// What one launch is ordered after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Launches whose completion is part of the starting frontier of every CTA.
    pub after: Vec<LaunchId>,
    /// Launches of the same stream that a dependent launch may overtake: a CTA also takes the
    /// completion of those whose CTAs have all exited when it starts. Empty for a normal launch.
    pub overtaken: Vec<LaunchId>,
    /// What `griddepcontrol.wait` adds: the completion of the launch before. `None` for a normal
    /// launch.
    pub waits_for: Option<LaunchId>,
}

/// The host's side of happens-before.
#[derive(Clone, Debug, Default)]
pub struct HostOrder {
    streams: BTreeMap<StreamId, Stream>,
    /// What the newest record of an event remembers.
    events: BTreeMap<u32, BTreeSet<LaunchId>>,
    /// What the host knows to be done; every later launch starts after it.
    host: BTreeSet<LaunchId>,
    /// `Start::after` of every launch that a set of this structure may still name.
    after: BTreeMap<LaunchId, BTreeSet<LaunchId>>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    device: Option<DeviceRank>,
    /// What the next normal launch starts after: every launch since the last normal one, that one
    /// included, and what was waited for.
    front: BTreeSet<LaunchId>,
    /// What was waited for since the last launch; a dependent launch may not overtake it.
    waited: BTreeSet<LaunchId>,
    last: Option<LaunchId>,
}

impl HostOrder {
    /// No launches, no edges.
    pub fn new() -> Self {
        HostOrder::default()
    }

    /// Takes an edge of the host program. Waiting for an event that was never recorded is no
    /// edge, as in CUDA.
    pub fn host(&mut self, event: HostEvent) {
        match event {
            HostEvent::Record { event, stream } => {
                let front = self.front(stream);
                self.events.insert(event, front);
            }
            HostEvent::Wait { event, stream } => {
                if let Some(recorded) = self.events.get(&event) {
                    let stream = self.streams.entry(stream).or_default();
                    stream.front.extend(recorded);
                    stream.waited.extend(recorded);
                }
            }
            HostEvent::SyncStream(stream) => {
                let front = self.front(stream);
                self.host_learns(front);
            }
            HostEvent::SyncEvent(event) => {
                let recorded = self.events.get(&event).cloned().unwrap_or_default();
                self.host_learns(recorded);
            }
            HostEvent::SyncDevice(device) => {
                let fronts = self.streams.values().filter(|s| s.device == Some(device));
                let known = fronts.flat_map(|s| s.front.iter().copied()).collect();
                self.host_learns(known);
            }
        }
    }

    /// Takes a launch and says what it starts after.
    pub fn launch(&mut self, launch: &Launch) -> Start {
        let stream = self.streams.entry(launch.stream).or_default();
        stream.device = Some(launch.device);
        let waited = std::mem::take(&mut stream.waited);
        let previous = stream.last.replace(launch.id);
        let (after, start) = match previous.filter(|_| launch.programmatic) {
            Some(previous) => {
                let mut after = self.after.get(&previous).cloned().unwrap_or_default();
                after.extend(&waited);
                after.extend(&self.host);
                let overtaken = stream.front.difference(&after).copied().collect();
                stream.front.insert(launch.id);
                let start = Start {
                    overtaken,
                    waits_for: Some(previous),
                    ..Start::default()
                };
                (after, start)
            }
            None => {
                let mut after = std::mem::take(&mut stream.front);
                after.extend(&self.host);
                stream.front.insert(launch.id);
                (after, Start::default())
            }
        };
        let after = self.newest(after);
        let start = Start {
            after: after.iter().copied().collect(),
            ..start
        };
        self.after.insert(launch.id, after);
        self.forget_unnamed();
        start
    }

    fn front(&self, stream: StreamId) -> BTreeSet<LaunchId> {
        self.streams
            .get(&stream)
            .map(|s| s.front.clone())
            .unwrap_or_default()
    }

    fn host_learns(&mut self, known: BTreeSet<LaunchId>) {
        let mut host = std::mem::take(&mut self.host);
        host.extend(known);
        self.host = self.newest(host);
    }

    /// Drops launches that another member's completion vouches for.
    fn newest(&self, mut set: BTreeSet<LaunchId>) -> BTreeSet<LaunchId> {
        let members: Vec<_> = set.iter().copied().collect();
        for older in members.iter().filter_map(|l| self.after.get(l)).flatten() {
            set.remove(older);
        }
        set
    }

    /// Keeps `after` as small as what can still be asked for.
    fn forget_unnamed(&mut self) {
        const OFTEN_ENOUGH: usize = 64;
        if !self.after.len().is_multiple_of(OFTEN_ENOUGH) {
            return;
        }
        let mut named: BTreeSet<LaunchId> = self.host.iter().copied().collect();
        for stream in self.streams.values() {
            named.extend(
                stream
                    .front
                    .iter()
                    .chain(&stream.waited)
                    .chain(&stream.last),
            );
        }
        named.extend(self.events.values().flatten());
        self.after.retain(|launch, _| named.contains(launch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(order: &mut HostOrder, id: u32, stream: u32, programmatic: bool) -> Start {
        order.launch(&Launch {
            id: LaunchId(id),
            device: DeviceRank(0),
            stream: StreamId(stream),
            ctas: 1,
            threads: 1,
            cluster: 1,
            programmatic,
        })
    }

    fn ids(ids: &[u32]) -> Vec<LaunchId> {
        ids.iter().copied().map(LaunchId).collect()
    }

    #[test]
    fn launches_on_one_stream_start_after_the_one_before() {
        let mut order = HostOrder::new();
        assert_eq!(launch(&mut order, 1, 0, false).after, ids(&[]));
        assert_eq!(launch(&mut order, 2, 0, false).after, ids(&[1]));
        assert_eq!(launch(&mut order, 3, 0, false).after, ids(&[2]));
        assert_eq!(launch(&mut order, 4, 1, false).after, ids(&[]));
    }

    #[test]
    fn an_event_carries_what_was_recorded_and_nothing_later() {
        let mut order = HostOrder::new();
        let (a, b) = (StreamId(0), StreamId(1));
        launch(&mut order, 1, 0, false);
        order.host(HostEvent::Record {
            event: 7,
            stream: a,
        });
        launch(&mut order, 2, 0, false);
        launch(&mut order, 3, 1, false);
        order.host(HostEvent::Wait {
            event: 7,
            stream: b,
        });
        assert_eq!(launch(&mut order, 4, 1, false).after, ids(&[1, 3]));
        order.host(HostEvent::Wait {
            event: 8,
            stream: b,
        });
        assert_eq!(launch(&mut order, 5, 1, false).after, ids(&[4]));
    }

    #[test]
    fn a_host_wait_orders_every_later_launch_on_any_stream() {
        let mut order = HostOrder::new();
        launch(&mut order, 1, 0, false);
        launch(&mut order, 2, 1, false);
        order.host(HostEvent::SyncStream(StreamId(0)));
        assert_eq!(launch(&mut order, 3, 2, false).after, ids(&[1]));
        order.host(HostEvent::SyncDevice(DeviceRank(0)));
        assert_eq!(launch(&mut order, 4, 3, false).after, ids(&[2, 3]));
        order.host(HostEvent::SyncDevice(DeviceRank(1)));
        assert_eq!(launch(&mut order, 5, 4, false).after, ids(&[2, 3]));
    }

    #[test]
    fn waiting_for_an_event_on_the_host_leaves_later_work_unordered() {
        let mut order = HostOrder::new();
        launch(&mut order, 1, 0, false);
        order.host(HostEvent::Record {
            event: 0,
            stream: StreamId(0),
        });
        launch(&mut order, 2, 0, false);
        order.host(HostEvent::SyncEvent(0));
        assert_eq!(launch(&mut order, 3, 1, false).after, ids(&[1]));
    }

    #[test]
    fn a_dependent_launch_starts_with_its_predecessors_frontier() {
        let mut order = HostOrder::new();
        launch(&mut order, 1, 0, false);
        launch(&mut order, 2, 0, false);
        let start = launch(&mut order, 3, 0, true);
        assert_eq!(start.after, ids(&[1]));
        assert_eq!(start.overtaken, ids(&[2]));
        assert_eq!(start.waits_for, Some(LaunchId(2)));
        let start = launch(&mut order, 4, 0, true);
        assert_eq!(start.after, ids(&[1]));
        assert_eq!(start.overtaken, ids(&[2, 3]));
        assert_eq!(start.waits_for, Some(LaunchId(3)));
        let start = launch(&mut order, 5, 0, false);
        assert_eq!(start.after, ids(&[2, 3, 4]));
        assert_eq!(start.waits_for, None);
    }

    #[test]
    fn a_dependent_launch_does_not_overtake_an_event_wait() {
        let mut order = HostOrder::new();
        launch(&mut order, 1, 1, false);
        order.host(HostEvent::Record {
            event: 0,
            stream: StreamId(1),
        });
        launch(&mut order, 2, 0, false);
        order.host(HostEvent::Wait {
            event: 0,
            stream: StreamId(0),
        });
        let start = launch(&mut order, 3, 0, true);
        assert_eq!(start.after, ids(&[1]));
        assert_eq!(start.overtaken, ids(&[2]));
    }

    #[test]
    fn the_first_launch_of_a_stream_has_nothing_to_depend_on() {
        let mut order = HostOrder::new();
        assert_eq!(launch(&mut order, 1, 0, true), Start::default());
    }

    #[test]
    fn memory_does_not_grow_with_the_number_of_launches() {
        let mut order = HostOrder::new();
        for id in 0..10_000 {
            launch(&mut order, id, id % 3, false);
        }
        assert!(order.after.len() <= 64 + 3);
    }
}
