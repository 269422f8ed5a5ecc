//! Streams of the host backend, each taken forward by a thread of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gsan_vmm::backend::host::{HostBackend, Stepped};
use gsan_vmm::backend::{Device, Stream};

use crate::error::{Error, Result};

/// How long a thread sleeps that nobody wakes.
const REST: Duration = Duration::from_millis(200);

/// The threads.
pub(crate) struct Runner {
    backend: Arc<HostBackend>,
    bell: Arc<Bell>,
    threads: Mutex<HashMap<(Device, Stream), Served>>,
}

/// Rung when a stream was given something, or has done something.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    condition: Condvar,
}

struct Served {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        *self.lock() += 1;
        self.condition.notify_all();
    }

    /// Until it was rung more often than `heard`, or some time has passed.
    fn wait(&self, heard: u64, limit: Duration) {
        let rung = self.lock();
        let quiet = |rung: &mut u64| *rung == heard;
        let _ = self.condition.wait_timeout_while(rung, limit, quiet);
    }
}

impl Runner {
    /// For the streams of `backend`, which from now on run nothing by themselves.
    pub(crate) fn new(backend: Arc<HostBackend>) -> Runner {
        backend.hold(true);
        Runner {
            backend,
            bell: Arc::default(),
            threads: Mutex::default(),
        }
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<(Device, Stream), Served>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that a stream is taken forward.
    pub(crate) fn serve(&self, device: Device, stream: Stream) -> Result<()> {
        let mut threads = self.threads();
        if threads.contains_key(&(device, stream)) {
            return Ok(());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            backend: Arc::clone(&self.backend),
            bell: Arc::clone(&self.bell),
            stop: Arc::clone(&stop),
            device,
            stream,
        };
        let thread = std::thread::Builder::new()
            .name("gsan-stream".into())
            .spawn(move || worker.run())
            .map_err(|error| Error::io("starting a thread for a stream", &error))?;
        threads.insert((device, stream), Served { stop, thread });
        Ok(())
    }

    /// The stream gets nothing any more; what it has is still done.
    pub(crate) fn release(&self, device: Device, stream: Stream) {
        let served = self.threads().remove(&(device, stream));
        if let Some(served) = served {
            served.stop.store(true, Relaxed);
            self.bell.ring();
        }
    }

    /// A stream was given something.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Waits until `done` says so.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) {
        loop {
            let heard = *self.bell.lock();
            if done() {
                return;
            }
            self.bell.wait(heard, REST);
        }
    }
}

impl Drop for Runner {
    /// Everything that streams were given is done on return.
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.threads());
        for served in threads.values() {
            served.stop.store(true, Relaxed);
        }
        self.bell.ring();
        for served in threads.into_values() {
            // A kernel that drops the session does so on one of these threads.
            if served.thread.thread().id() != std::thread::current().id() {
                let _ = served.thread.join();
            }
        }
    }
}

struct Worker {
    backend: Arc<HostBackend>,
    bell: Arc<Bell>,
    stop: Arc<AtomicBool>,
    device: Device,
    stream: Stream,
}

impl Worker {
    fn run(self) {
        /// How often somebody who waits for another stream looks, should the bell fail.
        const LOOK: Duration = Duration::from_millis(5);
        /// How long a stream that is given up waits for others.
        const PATIENCE: Duration = Duration::from_secs(60);
        let mut stopping: Option<Instant> = None;
        loop {
            let heard = *self.bell.lock();
            let stop = self.stop.load(Relaxed);
            match self.backend.step(self.device, self.stream) {
                Ok(Stepped::Ran) => {
                    stopping = None;
                    self.bell.ring();
                }
                Ok(Stepped::Empty) if stop => return,
                Ok(Stepped::Empty) => self.bell.wait(heard, REST),
                Ok(Stepped::Waits) => {
                    if stop && stopping.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return;
                    }
                    self.bell.wait(heard, LOOK);
                }
                Err(error) => {
                    tracing::error!(%error, "a stream of the host backend cannot go on");
                    return;
                }
            }
        }
    }
}
