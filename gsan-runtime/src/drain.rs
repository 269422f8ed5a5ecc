//! The thread that takes races out of the ring.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gsan_core::race_ring::{Drained, RaceReader};
use gsan_report::model::Report;

use crate::findings::Findings;
use crate::lowest;
use crate::part::{Checked, Damaged, Elsewhere, FoundLog, Part};
use crate::telling::{Follower, News, Nobody};

/// How long the thread sleeps after it found something.
const SHORTEST: Duration = Duration::from_millis(1);
/// How long it sleeps for each entry of the ring, and at most: the ring must not fill up meanwhile, nor may
/// looking cost anything.
const PER_ENTRY: Duration = Duration::from_nanos(750);
const LONGEST: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];
/// How often it asks what was checked, and how often if something was found: what a process that dies has
/// checked is then known up to about there.
const REFRESHED: Duration = Duration::from_secs(1);
const REFRESHED_AT_MOST: Duration = Duration::from_millis(100);

/// Says what was checked and lost; `None` if it cannot be said now.
pub type AskChecked = Box<dyn Fn() -> Option<Checked> + Send + Sync>;

/// Takes races out of the ring of a part: into the part, where they outlive the process, and into the
/// process's findings. Dropping it stops its thread.
pub struct Drainer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    part: Arc<Part>,
    findings: Arc<Findings>,
    checked: AskChecked,
    core: Mutex<Core>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

struct Core {
    log: FoundLog,
    follower: Follower,
    elsewhere: Option<Box<dyn Elsewhere>>,
    closed: bool,
}

impl Drainer {
    /// Starts to drain. `checked` is asked once a second what was checked; `elsewhere` knows names that
    /// the part does not.
    ///
    /// # Errors
    /// When the part cannot be read or no thread can be made.
    pub fn start(
        part: Arc<Part>,
        findings: Arc<Findings>,
        checked: AskChecked,
        elsewhere: Option<Box<dyn Elsewhere>>,
    ) -> Result<Drainer, Damaged> {
        let follower = Follower::new(part.reader()?);
        let shared = Arc::new(Shared {
            part,
            findings,
            checked,
            core: Mutex::new(Core {
                log: FoundLog::default(),
                follower,
                elsewhere,
                closed: false,
            }),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let run = Arc::clone(&shared);
        let spawn = || {
            std::thread::Builder::new()
                .name("gsan-drain".to_owned())
                .spawn(move || run.run())
        };
        // The program's signals are for the program's threads.
        let thread = lowest::without_signals(spawn).map_err(Damaged::Unreadable)?;
        Ok(Drainer {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The part.
    pub fn part(&self) -> &Arc<Part> {
        &self.shared.part
    }

    /// Takes all races out that are in the ring now.
    pub fn drain(&self) -> Drained {
        self.shared.drain()
    }

    /// What was found, with what was checked up to now.
    pub fn report(&self) -> Report {
        self.drain();
        self.shared.refresh();
        let news = self.shared.settle();
        self.shared.findings.announce(&news);
        let mut builder = self.shared.findings.builder().clone();
        let core = self.shared.core();
        if !core.closed {
            core.follower.sum_up(&mut builder);
        }
        builder.summary().processes = 1;
        builder.finish()
    }

    /// Forgets the races that were told so far. Those that are found again are as new.
    pub fn forget_races(&self) {
        self.drain();
        let mut core = self.shared.core();
        let Core { log, follower, .. } = &mut *core;
        let mut builder = self.shared.findings.builder();
        // How often they were seen is forgotten, too.
        let news = or_nothing(follower.settle(&mut builder, &mut Nobody, false));
        drop(builder);
        self.shared.findings.forget();
        follower.forget_before(log.forget_races(&self.shared.part));
        drop(core);
        self.shared.findings.announce(&news);
    }

    /// Device states are about to be set up anew: what names their sites is taken in before.
    pub fn forget_sites(&self) {
        self.drain();
        let mut core = self.shared.core();
        core.log.forget_numbers();
        if let Err(error) = self.shared.part.forget_sites() {
            tracing::error!("{error}");
        }
    }

    /// Everything there is has been told: takes it in and says so in the part. May be called again.
    pub fn finish(&self) {
        self.drain();
        self.shared.refresh();
        self.shared.part.finish();
    }

    /// The session ends: like [`Self::finish`], and the findings get what was checked. The thread stops.
    pub fn close(&self) {
        let mut news = Vec::new();
        self.close_quietly(&mut news);
        self.shared.findings.announce(&news);
        self.stop();
    }

    /// Tells of what is new.
    pub(crate) fn announce(&self, news: &[News]) {
        self.shared.findings.announce(news);
    }

    /// Takes all races out that are in the ring now. What is new is added to `news`; nobody is called.
    pub(crate) fn take_in(&self, news: &mut Vec<News>) {
        news.extend(self.shared.take_in().1);
    }

    /// Like [`Self::close`], but nobody is called, and the thread is not stopped: for those who hold
    /// a lock that a callback may want, in the thread, too.
    pub(crate) fn close_quietly(&self, news: &mut Vec<News>) {
        self.take_in(news);
        self.shared.refresh();
        self.shared.part.finish();
        news.extend(self.shared.settle());
        let mut core = self.shared.core();
        if !core.closed {
            core.closed = true;
            core.follower.sum_up(&mut self.shared.findings.builder());
        }
    }

    /// Stops the thread, which may be inside of a callback, and waits for it, unless it is this one.
    pub(crate) fn stop(&self) {
        *lock(&self.shared.stop) = true;
        self.shared.stopped.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    fn run(&self) {
        let entries = self.part.ring().capacity() as u32;
        let longest = (entries * PER_ENTRY).clamp(LONGEST[0], LONGEST[1]);
        let mut pause = SHORTEST;
        self.refresh();
        let mut refreshed = Instant::now();
        loop {
            let drained = self.drain();
            let often = match drained.entries {
                0 => REFRESHED,
                _ => REFRESHED_AT_MOST,
            };
            pause = match drained.entries {
                0 => (2 * pause).min(longest),
                _ => SHORTEST,
            };
            if refreshed.elapsed() >= often {
                self.refresh();
                refreshed = Instant::now();
            }
            let stop = lock(&self.stop);
            let waited = self.stopped.wait_timeout_while(stop, pause, |stop| !*stop);
            let (stop, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *stop {
                return;
            }
        }
    }

    fn drain(&self) -> Drained {
        let _telling = self.findings.telling();
        let (drained, news) = self.take_in();
        self.findings.announce(&news);
        drained
    }

    fn take_in(&self) -> (Drained, Vec<News>) {
        let mut core = self.core();
        let Core { log, elsewhere, .. } = &mut *core;
        let mut is_new = false;
        let drained = RaceReader::new(self.part.ring()).drain(|entry| {
            is_new |= log.count(&self.part, &entry, elsewhere.as_deref_mut());
        });
        if !is_new {
            return (drained, Vec::new());
        }
        // The process may crash because of it.
        self.refresh();
        let mut builder = self.findings.builder();
        let news = core.follower.follow(&mut builder, &mut Nobody);
        drop((builder, core));
        (drained, or_nothing(news))
    }

    /// Brings the findings up to date: how often each was seen.
    fn settle(&self) -> Vec<News> {
        let mut core = self.core();
        let mut builder = self.findings.builder();
        let news = core.follower.settle(&mut builder, &mut Nobody, false);
        drop((builder, core));
        or_nothing(news)
    }

    fn refresh(&self) {
        if let Some(checked) = (self.checked)() {
            self.part.set_checked(&checked);
        }
    }
}

impl std::fmt::Debug for Drainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drainer")
            .field("part", &self.shared.part)
            .finish_non_exhaustive()
    }
}

fn or_nothing(news: Result<Vec<News>, Damaged>) -> Vec<News> {
    news.unwrap_or_else(|error| {
        tracing::error!("this process's own part of the report: {error}");
        Vec::new()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left is whole: counts are changed last.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
