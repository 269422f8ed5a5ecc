//! Address arithmetic of the reservation: real memory in the upper half, shadow in the lower.
//!
//! A reservation is a power of two, aligned to itself, so that "is it managed" and "where is its
//! shadow" are a few integer instructions with no table.

/// Bytes of real memory that share one shadow cell.
pub const GRANULE: u64 = 8;

/// How many units of 16 bytes of real memory a tile of shadow memory has.
const TILE: u64 = crate::layout::limits::TILE as u64;

/// The bytes of two words of a cell, which lie together.
const PAIR: u64 = 16;

/// Records in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Records {
    /// Two records: shadow is twice the real memory.
    Two,
    /// Four records: shadow is four times the real memory.
    Four,
}

impl Records {
    /// How many records a cell has.
    pub const fn count(self) -> usize {
        match self {
            Records::Two => 2,
            Records::Four => 4,
        }
    }

    /// The size of a cell in bytes; cells are aligned to it.
    pub const fn cell_bytes(self) -> u64 {
        8 * self.count() as u64
    }
}

/// A reservation of address space, and how real memory maps to shadow inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressSpace {
    base: u64,
    reserve: u64,
    records: Records,
}

/// Why a reservation was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressSpaceError {
    /// Not a power of two, or too small to hold one granule and its shadow.
    #[error("a reservation of {0:#x} bytes is not a power of two of at least 4096 bytes")]
    BadReserve(u64),
    /// Not aligned to its own size.
    #[error("a reservation of {reserve:#x} bytes at {base:#x} is not aligned to its own size")]
    Misaligned {
        /// Where the reservation starts.
        base: u64,
        /// Its size in bytes.
        reserve: u64,
    },
}

impl AddressSpace {
    /// The smallest reservation that is accepted, in bytes.
    pub const MIN_RESERVE: u64 = 4096;

    /// A reservation of `reserve` bytes at `base`.
    ///
    /// # Errors
    /// `reserve` must be a power of two of at least [`Self::MIN_RESERVE`], and `base` a multiple
    /// of it.
    pub const fn new(
        base: u64,
        reserve: u64,
        records: Records,
    ) -> Result<AddressSpace, AddressSpaceError> {
        if !reserve.is_power_of_two() || reserve < Self::MIN_RESERVE {
            return Err(AddressSpaceError::BadReserve(reserve));
        }
        if base & (reserve - 1) != 0 {
            return Err(AddressSpaceError::Misaligned { base, reserve });
        }
        Ok(AddressSpace {
            base,
            reserve,
            records,
        })
    }

    /// The first address.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The size in bytes.
    pub const fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Records in a cell.
    pub const fn records(&self) -> Records {
        self.records
    }

    /// The first address of real memory.
    pub const fn real_base(&self) -> u64 {
        self.base + self.reserve / 2
    }

    /// How many bytes of real memory have room for their shadow: a quarter of the upper half for
    /// four records, half of it for two.
    pub const fn usable(&self) -> u64 {
        self.reserve / 2 / self.records.count() as u64
    }

    /// Whether `address` lies in the reservation, shadow half included.
    pub const fn contains(&self, address: u64) -> bool {
        address & !(self.reserve - 1) == self.base
    }

    /// Whether `address` is real memory that can have shadow.
    pub const fn is_managed(&self, address: u64) -> bool {
        self.contains(address) && address.wrapping_sub(self.real_base()) < self.usable()
    }

    /// Where word 0 of the cell of a granule lies, in which `address`, which must be managed, is.
    ///
    /// Shadow memory has tiles of `TILE` units of 16 bytes of real memory. In a tile the first two words of
    /// the cells of the units' first granules come first, then their next two, then the same of the second
    /// granules. So lanes of a GPU that load the same part of the cells of neighbouring units load
    /// neighbouring memory.
    pub const fn shadow(&self, address: u64) -> u64 {
        debug_assert!(self.is_managed(address));
        let granule = (address - self.real_base()) / GRANULE;
        let (unit, second) = (granule / 2, granule % 2);
        let in_tile = second * TILE * self.records.cell_bytes() + unit % TILE * PAIR;
        self.base + unit / TILE * self.tile_bytes() + in_tile
    }

    /// Where word `index` of that cell lies. Words of even index and the next lie together.
    pub const fn word(&self, address: u64, index: usize) -> u64 {
        let index = index as u64;
        self.shadow(address) + index / 2 * TILE * PAIR + index % 2 * (PAIR / 2)
    }

    /// The size of a tile of shadow memory.
    const fn tile_bytes(&self) -> u64 {
        2 * TILE * self.records.cell_bytes()
    }

    /// The first byte of the granule whose cell contains `shadow`, or `None` if `shadow` is not a
    /// shadow address.
    pub const fn real(&self, shadow: u64) -> Option<u64> {
        if !self.contains(shadow) || shadow - self.base >= self.reserve / 2 {
            return None;
        }
        let (tile, in_tile) = (
            (shadow - self.base) / self.tile_bytes(),
            (shadow - self.base) % self.tile_bytes(),
        );
        let unit = tile * TILE + in_tile / PAIR % TILE;
        let second = in_tile / (TILE * self.records.cell_bytes());
        Some(self.real_base() + (2 * unit + second) * GRANULE)
    }
}

/// The part of an access that falls into one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GranulePart {
    /// The first byte of the granule.
    pub granule: u64,
    /// Which bytes of it, bit 0 the first.
    pub mask: u8,
}

/// Splits `bytes` bytes at `address` into granules, in ascending order.
///
/// The range must not wrap around the address space.
pub fn granules(address: u64, bytes: u64) -> impl ExactSizeIterator<Item = GranulePart> + Clone {
    debug_assert!(address.checked_add(bytes).is_some());
    let first = address / GRANULE;
    let count = if bytes == 0 {
        0
    } else {
        ((address + bytes - 1) / GRANULE - first + 1) as usize
    };
    (0..count).map(move |index| {
        let granule = (first + index as u64) * GRANULE;
        let low = address.max(granule) - granule;
        let high = (address + bytes).min(granule + GRANULE) - granule;
        GranulePart {
            granule,
            mask: ((1u16 << high) - (1u16 << low)) as u8,
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn the_default_reservation() {
        let space = AddressSpace::new(8 * TIB, 8 * TIB, Records::Four).unwrap();
        assert_eq!(space.real_base(), 12 * TIB);
        assert_eq!(space.usable(), TIB);
        assert_eq!(space.shadow(12 * TIB), 8 * TIB);
        assert_eq!(space.shadow(12 * TIB + 7), 8 * TIB);
        assert_eq!(space.shadow(12 * TIB + 8), 8 * TIB + 256);
        assert_eq!(space.shadow(12 * TIB + 16), 8 * TIB + 16);
        assert_eq!(space.shadow(12 * TIB + 128), 8 * TIB + 512);
        assert_eq!(space.word(12 * TIB + 24, 3), 8 * TIB + 256 + 16 + 128 + 8);
        assert!(space.is_managed(13 * TIB - 1));
        assert!(!space.is_managed(13 * TIB));
        assert_eq!(space.real(8 * TIB + 63), Some(12 * TIB + 48));
        assert_eq!(space.real(8 * TIB + 256 + 128), Some(12 * TIB + 8));
        assert_eq!(space.real(12 * TIB), None);
    }

    #[test]
    fn bad_reservations_are_refused() {
        assert_eq!(
            AddressSpace::new(0, 3 << 20, Records::Two),
            Err(AddressSpaceError::BadReserve(3 << 20))
        );
        assert_eq!(
            AddressSpace::new(4096, 8192, Records::Two),
            Err(AddressSpaceError::Misaligned {
                base: 4096,
                reserve: 8192
            })
        );
        assert_eq!(
            AddressSpace::new(0, 8, Records::Two),
            Err(AddressSpaceError::BadReserve(8))
        );
    }

    #[test]
    fn an_access_that_spans_granules_is_split() {
        let parts: Vec<_> = granules(6, 12).map(|p| (p.granule, p.mask)).collect();
        assert_eq!(parts, [(0, 0b1100_0000), (8, 0xff), (16, 0b0000_0011)]);
        assert_eq!(granules(16, 0).count(), 0);
    }

    /// Any reservation that is accepted, at any place.
    fn space() -> impl Strategy<Value = AddressSpace> {
        (12u32..48, any::<u64>(), prop::bool::ANY).prop_map(|(log, place, four)| {
            let reserve = 1 << log;
            let records = if four { Records::Four } else { Records::Two };
            AddressSpace::new(place & !(reserve - 1), reserve, records).unwrap()
        })
    }

    /// A reservation and a managed address in it: anywhere, or near one of the two ends.
    fn managed() -> impl Strategy<Value = (AddressSpace, u64)> {
        (space(), any::<u64>(), 0u64..64, 0..3).prop_map(|(space, place, near, which)| {
            let offset = match which {
                0 => place % space.usable(),
                1 => near,
                _ => space.usable() - 1 - near,
            };
            (space, space.real_base() + offset)
        })
    }

    proptest! {
        #[test]
        fn a_cell_lies_in_the_shadow_half_and_leads_back_to_its_granule(
            (space, address) in managed(),
        ) {
            prop_assert!(space.is_managed(address));
            for index in 0..space.records().count() {
                let word = space.word(address, index);
                prop_assert!(space.contains(word) && !space.is_managed(word));
                prop_assert!(word.is_multiple_of(8));
                prop_assert!(word - space.base() <= space.reserve() / 2 - 8);
                for inside in [0, 7] {
                    prop_assert_eq!(space.real(word + inside), Some(address / GRANULE * GRANULE));
                }
            }
            prop_assert_eq!(space.word(address, 0), space.shadow(address));
        }

        #[test]
        fn two_addresses_share_a_cell_exactly_if_they_share_a_granule(
            (space, address) in managed(), other: u64, near in 0u64..32,
        ) {
            for other in [other % space.usable(), (address - space.real_base()) ^ near] {
                let other = space.real_base() + other % space.usable();
                prop_assert_eq!(
                    space.shadow(address) == space.shadow(other),
                    address / GRANULE == other / GRANULE
                );
            }
        }

        #[test]
        fn nothing_outside_the_usable_range_is_managed(space in space(), address: u64) {
            let first = u128::from(space.base()) + u128::from(space.reserve() / 2);
            let end = first + u128::from(space.usable());
            let inside = (first..end).contains(&u128::from(address));
            prop_assert_eq!(space.is_managed(address), inside);
            prop_assert!(!space.is_managed(space.real_base().wrapping_add(space.usable())));
            prop_assert!(!space.is_managed(space.real_base() - 1));
        }

        #[test]
        fn the_shadow_of_the_usable_range_fills_the_shadow_half(space in space()) {
            let bytes = space.usable() / GRANULE * space.records().cell_bytes();
            prop_assert_eq!(bytes, space.reserve() / 2);
            let last = space.real_base() + space.usable() - 1;
            let last_word = space.word(last, space.records().count() - 1);
            prop_assert_eq!(last_word + 8, space.real_base());
        }

        #[test]
        fn the_parts_of_an_access_are_its_bytes_in_ascending_order(
            address in prop_oneof![0u64..4096, u64::MAX - 8192..u64::MAX - 4096], bytes in 0u64..300,
        ) {
            let parts: Vec<_> = granules(address, bytes).collect();
            prop_assert!(parts.is_sorted_by_key(|part| part.granule));
            let touched: Vec<u64> = parts
                .iter()
                .flat_map(|part| (0..8).filter(|bit| part.mask >> bit & 1 == 1).map(|bit| part.granule + bit))
                .collect();
            prop_assert_eq!(touched, (address..address + bytes).collect::<Vec<_>>());
            prop_assert!(parts.iter().all(|part| part.mask != 0 && part.granule.is_multiple_of(8)));
        }
    }
}
