//! What a process has found, over all its sessions.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gsan_config::pattern::Suppression;
use gsan_report::builder::Builder;
use gsan_report::model::Report;

use crate::telling::News;

/// Called once for each finding that is new.
pub type Callback = Arc<dyn Fn(&News) + Send + Sync>;

/// How long the change of a callback waits at most for those who tell of what they took in: a callback may
/// take as long as it likes.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// How often this thread tells, one in the other.
    static TELLS: Cell<usize> = const { Cell::new(0) };
}

/// What a process has found: each race once, those that are suppressed or over the limit as counts.
pub struct Findings {
    limit: usize,
    suppressions: Vec<Suppression>,
    builder: Mutex<Builder>,
    callback: Mutex<Option<Callback>>,
    /// How many take findings in and tell of them.
    telling: Mutex<usize>,
    told: Condvar,
}

/// Somebody takes findings in and tells of them.
pub(crate) struct Telling<'f>(&'f Findings);

impl Findings {
    /// Nothing yet. At most `limit` distinct findings of each kind are kept.
    pub fn new(limit: usize, suppressions: &[Suppression]) -> Findings {
        Findings {
            limit,
            suppressions: suppressions.to_vec(),
            builder: Mutex::new(empty(limit, suppressions)),
            callback: Mutex::default(),
            telling: Mutex::default(),
            told: Condvar::new(),
        }
    }

    pub(crate) fn builder(&self) -> MutexGuard<'_, Builder> {
        self.builder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `callback` is called for each finding that is new, by whichever thread takes it in;
    /// `None`: nobody is called. Findings can be asked for from within. What another thread has taken in and not told
    /// yet is told to the callback from before: it may have been seen already.
    pub fn on_new(&self, callback: Option<Callback>) {
        if TELLS.get() == 0 {
            let telling = self.tellers();
            let waited = self
                .told
                .wait_timeout_while(telling, PATIENCE, |telling| *telling != 0);
            drop(waited);
        }
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = callback;
    }

    fn tellers(&self) -> MutexGuard<'_, usize> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the end of what is returned, this thread takes findings in and tells of them.
    pub(crate) fn telling(&self) -> Telling<'_> {
        *self.tellers() += 1;
        TELLS.set(TELLS.get() + 1);
        Telling(self)
    }

    /// Calls the callback; no lock is held.
    pub(crate) fn announce(&self, news: &[News]) {
        if news.is_empty() {
            return;
        }
        let callback = {
            let callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
            callback.clone()
        };
        if let Some(callback) = callback {
            news.iter().for_each(|news| callback(news));
        }
    }

    /// How many races and how many possible ones are kept.
    pub fn count(&self) -> (usize, usize) {
        let builder = self.builder();
        let report = builder.so_far();
        (
            report.races.len() + report.faults.len(),
            report.possible_races.len(),
        )
    }

    /// Forgets what was found. What is found again counts as new.
    pub fn forget(&self) {
        *self.builder() = empty(self.limit, &self.suppressions);
    }

    /// What was found in sessions that are closed, and taken in of those that are not.
    pub fn report(&self) -> Report {
        let mut builder = self.builder().clone();
        builder.summary().processes = 1;
        builder.finish()
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        TELLS.set(TELLS.get() - 1);
        *self.0.tellers() -= 1;
        self.0.told.notify_all();
    }
}

fn empty(limit: usize, suppressions: &[Suppression]) -> Builder {
    let mut builder = Builder::new(limit, suppressions);
    builder.start_run();
    builder
}

impl std::fmt::Debug for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (races, possible) = self.count();
        f.debug_struct("Findings")
            .field("races", &races)
            .field("possible", &possible)
            .finish_non_exhaustive()
    }
}
