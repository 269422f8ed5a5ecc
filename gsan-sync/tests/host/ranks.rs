//! Processes that agree on ranks. Each plays one on a thread of its own.

use std::path::Path;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_sync::ranks::{Claim, Claims, RanksError, agree, agree_on_use};
use gsan_vmm::rendezvous::{Group, Rendezvous};

use crate::group::private;

/// What each of the processes that see this comes to: ranks, and whether they can all be used.
fn all(claims: &[Claims]) -> Vec<Result<Vec<u16>, RanksError>> {
    let directory = private();
    let directory = directory.path();
    std::thread::scope(|scope| {
        let process = |rank: usize| {
            let own = claims[rank].clone();
            scope.spawn(move || one(directory, rank as u16, claims.len() as u16, own))
        };
        let running: Vec<_> = (0..claims.len()).map(process).collect();
        running.into_iter().map(|p| p.join().unwrap()).collect()
    })
}

fn one(directory: &Path, rank: u16, ranks: u16, mut own: Claims) -> Result<Vec<u16>, RanksError> {
    let mut rendezvous = Rendezvous::join(Group {
        name: "ranks".into(),
        rank,
        ranks,
        hosts: Vec::new(),
        directory: Some(directory.to_owned()),
        limit: Duration::from_secs(20),
    })
    .unwrap();
    let agreed = agree(&mut rendezvous, &own)?;
    let given = &agreed.of[usize::from(rank)];
    for (claim, &rank) in own.gpus.iter_mut().zip(given) {
        claim.rank = Some(rank);
    }
    agree_on_use(&mut rendezvous, &own)?;
    Ok(given.iter().map(|rank| rank.0).collect())
}

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

#[test]
fn processes_come_to_the_same_ranks_without_configuration() {
    let claims = [
        sees(&[(9, None)]),
        sees(&[(2, None), (4, None)]),
        sees(&[(3, None)]),
    ];
    let ranks: Vec<Vec<u16>> = all(&claims).into_iter().map(Result::unwrap).collect();
    assert_eq!(ranks, [vec![3], vec![0, 2], vec![1]]);
}

#[test]
fn all_processes_are_refused_when_two_claim_the_same_rank_or_use_the_same_gpu() {
    for refused in all(&[sees(&[(9, None)]), sees(&[(9, None)])]) {
        assert!(matches!(refused, Err(RanksError::SameGpu { .. })));
    }
    for refused in all(&[sees(&[(9, Some(1))]), sees(&[(3, Some(1))])]) {
        assert!(matches!(refused, Err(RanksError::Claimed { .. })));
    }
    let two = all(&[sees(&[(9, Some(1))]), sees(&[(9, Some(0))])]);
    for (rank, agreed) in two.into_iter().enumerate() {
        assert_eq!(agreed.unwrap(), [1 - rank as u16]);
    }
}
