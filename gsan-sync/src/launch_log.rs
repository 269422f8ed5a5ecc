//! Where the launches of a device are remembered, for reports.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gsan_core::atomics::Native;
use gsan_core::launch_log::{LaunchLog, LaunchRecord};

/// How many launches of a device are remembered in the ordering's own memory.
const KEPT: usize = 1 << 16;

/// Words in which the launches of a device are remembered, [`LaunchLog::ENTRY_WORDS`] each. They may
/// outlive the process.
#[derive(Clone)]
pub struct LogMemory(Arc<dyn AsRef<[AtomicU64]> + Send + Sync>);

impl LogMemory {
    /// These words; whoever has a log in them zeroes them first.
    pub fn new(words: impl AsRef<[AtomicU64]> + Send + Sync + 'static) -> LogMemory {
        LogMemory(Arc::new(words))
    }

    fn words(&self) -> &[AtomicU64] {
        (*self.0).as_ref()
    }
}

impl PartialEq for LogMemory {
    fn eq(&self, other: &LogMemory) -> bool {
        std::ptr::eq(self.words(), other.words())
    }
}

impl Eq for LogMemory {}

impl fmt::Debug for LogMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogMemory({} words)", self.words().len())
    }
}

/// The log of one device.
pub(crate) struct DeviceLog(LogMemory);

impl DeviceLog {
    /// An empty log in `memory`, else in memory of its own.
    pub(crate) fn new(memory: Option<&LogMemory>) -> DeviceLog {
        let memory = memory.cloned().unwrap_or_else(|| {
            let words = KEPT * LaunchLog::<Native>::ENTRY_WORDS;
            let own: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
            LogMemory::new(own)
        });
        for word in memory.words() {
            word.store(0, Relaxed);
        }
        DeviceLog(memory)
    }

    fn log(&self) -> LaunchLog<'_, Native> {
        LaunchLog::new(self.0.words())
    }

    pub(crate) fn enter(&self, record: &LaunchRecord) {
        self.log().enter(record);
    }

    pub(crate) fn find(&self, number: u32) -> Option<LaunchRecord> {
        self.log().find(number)
    }
}
