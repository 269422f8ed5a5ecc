//! The shared memory of one CTA.

use crate::exec::mbarrier::Mbarriers;
use crate::exec::pages::copy;

/// Bytes, which of them were ever written, and where mbarriers are.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    bytes: Vec<u8>,
    /// One bit for each byte.
    written: Vec<u64>,
    pub(super) mbarriers: Mbarriers,
}

impl Shared {
    pub(super) fn new(bytes: u32) -> Shared {
        Shared {
            bytes: vec![0; bytes as usize],
            written: vec![0; (bytes as usize).div_ceil(64)],
            mbarriers: Mbarriers::default(),
        }
    }

    /// Whether the bytes exist.
    #[inline]
    pub(super) fn contains(&self, address: u64, bytes: u64) -> bool {
        let len = self.bytes.len() as u64;
        address < len && bytes <= len - address
    }

    /// Whether all bytes, which exist, were written.
    #[inline]
    pub(super) fn initialised(&self, address: u64, bytes: u64) -> bool {
        let offset = address % 64;
        if bytes < 64 && offset + bytes <= 64 {
            let mask = ((1u64 << bytes) - 1) << offset;
            return self.written[(address / 64) as usize] & mask == mask;
        }
        (address..address + bytes).all(|byte| self.initialised(byte, 1))
    }

    /// The bytes, which exist.
    #[inline]
    pub(super) fn read(&self, address: u64, into: &mut [u8]) {
        let start = address as usize;
        let end = start + into.len();
        copy(into, &self.bytes[start..end]);
    }

    /// Writes bytes, which exist.
    #[inline]
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        let start = address as usize;
        copy(&mut self.bytes[start..start + bytes.len()], bytes);
        let (offset, length) = (address % 64, bytes.len() as u64);
        if length < 64 && offset + length <= 64 {
            self.written[start / 64] |= ((1u64 << length) - 1) << offset;
        } else {
            for byte in start..start + bytes.len() {
                self.written[byte / 64] |= 1 << (byte % 64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_bytes_are_initialised() {
        let mut shared = Shared::new(200);
        shared.write(60, &[7; 8]);
        assert!(shared.initialised(60, 8));
        assert!(!shared.initialised(59, 2));
        assert!(!shared.initialised(64, 8));
        shared.write(64, &[1; 80]);
        assert!(shared.initialised(60, 84));
        assert!(shared.contains(199, 1));
        assert!(!shared.contains(199, 2));
        assert!(!shared.contains(u64::MAX, 2));
    }
}
