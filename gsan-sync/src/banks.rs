//! Which stream has which bank.

use gsan_core::compressed::topology::Topology;
use gsan_core::ids::DeviceRank;

/// The banks of one device: how many have each.
#[derive(Debug)]
pub(crate) struct Banks {
    first: u32,
    users: Vec<u32>,
}

impl Banks {
    pub(crate) fn new(topology: &Topology, rank: DeviceRank) -> Banks {
        Banks {
            first: topology.bank(rank, 0),
            users: vec![0; topology.banks_per_device() as usize],
        }
    }

    /// A bank that nobody has, or else the one that fewest share; and whether it is shared.
    pub(crate) fn take(&mut self) -> (u32, bool) {
        let fewest = self
            .users
            .iter()
            .enumerate()
            .min_by_key(|(_, users)| **users);
        let index = fewest.map_or(0, |(index, _)| index);
        self.users[index] += 1;
        (self.first + index as u32, self.users[index] > 1)
    }

    /// Whether there is a bank that nobody has.
    pub(crate) fn has_free(&self) -> bool {
        self.users.contains(&0)
    }

    /// Somebody does not need a bank any more.
    pub(crate) fn give_back(&mut self, bank: u32) {
        let users = &mut self.users[(bank - self.first) as usize];
        *users = users.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_are_shared_only_when_all_are_taken() {
        let topology = Topology::new(2, 2, 2, 2).unwrap();
        let mut banks = Banks::new(&topology, DeviceRank(1));
        assert_eq!(banks.take(), (2, false));
        assert_eq!(banks.take(), (3, false));
        assert_eq!(banks.take(), (2, true));
        banks.give_back(3);
        assert_eq!(banks.take(), (3, false));
    }
}
