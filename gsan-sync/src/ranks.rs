//! Which device has which rank, when the processes of a group have to agree on it.
//!
//! Each process says which GPUs it sees, by their UUIDs, and which ranks they have in it: those that its
//! configuration gives them, or that it has begun to use. GPUs without a rank get the lowest ranks that are
//! left, in the order of their UUIDs. So everybody comes to the same result, whoever is asked first, and a
//! GPU has the same rank in every process that sees it and in every run.
//!
//! Several processes may see one GPU. What they *use* is another question ([`used`]): each rank belongs
//! to one process.

use std::collections::BTreeMap;
use std::fmt;

use gsan_core::ids::DeviceRank;
use gsan_vmm::STATE_RANKS;
use gsan_vmm::rendezvous::{Rendezvous, RendezvousError};
use gsan_vmm::share::Parcel;

/// The first word of what processes tell each other.
const HEAD: &str = "gsan-ranks-1";

/// What a process says of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// How many devices its topology has; 0 if that is open.
    pub devices: u32,
    /// The GPUs.
    pub gpus: Vec<Claim>,
}

/// A GPU that a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its number in the process.
    pub device: u32,
    /// The GPU's UUID.
    pub uuid: [u8; 16],
    /// The rank that it has there, if it has one.
    pub rank: Option<DeviceRank>,
}

/// A claim of a process, which has this number in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The process.
    pub process: usize,
    /// The device's number in it.
    pub device: u32,
    /// The GPU's UUID.
    pub uuid: [u8; 16],
}

/// What the processes of a group have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The ranks of each process's devices, by the process's rank, in the order in which it named them.
    pub of: Vec<Vec<DeviceRank>>,
    /// How many devices the topology has.
    pub devices: u32,
}

/// Processes cannot have the ranks that they want.
#[derive(Debug, thiserror::Error)]
pub enum RanksError {
    /// Two GPUs have one rank.
    #[error(
        "{first} and {second} both claim device rank {rank}: give one of them another rank with \
         topology.device_ranks, or let the processes meet before they use GSan, so that they agree on ranks"
    )]
    Claimed {
        /// The rank.
        rank: DeviceRank,
        /// Who claims it.
        first: Claimant,
        /// Who does, too.
        second: Claimant,
    },
    /// One GPU is used by two processes under one rank.
    #[error(
        "{first} and {second} are the same GPU: for it to play two devices, give it a rank in each \
         process with topology.device_ranks"
    )]
    SameGpu {
        /// A process that uses it.
        first: Claimant,
        /// The other one.
        second: Claimant,
    },
    /// A rank is too high, or there are too many devices.
    #[error("{claim} would have device rank {rank}: there are ranks up to {}", STATE_RANKS - 1)]
    TooHigh {
        /// Whose rank it is.
        claim: Claimant,
        /// The rank.
        rank: u32,
    },
    /// A process has a topology that is too small, or another one than the rest.
    #[error(
        "process {process} has a topology of {devices} devices, and {needed} are needed: set \
         topology.num_devices to {needed} in all processes, or to nothing and let them meet before they \
         use GSan"
    )]
    Devices {
        /// The process.
        process: usize,
        /// How many devices its topology has.
        devices: u32,
        /// How many it must have.
        needed: u32,
    },
    /// Another process sent something else.
    #[error("process {process} said {said:?} where the ranks of its devices were expected")]
    Said {
        /// The process's rank.
        process: usize,
        /// What it said.
        said: String,
    },
    /// The processes did not meet.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claimant {
            process,
            device,
            uuid,
        } = self;
        write!(f, "device {device} of process {process} ({})", Uuid(*uuid))
    }
}

/// A UUID as NVIDIA's tools write it.
struct Uuid([u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for part in [0..4, 4..6, 6..8, 8..10, 10..16] {
            f.write_str("-")?;
            self.0[part]
                .iter()
                .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// All claims, with who makes them.
fn all(claims: &[Claims]) -> impl Iterator<Item = (Claimant, Option<DeviceRank>)> {
    claims.iter().enumerate().flat_map(|(process, claims)| {
        claims.gpus.iter().map(move |claim| {
            let claimant = Claimant {
                process,
                device: claim.device,
                uuid: claim.uuid,
            };
            (claimant, claim.rank)
        })
    })
}

/// Gives every GPU that processes see a rank.
///
/// # Errors
/// When two GPUs have one rank, a rank is too high, or topologies do not go together.
pub fn assign(claims: &[Claims]) -> Result<Ranks, RanksError> {
    let too_high = |claim, rank: DeviceRank| {
        let rank = rank.0.into();
        RanksError::TooHigh { claim, rank }
    };
    let mut taken: BTreeMap<DeviceRank, Claimant> = BTreeMap::new();
    for (second, rank) in all(claims) {
        let Some(rank) = rank else { continue };
        if rank.0 >= STATE_RANKS {
            return Err(too_high(second, rank));
        }
        let first = *taken.entry(rank).or_insert(second);
        let is_same = first.uuid == second.uuid;
        if first != second && (!is_same || first.process == second.process) {
            return Err(RanksError::Claimed {
                rank,
                first,
                second,
            });
        }
    }
    // Those without a rank, each GPU once. One that has a single rank elsewhere has it here, too.
    let mut open = BTreeMap::new();
    for (claim, rank) in all(claims) {
        if rank.is_none() {
            open.entry(claim.uuid).or_insert(claim);
        }
    }
    let mut given = BTreeMap::new();
    let mut free = (0..)
        .map(DeviceRank)
        .filter(|rank| !taken.contains_key(rank));
    for (uuid, claim) in open {
        let mut elsewhere = taken.iter().filter(|(_, other)| other.uuid == uuid);
        let rank = match (elsewhere.next(), elsewhere.next()) {
            (Some((&rank, _)), None) => Some(rank),
            _ => free.next(),
        };
        match rank {
            Some(rank) if rank.0 < STATE_RANKS => given.insert(uuid, rank),
            _ => return Err(too_high(claim, rank.unwrap_or(DeviceRank(STATE_RANKS)))),
        };
    }
    let highest = taken.keys().chain(given.values()).max();
    let least = highest.map_or(0, |rank| u32::from(rank.0) + 1);
    let fixed = claims.iter().map(|claims| claims.devices);
    let devices = fixed.clone().max().unwrap_or(0).max(least);
    for (process, fixed) in fixed.enumerate() {
        if fixed != 0 && fixed != devices {
            return Err(RanksError::Devices {
                process,
                devices: fixed,
                needed: devices,
            });
        }
    }
    let rank = |claim: &Claim| claim.rank.or_else(|| given.get(&claim.uuid).copied());
    let of = claims
        .iter()
        .map(|claims| claims.gpus.iter().filter_map(rank).collect());
    Ok(Ranks {
        of: of.collect(),
        devices,
    })
}

/// Sees to it that each rank that processes use belongs to one of them.
///
/// # Errors
/// When two claims have the same rank.
pub fn used(claims: &[Claims]) -> Result<(), RanksError> {
    let mut taken: BTreeMap<DeviceRank, Claimant> = BTreeMap::new();
    for (second, rank) in all(claims) {
        let Some(rank) = rank else { continue };
        let Some(first) = taken.insert(rank, second) else {
            continue;
        };
        if first.uuid == second.uuid {
            return Err(RanksError::SameGpu { first, second });
        }
        return Err(RanksError::Claimed {
            rank,
            first,
            second,
        });
    }
    Ok(())
}

/// Agrees on ranks with all processes of a rendezvous; all of them must call it. `own` is what this
/// process sees.
///
/// # Errors
/// The same as of [`assign`], in every process; also when the processes do not meet in time.
pub fn agree(rendezvous: &mut Rendezvous, own: &Claims) -> Result<Ranks, RanksError> {
    assign(&exchange(rendezvous, own)?)
}

/// Tells all processes of a rendezvous which devices of this one take part, each of which has a rank; all of
/// them must call it.
///
/// # Errors
/// The same as of [`used`], in every process; also when the processes do not meet in time.
pub fn agree_on_use(rendezvous: &mut Rendezvous, own: &Claims) -> Result<(), RanksError> {
    used(&exchange(rendezvous, own)?)
}

/// What all processes say, in the order of their ranks.
fn exchange(rendezvous: &mut Rendezvous, own: &Claims) -> Result<Vec<Claims>, RanksError> {
    let parcel = Parcel {
        text: text(own),
        descriptors: Vec::new(),
    };
    let told = rendezvous.exchange(&parcel)?;
    let claims = told.into_iter().enumerate().map(|(process, parcel)| {
        // Nobody sends to himself.
        let Some(Parcel { text: said, .. }) = parcel else {
            return Ok(own.clone());
        };
        parse(&said).ok_or(RanksError::Said { process, said })
    });
    claims.collect()
}

fn text(claims: &Claims) -> String {
    let gpus = claims.gpus.iter().map(|claim| {
        let (device, uuid) = (claim.device, u128::from_be_bytes(claim.uuid));
        match claim.rank {
            Some(rank) => format!(" {device}:{uuid:032x}={}", rank.0),
            None => format!(" {device}:{uuid:032x}"),
        }
    });
    let head = format!("{HEAD} {}", claims.devices);
    std::iter::once(head).chain(gpus).collect()
}

fn parse(text: &str) -> Option<Claims> {
    let mut words = text.strip_prefix(HEAD)?.split_ascii_whitespace();
    let devices = words.next()?.parse().ok()?;
    let claim = |word: &str| {
        let (device, word) = word.split_once(':')?;
        let (uuid, rank) = match word.split_once('=') {
            Some((uuid, rank)) => (uuid, Some(DeviceRank(rank.parse().ok()?))),
            None => (word, None),
        };
        Some(Claim {
            device: device.parse().ok()?,
            uuid: u128::from_str_radix(uuid, 16).ok()?.to_be_bytes(),
            rank,
        })
    };
    let gpus = words.map(claim).collect::<Option<Vec<_>>>()?;
    Some(Claims { devices, gpus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// GPUs, numbered in this order.
    fn sees(gpus: &[(u8, Option<u16>)]) -> Claims {
        let claim = |(device, &(number, rank)): (u32, &(u8, Option<u16>))| Claim {
            device,
            uuid: [number; 16],
            rank: rank.map(DeviceRank),
        };
        Claims {
            devices: 0,
            gpus: (0..).zip(gpus).map(claim).collect(),
        }
    }

    fn ranks(claims: &[Claims]) -> Vec<Vec<u16>> {
        let of = assign(claims).unwrap().of;
        of.iter()
            .map(|ranks| ranks.iter().map(|rank| rank.0).collect())
            .collect()
    }

    #[test]
    fn ranks_follow_the_order_of_uuids() {
        let claims = [sees(&[(7, None), (3, None)]), sees(&[(5, None)])];
        assert_eq!(ranks(&claims), [vec![2, 0], vec![1]]);
        assert_eq!(assign(&claims).unwrap().devices, 3);
    }

    #[test]
    fn a_gpu_has_the_same_rank_in_all_processes_that_see_it() {
        let claims = [
            sees(&[(7, None), (3, None)]),
            sees(&[(3, None), (7, None)]),
            sees(&[(1, None), (7, None)]),
        ];
        assert_eq!(ranks(&claims), [vec![2, 1], vec![1, 2], vec![0, 2]]);
        let claims = [sees(&[(7, Some(0)), (3, Some(1))]), sees(&[(3, None)])];
        assert_eq!(ranks(&claims), [vec![0, 1], vec![1]]);
    }

    #[test]
    fn ranks_that_are_given_are_kept_and_the_rest_is_filled() {
        let claims = [
            sees(&[(7, Some(0)), (3, None)]),
            sees(&[(5, Some(4)), (1, None)]),
        ];
        assert_eq!(ranks(&claims), [vec![0, 2], vec![4, 1]]);
        assert_eq!(assign(&claims).unwrap().devices, 5);
    }

    #[test]
    fn one_gpu_plays_two_devices_when_it_is_told_to() {
        let claims = [sees(&[(7, Some(0))]), sees(&[(7, Some(1))])];
        assert_eq!(ranks(&claims), [[0], [1]]);
        assert!(used(&claims).is_ok());
        // Which of the two a third one means is not known.
        let [first, second] = claims;
        assert_eq!(ranks(&[first, second, sees(&[(7, None)])]), [[0], [1], [2]]);
        let both = [sees(&[(7, Some(0))]), sees(&[(9, Some(1)), (7, Some(0))])];
        assert!(assign(&both).is_ok(), "both may see it");
        assert_eq!(
            used(&both).unwrap_err().to_string(),
            "device 0 of process 0 (GPU-07070707-0707-0707-0707-070707070707) and device 1 of process \
             1 (GPU-07070707-0707-0707-0707-070707070707) are the same GPU: for it to play two devices, \
             give it a rank in each process with topology.device_ranks"
        );
    }

    #[test]
    fn a_rank_belongs_to_one() {
        let claims = [sees(&[(1, None), (2, Some(3))]), sees(&[(9, Some(3))])];
        let expected = "device 1 of process 0 (GPU-02020202-0202-0202-0202-020202020202) and device 0 \
             of process 1 (GPU-09090909-0909-0909-0909-090909090909) both claim device rank 3: give one \
             of them another rank with topology.device_ranks, or let the processes meet before they use \
             GSan, so that they agree on ranks";
        assert_eq!(assign(&claims).unwrap_err().to_string(), expected);
        assert_eq!(used(&claims).unwrap_err().to_string(), expected);
        let twice = sees(&[(7, Some(1)), (7, Some(1))]);
        assert!(matches!(assign(&[twice]), Err(RanksError::Claimed { .. })));
        let error = assign(&[sees(&[(1, Some(99))])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "device 0 of process 0 (GPU-01010101-0101-0101-0101-010101010101) would have device rank \
             99: there are ranks up to 31"
        );
        let many: Vec<_> = (0..33).map(|number| sees(&[(number, None)])).collect();
        assert!(matches!(
            assign(&many),
            Err(RanksError::TooHigh { rank: 32, .. })
        ));
    }

    #[test]
    fn topologies_are_as_large_as_what_is_fixed() {
        let of = |devices, gpus: &[(u8, Option<u16>)]| Claims {
            devices,
            ..sees(gpus)
        };
        let fixed = [of(4, &[(1, Some(0))]), of(0, &[(2, None)])];
        assert_eq!(assign(&fixed).unwrap().devices, 4);
        let small = [of(0, &[(1, None)]), of(1, &[(2, Some(0))])];
        assert_eq!(
            assign(&small).unwrap_err().to_string(),
            "process 1 has a topology of 1 devices, and 2 are needed: set topology.num_devices to 2 in \
             all processes, or to nothing and let them meet before they use GSan"
        );
        let other = [of(2, &[(1, Some(0))]), of(3, &[(2, Some(1))])];
        assert!(matches!(
            assign(&other),
            Err(RanksError::Devices {
                process: 0,
                devices: 2,
                needed: 3
            })
        ));
    }

    #[test]
    fn what_is_no_claim_is_refused() {
        for said in [
            "",
            "hello",
            "gsan-ranks-1",
            "gsan-ranks-1 -1",
            "gsan-ranks-1 0 xyz",
            "gsan-ranks-1 0 07=1",
            "gsan-ranks-1 0 0:07=-1",
        ] {
            assert_eq!(parse(said), None, "{said:?}");
        }
        assert_eq!(parse(&text(&sees(&[]))), Some(sees(&[])));
    }

    proptest! {
        #[test]
        fn what_is_told_is_understood(
            devices in any::<u32>(),
            gpus in prop::collection::vec(
                (any::<u32>(), any::<[u8; 16]>(), any::<Option<u16>>()), 0..8),
        ) {
            let claim = |(device, uuid, rank): (_, _, Option<u16>)| {
                Claim { device, uuid, rank: rank.map(DeviceRank) }
            };
            let claims = Claims { devices, gpus: gpus.into_iter().map(claim).collect() };
            prop_assert_eq!(parse(&text(&claims)), Some(claims));
        }

        #[test]
        fn all_ranks_differ_and_none_is_left_out_below_those_given(
            gpus in prop::collection::btree_set(any::<u8>(), 1..12),
            fixed in prop::collection::vec(prop::bool::weighted(0.3), 12),
        ) {
            let claims: Vec<Claims> = gpus
                .iter()
                .enumerate()
                .map(|(at, &gpu)| sees(&[(gpu, fixed[at].then_some(2 * at as u16))]))
                .collect();
            let agreed = assign(&claims).unwrap();
            let mut all: Vec<u16> = agreed.of.iter().flatten().map(|rank| rank.0).collect();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            prop_assert_eq!(all.len(), count);
            prop_assert_eq!(agreed.devices, u32::from(all[count - 1]) + 1);
            let mut backwards = claims.clone();
            backwards.reverse();
            let mut of = assign(&backwards).unwrap().of;
            of.reverse();
            if fixed.iter().take(gpus.len()).all(|fixed| !fixed) {
                prop_assert_eq!(of, agreed.of);
            }
        }
    }
}
