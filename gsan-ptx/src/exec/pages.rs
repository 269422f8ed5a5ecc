//! Sparse bytes: only pages that were written take memory.

use rustc_hash::FxHashMap;
use std::cell::Cell;

const PAGE: usize = 4096;

/// Copies bytes; words without a call.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        4 => to[..4].copy_from_slice(&from[..4]),
        8 => to[..8].copy_from_slice(&from[..8]),
        _ => to.copy_from_slice(from),
    }
}

/// A map from addresses to bytes; what was never written is 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Box<[u8; PAGE]>>,
}

/// Which page an address is on, if that was looked up last.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Cell<Option<(u64, u32)>>);

/// The page number and the offset in the page.
#[inline]
fn split(address: u64) -> (u64, usize) {
    (address / PAGE as u64, (address % PAGE as u64) as usize)
}

impl Pages {
    /// The page, if it exists.
    fn page(&self, number: u64) -> Option<&[u8; PAGE]> {
        let index = *self.numbers.get(&number)?;
        Some(&self.pages[index as usize])
    }

    /// The page, made by `make` if it does not exist.
    fn page_or(&mut self, number: u64, make: impl FnOnce() -> Box<[u8; PAGE]>) -> &mut [u8; PAGE] {
        let pages = &mut self.pages;
        let index = *self.numbers.entry(number).or_insert_with(|| {
            pages.push(make());
            (pages.len() - 1) as u32
        });
        &mut pages[index as usize]
    }

    /// The bytes from an address on that lie on the page looked up last.
    #[inline]
    fn recent(&self, recent: &Recent, address: u64) -> Option<(u32, usize)> {
        let (number, offset) = split(address);
        match recent.0.get() {
            Some((known, index)) if known == number => Some((index, offset)),
            _ => {
                let index = *self.numbers.get(&number)?;
                recent.0.set(Some((number, index)));
                Some((index, offset))
            }
        }
    }

    /// [`Self::read_over`] for accesses of a kernel, which mostly hit the same page again.
    #[inline]
    pub(super) fn read_again(&self, recent: &Recent, base: &Pages, address: u64, into: &mut [u8]) {
        if let Some((index, offset)) = self.recent(recent, address)
            && let Some(bytes) = self.pages[index as usize].get(offset..offset + into.len())
        {
            copy(into, bytes);
        } else {
            self.read_over(base, address, into);
        }
    }

    /// [`Self::write_over`] for accesses of a kernel.
    #[inline]
    pub(super) fn write_again(
        &mut self,
        recent: &Recent,
        base: &Pages,
        address: u64,
        bytes: &[u8],
    ) {
        if let Some((index, offset)) = self.recent(recent, address)
            && let Some(place) = self.pages[index as usize].get_mut(offset..offset + bytes.len())
        {
            copy(place, bytes);
        } else {
            self.write_over(base, address, bytes);
        }
    }

    /// Writes bytes.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.write_over(&Pages::default(), address, bytes);
    }

    /// Writes bytes to pages that begin as copies of those of `base`.
    pub(super) fn write_over(&mut self, base: &Pages, mut address: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (number, offset) = split(address);
            let (now, later) = bytes.split_at(bytes.len().min(PAGE - offset));
            let page = self.page_or(number, || match base.page(number) {
                Some(page) => Box::new(*page),
                None => Box::new([0; PAGE]),
            });
            page[offset..offset + now.len()].copy_from_slice(now);
            address += now.len() as u64;
            bytes = later;
        }
    }

    /// Reads bytes of these pages, where they exist, and of `base`, where they do not.
    pub(super) fn read_over(&self, base: &Pages, mut address: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let (number, offset) = split(address);
            let length = into.len().min(PAGE - offset);
            let (now, later) = into.split_at_mut(length);
            match self.page(number).or_else(|| base.page(number)) {
                Some(page) => now.copy_from_slice(&page[offset..offset + length]),
                None => now.fill(0),
            }
            address += length as u64;
            into = later;
        }
    }

    /// How many bytes the pages take.
    pub(super) fn resident_bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }
}
