//! What devices told: taken in, counted, reported.

use std::path::PathBuf;

use gsan_report::model::Report;
use gsan_vmm::backend::Backend;

use super::Session;
use crate::error::Result;
use crate::host::order::may_wait;

impl Session {
    /// Waits for all devices. It orders nothing: that the tool waited is no synchronisation of the
    /// program's.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn settle(&self) -> Result<()> {
        if let Some(host) = &self.host {
            host.runner.ring();
        }
        for device in self.ordering.used_devices() {
            match &self.host {
                Some(host) => {
                    may_wait()?;
                    host.backend.synchronize(device)?;
                }
                None => {
                    // Its kernels are over, too, if it has failed; while something is captured it cannot
                    // be waited for.
                    if let Err(error) = self.allocator.backend().synchronize(device) {
                        tracing::warn!(%error, "{device} was not waited for");
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for all devices and takes in what they told.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn drain(&self) -> Result<()> {
        self.settle()?;
        self.drainer.drain();
        Ok(())
    }

    /// Waits for all devices, takes in what they told, and forgets the races among it.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn forget_races(&self) -> Result<()> {
        self.settle()?;
        self.drainer.forget_races();
        Ok(())
    }

    /// The report so far, after waiting for all devices.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn report(&self) -> Result<Report> {
        self.settle()?;
        Ok(self.drainer.report())
    }

    /// Takes in what was found, and says so in this process's part of the report. May be called again.
    ///
    /// # Errors
    /// On the host backend when a kernel waits.
    pub fn finish(&self) -> Result<()> {
        self.settle()?;
        self.drainer.finish();
        Ok(())
    }

    /// The last report, with which the process ends: like [`Self::finish`] and [`Self::report`], but a
    /// kernel that ends the process does not wait for itself.
    pub(crate) fn report_at_exit(&self) -> Report {
        // It only fails within a kernel.
        let _ = self.settle();
        self.drainer.finish();
        self.drainer.report()
    }

    /// Where a run reads what this process finds, if it belongs to one.
    pub(crate) fn run_directory(&self) -> Option<PathBuf> {
        let part = self.part.path()?;
        Some(part.parent()?.to_path_buf())
    }
}
