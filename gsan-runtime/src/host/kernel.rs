//! A launch of a kernel that is a function.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gsan_vmm::backend::host::HostBackend;
use gsan_vmm::backend::{Backend, Device};
use gsan_vmm::{Allocator, STATE_RANKS, STATE_STRIDE};

use super::baton::Baton;
use super::cta::HostCta;
use super::files::Files;
use super::sms::Sms;
use crate::lowest;

/// How long a launch may take: a CTA may wait for something that never comes.
const LIMIT: Duration = Duration::from_secs(60);

/// What a kernel does, for the CTA of an index.
pub(crate) type Body = dyn Fn(&HostCta<'_>, [u32; 3]) + Send + Sync;

/// What kernels of a session share.
pub(crate) struct Surroundings {
    pub(crate) backend: Arc<HostBackend>,
    pub(crate) allocator: Arc<Allocator>,
    /// By device.
    pub(crate) sms: Vec<Sms>,
    /// Held while an atomic reads and writes.
    pub(super) atomics: Mutex<()>,
    pub(super) files: Files,
    /// Launches that were given up because they took too long.
    given_up: AtomicU64,
    /// CTAs whose function panicked.
    panicked: AtomicU64,
}

/// A launch.
pub(crate) struct Kernel {
    pub(crate) surroundings: Arc<Surroundings>,
    /// The device's local number.
    pub(crate) device: usize,
    pub(crate) name: String,
    pub(crate) grid: [u32; 3],
    /// What a kernel is given.
    pub(crate) table: u64,
    pub(crate) index: u64,
    /// The state region.
    pub(crate) globals: u64,
    pub(crate) seed: u64,
    pub(crate) body: Box<Body>,
}

/// A launch that is being run.
pub(super) struct Run<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) baton: Baton,
    pub(super) since: Instant,
    late: AtomicBool,
    next: AtomicU64,
}

impl Surroundings {
    pub(crate) fn new(backend: Arc<HostBackend>, allocator: Arc<Allocator>, sms: Vec<Sms>) -> Self {
        Surroundings {
            backend,
            allocator,
            sms,
            atomics: Mutex::default(),
            files: Files::default(),
            given_up: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        }
    }

    /// Whether a range lies in memory that the program has freed, and that a stream may still use: it is
    /// freed in the stream's order.
    pub(super) fn may_be_freed(&self, address: u64, bytes: usize) -> bool {
        let allocator = &self.allocator;
        let states = allocator.state_base();
        let end = states + u64::from(STATE_RANKS) * STATE_STRIDE;
        let leaving = allocator.is_leaving(address);
        // Memory without shadow lies outside of both reservations, and nobody keeps a list of what was freed.
        let apart = !allocator.space().contains(address) && !(states..end).contains(&address);
        let mut byte = [0];
        let mut is_mapped = |address| self.backend.read(Device(0), address, &mut byte).is_ok();
        let last = address.checked_add(bytes as u64 - 1);
        (leaving || apart)
            && [Some(address), last]
                .into_iter()
                .all(|at| at.is_some_and(&mut is_mapped))
    }
}

impl Kernel {
    fn ctas(&self) -> u64 {
        self.grid.iter().map(|&side| u64::from(side)).product()
    }

    /// Runs all CTAs.
    pub(crate) fn run(&self) {
        let sms = &self.surroundings.sms[self.device];
        let taken = sms.take(self.ctas());
        let run = Run {
            kernel: self,
            baton: Baton::new(taken.len(), self.seed),
            since: Instant::now(),
            late: AtomicBool::new(false),
            next: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            for (place, &sm) in taken.iter().enumerate() {
                let run = &run;
                let started = std::thread::Builder::new()
                    .name(format!("gsan-sm-{sm}"))
                    .spawn_scoped(scope, move || run.place(place, sm));
                if let Err(error) = started {
                    tracing::warn!(%error, "a host kernel runs with fewer threads");
                    run.baton.leave(place);
                    if place == 0 {
                        // Nobody else may be there.
                        run.place_alone(sm);
                    }
                }
            }
        });
        sms.give_back(&taken);
    }

    /// A CTA's position in the grid.
    fn position(&self, cta: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [cta % x, cta / x % y, cta / x / y].map(|at| at as u32)
    }
}

impl Run<'_> {
    /// Runs CTAs on an SM, one after the other, as long as there are any.
    fn place(&self, place: usize, sm: u32) {
        self.baton.enter(place);
        self.ctas(place, sm);
        self.baton.leave(place);
    }

    fn place_alone(&self, sm: u32) {
        self.ctas(usize::MAX, sm);
    }

    fn ctas(&self, place: usize, sm: u32) {
        let kernel = self.kernel;
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= kernel.ctas() || self.is_late() {
                return;
            }
            let cta = lowest::start_cta(kernel, sm, number);
            let host = HostCta {
                run: self,
                place,
                position: kernel.position(number),
                cta,
            };
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let _inside = Inside::enter();
                (kernel.body)(&host, host.position);
            }));
            if ran.is_err() {
                kernel.surroundings.panicked.fetch_add(1, Relaxed);
                tracing::error!(kernel = kernel.name, position = ?host.position, "a CTA panicked");
            }
            host.exit();
            if place != usize::MAX {
                self.baton.pass(place, 1);
            }
        }
    }

    /// Whether the launch took too long: no access is made any more.
    pub(super) fn is_late(&self) -> bool {
        if self.late.load(Relaxed) {
            return true;
        }
        if self.since.elapsed() < LIMIT {
            return false;
        }
        if !self.late.swap(true, Relaxed) {
            self.kernel.surroundings.given_up.fetch_add(1, Relaxed);
            tracing::error!(
                kernel = self.kernel.name,
                "a host kernel was given up after {LIMIT:?}"
            );
        }
        true
    }

    pub(super) const fn limit() -> Duration {
        LIMIT
    }
}

thread_local!(static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

/// Marks a thread that is a CTA.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        INSIDE.set(true);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Whether this thread is a CTA, which must not wait for streams.
pub(super) fn is_cta() -> bool {
    INSIDE.get()
}
