//! Streams: what each one's next launch starts after.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gsan_vmm::backend::{Device, Stream as Queue};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::blocks::{Behind, Block};
use crate::error::{Error, Held};
use crate::kernels::Step;
use crate::rows::{Completion, Knowledge, Mark, Pair, RowMemory, Table, Turn};
use crate::threads::{self, Keeper, Thread, Waiting};

/// A stream, by its device and the program's handle. A per-thread default stream has a handle that
/// its user makes up for each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The device.
    pub device: Device,
    /// The handle.
    pub handle: u64,
}

/// How a stream stands to the legacy default stream of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// It is the legacy default stream: its work waits for all earlier work of blocking streams,
    /// and their later work waits for it.
    Legacy,
    /// A stream that waits for the legacy default stream, and that one for it: one made without
    /// `CU_STREAM_NON_BLOCKING`, or a thread's default stream.
    Blocking,
    /// One made with `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
}

/// What keeps a stream from its begin to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Begun {
    /// A launch.
    Launch,
    /// A replay of a graph.
    Replay,
    /// A call that gets hold of several streams.
    Call,
}

/// Rows at a point of the stream.
pub(crate) struct Link {
    pub(crate) mark: Mark,
    pub(crate) pair: Pair,
    /// Set once somebody has named the rows.
    shared: Option<Arc<Completion>>,
}

/// A launch that the next one may overtake if it is a dependent one.
pub(crate) struct Chained {
    pub(crate) link: Link,
    pub(crate) state: u64,
    pub(crate) ctas: u32,
}

/// A point of another lineage that the stream's rows contain.
struct Known {
    lineage: u32,
    mark: Mark,
}

/// What launches that were given to the stream may still read.
pub(crate) enum Retired {
    Block(Block),
    Named(#[expect(dead_code, reason = "it is kept until it is dropped")] Vec<Arc<Completion>>),
    Table(#[expect(dead_code, reason = "it is kept until it is dropped")] Table),
}

/// How often a thread that waits for a stream looks who keeps it.
const LOOK: Duration = Duration::from_millis(50);

/// How long another thread may take to end what a thread began that is gone.
const GRACE: Duration = Duration::from_secs(1);

/// How many edges are kept apart between two launches.
const MOST_PENDING: usize = 8;

/// What a stream knows.
pub(crate) struct StreamState {
    pub(crate) bank: u32,
    pub(crate) shares_bank: bool,
    lineage: u32,
    pub(crate) turn: Arc<Turn>,
    /// Counts launches and joins.
    ordinal: u64,
    /// The frontier of the launches in `chain`.
    base: Link,
    /// A launch in `chain` started with it, so that its completion contains it.
    carried: bool,
    /// Launches since the last launch that started after all earlier ones, that one included.
    chain: SmallVec<[Chained; 2]>,
    /// What edges brought since the last launch.
    pending: SmallVec<[Arc<Knowledge>; 2]>,
    /// Which state of the host's knowledge was taken in.
    pub(crate) host_seen: u64,
    /// What is ordered before the newest launch, record or wait, while implicit edges came since.
    acted: Option<Arc<Knowledge>>,
    known: Vec<Known>,
    /// Rows of other banks that frontiers name, by bank; empty before the first.
    named: Vec<Option<Arc<Completion>>>,
    pub(crate) table: Option<Table>,
    /// Which state of the legacy default stream was taken in.
    pub(crate) seen: Option<u64>,
    /// By the legacy default stream: which state of each blocking stream, by its number.
    pub(crate) seen_of: FxHashMap<u32, u64>,
    pub(crate) block: Option<Block>,
    pub(crate) behind: Behind<Vec<Retired>>,
    pub(crate) retired: Vec<Retired>,
    knowledge: Option<Arc<Knowledge>>,
    /// Steps that the backend refused; they come before the next launch.
    pub(crate) owed: Vec<Step>,
    /// Completions that somebody may still name, to be taken back when memory is short.
    lent: Vec<Weak<Completion>>,
    /// Rows that its graphs complete into, of each bank that one of them had.
    graphs: Vec<GraphRows>,
}

/// What graphs complete into that a stream replays, in one bank: since their replays follow each other on
/// the stream, they are one lineage, whichever graph it was, and whether that is still there.
pub(crate) struct GraphRows {
    pub(crate) bank: u32,
    lineage: u32,
    turn: Arc<Turn>,
    /// Counts replays, and events in them.
    newest: u64,
    /// For the next replay.
    next: Option<Pair>,
    lent: Vec<Weak<Completion>>,
}

impl GraphRows {
    /// Sees to it that the next replay has rows to complete into.
    fn get_ready(&mut self) -> Result<(), OutOfRows> {
        if self.next.is_none() {
            let pair = self.turn.take();
            self.next = pair.or_else(|| take_back(&mut self.lent, &[]));
        }
        self.next.map(drop).ok_or(OutOfRows)
    }

    /// What is recorded inside a replay. It comes after all earlier replays, and `count` such points in
    /// no order among each other.
    pub(crate) fn points(&mut self, count: u64) -> impl Iterator<Item = (u32, Mark)> + use<> {
        let (lineage, base) = (self.lineage, self.newest);
        self.newest += count;
        (base + 1..=base + count).map(move |last| (lineage, Mark { last, base }))
    }

    /// The end of a replay.
    pub(crate) fn complete(&mut self) -> Result<Arc<Completion>, OutOfRows> {
        self.get_ready()?;
        let pair = self.next.take().ok_or(OutOfRows)?;
        let mark = Mark {
            last: self.newest + 1,
            base: self.newest,
        };
        self.newest += 1;
        let made = Completion::new((self.lineage, mark), self.bank, pair, &self.turn);
        self.lent.retain(|lent| lent.strong_count() > 0);
        self.lent.push(Arc::downgrade(&made));
        Ok(made)
    }
}

/// The rows of the oldest completion that nobody has taken back and that are not `used`.
fn take_back(lent: &mut Vec<Weak<Completion>>, used: &[Pair]) -> Option<Pair> {
    let mut found = None;
    lent.retain(|lent| {
        let Some(completion) = lent.upgrade() else {
            return false;
        };
        if found.is_none() && !used.contains(&completion.pair) && completion.take() {
            found = Some(completion.pair);
            return false;
        }
        true
    });
    found
}

/// What a launch starts with.
pub(crate) struct Start {
    pub(crate) before: Pair,
    pub(crate) after: Pair,
    /// It may overtake the launches of the chain.
    pub(crate) dependent: bool,
    pub(crate) join: Option<Join>,
}

/// Rows to be joined before a launch.
pub(crate) struct Join {
    pub(crate) target: Pair,
    /// Pairs of the own bank.
    pub(crate) own: SmallVec<[Pair; 2]>,
    /// Rows of the stream's own bank that other streams filled, and rows of other banks that could
    /// not be named: the bank and the row.
    pub(crate) folded: Vec<(u32, u64)>,
    /// Rows over all ids.
    pub(crate) foreign: Vec<u64>,
    /// The new table of rows by bank, if they changed: its address and the rows.
    pub(crate) table: Option<(u64, Vec<u64>)>,
}

/// There is no memory for rows.
pub(crate) struct OutOfRows;

impl StreamState {
    pub(crate) fn new(
        lineage: u32,
        (bank, shares_bank): (u32, bool),
        memory: &Arc<RowMemory>,
    ) -> Option<StreamState> {
        let turn = Turn::new(memory);
        let pair = turn.take()?;
        let bank = (bank, shares_bank);
        Some(StreamState::with_pair(lineage, bank, turn, pair))
    }

    fn with_pair(
        lineage: u32,
        (bank, shares_bank): (u32, bool),
        turn: Arc<Turn>,
        pair: Pair,
    ) -> StreamState {
        StreamState {
            bank,
            shares_bank,
            lineage,
            turn,
            ordinal: 0,
            base: Link {
                mark: Mark { last: 0, base: 0 },
                pair,
                shared: None,
            },
            carried: false,
            chain: SmallVec::new(),
            pending: SmallVec::new(),
            host_seen: 0,
            acted: None,
            known: Vec::new(),
            named: Vec::new(),
            table: None,
            seen: None,
            seen_of: FxHashMap::default(),
            block: None,
            behind: Behind::default(),
            retired: Vec::new(),
            knowledge: None,
            owed: Vec::new(),
            lent: Vec::new(),
            graphs: Vec::new(),
        }
    }

    /// That of a stream that is gone. It is never used.
    pub(crate) fn empty(memory: &Arc<RowMemory>) -> StreamState {
        let nowhere = Pair { own: 0, foreign: 0 };
        StreamState::with_pair(0, (0, false), Turn::new(memory), nowhere)
    }

    /// A new stream goes on with what an old one has left.
    pub(crate) fn taken_over(&mut self) {
        self.seen = None;
        self.seen_of.clear();
        self.acted = None;
    }

    /// Whether the next launch starts with what is there, with nothing to join.
    fn is_plain(&self) -> bool {
        self.chain.len() + usize::from(!self.carried) == 1
    }

    /// Launches that a dependent launch may overtake.
    pub(crate) fn chain(&self) -> &[Chained] {
        &self.chain
    }

    /// Chooses the rows of the next launch. `host` is what the host knows, if that is news.
    pub(crate) fn start(
        &mut self,
        host: Option<&Knowledge>,
        dependent: bool,
    ) -> Result<Start, OutOfRows> {
        let after = self.take_pair()?;
        let dependent =
            dependent && !self.chain.is_empty() && self.chain.len() < crate::blocks::MOST_OVERTAKEN;
        let edges = !self.pending.is_empty() || host.is_some();
        if !edges && dependent {
            return Ok(Start {
                before: self.base.pair,
                after,
                dependent,
                join: None,
            });
        }
        if !edges && self.is_plain() {
            self.advance();
            return Ok(Start {
                before: self.base.pair,
                after,
                dependent,
                join: None,
            });
        }
        match self.join(host, dependent) {
            Ok((dependent, join)) => Ok(Start {
                before: self.base.pair,
                after,
                dependent,
                join,
            }),
            Err(OutOfRows) => {
                self.turn.give_back(after);
                Err(OutOfRows)
            }
        }
    }

    /// The only completion becomes the frontier.
    fn advance(&mut self) {
        if let Some(only) = self.chain.pop() {
            let old = std::mem::replace(&mut self.base, only.link);
            self.drop_link(old);
            self.carried = false;
        }
    }

    /// Takes edges in: what the next launch starts with becomes the frontier.
    fn join(
        &mut self,
        host: Option<&Knowledge>,
        dependent: bool,
    ) -> Result<(bool, Option<Join>), OutOfRows> {
        let mut own: SmallVec<[Arc<Completion>; 2]> = SmallVec::new();
        let mut news = Knowledge::default();
        let edges = self.pending.iter().map(Arc::as_ref).chain(host);
        for completion in edges.flat_map(|edge| &edge.completions) {
            if completion.lineage == self.lineage {
                if !self.base.mark.covers(completion.mark) {
                    own.push(Arc::clone(completion));
                }
            } else if !self.knows(completion) {
                news.add(completion);
            }
        }
        // Launches that are waited for anyway are not overtaken.
        let waited = |chained: &Chained| {
            let mark = chained.link.mark;
            own.iter().any(|completion| completion.mark.covers(mark))
        };
        let dependent = dependent && !self.chain.iter().all(waited);
        if !dependent && news.completions.is_empty() && self.is_plain() {
            self.advance();
            self.pending.clear();
            return Ok((dependent, None));
        }
        if dependent && news.completions.is_empty() && own.is_empty() {
            self.pending.clear();
            return Ok((dependent, None));
        }
        let target = self.take_pair()?;
        // Before anything changes: later there must be one.
        let table = match news.completions.is_empty() {
            true => None,
            false => match self.turn.table() {
                Some(table) => Some(table),
                None => {
                    self.turn.give_back(target);
                    return Err(OutOfRows);
                }
            },
        };
        let mut join = Join {
            target,
            own: SmallVec::new(),
            folded: Vec::new(),
            foreign: Vec::new(),
            table: None,
        };
        let mut gone: SmallVec<[Link; 2]> = SmallVec::new();
        if dependent {
            join.own.push(self.base.pair);
            join.own
                .extend(own.iter().map(|completion| completion.pair));
            let chain = std::mem::take(&mut self.chain);
            for chained in chain {
                if own.iter().any(|c| c.mark.covers(chained.link.mark)) {
                    // Contained in a completion that was named, or that one itself.
                    gone.push(chained.link);
                } else {
                    self.chain.push(chained);
                }
            }
        } else {
            if !self.carried {
                join.own.push(self.base.pair);
            }
            for chained in std::mem::take(&mut self.chain) {
                join.own.push(chained.link.pair);
                gone.push(chained.link);
            }
        }
        self.take_in(news, table, &mut join);
        let base = if dependent {
            self.base.mark.up_to()
        } else {
            self.ordinal
        };
        self.ordinal += 1;
        let link = Link {
            mark: Mark {
                last: self.ordinal,
                base,
            },
            pair: target,
            shared: None,
        };
        let old = std::mem::replace(&mut self.base, link);
        self.carried = false;
        if dependent {
            // Launches that may still run read the old frontier: it rests until all have finished.
            self.retire_link(old);
            for link in gone {
                self.retire_link(link);
            }
        } else {
            self.drop_link(old);
            for link in gone {
                self.drop_link(link);
            }
        }
        if !own.is_empty() {
            self.retired.push(Retired::Named(own.into_vec()));
        }
        self.pending.clear();
        self.knowledge = None;
        Ok((dependent, Some(join)))
    }

    /// Names the rows of other banks, and joins what cannot be named.
    fn take_in(&mut self, news: Knowledge, table: Option<Table>, join: &mut Join) {
        let mut rest = Vec::new();
        let mut renamed = false;
        for completion in news.completions {
            join.foreign.push(completion.pair.foreign);
            let known = Known {
                lineage: completion.lineage,
                mark: completion.mark,
            };
            self.known
                .retain(|k| k.lineage != known.lineage || !known.mark.covers(k.mark));
            self.known.push(known);
            let bank = completion.bank;
            if self.named.len() <= bank as usize {
                self.named.resize(bank as usize + 1, None);
            }
            let named = &mut self.named[bank as usize];
            let nameable =
                bank != self.bank && named.as_ref().is_none_or(|known| completion.covers(known));
            if nameable {
                rest.extend(named.replace(Arc::clone(&completion)));
                renamed = true;
            } else {
                join.folded.push((bank, completion.pair.own));
            }
            // Its row over all ids is read by the join.
            rest.push(completion);
        }
        if let Some(table) = table.filter(|_| renamed) {
            let row = |named: &Option<Arc<Completion>>| named.as_ref().map_or(0, |c| c.pair.own);
            join.table = Some((table.address, self.named.iter().map(row).collect()));
            let old = self.table.replace(table);
            self.retired.extend(old.map(Retired::Table));
        }
        if !rest.is_empty() {
            self.retired.push(Retired::Named(rest));
        }
    }

    fn knows(&self, completion: &Completion) -> bool {
        self.known
            .iter()
            .any(|known| known.lineage == completion.lineage && known.mark.covers(completion.mark))
    }

    /// What the next launch starts with, once everything is joined: the rows, and those named.
    pub(crate) fn frontier(&self) -> (Pair, impl Iterator<Item = &Arc<Completion>>) {
        (self.base.pair, self.named.iter().flatten())
    }

    /// A pair for a frontier that the next launch starts with.
    pub(crate) fn new_frontier(&mut self) -> Result<Pair, OutOfRows> {
        self.take_pair()
    }

    /// From now on launches start with `pair`, which contains the frontier from before.
    pub(crate) fn replace_frontier(&mut self, pair: Pair) {
        let base = self.ordinal;
        self.ordinal += 1;
        let link = Link {
            mark: Mark {
                last: self.ordinal,
                base,
            },
            pair,
            shared: None,
        };
        let old = std::mem::replace(&mut self.base, link);
        self.drop_link(old);
        self.carried = false;
        self.knowledge = None;
        self.acted = None;
    }

    /// A graph with kernels in `bank`, whose rows lie in `memory`, is about to be replayed. A lineage is
    /// asked for if none had.
    pub(crate) fn graph_begins(
        &mut self,
        bank: u32,
        memory: &Arc<RowMemory>,
        lineage: impl FnOnce() -> u32,
    ) -> Result<(), OutOfRows> {
        if !self.graphs.iter().any(|known| known.bank == bank) {
            let turn = Turn::new(memory);
            // A completion of a graph is kept until the stream has passed it.
            turn.lend();
            self.graphs.push(GraphRows {
                bank,
                lineage: lineage(),
                turn,
                newest: 0,
                next: None,
                lent: Vec::new(),
            });
        }
        let known = self.graphs.iter_mut().find(|known| known.bank == bank);
        known.ok_or(OutOfRows)?.get_ready()
    }

    /// Rows of a bank of a graph whose replay began.
    pub(crate) fn graph_rows(&mut self, bank: u32) -> Result<&mut GraphRows, OutOfRows> {
        let known = self.graphs.iter_mut().find(|known| known.bank == bank);
        known.ok_or(OutOfRows)
    }

    /// A graph was given to the stream, which completes into `done`.
    pub(crate) fn graph_done(&mut self, done: Arc<Knowledge>) {
        self.start_after(done);
        self.knowledge = None;
        self.acted = None;
    }

    /// Joins everything that comes before the next work. `Err` when there is no memory.
    pub(crate) fn join_all(&mut self, host: Option<&Knowledge>) -> Result<Option<Join>, OutOfRows> {
        let (_, join) = self.join(host, false)?;
        Ok(join)
    }

    /// Forgets everything. Nothing runs. Returns what was kept for launches in flight, and the block.
    pub(crate) fn restart(&mut self) -> Vec<Retired> {
        self.advance_all();
        self.pending.clear();
        self.known.clear();
        self.named.clear();
        self.table = None;
        self.knowledge = None;
        self.acted = None;
        self.owed.clear();
        self.seen = None;
        self.seen_of.clear();
        self.lent.clear();
        for graphs in &mut self.graphs {
            graphs.lent.clear();
        }
        let mut kept = std::mem::take(&mut self.retired);
        kept.extend(self.block.take().map(Retired::Block));
        kept
    }

    /// Keeps one pair and gives all others back.
    fn advance_all(&mut self) {
        for chained in std::mem::take(&mut self.chain) {
            self.drop_link(chained.link);
        }
        self.carried = false;
        if let Some(shared) = self.base.shared.take() {
            // The pair is this stream's own again, whoever named it.
            if !shared.take() {
                tracing::debug!("rows of a frontier were taken back twice");
            }
        }
    }

    /// The launch that `start` was chosen for was given to the stream.
    pub(crate) fn submitted(&mut self, start: &Start, state: u64, ctas: u32) {
        let base = if start.dependent {
            self.base.mark.up_to()
        } else {
            self.ordinal
        };
        self.ordinal += 1;
        let link = Link {
            mark: Mark {
                last: self.ordinal,
                base,
            },
            pair: start.after,
            shared: None,
        };
        self.chain.push(Chained { link, state, ctas });
        self.acted = None;
        self.carried = true;
        self.knowledge = None;
    }

    /// An edge that the next action of this stream brings with it.
    pub(crate) fn wait_implicitly(&mut self, edge: Arc<Knowledge>) {
        if self.acted.is_none() {
            self.acted = Some(self.knowledge());
        }
        self.start_after(edge);
    }

    /// The next launch starts after `edge`, too.
    pub(crate) fn start_after(&mut self, edge: Arc<Knowledge>) {
        if self.pending.iter().any(|known| Arc::ptr_eq(known, &edge)) {
            return;
        }
        self.pending.push(edge);
        // A program may wait for ever and launch nothing.
        if self.pending.len() > MOST_PENDING {
            let mut all = Knowledge::default();
            for pending in self.pending.drain(..) {
                all.join(&pending);
            }
            self.pending.push(Arc::new(all));
        }
    }

    /// The stream did something: implicit edges have become real ones. Says whether there were any.
    pub(crate) fn acted(&mut self) -> bool {
        self.acted.take().is_some()
    }

    /// What is ordered before this stream's newest action.
    pub(crate) fn at_newest_action(&mut self) -> Arc<Knowledge> {
        let acted = self.acted.clone();
        acted.unwrap_or_else(|| self.knowledge())
    }

    /// What is ordered before the next record on this stream.
    pub(crate) fn knowledge(&mut self) -> Arc<Knowledge> {
        if let Some(known) = &self.knowledge
            && self.pending.is_empty()
        {
            return Arc::clone(known);
        }
        let mut all = Knowledge::default();
        let (lineage, bank) = (self.lineage, self.bank);
        let turn = &self.turn;
        let lent = &mut self.lent;
        let mut name = |link: &mut Link| {
            let shared = link.shared.get_or_insert_with(|| {
                let made = Completion::new((lineage, link.mark), bank, link.pair, turn);
                lent.retain(|lent| lent.strong_count() > 0);
                lent.push(Arc::downgrade(&made));
                made
            });
            all.add(shared);
        };
        if !self.carried {
            name(&mut self.base);
        }
        for chained in &mut self.chain {
            name(&mut chained.link);
        }
        for named in self.named.iter().flatten() {
            all.add(named);
        }
        for pending in &self.pending {
            all.join(pending);
        }
        let all = Arc::new(all);
        if self.pending.is_empty() {
            self.knowledge = Some(Arc::clone(&all));
        }
        all
    }

    /// A pair that nobody reads; when memory is short, the oldest one that is named.
    fn take_pair(&mut self) -> Result<Pair, OutOfRows> {
        if let Some(pair) = self.turn.take() {
            return Ok(pair);
        }
        let mut used: SmallVec<[Pair; 4]> = self.chain.iter().map(|c| c.link.pair).collect();
        used.push(self.base.pair);
        take_back(&mut self.lent, &used).ok_or(OutOfRows)
    }

    /// Rows that launches of this stream alone may read, in stream order.
    fn drop_link(&mut self, link: Link) {
        if link.shared.is_none() {
            self.turn.give_back(link.pair);
        }
    }

    /// Rows that launches which may overtake each other still read.
    fn retire_link(&mut self, mut link: Link) {
        let (lineage, bank) = (self.lineage, self.bank);
        let completion = link
            .shared
            .take()
            .unwrap_or_else(|| Completion::new((lineage, link.mark), bank, link.pair, &self.turn));
        self.retired.push(Retired::Named(vec![completion]));
    }
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    pub(crate) queue: Queue,
    pub(crate) kind: StreamKind,
    /// Its number for reports, counted over all devices.
    pub(crate) number: u32,
    /// The device's place among those of this process.
    pub(crate) device: usize,
    /// Counts what other streams may have to learn: launches and edges.
    version: AtomicU64,
    lane: Mutex<Lane>,
    freed: Condvar,
    /// The thread that keeps it. Written under the lock.
    keeper: Keeper,
    patience: Duration,
}

struct Lane {
    /// What keeps everybody else out.
    kept: Option<Kept>,
    /// How many threads wait for it.
    waiting: u32,
    /// The program has destroyed the stream.
    gone: bool,
    state: StreamState,
}

/// What keeps a stream, and who began it.
#[derive(Clone, Copy)]
struct Kept {
    what: Begun,
    /// The stream that it was begun on: of a launch on the legacy default stream another one.
    on: StreamKey,
    thread: Thread,
}

/// A stream, locked for one call.
pub(crate) struct Entered<'s> {
    stream: &'s Stream,
    lane: MutexGuard<'s, Lane>,
}

impl std::ops::Deref for Entered<'_> {
    type Target = StreamState;

    fn deref(&self) -> &StreamState {
        &self.lane.state
    }
}

impl std::ops::DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut StreamState {
        &mut self.lane.state
    }
}

impl Stream {
    pub(crate) fn new(
        key: StreamKey,
        queue: Queue,
        kind: StreamKind,
        (number, device): (u32, usize),
        state: StreamState,
        patience: Duration,
    ) -> Stream {
        Stream {
            key,
            queue,
            kind,
            number,
            device,
            version: AtomicU64::new(0),
            lane: Mutex::new(Lane {
                kept: None,
                waiting: 0,
                gone: false,
                state,
            }),
            freed: Condvar::new(),
            keeper: Keeper::default(),
            patience,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no launch of another thread is between its begin and its end.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, Error> {
        let mut lane = self.lock();
        if lane.kept.is_some() {
            lane = self.wait(lane)?;
        }
        self.entered(lane)
    }

    /// The same, but `None` when another thread keeps the stream.
    pub(crate) fn try_enter(&self) -> Result<Option<Entered<'_>>, Error> {
        let lane = self.lock();
        match lane.kept {
            Some(kept) if kept.thread == threads::this() => Err(self.unfinished(kept)),
            Some(_) => Ok(None),
            None => self.entered(lane).map(Some),
        }
    }

    fn entered<'s>(&'s self, lane: MutexGuard<'s, Lane>) -> Result<Entered<'s>, Error> {
        match lane.gone {
            true => Err(Error::UnknownStream(self.key)),
            false => Ok(Entered { stream: self, lane }),
        }
    }

    fn unfinished(&self, kept: Kept) -> Error {
        Error::LaunchUnfinished {
            stream: self.key,
            begun: kept.what,
            on: kept.on,
        }
    }

    #[cold]
    fn wait<'s>(&'s self, mut lane: MutexGuard<'s, Lane>) -> Result<MutexGuard<'s, Lane>, Error> {
        let (this, since) = (threads::this(), Instant::now());
        let mut waiting = None;
        while let Some(kept) = lane.kept {
            if kept.thread == this {
                return Err(self.unfinished(kept));
            }
            let waited = since.elapsed();
            if waiting.is_none() {
                waiting = Waiting::enter(this, &self.keeper);
            }
            let why = if waiting.is_none() {
                Some(Held::Crosswise)
            } else if waited >= GRACE && threads::has_ended(kept.thread) {
                Some(Held::ThreadEnded)
            } else if waited >= self.patience {
                Some(Held::TooLong(self.patience))
            } else {
                None
            };
            if let Some(why) = why {
                drop(lane);
                return Err(Error::StreamHeld {
                    stream: self.key,
                    begun: kept.what,
                    on: kept.on,
                    thread: threads::name(kept.thread),
                    why,
                });
            }
            lane.waiting += 1;
            // Nobody tells of a thread that ends.
            let woken = self.freed.wait_timeout(lane, LOOK.min(self.patience));
            lane = woken.unwrap_or_else(PoisonError::into_inner).0;
            lane.waiting -= 1;
        }
        Ok(lane)
    }

    /// The state, though a launch of this thread is under way.
    pub(crate) fn reenter(&self) -> Entered<'_> {
        let lane = self.lock();
        Entered { stream: self, lane }
    }

    /// Lets others in.
    pub(crate) fn leave(&self, mut entered: Entered<'_>) {
        entered.lane.kept = None;
        self.keeper.store(0, Relaxed);
        let waiting = entered.lane.waiting > 0;
        drop(entered);
        if waiting {
            // All of them: whoever comes in may go out again without telling anybody.
            self.freed.notify_all();
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// There is something to learn.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Release);
    }
}

impl Entered<'_> {
    /// Keeps everybody else out until [`Stream::leave`], for what was begun on a stream.
    pub(crate) fn keep(mut self, what: Begun, on: StreamKey) {
        let thread = threads::this();
        self.lane.kept = Some(Kept { what, on, thread });
        self.stream.keeper.store(thread, Relaxed);
    }

    /// From now on nobody enters.
    pub(crate) fn close(&mut self) {
        self.lane.gone = true;
    }
}
