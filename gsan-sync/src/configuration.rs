//! The configuration, which is fixed at its first use, and the way back to the start.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gsan_vmm::Allocator;

use crate::error::Error;
use crate::kernels::Kernels;
use crate::launch::release;
use crate::ordering::Ordering;
use crate::settings::Settings;

/// Settings that can be changed until the ordering is first used.
pub struct Configuration {
    allocator: Arc<Allocator>,
    kernels: Arc<dyn Kernels>,
    initial: Settings,
    state: Mutex<State>,
}

struct State {
    settings: Settings,
    used: Option<(Ordering, &'static str)>,
}

impl Configuration {
    /// Starts with `settings`; a reset goes back to them.
    pub fn new(
        settings: Settings,
        allocator: Arc<Allocator>,
        kernels: Arc<dyn Kernels>,
    ) -> Configuration {
        Configuration {
            allocator,
            kernels,
            initial: settings.clone(),
            state: Mutex::new(State {
                settings,
                used: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// When they were used already.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        let mut state = self.state();
        if let Some((_, since)) = state.used {
            return Err(Error::Frozen { since });
        }
        change(&mut state.settings);
        Ok(())
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Settings {
        self.state().settings.clone()
    }

    /// Whether the settings can still be changed.
    pub fn is_frozen(&self) -> bool {
        self.state().used.is_some()
    }

    /// The ordering; at the first call everything is set up, and the settings are fixed. `user` says
    /// who wants it, for those who want to change the settings later.
    ///
    /// # Errors
    /// When it cannot be set up; the settings can still be changed then.
    pub fn ordering(&self, user: &'static str) -> Result<Ordering, Error> {
        let mut state = self.state();
        if let Some((ordering, _)) = &state.used {
            return Ok(ordering.clone());
        }
        let settings = state.settings.clone();
        let ordering = Ordering::new(settings, &self.allocator, Arc::clone(&self.kernels))?;
        state.used = Some((ordering.clone(), user));
        Ok(ordering)
    }

    /// Puts everything back to the start: state is given back and settings are the initial ones. Calls
    /// about streams of the ordering from before are refused.
    ///
    /// # Errors
    /// When allocations are live, graphs are not closed or being built, groups are open, streams have work, or a launch of this
    /// thread is unfinished. Nothing changes then.
    pub fn reset(&self) -> Result<(), Error> {
        let mut state = self.state();
        let live = self.allocator.live();
        if let Some(first) = live.first() {
            return Err(Error::LiveAllocations {
                count: live.len(),
                bytes: live.iter().map(|allocation| allocation.bytes).sum(),
                first: first.address,
            });
        }
        if let Some((ordering, _)) = &state.used {
            let inner = &*ordering.inner;
            let graphs = inner.live_plans().len();
            let builders = inner.builders.load(Relaxed);
            if graphs + builders > 0 {
                return Err(Error::LiveGraphs { graphs, builders });
            }
            let grouped = inner.devices.iter().filter(|d| d.grouped.load(Relaxed));
            let grouped: Vec<_> = grouped.map(|device| device.region.device).collect();
            if !grouped.is_empty() {
                return Err(Error::OpenGroups(grouped));
            }
            let held = inner.hold_all()?;
            let running = match inner.still_running(&held) {
                Ok(Some(stream)) => Ok(Some(stream.key)),
                Ok(None) => inner.dormant_work(),
                Err(error) => Err(error),
            };
            let running = match running {
                Ok(running) => running,
                Err(error) => {
                    release(&held);
                    return Err(error);
                }
            };
            if let Some(key) = running {
                release(&held);
                return Err(Error::StillRunning(key));
            }
            inner.close();
            release(&held);
            for device in inner.devices.iter() {
                self.allocator.release_state(device.region.rank)?;
            }
        }
        state.used = None;
        state.settings = self.initial.clone();
        Ok(())
    }
}
