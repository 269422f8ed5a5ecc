//! `ldmatrix` and `stmatrix`: rows of 8x8 matrices in shared memory.
//!
//! Lane `8 * m + r` gives the address of row `r` of matrix `m`, and the row counts as accessed by
//! that lane.

use crate::alu::matrix::{LoadMatrix, RESULTS, SOURCES, Words};
use crate::exec::cta::CtaState;
use crate::exec::interpret::{Env, Runner};
use crate::exec::warp::Blame;
use crate::program::ir::MemorySpace;
use gsan_core::event::Detector;

/// A row: eight 16-bit elements.
type Row = [u16; 8];

fn space(shape: LoadMatrix) -> MemorySpace {
    if shape.shared {
        MemorySpace::Shared
    } else {
        MemorySpace::Generic
    }
}

/// The elements of a matrix that a lane holds, low first: row and column.
fn elements(lane: usize, transposed: bool) -> [(usize, usize); 2] {
    let (row, column) = (lane / 4, lane % 4 * 2);
    if transposed {
        [(column, row), (column + 1, row)]
    } else {
        [(row, column), (row, column + 1)]
    }
}

/// `ldmatrix`
pub(super) fn load<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    warp: u32,
    shape: LoadMatrix,
    sources: &Words<SOURCES>,
) -> Blame<Words<RESULTS>> {
    let count = usize::from(shape.count).min(RESULTS);
    let mut results = [[0; RESULTS]; 32];
    for matrix in 0..count {
        let mut rows: [Row; 8] = [[0; 8]; 8];
        for (row, lane) in rows.iter_mut().zip(matrix * 8..) {
            let index = CtaState::position(warp, lane as u32);
            let Some(mut runner) = Runner::of(env, cta, index) else {
                continue;
            };
            let [base, offset, ..] = sources[lane];
            let bytes = runner
                .read_row(space(shape), base.wrapping_add(offset))
                .map_err(|stop| (index, stop))?;
            for (element, pair) in row.iter_mut().zip(bytes.chunks_exact(2)) {
                *element = u16::from_le_bytes([pair[0], pair[1]]);
            }
        }
        for (lane, words) in results.iter_mut().enumerate() {
            let [low, high] = elements(lane, shape.transposed).map(|(r, c)| u64::from(rows[r][c]));
            words[matrix] = high << 16 | low;
        }
    }
    Ok(results)
}

/// `stmatrix`
pub(super) fn store<'a, D: Detector>(
    env: &mut Env<'a, '_, D>,
    cta: &mut CtaState<'a>,
    warp: u32,
    shape: LoadMatrix,
    sources: &Words<SOURCES>,
) -> Blame<()> {
    for matrix in 0..usize::from(shape.count).min(RESULTS) {
        let mut rows: [Row; 8] = [[0; 8]; 8];
        for (lane, words) in sources.iter().enumerate() {
            let word = words[2 + matrix];
            let [low, high] = elements(lane, shape.transposed);
            rows[low.0][low.1] = word as u16;
            rows[high.0][high.1] = (word >> 16) as u16;
        }
        for (row, lane) in rows.iter().zip(matrix * 8..) {
            let index = CtaState::position(warp, lane as u32);
            let Some(mut runner) = Runner::of(env, cta, index) else {
                continue;
            };
            let mut bytes = [0; 16];
            for (pair, element) in bytes.chunks_exact_mut(2).zip(row) {
                pair.copy_from_slice(&element.to_le_bytes());
            }
            let [base, offset, ..] = sources[lane];
            runner
                .write_row(space(shape), base.wrapping_add(offset), &bytes)
                .map_err(|stop| (index, stop))?;
        }
    }
    Ok(())
}
