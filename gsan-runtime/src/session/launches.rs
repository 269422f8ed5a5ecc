//! Launches.

use gsan_sync::LaunchInfo;
use gsan_vmm::backend::Device;

use super::Session;
use crate::error::{Error, Result};

/// A launch, as the program makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLaunch<'a> {
    /// The kernel's name; empty if it is not known.
    pub kernel: &'a str,
    /// The grid, in CTAs.
    pub grid: [u32; 3],
    /// The size of a CTA, in threads.
    pub block: [u32; 3],
    /// Launched with the programmatic attribute.
    pub programmatic: bool,
    /// The kernel contains synchronisation that nobody reports.
    pub opaque: bool,
}

impl KernelLaunch<'_> {
    /// How many CTAs it has.
    ///
    /// # Errors
    /// When CUDA would refuse grid or block. A grid without CTAs is one for us: it is launched and does
    /// nothing, or fails.
    pub(super) fn ctas(&self) -> Result<u128> {
        const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
        const BLOCK: [u32; 3] = [1024, 1024, 64];
        let shape = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
        let beyond = |shape: [u32; 3], most: [u32; 3]| shape.iter().zip(most).any(|(&n, m)| n > m);
        let product = |shape: [u32; 3]| shape.map(u128::from).iter().product::<u128>();
        if beyond(self.block, BLOCK) || !(1..=1024).contains(&product(self.block)) {
            return Err(Error::Argument(format!(
                "a block of {} threads: a CTA has 1 to 1024, at most {} in x, y, z",
                shape(self.block),
                shape(BLOCK)
            )));
        }
        if beyond(self.grid, GRID) {
            return Err(Error::Argument(format!(
                "a grid of {} CTAs: at most {} in x, y, z are launched",
                shape(self.grid),
                shape(GRID)
            )));
        }
        Ok(product(self.grid))
    }
}

/// A launch that was begun. Its stream is this thread's until it is finished; dropping it takes it back.
pub struct Launch {
    launch: gsan_sync::Launch,
}

impl Launch {
    /// Where the kernel finds the descriptors; 0: it runs unchecked.
    pub fn table(&self) -> u64 {
        self.launch.table()
    }

    /// The kernel's launch index.
    pub fn index(&self) -> u64 {
        self.launch.index()
    }

    /// Its number on its device.
    pub fn number(&self) -> u32 {
        self.launch.number()
    }

    /// The launch was given to its stream (`submitted`), or failed and never will be.
    ///
    /// # Errors
    /// When it was finished before.
    pub fn finish(&mut self, submitted: bool) -> Result<()> {
        self.launch.finish(submitted)?;
        Ok(())
    }
}

impl Session {
    /// Begins a launch on a stream, which is this thread's until [`Launch::finish`].
    ///
    /// # Errors
    /// When grid or block are none that CUDA takes, the stream is not there, a launch of this thread on it
    /// is unfinished, or the device fails.
    pub fn begin_launch(
        &self,
        device: Device,
        stream: u64,
        launch: &KernelLaunch<'_>,
    ) -> Result<Launch> {
        launch.ctas()?;
        let info = self.launch_info(launch)?;
        let begin = |key| self.ordering.begin_launch(key, &info);
        let launch = self.with_stream(device, stream, begin)?;
        Ok(Launch { launch })
    }

    /// What the ordering is told of a launch.
    pub(super) fn launch_info(&self, launch: &KernelLaunch<'_>) -> Result<LaunchInfo> {
        let register = || {
            let number = self.ordering.kernel_number(launch.kernel, launch.opaque)?;
            self.part.name_kernel(number, launch.kernel, None);
            Ok::<u32, gsan_sync::Error>(number)
        };
        Ok(LaunchInfo {
            kernel: self.kernels.number(launch.kernel, register)?,
            grid: launch.grid,
            programmatic: launch.programmatic,
            opaque: launch.opaque,
        })
    }
}
