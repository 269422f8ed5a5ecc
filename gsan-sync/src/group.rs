//! Groups of ranks that share memory: barriers and collectives, over all processes.
//!
//! Each rank has a count and two rows over all ids at the same place of its state region, which all
//! processes map. To publish, a stream merges everything that it knows into a row and raises the
//! count, with a system-scope release. To merge, it takes over the rows of all others. Two rows are
//! enough: who publishes for the second time after a meeting has been to the next one, to which
//! everybody came after having merged. Of collectives that overlap it is not known which one a stream
//! waited for, so it takes over both rows: later publications only add to what a row says.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_vmm::backend::{Device, FenceId};

use crate::error::Error;
use crate::graph::all_of_frontier;
use crate::kernels::Step;
use crate::launch::release;
use crate::ordering::{DeviceState, Inner, Ordering};
use crate::state::entries;
use crate::stream::{Begun, Stream, StreamKey, StreamState};

/// Meetings whose missing ranks are kept.
const KEPT: u32 = 32;

/// How often the end of a barrier is looked for.
const LOOK: Duration = Duration::from_micros(100);

/// A group of ranks, as one of them sees it.
pub struct Group {
    inner: Arc<Inner>,
    device: usize,
    others: Vec<DeviceRank>,
    state: Mutex<GroupState>,
}

#[derive(Default)]
struct GroupState {
    /// How many meetings there were.
    meetings: u32,
    /// Behind the newest one.
    fence: Option<FenceId>,
    /// Collectives that were begun and not waited for.
    open: u32,
    /// The rows, a bit each, of the open ones, and of those that overlapped with them.
    rows: u32,
}

/// A barrier that a stream was given.
pub struct Arrival {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
    fence: FenceId,
    missing: u64,
    limit: Duration,
}

impl Ordering {
    /// Makes the ranks that share memory with `device` known; its own must be among them. A process whose
    /// devices are in groups of different ranks does not restart: who depends on whom is not known then.
    ///
    /// # Errors
    /// When the device has no rank or is in a group, a rank is named twice, or the state of one of the ranks is not mapped in
    /// this process.
    pub fn group(&self, device: Device, ranks: &[DeviceRank]) -> Result<Group, Error> {
        let inner = &self.inner;
        let place = inner.place(device)?;
        let state = &inner.devices[place];
        let own = state.region.rank;
        if !ranks.contains(&own) {
            return Err(Error::NotInGroup { device, rank: own });
        }
        for (at, &rank) in ranks.iter().enumerate() {
            if ranks[..at].contains(&rank) {
                return Err(Error::RankTwice(rank));
            }
            // One of this process that was not used yet has its state from now on, unless another process uses
            // the device.
            if inner.allocator.state(rank).is_none()
                && let Some(own) = inner
                    .settings
                    .device_ranks
                    .iter()
                    .position(|&known| known == rank)
            {
                inner.place(inner.settings.device_at(own))?;
            }
            if inner.allocator.state(rank).is_none() {
                return Err(Error::RankMissing(rank));
            }
        }
        let place = inner.place(device)?;
        if state.grouped.swap(true, Relaxed) {
            return Err(Error::GroupExists(device));
        }
        if let Err(error) = inner.join_group(place, ranks) {
            state.grouped.store(false, Relaxed);
            return Err(error);
        }
        Ok(Group {
            inner: Arc::clone(inner),
            device: place,
            others: ranks.iter().copied().filter(|&rank| rank != own).collect(),
            state: Mutex::default(),
        })
    }
}

impl Group {
    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> &DeviceState {
        &self.inner.devices[self.device]
    }

    /// Puts a barrier into a stream: what all ranks' streams were given before it is ordered before
    /// what they are given after it. After `limit` it is left without those who did not come.
    ///
    /// # Errors
    /// When the stream is not known or has an unfinished launch of this thread, there is no memory,
    /// or the backend fails.
    pub fn barrier(&self, key: StreamKey, limit: Duration) -> Result<Arrival, Error> {
        let mut missing = 0;
        let (stream, fence) = self.meet(key, |group, state, meeting| {
            let region = &group.device().region;
            let own = region.meeting_of(region.rank);
            missing = own.missing + 4 * u64::from(meeting % KEPT);
            let count = |&rank: &DeviceRank| (rank.0, region.meeting_of(rank).count);
            let (go_on, merge) = group.merge(state, 1 << (meeting % 2))?;
            let mut steps = vec![Step::Count {
                address: missing,
                stride: 4,
                words: 1,
                first: 0,
            }];
            steps.extend(go_on);
            steps.extend(group.publish(state, meeting));
            steps.push(Step::Await {
                counts: group.others.iter().map(count).collect(),
                value: meeting,
                limit: limit.as_nanos().min(u128::from(u64::MAX)) as u64,
                missing,
            });
            steps.extend(merge);
            Ok(steps)
        })?;
        Ok(Arrival {
            inner: Arc::clone(&self.inner),
            stream,
            fence,
            missing,
            limit,
        })
    }

    /// A collective of the group is about to be put into a stream: tells the others what comes before.
    ///
    /// Of one that is captured nothing can be told when its graph runs. The launches of the capture count as
    /// opaque then: their races are possible ones. What comes before and after a replay is ordered if this
    /// is called before it, and [`Self::after_collective`] after it.
    ///
    /// # Errors
    /// The same as of [`Self::barrier`].
    pub fn before_collective(&self, key: StreamKey) -> Result<(), Error> {
        if self.inner.capture_meets(&*self.inner.stream(key)?)? {
            return Ok(());
        }
        let (_, fence) = self.meet(key, |group, state, meeting| {
            Ok(group.publish(state, meeting))
        })?;
        self.inner.backend.forget(fence);
        let mut state = self.state();
        if state.open == 0 {
            state.rows = 0;
        }
        state.open += 1;
        state.rows |= 1 << (state.meetings % 2);
        Ok(())
    }

    /// The collective was put into the stream, and waits for all ranks: what comes next is ordered
    /// after what all of them did before it.
    ///
    /// # Errors
    /// The same as of [`Self::barrier`].
    pub fn after_collective(&self, key: StreamKey) -> Result<(), Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        if inner.capture_meets(&stream)? {
            return Ok(());
        }
        let rows = self.state().rows;
        self.give(&stream, |state| {
            let (mut steps, merge) = self.merge(state, rows)?;
            steps.extend(merge);
            Ok(steps)
        })?;
        // It may be waited for again, on another stream.
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        Ok(())
    }

    /// How many meetings each rank of the group has come to, by what its memory says now. Barriers of a stream
    /// that has not got there are not counted yet.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn counts(&self) -> Result<Vec<(DeviceRank, u32)>, Error> {
        let region = &self.device().region;
        let mut ranks = self.others.clone();
        ranks.push(region.rank);
        ranks.sort_unstable();
        let count = |rank: DeviceRank| {
            let mut word = [0; 4];
            let at = region.meeting_of(rank).count;
            self.inner.backend.read(region.device, at, &mut word)?;
            Ok((rank, u32::from_le_bytes(word)))
        };
        ranks.into_iter().map(count).collect()
    }

    /// Counts a meeting, and gives the stream its steps behind those of the one before.
    fn meet(
        &self,
        key: StreamKey,
        steps: impl FnOnce(&Group, &mut StreamState, u32) -> Result<Vec<Step>, Error>,
    ) -> Result<(Arc<Stream>, FenceId), Error> {
        let inner = &self.inner;
        let stream = inner.stream(key)?;
        let mut state = self.state();
        if let Some(fence) = state.fence
            && !inner.backend.passed(fence)?
        {
            inner.backend.wait_on(key.device, stream.queue, fence)?;
        }
        let meeting = state.meetings.wrapping_add(1);
        self.give(&stream, |stream| steps(self, stream, meeting))?;
        state.meetings = meeting;
        let fence = inner.backend.fence(key.device, stream.queue)?;
        if let Some(old) = state.fence.replace(fence) {
            inner.backend.forget(old);
        }
        // One for the group, one for whoever waits.
        let fence = inner.backend.fence(key.device, stream.queue)?;
        Ok((stream, fence))
    }

    /// Gives the stream steps, behind everything that it was given so far.
    fn give(
        &self,
        stream: &Arc<Stream>,
        steps: impl FnOnce(&mut StreamState) -> Result<Vec<Step>, Error>,
    ) -> Result<(), Error> {
        let inner = &self.inner;
        inner.refuse_captured(stream, "a barrier")?;
        let (mut state, held) = inner.occupy_awake(stream, Begun::Call)?;
        inner.awake(self.device());
        let given = inner.join_all(stream, &mut state).and_then(|joined| {
            if !joined {
                return Err(self.no_room());
            }
            let steps = steps(&mut state)?;
            let device = stream.key.device;
            Ok(inner.kernels.run(device, stream.queue, steps)?)
        });
        stream.leave(state);
        release(&held);
        stream.changed();
        given
    }

    /// Tells the others what the stream knows.
    fn publish(&self, state: &StreamState, meeting: u32) -> Vec<Step> {
        let region = &self.device().region;
        let own = region.meeting_of(region.rank);
        let mut steps = all_of_frontier(region, state, own.rows[meeting as usize % 2]);
        steps.push(Step::Arrive {
            count: own.count,
            value: meeting,
        });
        steps
    }

    /// Steps by which the stream goes on with rows of its own, and those that take over what the others
    /// told in `rows`, a bit each.
    fn merge(&self, state: &mut StreamState, rows: u32) -> Result<(Vec<Step>, Vec<Step>), Error> {
        let region = &self.device().region;
        let (slots, ids) = (region.topology.slots(), region.topology.ids());
        let pair = state.new_frontier().map_err(|_| self.no_room())?;
        let (old, _) = state.frontier();
        let target = entries(pair.foreign);
        let merge = |source, source_filled| Step::Merge {
            target,
            source,
            entries: ids,
            source_filled,
            target_filled: pair.foreign,
        };
        let go_on = vec![
            Step::Merge {
                target: pair.own,
                source: old.own,
                entries: slots,
                source_filled: 0,
                target_filled: 0,
            },
            merge(entries(old.foreign), old.foreign),
        ];
        let others = self.others.iter().flat_map(|&rank| {
            let told = region.meeting_of(rank).rows.into_iter().enumerate();
            told.filter(|(place, _)| rows >> place & 1 != 0)
                .map(|(_, row)| merge(entries(row), row))
        });
        let others = others.collect();
        state.replace_frontier(pair);
        Ok((go_on, others))
    }

    fn no_room(&self) -> Error {
        let region = &self.device().region;
        Error::NoRoomForRows {
            device: region.device,
            room: 0,
            least: region.own_bytes() + region.foreign_bytes(),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(fence) = self.state().fence.take() {
            self.inner.backend.forget(fence);
        }
        self.inner.leave_group(self.device);
        self.device().grouped.store(false, Relaxed);
    }
}

impl Arrival {
    /// Whether the stream has left the barrier.
    ///
    /// # Errors
    /// [`Error::BarrierTimeout`] when it was left without everybody; also when the backend fails.
    pub fn is_over(&self) -> Result<bool, Error> {
        let backend = &self.inner.backend;
        if !backend.passed(self.fence)? {
            return Ok(false);
        }
        let mut word = [0; 4];
        backend.read(self.stream.key.device, self.missing, &mut word)?;
        let late = u32::from_le_bytes(word);
        if late == 0 {
            return Ok(true);
        }
        let missing = (0..32u16).filter(|rank| late >> rank & 1 != 0);
        Err(Error::BarrierTimeout {
            missing: missing.map(DeviceRank).collect(),
            limit: self.limit,
        })
    }

    /// Waits until the stream has left the barrier, on the host.
    ///
    /// # Errors
    /// The same as of [`Self::is_over`].
    pub fn wait(&self) -> Result<(), Error> {
        while !self.is_over()? {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.inner.backend.forget(self.fence);
    }
}
