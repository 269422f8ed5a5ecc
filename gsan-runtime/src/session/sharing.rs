//! Memory and states that processes share.

use std::time::Duration;

use gsan_config::Config;
use gsan_sync::ranks::{self, Claims, Ranks};
use gsan_vmm::backend::Device;
use gsan_vmm::rendezvous::{Group as Members, Rendezvous};
use gsan_vmm::share::{Parcel, SharedAllocation, SharedState};

use super::{Machine, Session, topology};
use crate::error::{Error, Result};

/// How long ranks wait for each other if the caller gives no limit.
const PATIENCE: Duration = Duration::from_secs(600);

impl Session {
    /// The allocation that `address` lies in, for another process to import, and how many bytes into it
    /// the address lies.
    ///
    /// # Errors
    /// When there is none, or it cannot be exported.
    pub fn export_allocation(&self, address: u64) -> Result<(SharedAllocation, u64)> {
        Ok(self.allocator.export(address)?)
    }

    /// Maps another process's allocation for `device`, and returns its address.
    ///
    /// # Errors
    /// When it contradicts this process's layout, the device does not reach it, or the handle is none.
    pub fn import_allocation(&self, shared: SharedAllocation, device: Device) -> Result<u64> {
        Ok(self.allocator.import(shared, device)?)
    }

    /// The state of a device, for another process to import.
    ///
    /// # Errors
    /// When the device has no rank, or the state cannot be exported.
    pub fn export_state(&self, device: Device) -> Result<SharedState> {
        // It is there from now on.
        self.ordering.state_region(device)?;
        Ok(self.allocator.export_state(self.device_rank(device)?)?)
    }

    /// Maps the state of another process's rank for `device`.
    ///
    /// # Errors
    /// When the rank is taken, or the device does not reach the memory.
    pub fn import_state(&self, shared: SharedState, device: Device) -> Result<u64> {
        let rank = shared.rank;
        let address = self.allocator.import_state(shared, device)?;
        self.ordering.rank_came(rank)?;
        Ok(address)
    }

    /// What this process says of its devices to others.
    pub fn claims(&self) -> Claims {
        topology::claims(&self.config, self.allocator.backend().devices())
    }
}

/// What this process says of its devices to others before it has a session.
pub(crate) fn open_claims(config: &Config) -> Result<Claims> {
    let machine = Machine::choose(config)?;
    Ok(topology::open_claims(config, machine.backend().devices()))
}

/// Ranks that have met, to tell each other what they share.
pub struct Meeting {
    rendezvous: Rendezvous,
    /// States of these ranks are mapped.
    states: Vec<u16>,
}

impl Meeting {
    /// Meets the other ranks of the group `name` on this host. A `limit` of zero is ten minutes; it holds
    /// for each later exchange, too.
    ///
    /// # Errors
    /// When the rank is none of the group or taken, or ranks do not come in time.
    pub fn join(name: &str, rank: u16, ranks: u16, limit: Duration) -> Result<Meeting> {
        let limit = if limit.is_zero() { PATIENCE } else { limit };
        let rendezvous = Rendezvous::join(Members {
            name: name.to_owned(),
            rank,
            ranks,
            hosts: Vec::new(),
            directory: None,
            limit,
        })?;
        Ok(Meeting {
            rendezvous,
            states: Vec::new(),
        })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u16 {
        self.rendezvous.group().ranks
    }

    /// This process's rank.
    pub fn rank(&self) -> u16 {
        self.rendezvous.group().rank
    }

    /// Agrees with the others on the ranks of all devices; `own` are this process's. Everyone calls it.
    ///
    /// # Errors
    /// When two GPUs claim one rank, topologies do not go together, or ranks do not come in time.
    pub fn agree(&mut self, own: &Claims) -> Result<Ranks> {
        Ok(ranks::agree(&mut self.rendezvous, own)?)
    }

    /// Tells the others `mine`; returns what all said, in the order of the ranks. Everyone calls it.
    ///
    /// # Errors
    /// When a rank is gone or does not come in time; the meeting is over then.
    pub fn exchange(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let text: String = mine.iter().map(|byte| format!("{byte:02x}")).collect();
        let parcel = Parcel {
            text,
            descriptors: Vec::new(),
        };
        let told = self.rendezvous.exchange(&parcel)?;
        let bytes = |told: Option<Parcel>| match told {
            None => Ok(mine.to_vec()),
            Some(parcel) => bytes_of(&parcel.text)
                .ok_or_else(|| Error::Argument("a rank did not send bytes".into())),
        };
        told.into_iter().map(bytes).collect()
    }

    /// Shares the allocation at `address` with all ranks, and maps theirs for `device`. Returns the
    /// address of each rank's, as it is mapped here. Everyone calls it.
    ///
    /// # Errors
    /// When there is no allocation, two processes use one device rank, ranks do not come in time, or what they
    /// share does not fit. What was mapped is unmapped again then.
    pub fn share(&mut self, session: &Session, address: u64, device: Device) -> Result<Vec<u64>> {
        let mut used = session.claims();
        let in_use = session.ordering.used_devices();
        used.gpus
            .retain(|claim| claim.device == device.0 || in_use.contains(&Device(claim.device)));
        ranks::agree_on_use(&mut self.rendezvous, &used)?;
        let state = session.export_state(device)?.into_parcel();
        let (allocation, offset) = session.export_allocation(address)?;
        let states = self.rendezvous.exchange(&state)?;
        let allocations = self.rendezvous.exchange(&allocation.into_parcel())?;
        let offsets = self.exchange(&offset.to_le_bytes())?;
        for (rank, parcel) in (0..).zip(states) {
            let Some(parcel) = parcel else { continue };
            if self.states.contains(&rank) {
                continue;
            }
            let shared = SharedState::from_parcel(parcel)?;
            // Another meeting of the same ranks may have mapped it.
            if session.allocator.state(shared.rank).is_none() {
                session.import_state(shared, device)?;
            }
            self.states.push(rank);
        }
        let mut starts = Vec::new();
        for parcel in allocations {
            let imported = match parcel {
                None => Ok(address - offset),
                Some(parcel) => SharedAllocation::from_parcel(parcel)
                    .map_err(Error::from)
                    .and_then(|shared| session.import_allocation(shared, device)),
            };
            match imported {
                Ok(imported) => starts.push(imported),
                Err(error) => {
                    for imported in starts
                        .into_iter()
                        .filter(|&start| start != address - offset)
                    {
                        let _ = session.free(imported, 0, device, 0);
                    }
                    return Err(error);
                }
            }
        }
        let offset_of = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_le_bytes);
        let offsets = offsets.into_iter().map(offset_of);
        Ok(starts
            .into_iter()
            .zip(offsets)
            .map(|(start, offset)| start + offset)
            .collect())
    }
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len()
        .is_multiple_of(2)
        .then(|| text.as_bytes().chunks(2).map(pair).collect())?
}
