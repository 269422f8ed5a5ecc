//! Which device has which rank, when the processes of a group have to agree on it.
//!
//! Each process says which GPUs it uses, by their UUIDs, and which ranks its configuration gives them. GPUs
//! without a rank get the lowest ranks that are left, in the order of their UUIDs. So everybody comes to
//! the same result, whoever is asked first, and a GPU has the same rank in every run.

use std::collections::BTreeMap;
use std::fmt;

use gsan_core::ids::DeviceRank;
use gsan_vmm::STATE_RANKS;
use gsan_vmm::rendezvous::{Rendezvous, RendezvousError};
use gsan_vmm::share::Parcel;

/// The first word of what processes tell each other.
const HEAD: &str = "gsan-ranks-1";

/// A GPU that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The GPU's UUID.
    pub uuid: [u8; 16],
    /// The rank that the configuration gives it, if it does.
    pub rank: Option<DeviceRank>,
}

/// What the processes of a group have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The ranks of each process's devices, by the process's rank, in the order in which it named them.
    pub of: Vec<Vec<DeviceRank>>,
    /// How many devices the topology has: one more than the highest rank.
    pub devices: u32,
}

/// Processes cannot have the ranks that they want.
#[derive(Debug, thiserror::Error)]
pub enum RanksError {
    /// Two claims of one rank.
    #[error(
        "{} and {} both claim device rank {rank}: give one of them another rank with \
         topology.device_ranks", claimant(*first), claimant(*second)
    )]
    Claimed {
        /// The rank.
        rank: DeviceRank,
        /// A process, the place of the device in it, and the device's UUID.
        first: (usize, usize, [u8; 16]),
        /// The other one.
        second: (usize, usize, [u8; 16]),
    },
    /// One GPU is used by two processes and was given no rank by one of them.
    #[error(
        "{} and {} are the same GPU: for it to play two devices, give it a rank in each process with \
         topology.device_ranks", claimant(*first), claimant(*second)
    )]
    SameGpu {
        /// A process, the place of the device in it, and the device's UUID.
        first: (usize, usize, [u8; 16]),
        /// The other one.
        second: (usize, usize, [u8; 16]),
    },
    /// A rank is too high, or there are too many devices.
    #[error(
        "{} would have device rank {rank}: there are ranks up to {}", claimant(*claim), STATE_RANKS - 1
    )]
    TooHigh {
        /// The process, the place of the device in it, and the device's UUID.
        claim: (usize, usize, [u8; 16]),
        /// The rank.
        rank: u32,
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

/// A claim in words.
fn claimant((process, device, uuid): (usize, usize, [u8; 16])) -> String {
    format!("device {device} of process {process} ({})", Uuid(uuid))
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

/// Gives every device of every process a rank.
///
/// # Errors
/// When two claims are for one rank, a GPU without a rank is claimed twice, or a rank is too high.
pub fn assign(claims: &[Vec<Claim>]) -> Result<Ranks, RanksError> {
    let all = || {
        claims.iter().enumerate().flat_map(|(process, devices)| {
            let named = devices.iter().enumerate();
            named.map(move |(device, claim)| ((process, device, claim.uuid), claim.rank))
        })
    };
    let mut taken = BTreeMap::new();
    for (claim, rank) in all() {
        let Some(rank) = rank else { continue };
        if u32::from(rank.0) >= u32::from(STATE_RANKS) {
            let rank = rank.0.into();
            return Err(RanksError::TooHigh { claim, rank });
        }
        if let Some(&first) = taken.get(&rank) {
            let second = claim;
            return Err(RanksError::Claimed {
                rank,
                first,
                second,
            });
        }
        taken.insert(rank, claim);
    }
    let mut open = BTreeMap::new();
    for (claim, rank) in all() {
        let same = all().find(|(other, _)| other.2 == claim.2 && *other != claim);
        if rank.is_some() {
            continue;
        }
        if let Some((other, _)) = same {
            let (first, second) = (claim.min(other), claim.max(other));
            return Err(RanksError::SameGpu { first, second });
        }
        open.insert(claim.2, claim);
    }
    let free = (0..)
        .map(DeviceRank)
        .filter(|rank| !taken.contains_key(rank));
    let given: Vec<_> = open.into_values().zip(free).collect();
    for (claim, rank) in given {
        if u32::from(rank.0) >= u32::from(STATE_RANKS) {
            let rank = rank.0.into();
            return Err(RanksError::TooHigh { claim, rank });
        }
        taken.insert(rank, claim);
    }
    let devices = taken.keys().max().map_or(0, |rank| u32::from(rank.0) + 1);
    let mut of: Vec<Vec<DeviceRank>> = claims
        .iter()
        .map(|devices| vec![DeviceRank(0); devices.len()])
        .collect();
    for (rank, (process, device, _)) in taken {
        of[process][device] = rank;
    }
    Ok(Ranks { of, devices })
}

/// Agrees on ranks with all processes of a rendezvous; all of them must call it. `own` are the devices
/// that this process uses.
///
/// # Errors
/// The same as of [`assign`], in every process; also when the processes do not meet in time.
pub fn agree(rendezvous: &mut Rendezvous, own: &[Claim]) -> Result<Ranks, RanksError> {
    let parcel = Parcel {
        text: text(own),
        descriptors: Vec::new(),
    };
    let told = rendezvous.exchange(&parcel)?;
    let claims = told.into_iter().enumerate().map(|(process, parcel)| {
        // Nobody sends to himself.
        let Some(Parcel { text: said, .. }) = parcel else {
            return Ok(own.to_vec());
        };
        parse(&said).ok_or(RanksError::Said { process, said })
    });
    assign(&claims.collect::<Result<Vec<_>, _>>()?)
}

fn text(claims: &[Claim]) -> String {
    let words = claims.iter().map(|claim| {
        let uuid = u128::from_be_bytes(claim.uuid);
        match claim.rank {
            Some(rank) => format!(" {uuid:032x}={}", rank.0),
            None => format!(" {uuid:032x}"),
        }
    });
    std::iter::once(HEAD.to_owned()).chain(words).collect()
}

fn parse(text: &str) -> Option<Vec<Claim>> {
    let claims = text.strip_prefix(HEAD)?.split_ascii_whitespace();
    let claim = |word: &str| {
        let (uuid, rank) = match word.split_once('=') {
            Some((uuid, rank)) => (uuid, Some(DeviceRank(rank.parse().ok()?))),
            None => (word, None),
        };
        let uuid = u128::from_str_radix(uuid, 16).ok()?.to_be_bytes();
        Some(Claim { uuid, rank })
    };
    claims.map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(number: u8, rank: Option<u16>) -> Claim {
        Claim {
            uuid: [number; 16],
            rank: rank.map(DeviceRank),
        }
    }

    fn ranks(claims: &[Vec<Claim>]) -> Vec<Vec<u16>> {
        let of = assign(claims).unwrap().of;
        of.iter()
            .map(|ranks| ranks.iter().map(|rank| rank.0).collect())
            .collect()
    }

    #[test]
    fn ranks_follow_the_order_of_uuids() {
        let claims = [vec![claim(7, None), claim(3, None)], vec![claim(5, None)]];
        assert_eq!(ranks(&claims), [vec![2, 0], vec![1]]);
        assert_eq!(assign(&claims).unwrap().devices, 3);
    }

    #[test]
    fn ranks_that_are_given_are_kept_and_the_rest_is_filled() {
        let claims = [
            vec![claim(7, Some(0)), claim(3, None)],
            vec![claim(5, Some(4)), claim(1, None)],
        ];
        assert_eq!(ranks(&claims), [vec![0, 2], vec![4, 1]]);
        assert_eq!(assign(&claims).unwrap().devices, 5);
    }

    #[test]
    fn one_gpu_plays_two_devices_when_it_is_told_to() {
        let claims = [vec![claim(7, Some(0))], vec![claim(7, Some(1))]];
        assert_eq!(ranks(&claims), [[0], [1]]);
        let error = assign(&[vec![claim(7, None)], vec![claim(7, Some(1))]]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "device 0 of process 0 (GPU-07070707-0707-0707-0707-070707070707) and device 0 of process \
             1 (GPU-07070707-0707-0707-0707-070707070707) are the same GPU: for it to play two devices, \
             give it a rank in each process with topology.device_ranks"
        );
    }

    #[test]
    fn a_rank_belongs_to_one() {
        let error = assign(&[
            vec![claim(1, None), claim(2, Some(3))],
            vec![claim(9, Some(3))],
        ]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "device 1 of process 0 (GPU-02020202-0202-0202-0202-020202020202) and device 0 of process \
             1 (GPU-09090909-0909-0909-0909-090909090909) both claim device rank 3: give one of them \
             another rank with topology.device_ranks"
        );
        let error = assign(&[vec![claim(1, Some(99))]]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "device 0 of process 0 (GPU-01010101-0101-0101-0101-010101010101) would have device rank \
             99: there are ranks up to 31"
        );
        let many = (0..33)
            .map(|number| vec![claim(number, None)])
            .collect::<Vec<_>>();
        assert!(matches!(
            assign(&many),
            Err(RanksError::TooHigh { rank: 32, .. })
        ));
    }

    #[test]
    fn what_is_no_claim_is_refused() {
        for said in ["", "hello", "gsan-ranks-1 xyz", "gsan-ranks-1 07=-1"] {
            assert_eq!(parse(said), None, "{said:?}");
        }
        assert_eq!(parse(&text(&[])), Some(vec![]));
    }

    proptest! {
        #[test]
        fn what_is_told_is_understood(
            claims in prop::collection::vec((any::<[u8; 16]>(), any::<Option<u16>>()), 0..8),
        ) {
            let claim = |(uuid, rank): (_, Option<u16>)| Claim { uuid, rank: rank.map(DeviceRank) };
            let claims: Vec<Claim> = claims.into_iter().map(claim).collect();
            prop_assert_eq!(parse(&text(&claims)), Some(claims));
        }

        #[test]
        fn all_ranks_differ_and_none_is_left_out_below_those_given(
            gpus in prop::collection::btree_set(any::<u8>(), 1..12),
            fixed in prop::collection::vec(prop::bool::weighted(0.3), 12),
        ) {
            let claims: Vec<Vec<Claim>> = gpus
                .iter()
                .enumerate()
                .map(|(at, &gpu)| vec![claim(gpu, fixed[at].then_some(2 * at as u16))])
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
