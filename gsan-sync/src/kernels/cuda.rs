//! Steps on GPUs: a kernel of one CTA, which reads them from pinned memory.

#![allow(unsafe_code, reason = "kernels are launched by their addresses")]

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytemuck::Zeroable;
use gsan_core::layout::{self, step_codes};
use gsan_vmm::backend::cuda::{CudaBackend, CudaKernel};
use gsan_vmm::backend::{Backend, BackendError, Device, Failure, FenceId, Pinned, Result, Stream};

use super::{Kernels, Step};

/// Bytes of a buffer, unless a list of steps needs more.
const BUFFER: u64 = 16 << 10;

/// How many buffers are asked whether they are free before another one is made.
const MOST_ASKED: usize = 8;

const STEP_WORDS: usize = size_of::<layout::Step>() / 8;

/// Steps as a kernel, given to the streams of a [`CudaBackend`].
pub struct CudaKernels {
    kernels: Vec<OnceLock<CudaKernel>>,
    /// Buffers, and the fences behind the kernels that read them.
    buffers: Mutex<VecDeque<(FenceId, Pinned)>>,
    /// After what belongs to its contexts.
    backend: Arc<CudaBackend>,
}

impl CudaKernels {
    /// For the devices of `backend`.
    pub fn new(backend: Arc<CudaBackend>) -> CudaKernels {
        let count = backend.devices().len();
        CudaKernels {
            backend,
            kernels: (0..count).map(|_| OnceLock::new()).collect(),
            buffers: Mutex::default(),
        }
    }

    fn kernel(&self, device: Device) -> Result<&CudaKernel> {
        let bad = |reason: &str| BackendError::new("steps", Failure::InvalidArgument, reason);
        let kept = self.kernels.get(device.0 as usize);
        let kept = kept.ok_or_else(|| bad("there is no such device"))?;
        if let Some(kernel) = kept.get() {
            return Ok(kernel);
        }
        let text = |text: &str| CString::new(text).map_err(|_| bad("the kernel contains a NUL"));
        let (image, name) = (text(gsan_device::STEPS)?, text(gsan_device::STEPS_NAME)?);
        // SAFETY: it is this project's own kernel.
        let kernel = unsafe { self.backend.load_kernel(device, &image, &name)? };
        // Another thread may have been faster; either will do.
        Ok(kept.get_or_init(|| kernel))
    }

    fn buffers(&self) -> MutexGuard<'_, VecDeque<(FenceId, Pinned)>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer that no kernel reads any more.
    fn buffer(&self, bytes: u64) -> Result<Pinned> {
        let mut buffers = self.buffers();
        // One stream that waits for long must not keep the buffers of the others.
        for _ in 0..buffers.len().min(MOST_ASKED) {
            let Some((fence, buffer)) = buffers.pop_front() else {
                break;
            };
            if buffer.bytes() >= bytes && self.backend.passed(fence) == Ok(true) {
                self.backend.forget(fence);
                return Ok(buffer);
            }
            buffers.push_back((fence, buffer));
        }
        drop(buffers);
        self.backend.pin(bytes.max(BUFFER))
    }
}

impl fmt::Debug for CudaKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CudaKernels")
    }
}

impl Drop for CudaKernels {
    fn drop(&mut self) {
        for (fence, buffer) in self.buffers().drain(..) {
            // Memory that a kernel may still read stays pinned.
            if self.backend.passed(fence) != Ok(true) {
                std::mem::forget(buffer);
            }
            self.backend.forget(fence);
        }
    }
}

impl Kernels for CudaKernels {
    fn prepare(&self, device: Device) -> Result<()> {
        self.kernel(device).map(drop)
    }

    fn run(&self, device: Device, stream: Stream, steps: Vec<Step>) -> Result<()> {
        let kernel = self.kernel(device)?;
        let extra: usize = steps.iter().map(|step| step.words().len()).sum();
        let words = steps.len() * STEP_WORDS + extra;
        let buffer = self.buffer(8 * words as u64)?;
        let mut next = steps.len() * STEP_WORDS;
        for (at, step) in steps.iter().enumerate() {
            let words = step.words();
            let source = buffer.address() + 8 * next as u64;
            for (nth, word) in words.iter().enumerate() {
                buffer.word(next + nth).store(*word, Relaxed);
            }
            next += words.len();
            let code: [u64; STEP_WORDS] = bytemuck::cast(step.code(source));
            for (nth, word) in code.into_iter().enumerate() {
                buffer.word(at * STEP_WORDS + nth).store(word, Relaxed);
            }
        }
        let mut arguments = [buffer.address(), steps.len() as u64];
        let threads = gsan_device::STEPS_THREADS;
        // SAFETY: the kernel takes a pointer and a 32-bit number, of which this is the low half. It
        // reads the buffer, which is kept until the fence behind it has passed, and writes where the
        // ordering has its rows.
        unsafe {
            self.backend
                .launch_kernel(kernel, stream, threads, &mut arguments)?;
        }
        let fence = self.backend.fence(device, stream);
        match fence {
            Ok(fence) => {
                self.buffers().push_back((fence, buffer));
                Ok(())
            }
            Err(error) => {
                // The kernel was given to the stream and reads it.
                std::mem::forget(buffer);
                tracing::warn!(%error, "memory for steps stays pinned");
                Ok(())
            }
        }
    }
}

impl Step {
    /// Words that the kernel finds beside the step.
    fn words(&self) -> Vec<u64> {
        match self {
            Step::Words { words, .. } => words.to_vec(),
            Step::Await { counts, .. } => {
                let pair = |&(rank, count): &(u16, u64)| [u64::from(rank), count];
                counts.iter().flat_map(pair).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The step as the kernel reads it; `words` is where its words are.
    fn code(&self, words: u64) -> layout::Step {
        let zero = layout::Step::zeroed();
        match *self {
            Step::Merge {
                target,
                source,
                entries,
                source_filled,
                target_filled,
            } => layout::Step {
                kind: step_codes::MERGE,
                count: entries,
                target,
                source,
                source_filled,
                target_filled,
                ..zero
            },
            Step::Words {
                address,
                words: ref list,
            } => layout::Step {
                kind: step_codes::COPY,
                count: list.len() as u32,
                target: address,
                source: words,
                ..zero
            },
            Step::Zero { address, bytes } => layout::Step {
                kind: step_codes::ZERO,
                count: (bytes / 4) as u32,
                target: address,
                ..zero
            },
            Step::Count {
                address,
                stride,
                words: count,
                first,
            } => layout::Step {
                kind: step_codes::COUNT,
                count,
                target: address,
                value: first,
                stride,
                ..zero
            },
            Step::Arrive { count, value } => layout::Step {
                kind: step_codes::ARRIVE,
                target: count,
                value,
                ..zero
            },
            Step::Await {
                ref counts,
                value,
                limit,
                missing,
            } => layout::Step {
                kind: step_codes::AWAIT,
                count: counts.len() as u32,
                target: missing,
                source: words,
                value,
                limit,
                ..zero
            },
        }
    }
}
