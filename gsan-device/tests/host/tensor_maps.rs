//! Copies of boxes, rows and reductions through tensor maps, against loops over their elements.

use std::collections::BTreeSet;

use gsan_core::address::Records;
use gsan_core::event::{Access, Action, Detector, Event, Launch, Range, Space};
use gsan_core::ids::{Cta, DeviceRank, LaunchId, SiteId, StreamId, Thread};
use gsan_core::scope::{Order, Scope};
use proptest::prelude::*;

use crate::driver::Copy;
use crate::synchronisation::{FILE, REAL, ROOMY, Twin, cases_or, cta, topology};

/// Where tensor maps lie.
const MAP: u64 = FILE + (1 << 13);
/// Where the tensor starts, and how much memory is looked at.
const BASE: u64 = REAL + 0x400;
const LOOKED_AT: u64 = 0x2000;

/// A tensor, dimensions outermost first.
#[derive(Clone, Debug)]
struct Tensor {
    /// Bytes of an element.
    element: u32,
    sizes: Vec<u64>,
    /// Between rows, planes and so on: bytes, outermost first, one fewer than there are sizes.
    strides: Vec<u64>,
}

impl Tensor {
    /// One whose rows, planes and so on follow each other, with `gap` bytes behind each row.
    fn new(element: u32, sizes: &[u64], gap: u64) -> Tensor {
        let row = sizes[sizes.len() - 1] * u64::from(element);
        let mut stride = row.next_multiple_of(16) + gap;
        let mut strides = Vec::new();
        for &size in sizes[1..].iter().rev().skip(1) {
            strides.push(stride);
            stride *= size;
        }
        if sizes.len() > 1 {
            strides.push(stride);
        }
        strides.reverse();
        Tensor {
            element,
            sizes: sizes.to_vec(),
            strides,
        }
    }

    /// The descriptor, as 64-bit words; `padded`: of values of 4 bits.
    fn map(&self, padded: bool) -> [u64; 16] {
        let rank = self.sizes.len();
        let mut words = [0u32; 32];
        words[0] = BASE as u32;
        words[1] = (BASE >> 32) as u32;
        for (d, &size) in self.sizes.iter().enumerate() {
            let doubled = padded && d + 1 == rank;
            words[8 + rank - 1 - d] = (if doubled { 2 * size } else { size }) as u32 - 1;
        }
        for (d, &stride) in self.strides.iter().enumerate() {
            words[3 + rank - 2 - d] = (stride / 16) as u32;
        }
        core::array::from_fn(|i| u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32)
    }

    /// The bytes of the rows of a box, element by element.
    fn bytes(&self, first: &[i32], shape: &[u16], stores: bool) -> BTreeSet<u64> {
        let mut bytes = BTreeSet::new();
        let rank = shape.len();
        let total: u64 = shape.iter().map(|&size| u64::from(size)).product();
        for number in 0..total {
            let mut left = number;
            let mut index = vec![0i64; rank];
            for d in (0..rank).rev() {
                index[d] = i64::from(first[d]) + (left % u64::from(shape[d])) as i64;
                left /= u64::from(shape[d]);
            }
            let inside = |d: usize| 0 <= index[d] && (index[d] as u64) < self.sizes[d];
            if !(0..rank).all(inside) {
                continue;
            }
            let row: u64 = (0..rank - 1)
                .map(|d| index[d] as u64 * self.strides[d])
                .sum();
            let start = BASE + row + index[rank - 1] as u64 * u64::from(self.element);
            bytes.extend(start..start + u64::from(self.element));
            let last = index[rank - 1] as u64 == self.sizes[rank - 1] - 1;
            let cut = i64::from(first[rank - 1]) + i64::from(shape[rank - 1])
                > self.sizes[rank - 1] as i64;
            if stores && last && cut {
                let end = start + u64::from(self.element);
                bytes.extend(end..end.next_multiple_of(16));
            }
        }
        bytes
    }
}

/// CTAs of one launch.
struct Copies<const S: usize> {
    twin: Twin<S>,
    line: u32,
}

impl<const S: usize> Copies<S> {
    fn new(records: Records, lanes: u32, ctas: u32, tensor: &Tensor, padded: bool) -> Self {
        let mut twin = Twin::with_lanes(records, topology(1, 1), ROOMY, lanes);
        twin.tell(&Event::Launch(Launch {
            id: LaunchId(0),
            device: DeviceRank(0),
            stream: StreamId(0),
            ctas,
            threads: 32,
            cluster: 1,
            programmatic: false,
        }));
        for sm in 0..ctas {
            let cta = cta(0, sm);
            twin.tell(&Event::CtaStart { cta, sm });
        }
        twin.driver.write(MAP, &tensor.map(padded));
        for granule in (REAL..REAL + LOOKED_AT).step_by(8) {
            twin.touches(granule);
        }
        Copies { twin, line: 0 }
    }

    /// Has the core make ordinary accesses, or relaxed atomics, to `bytes`, granule by granule.
    fn told(&mut self, by: Cta, action: Action, bytes: &BTreeSet<u64>) {
        let order = match action {
            Action::Rmw => Order::Relaxed,
            _ => Order::Weak,
        };
        let mut left = bytes.iter().copied().peekable();
        while let Some(address) = left.next() {
            let mut end = address + 1;
            while left.peek() == Some(&end) && end % 8 != 0 {
                left.next();
                end += 1;
            }
            let access = Access {
                thread: Thread { cta: by, index: 0 },
                range: Range {
                    space: Space::Global,
                    address,
                    bytes: (end - address) as u32,
                },
                action,
                order,
                scope: Scope::Gpu,
                site: SiteId(self.line),
            };
            self.twin.core.on(&Event::Access(access)).unwrap();
        }
    }

    fn copy(
        &mut self,
        kind: Copy,
        (tensor, warps): (&Tensor, u32),
        (first, shape): (&[i32], &[u16]),
        ctas: &[(u32, u64)],
    ) {
        self.line += 1;
        let by = cta(0, ctas[0].0);
        let globals = self.twin.at(Thread { cta: by, index: 0 });
        let size = (tensor.element, warps);
        let position = (FILE, self.line);
        let driver = &mut self.twin.driver;
        driver.copy_box(kind, [globals, MAP], position, size, (first, shape), ctas);
    }

    /// A box of one CTA, of which the core is told byte by byte.
    fn copy_by(
        &mut self,
        by: u32,
        kind: Copy,
        tensor: (&Tensor, u32),
        (first, shape): (&[i32], &[u16]),
    ) {
        self.copy(kind, tensor, (first, shape), &[(by, by.into())]);
        let (action, stores) = match kind {
            Copy::Load => (Action::Read, false),
            Copy::Store => (Action::Write, true),
            Copy::Reduce => (Action::Rmw, true),
        };
        let bytes = tensor.0.bytes(first, shape, stores);
        self.told(cta(0, by), action, &bytes);
    }
}

#[derive(Clone, Debug)]
struct Case {
    tensor: Tensor,
    first: Vec<i32>,
    shape: Vec<u16>,
    kind: Copy,
    warps: u32,
    lanes: u32,
}

fn kind() -> impl Strategy<Value = Copy> {
    prop::sample::select(vec![Copy::Load, Copy::Store, Copy::Reduce])
}

fn case() -> impl Strategy<Value = Case> {
    let element = prop::sample::select(vec![1u32, 2, 4, 8]);
    (1usize..=5, element, 0u64..3, kind(), 1u32..5, any::<bool>()).prop_flat_map(
        |(rank, element, gap, kind, warps, fibres)| {
            let most = [200, 40, 9, 5, 4][rank - 1];
            let sizes = prop::collection::vec(1u64..most, rank);
            let boxes = prop::collection::vec((-6i32..(most as i32) + 3, 1u16..12), rank);
            (sizes, boxes).prop_map(move |(sizes, boxes)| {
                let mut first: Vec<i32> = boxes.iter().map(|each| each.0).collect();
                let mut shape: Vec<u16> = boxes.iter().map(|each| each.1).collect();
                // The hardware's boxes have rows of a multiple of 16 bytes.
                let inner = 16 / element as u16;
                shape[rank - 1] = shape[rank - 1].next_multiple_of(inner);
                if kind != Copy::Load {
                    let inner = i32::from(inner);
                    first[rank - 1] = first[rank - 1].div_euclid(inner) * inner;
                }
                Case {
                    tensor: Tensor::new(element, &sizes, 16 * gap),
                    first,
                    shape,
                    kind,
                    warps,
                    lanes: if fibres { 32 } else { 1 },
                }
            })
        },
    )
}

/// What is in the cells once the box was copied is what a loop over its elements leaves.
fn boxes_agree<const S: usize>(records: Records, case: &Case) -> Result<(), TestCaseError> {
    let mut copies = Copies::<S>::new(records, case.lanes, 1, &case.tensor, false);
    copies.copy_by(
        0,
        case.kind,
        (&case.tensor, case.warps),
        (&case.first, &case.shape),
    );
    let [device, core] = copies.twin.cells_and_races();
    prop_assert!(device.0 == core.0);
    prop_assert!(device.1.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(cases_or(48))]

    #[test]
    fn a_box_is_the_elements_that_lie_in_the_tensor(case in case()) {
        boxes_agree::<4>(Records::Four, &case)?;
        boxes_agree::<2>(Records::Two, &case)?;
    }

    #[test]
    fn gathered_and_scattered_rows_are_those_that_lie_in_the_tensor(
        element in prop::sample::select(vec![1u32, 2, 4]),
        sizes in (1u64..20, 1u64..60),
        rows in prop::collection::vec(-3i32..24, 1..20),
        stores in any::<bool>(),
        first in -4i32..4,
        columns in 1u32..4,
        fibres in any::<bool>(),
    ) {
        let tensor = Tensor::new(element, &[sizes.0, sizes.1], 0);
        let lanes = if fibres { 32 } else { 1 };
        let per_16 = 16 / element as i32;
        let (first, columns) = (first * per_16, columns * per_16 as u32);
        let mut copies = Copies::<4>::new(Records::Four, lanes, 1, &tensor, false);
        let by = cta(0, 0);
        let globals = copies.twin.at(Thread { cta: by, index: 0 });
        let driver = &mut copies.twin.driver;
        driver.copy_rows(stores, [globals, MAP], (FILE, 1), element, (first, columns), &rows);
        let mut bytes = BTreeSet::new();
        for &row in &rows {
            bytes.extend(tensor.bytes(&[row, first], &[1, columns as u16], stores));
        }
        let action = if stores { Action::Write } else { Action::Read };
        copies.told(by, action, &bytes);
        let [device, core] = copies.twin.cells_and_races();
        prop_assert!(device.0 == core.0);
    }

    /// Two boxes of two CTAs that nothing orders race where they overlap, as the core says, unless both
    /// are read or both are reductions.
    #[test]
    fn boxes_of_two_ctas_race_where_they_overlap(
        second in kind(), shift in (-3i32..3, -9i32..9), case in case(),
    ) {
        let rank = case.shape.len();
        let mut first = case.first.clone();
        first[0] += shift.0;
        let inner = if rank == 1 { 0 } else { shift.1 * (16 / case.tensor.element as i32) };
        first[rank - 1] += inner;
        let mut copies = Copies::<4>::new(Records::Four, case.lanes, 2, &case.tensor, false);
        let tensor = (&case.tensor, case.warps);
        if second != Copy::Load {
            // Of a store's row the start is told where it is a multiple of 16 bytes.
            let per_16 = 16 / case.tensor.element as i32;
            first[rank - 1] = first[rank - 1].div_euclid(per_16) * per_16;
        }
        copies.copy_by(0, case.kind, tensor, (&case.first, &case.shape));
        copies.copy_by(1, second, tensor, (&first, &case.shape));
        let [device, core] = copies.twin.cells_and_races();
        let [device, core] = [device, core].map(|(_, races)| -> BTreeSet<u32> {
            races.iter().map(|((_, kind, ..), ..)| *kind).collect()
        });
        // The device tells the first, second, fourth race of a kind.
        prop_assert_eq!(device, core);
    }
}

#[test]
fn where_a_byte_is_two_padded_values_the_inner_size_is_halved() {
    for lanes in [1, 32] {
        let tensor = Tensor::new(1, &[4, 32], 0);
        let mut copies = Copies::<4>::new(Records::Four, lanes, 1, &tensor, true);
        copies.copy_by(0, Copy::Load, (&tensor, 2), (&[0, 16], &[4, 64]));
        let [device, core] = copies.twin.cells_and_races();
        assert_eq!(device.0, core.0);
    }
}

/// A row of 12 bytes, in rows 16 bytes apart: a store and a reduction of the row change the 4 bytes behind
/// it, a load does not read them.
#[test]
fn a_store_or_reduction_that_is_cut_off_goes_on_up_to_the_next_16_bytes() {
    let tensor = Tensor::new(4, &[2, 3], 0);
    for (kind, races) in [(Copy::Store, 1), (Copy::Load, 0), (Copy::Reduce, 1)] {
        let mut copies = Copies::<4>::new(Records::Four, 1, 2, &tensor, false);
        copies.copy_by(0, kind, (&tensor, 1), (&[0, 0], &[2, 4]));
        copies.line += 1;
        let line = copies.line;
        copies.twin.tell(&Event::Access(Access {
            thread: Thread {
                cta: cta(0, 1),
                index: 0,
            },
            range: Range {
                space: Space::Global,
                address: BASE + 16 + 12,
                bytes: 4,
            },
            action: Action::Write,
            order: Order::Weak,
            scope: Scope::Gpu,
            site: SiteId(line),
        }));
        let [device, core] = copies.twin.cells_and_races();
        assert_eq!((device.1.len(), core.1.len()), (races, races), "{kind:?}");
    }
}

/// The CTAs of a cluster.
fn places(ctas: u32) -> Vec<(u32, u64)> {
    (0..ctas).map(|sm| (sm, sm.into())).collect()
}

fn write(copies: &mut Copies<4>, by: u32, address: u64) {
    copies.line += 1;
    let line = copies.line;
    copies.twin.tell(&Event::Access(Access {
        thread: Thread {
            cta: cta(0, by),
            index: 0,
        },
        range: Range {
            space: Space::Global,
            address,
            bytes: 4,
        },
        action: Action::Write,
        order: Order::Weak,
        scope: Scope::Gpu,
        site: SiteId(line),
    }));
}

/// Which CTA of the cluster the hardware has move which part is not known. So CTAs that go on with their
/// parts are not accused, whichever these are; a CTA outside of the cluster is.
#[test]
fn copies_of_a_cluster_race_with_ctas_outside_of_it_only() {
    for ctas in [2, 4] {
        for lanes in [1, 32] {
            for kind in [Copy::Load, Copy::Store] {
                let tensor = Tensor::new(4, &[8, 16], 0);
                let mut copies = Copies::<4>::new(Records::Four, lanes, 2 * ctas, &tensor, false);
                let (first, shape) = (&[0, 0], &[8, 16]);
                copies.copy(kind, (&tensor, 4), (first, shape), &places(ctas));
                // Each writes to its columns of each row, as if these had been its part.
                for row in 0..8 {
                    for column in 0..16 {
                        let by = column as u32 / (16 / ctas);
                        write(&mut copies, by, BASE + 64 * row + 4 * column);
                    }
                }
                // Every byte of the box was recorded.
                let [device, _] = copies.twin.cells_and_races();
                assert_eq!(device.1, [], "{ctas} CTAs, {kind:?}");
                for row in 0..8 {
                    write(&mut copies, 2 * ctas - 1, BASE + 64 * row + 60);
                }
                let [device, _] = copies.twin.cells_and_races();
                assert_ne!(device.1, [], "{ctas} CTAs, {kind:?}");
            }
        }
    }
}

/// All bytes of a box that a cluster copies are recorded, by one CTA or another.
#[test]
fn the_ctas_of_a_cluster_share_out_the_whole_box() {
    for (sizes, shape) in [(vec![7, 40], vec![8u16, 48]), (vec![100], vec![128])] {
        for ctas in [2, 3, 4, 16] {
            for lanes in [1, 32] {
                let tensor = Tensor::new(4, &sizes, 0);
                let mut copies = Copies::<4>::new(Records::Four, lanes, ctas, &tensor, false);
                let first = vec![0; shape.len()];
                let all = places(ctas);
                copies.copy(Copy::Load, (&tensor, 4), (&first, &shape), &all);
                copies.told(
                    cta(0, 0),
                    Action::Read,
                    &tensor.bytes(&first, &shape, false),
                );
                let [device, core] = copies.twin.cells_and_races();
                // Whoever it was; of some granules each of two CTAs has a part.
                let masks = |words: &[u64]| -> Vec<u64> {
                    let of_cell = |cell: &[u64]| cell.iter().fold(0, |all, word| all | word >> 16);
                    words.chunks(4).map(|cell| of_cell(cell) & 0xff).collect()
                };
                assert!(masks(&device.0) == masks(&core.0), "{ctas} CTAs");
            }
        }
    }
}
