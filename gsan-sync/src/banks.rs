//! Which stream has which bank, and which graph.

use std::sync::Arc;

use gsan_core::compressed::topology::Topology;
use gsan_core::ids::DeviceRank;

use crate::rows::Knowledge;

/// How many banks may wait for the host to know of their work.
const MANY: usize = 8;

/// The banks of one device.
pub(crate) struct Banks {
    first: u32,
    banks: Vec<Bank>,
    /// Counts what was given back.
    given_back: u64,
}

#[derive(Default)]
struct Bank {
    /// How many have it.
    users: u32,
    /// What those did with it who have it no more. Whoever gets it vouches for that, too.
    left: Arc<Knowledge>,
    /// When it was given back.
    since: u64,
}

impl Banks {
    pub(crate) fn new(topology: &Topology, rank: DeviceRank) -> Banks {
        Banks {
            first: topology.bank(rank, 0),
            banks: (0..topology.banks_per_device())
                .map(|_| Bank::default())
                .collect(),
            given_back: 0,
        }
    }

    /// A bank that nobody has, or else the one that fewest share; and whether it is shared. Of those that
    /// nobody has one comes first whose work the host `knows`, so that nothing is ordered by it that is not
    /// ordered already; then the one that was given back longest ago. If there are many of these, that one
    /// comes first: each stream has rows for each bank of its graphs.
    pub(crate) fn take(&mut self, knows: impl Fn(&Knowledge) -> bool) -> (u32, bool) {
        let is_known: Vec<bool> = self.banks.iter().map(|bank| knows(&bank.left)).collect();
        let waiting = self.banks.iter().zip(&is_known);
        let waiting = waiting.filter(|(bank, known)| bank.users == 0 && !**known);
        let many = waiting.count() >= MANY;
        let worst = |bank: &Bank, known: bool| match known {
            true if many => (bank.users, u64::MAX),
            true => (bank.users, 0),
            false => (bank.users, 1 + bank.since),
        };
        let banks = self.banks.iter_mut().zip(is_known).enumerate();
        let best = banks.min_by_key(|(_, (bank, known))| worst(bank, *known));
        let Some((index, (bank, _))) = best else {
            return (self.first, true);
        };
        bank.users += 1;
        if bank.users == 1 {
            bank.left = Arc::default();
        }
        (self.first + index as u32, bank.users > 1)
    }

    /// Whether there is a bank that nobody has.
    pub(crate) fn has_free(&self) -> bool {
        self.banks.iter().any(|bank| bank.users == 0)
    }

    /// Somebody does not need a bank any more, with which he did what `left` says.
    pub(crate) fn give_back(&mut self, bank: u32, left: &Knowledge) {
        self.given_back += 1;
        let bank = &mut self.banks[(bank - self.first) as usize];
        bank.users = bank.users.saturating_sub(1);
        bank.since = self.given_back;
        if !bank.left.covers(left) {
            Arc::make_mut(&mut bank.left).join(left);
        }
    }

    /// Forgets what was done with banks: everybody knows of it.
    pub(crate) fn forget(&mut self) {
        for bank in &mut self.banks {
            bank.left = Arc::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_are_shared_only_when_all_are_taken() {
        let topology = Topology::new(2, 2, 2, 2).unwrap();
        let mut banks = Banks::new(&topology, DeviceRank(1));
        let known = |_: &Knowledge| true;
        assert_eq!(banks.take(known), (2, false));
        assert_eq!(banks.take(known), (3, false));
        assert_eq!(banks.take(known), (2, true));
        banks.give_back(3, &Knowledge::default());
        assert_eq!(banks.take(known), (3, false));
    }

    #[test]
    fn a_bank_whose_work_is_not_known_comes_last() {
        let topology = Topology::new(1, 2, 2, 4).unwrap();
        let mut banks = Banks::new(&topology, DeviceRank(0));
        let unknown = |_: &Knowledge| false;
        let taken: Vec<u32> = (0..4).map(|_| banks.take(unknown).0).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        for bank in [2, 0, 3] {
            banks.give_back(bank, &Knowledge::default());
        }
        assert_eq!(banks.take(unknown), (2, false));
        assert_eq!(banks.take(unknown), (0, false));
        assert_eq!(banks.take(|_| true), (3, false));
    }
}
