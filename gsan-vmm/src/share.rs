//! What one process tells another so that it can map the same memory.
//!
//! What [`Allocator::export`](crate::Allocator::export) returns is packed with `into_parcel` and,
//! on the other side, unpacked with `from_parcel` for [`Allocator::import`](crate::Allocator::import).
//! A parcel holds one allocation or one runtime state.
//!
//! A [`Parcel`] is the form in which it travels: text and descriptors. Without descriptors, that
//! is with fabric handles, any channel can carry it; with them a Unix socket must
//! ([`crate::rendezvous`]).

use std::os::fd::OwnedFd;

use gsan_core::address::Records;
use gsan_core::ids::DeviceRank;
use serde::{Deserialize, Serialize};

use crate::allocator::{STATE_RANKS, STATE_STRIDE};
use crate::backend::SharedHandle;
use crate::error::Error;

/// The version of the texts. It changes when their fields do.
const VERSION: u32 = 1;

/// Physical memory of another process.
#[derive(Debug)]
pub struct SharedMemory {
    /// What the backend imports.
    pub handle: SharedHandle,
    /// Its size in bytes.
    pub bytes: u64,
}

/// An allocation as [`Allocator::export`](crate::Allocator::export) describes it.
#[derive(Debug)]
pub struct SharedAllocation {
    /// The uuid of the device whose memory it is.
    pub owner: [u8; 16],
    /// The bytes that were asked for.
    pub bytes: u64,
    /// Records in a shadow cell.
    pub records: Records,
    /// Whether each byte may be written only once.
    pub write_once: bool,
    /// The memory itself.
    pub real: SharedMemory,
    /// Its shadow, unless it has none.
    pub shadow: Option<SharedMemory>,
}

/// A runtime state as [`Allocator::export_state`](crate::Allocator::export_state) describes it.
#[derive(Debug)]
pub struct SharedState {
    /// The device rank whose state it is.
    pub rank: DeviceRank,
    /// The uuid of the device whose memory it is.
    pub owner: [u8; 16],
    /// The memory.
    pub memory: SharedMemory,
}

/// Something shared, on its way.
#[derive(Debug, Default)]
pub struct Parcel {
    /// What it is: JSON.
    pub text: String,
    /// The descriptors that the text counts on, in order.
    pub descriptors: Vec<OwnedFd>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    bytes: u64,
    /// The fabric handle; without one the part uses the next descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    fabric: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "shared", rename_all = "kebab-case", deny_unknown_fields)]
enum Text {
    Allocation {
        version: u32,
        owner: [u8; 16],
        bytes: u64,
        records: u64,
        write_once: bool,
        real: Part,
        shadow: Option<Part>,
    },
    State {
        version: u32,
        rank: u16,
        owner: [u8; 16],
        memory: Part,
    },
}

impl Parcel {
    fn new(text: &Text, descriptors: Vec<OwnedFd>) -> Parcel {
        Parcel {
            text: serde_json::to_string(text).expect("its keys are strings"),
            descriptors,
        }
    }

    fn open(self) -> Result<(Text, std::vec::IntoIter<OwnedFd>), Error> {
        let text = serde_json::from_str(&self.text).map_err(|e| bad(format!("its text: {e}")))?;
        let (Text::Allocation { version, .. } | Text::State { version, .. }) = text;
        if version != VERSION {
            return Err(bad(format!(
                "it has version {version}, this process knows {VERSION}: use the same GSan in all"
            )));
        }
        Ok((text, self.descriptors.into_iter()))
    }
}

impl Part {
    fn new(memory: SharedMemory, descriptors: &mut Vec<OwnedFd>) -> Part {
        let fabric = match memory.handle {
            SharedHandle::PosixFd(descriptor) => {
                descriptors.push(descriptor);
                None
            }
            SharedHandle::Fabric(name) => Some(name.to_vec()),
        };
        Part {
            bytes: memory.bytes,
            fabric,
        }
    }

    fn open(self, descriptors: &mut impl Iterator<Item = OwnedFd>) -> Result<SharedMemory, Error> {
        let handle = match self.fabric {
            None => SharedHandle::PosixFd(
                descriptors
                    .next()
                    .ok_or_else(|| bad("a descriptor is missing"))?,
            ),
            Some(name) => SharedHandle::Fabric(Box::new(
                name.try_into()
                    .map_err(|_| bad("a fabric handle has 64 bytes"))?,
            )),
        };
        Ok(SharedMemory {
            handle,
            bytes: self.bytes,
        })
    }
}

impl SharedAllocation {
    /// Packs it.
    pub fn into_parcel(self) -> Parcel {
        let mut descriptors = Vec::new();
        let text = Text::Allocation {
            version: VERSION,
            owner: self.owner,
            bytes: self.bytes,
            records: self.records.count() as u64,
            write_once: self.write_once,
            real: Part::new(self.real, &mut descriptors),
            shadow: self
                .shadow
                .map(|shadow| Part::new(shadow, &mut descriptors)),
        };
        Parcel::new(&text, descriptors)
    }

    /// Unpacks it. Sizes are checked when it is imported.
    ///
    /// # Errors
    /// When the parcel holds something else, or not the descriptors it speaks of.
    pub fn from_parcel(parcel: Parcel) -> Result<SharedAllocation, Error> {
        let (text, mut descriptors) = parcel.open()?;
        let Text::Allocation {
            owner,
            bytes,
            records,
            write_once,
            real,
            shadow,
            ..
        } = text
        else {
            return Err(bad("an allocation was expected, it is a runtime state"));
        };
        let records = match records {
            2 => Records::Two,
            4 => Records::Four,
            other => return Err(bad(format!("its cells have {other} records, not 2 or 4"))),
        };
        let shared = SharedAllocation {
            owner,
            bytes,
            records,
            write_once,
            real: real.open(&mut descriptors)?,
            shadow: shadow.map(|part| part.open(&mut descriptors)).transpose()?,
        };
        none_left(descriptors)?;
        Ok(shared)
    }

    /// Whether the sizes fit each other, and the layout of the process that imports.
    pub(crate) fn check(&self, records: Records, unit: u64) -> Result<(), Error> {
        let (theirs, ours) = (self.records.count(), records.count());
        if theirs != ours {
            return Err(bad(format!(
                "its cells have {theirs} records, here they have {ours}: set shadow.records to \
                 the same value in all processes"
            )));
        }
        let real = self.real.bytes;
        if real == 0 || !real.is_multiple_of(unit) {
            return Err(bad(format!("{real} bytes are not in units of {unit}")));
        }
        if self.bytes == 0 || self.bytes > real {
            let bytes = self.bytes;
            return Err(bad(format!("{bytes} bytes in memory of {real}")));
        }
        let expected = real.checked_mul(ours as u64);
        match &self.shadow {
            Some(shadow) if Some(shadow.bytes) != expected => {
                let bytes = shadow.bytes;
                Err(bad(format!(
                    "a shadow of {bytes} bytes for memory of {real}"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl SharedState {
    /// Packs it.
    pub fn into_parcel(self) -> Parcel {
        let mut descriptors = Vec::new();
        let text = Text::State {
            version: VERSION,
            rank: self.rank.0,
            owner: self.owner,
            memory: Part::new(self.memory, &mut descriptors),
        };
        Parcel::new(&text, descriptors)
    }

    /// Unpacks it. Rank and size are checked when it is imported.
    ///
    /// # Errors
    /// When the parcel holds something else, or not the descriptor it speaks of.
    pub fn from_parcel(parcel: Parcel) -> Result<SharedState, Error> {
        let (text, mut descriptors) = parcel.open()?;
        let Text::State {
            rank,
            owner,
            memory,
            ..
        } = text
        else {
            return Err(bad("a runtime state was expected, it is an allocation"));
        };
        let shared = SharedState {
            rank: DeviceRank(rank),
            owner,
            memory: memory.open(&mut descriptors)?,
        };
        none_left(descriptors)?;
        Ok(shared)
    }

    /// Whether rank and size are possible here.
    pub(crate) fn check(&self, unit: u64) -> Result<(), Error> {
        if self.rank.0 >= STATE_RANKS {
            return Err(Error::BadRank(self.rank));
        }
        let bytes = self.memory.bytes;
        if bytes == 0 || !bytes.is_multiple_of(unit) {
            return Err(bad(format!("{bytes} bytes are not in units of {unit}")));
        }
        if bytes > STATE_STRIDE {
            return Err(Error::StateTooLarge { bytes });
        }
        Ok(())
    }
}

fn none_left(mut descriptors: impl Iterator<Item = OwnedFd>) -> Result<(), Error> {
    match descriptors.next() {
        None => Ok(()),
        Some(_) => Err(bad("there are more descriptors than memory")),
    }
}

fn bad(reason: impl Into<String>) -> Error {
    Error::BadShare(reason.into())
}
