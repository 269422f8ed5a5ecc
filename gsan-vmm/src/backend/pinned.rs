//! Memory of the host that devices read and write.

use std::any::Any;
use std::fmt;
use std::sync::atomic::AtomicU64;

use super::{BackendError, Failure, Result};

/// 64-bit words in a line of 128 bytes, which a device reads at once.
const LINE_WORDS: usize = 16;

/// Lines of a page.
const PAGE_LINES: usize = 512;

/// The driver makes whole pages accessible and refuses those that are already. So pinned memory is whole
/// pages, as large as the largest that systems have.
#[repr(C, align(65536))]
struct Page([[AtomicU64; LINE_WORDS]; PAGE_LINES]);

const PAGE: u64 = size_of::<Page>() as u64;
const _: () = assert!(size_of::<Page>() == align_of::<Page>());

impl Page {
    fn new() -> Page {
        Page([const { [const { AtomicU64::new(0) }; LINE_WORDS] }; PAGE_LINES])
    }
}

/// Memory of the host that every device of a backend reads and writes, in lines of 128 bytes. It is
/// given back when this is dropped; no device may use it any more then.
pub struct Pinned {
    /// Goes before the memory that it made known to the driver.
    registration: Option<Box<dyn Any + Send + Sync>>,
    pages: Box<[Page]>,
    address: u64,
}

impl Pinned {
    /// Bytes in a line.
    pub const LINE: u64 = 8 * LINE_WORDS as u64;

    /// Zeroed memory of at least `bytes` bytes. `register` makes its range known to the driver and
    /// answers with what undoes that, and with the address that devices use.
    pub(crate) fn new(
        bytes: u64,
        register: impl FnOnce(u64, u64) -> Result<(Option<Box<dyn Any + Send + Sync>>, u64)>,
    ) -> Result<Pinned> {
        let count = bytes.div_ceil(PAGE).max(1);
        let mut pages = Vec::new();
        usize::try_from(count)
            .ok()
            .and_then(|count| pages.try_reserve_exact(count).ok())
            .ok_or_else(|| {
                let reason = format!("this machine has no {bytes} bytes of memory left");
                BackendError::new("pin", Failure::OutOfMemory, reason)
            })?;
        pages.extend((0..count).map(|_| Page::new()));
        let pages = pages.into_boxed_slice();
        let start = pages.as_ptr().expose_provenance() as u64;
        let (registration, address) = register(start, count * PAGE)?;
        Ok(Pinned {
            registration,
            pages,
            address,
        })
    }

    /// Where devices find it: a multiple of 128.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// The words of line `index`.
    ///
    /// # Panics
    /// When there is no such line.
    pub const fn line(&self, index: usize) -> &[AtomicU64; LINE_WORDS] {
        &self.pages[index / PAGE_LINES].0[index % PAGE_LINES]
    }

    /// Word `index`.
    ///
    /// # Panics
    /// When there is no such word.
    pub const fn word(&self, index: usize) -> &AtomicU64 {
        &self.line(index / LINE_WORDS)[index % LINE_WORDS]
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("address", &format_args!("{:#x}", self.address))
            .field("bytes", &self.bytes())
            .field("registered", &self.registration.is_some())
            .finish()
    }
}
