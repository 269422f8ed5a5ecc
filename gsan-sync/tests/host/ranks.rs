//! Processes that agree on ranks. Each plays one on a thread of its own.

use std::path::Path;
use std::time::Duration;

use gsan_core::ids::DeviceRank;
use gsan_sync::ranks::{Claim, RanksError, agree};
use gsan_vmm::rendezvous::{Group, Rendezvous};

use crate::group::private;

/// What each of the processes that claim this comes to.
fn all(directory: &Path, claims: &[Vec<Claim>]) -> Vec<Result<Vec<u16>, RanksError>> {
    std::thread::scope(|scope| {
        let process = |rank: usize| {
            let own = claims[rank].clone();
            let group = Group {
                name: "ranks".into(),
                rank: rank as u16,
                ranks: claims.len() as u16,
                hosts: Vec::new(),
                directory: Some(directory.to_owned()),
                limit: Duration::from_secs(20),
            };
            scope.spawn(move || {
                let agreed = agree(&mut Rendezvous::join(group).unwrap(), &own)?;
                Ok(agreed.of[rank].iter().map(|rank| rank.0).collect())
            })
        };
        let running: Vec<_> = (0..claims.len()).map(process).collect();
        running.into_iter().map(|p| p.join().unwrap()).collect()
    })
}

fn claim(number: u8, rank: Option<u16>) -> Claim {
    Claim {
        uuid: [number; 16],
        rank: rank.map(DeviceRank),
    }
}

#[test]
fn processes_come_to_the_same_ranks_without_configuration() {
    let directory = private();
    let claims = [
        vec![claim(9, None)],
        vec![claim(2, None), claim(4, None)],
        vec![claim(3, None)],
    ];
    let ranks: Vec<Vec<u16>> = all(directory.path(), &claims)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ranks, [vec![3], vec![0, 2], vec![1]]);
}

#[test]
fn all_processes_are_refused_when_two_claim_the_same_rank_or_gpu() {
    let directory = private();
    let claims = [vec![claim(9, None)], vec![claim(9, None)]];
    for refused in all(directory.path(), &claims) {
        assert!(matches!(refused, Err(RanksError::SameGpu { .. })));
    }
    let directory = private();
    let claims = [vec![claim(9, Some(1))], vec![claim(3, Some(1))]];
    for refused in all(directory.path(), &claims) {
        assert!(matches!(refused, Err(RanksError::Claimed { .. })));
    }
    let directory = private();
    let claims = [vec![claim(9, Some(1))], vec![claim(9, Some(0))]];
    for (rank, agreed) in all(directory.path(), &claims).into_iter().enumerate() {
        assert_eq!(agreed.unwrap(), [1 - rank as u16]);
    }
}
