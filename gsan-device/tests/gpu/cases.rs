//! What is run, and what is to be found: the same on a GPU and on the CPU.

use gsan_core::layout::race_codes::{READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE};

use crate::kernels::Module;
use crate::runtime::{Found, Told};

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// The address of a buffer, by its number.
    Buffer(usize),
    Number(u32),
}
use Argument::{Buffer, Number};

#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: &'static str,
    pub(crate) stream: u32,
    /// How many CTAs a cluster has.
    pub(crate) cluster: u32,
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) arguments: Vec<Argument>,
}

/// Which races are to be told.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// These, each at least once, and no other.
    Exactly(Vec<Told>),
    /// No others than these.
    AtMost(Vec<Told>),
    /// At least one; the lines of both sides are among these.
    Some(Vec<u32>),
}

/// Words that a buffer holds at the end, if the program is correct.
pub(crate) type Result = (usize, Vec<u32>);

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) module: Module,
    /// The sizes of the buffers, in words. The last one is where kernels say that they gave up.
    pub(crate) buffers: Vec<u32>,
    /// The buffer whose words are 1 at first; those of the others are 0.
    pub(crate) ones: Option<usize>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) expected: Expected,
    pub(crate) result: Option<Result>,
}

impl Case {
    /// Whether `found` is what is expected; `Err` says what was found instead.
    pub(crate) fn judge(&self, found: &Found) -> std::result::Result<(), String> {
        let mut told: Vec<Told> = found.told().collect();
        told.sort_unstable();
        told.dedup();
        let holds = match &self.expected {
            Expected::Exactly(expected) => {
                let mut expected = expected.clone();
                expected.sort_unstable();
                expected.dedup();
                expected == told
            }
            Expected::AtMost(expected) => told.iter().all(|told| expected.contains(told)),
            Expected::Some(lines) => {
                let known = |told: &Told| told.lines.iter().all(|line| lines.contains(line));
                !told.is_empty() && told.iter().all(known)
            }
        };
        match holds {
            true => Ok(()),
            false => Err(format!(
                "{}: {told:?}, not {:?}; lost: {:?}",
                self.name,
                self.expected,
                found.losses()
            )),
        }
    }
}

pub(crate) const RELAXED: u32 = 0;
pub(crate) const ACQUIRE: u32 = 1;
pub(crate) const RELEASE: u32 = 2;
pub(crate) const ACQUIRE_RELEASE: u32 = 3;
const CTA: u32 = 0;
const GPU: u32 = 1;
const SYSTEM: u32 = 2;

/// An access of a pair: its name in the source, whether it reads and writes, and its scope if it is
/// atomic.
struct Access(&'static str, bool, bool, Option<u32>);

const ACCESSES: [Access; 6] = [
    Access("write", false, true, None),
    Access("read", true, false, None),
    Access("add", true, true, Some(GPU)),
    Access("cta add", true, true, Some(CTA)),
    Access("store", false, true, Some(SYSTEM)),
    Access("load", true, false, Some(GPU)),
];

/// The race that two accesses of different CTAs are when nothing orders them.
fn race(first: &Access, second: &Access) -> Option<u32> {
    let reaches = |access: &Access| access.3.is_some_and(|scope| scope != CTA);
    if reaches(first) && reaches(second) {
        return None;
    }
    // What reads and writes reads first.
    match (first.2, second.1, second.2) {
        (true, true, _) => Some(READ_AFTER_WRITE),
        (true, false, true) => Some(WRITE_AFTER_WRITE),
        (false, _, true) => Some(WRITE_AFTER_READ),
        _ => None,
    }
}

fn told(module: Module, kind: u32, first: &str, second: &str) -> Told {
    Told {
        kind,
        lines: [module.line(first), module.line(second)],
    }
}

/// The forms of a message, as `pair` numbers them.
const FORMS: [&str; 5] = ["", "store", "exchange", "compare", "add"];
/// How each is received.
const RECEIVED: [&str; 5] = ["", "load", "exchange", "compare", "add"];

struct Message {
    form: usize,
    send: u32,
    receive: u32,
    scope: u32,
}

const NO_MESSAGE: Message = Message {
    form: 0,
    send: RELAXED,
    receive: RELAXED,
    scope: GPU,
};

fn pair(first: usize, second: usize, message: &Message) -> Case {
    let module = Module::Pairs;
    let Message {
        form,
        send,
        receive,
        scope,
    } = *message;
    let releases = matches!(send, RELEASE | ACQUIRE_RELEASE);
    let acquires = matches!(receive, ACQUIRE | ACQUIRE_RELEASE);
    let ordered = form != 0 && releases && acquires && scope != CTA;
    let mut races = Vec::new();
    if !ordered && let Some(kind) = race(&ACCESSES[first], &ACCESSES[second]) {
        let [first, second] = [(first, "first"), (second, "second")]
            .map(|(access, side)| format!("{side} {}", ACCESSES[access].0));
        races.push(told(module, kind, &first, &second));
    }
    if form != 0 && scope == CTA {
        // The message itself is a race: whoever receives it reads.
        let send = format!("send by {}", FORMS[form]);
        let receive = format!("receive by {}", RECEIVED[form]);
        races.push(told(module, READ_AFTER_WRITE, &send, &receive));
    }
    // Who receives and releases at once joins the message to its own, in a sequence as wide as both CTAs
    // are apart. That counts as ordered, too.
    let joins = releases && form != 0 && receive == ACQUIRE_RELEASE && scope == CTA;
    let numbers = [
        first as u32,
        second as u32,
        form as u32,
        send,
        receive,
        scope,
    ];
    let buffers = [Buffer(0), Buffer(1), Buffer(2), Buffer(3)];
    Case {
        name: format!(
            "{} then {}, message {form} order {send} {receive} scope {scope}",
            ACCESSES[first].0, ACCESSES[second].0
        ),
        module,
        buffers: vec![64; 4],
        ones: None,
        launches: vec![Launch {
            kernel: "pair",
            stream: 0,
            cluster: 1,
            grid: 2,
            block: 32,
            arguments: buffers.into_iter().chain(numbers.map(Number)).collect(),
        }],
        expected: match joins {
            true => Expected::AtMost(races),
            false => Expected::Exactly(races),
        },
        result: None,
    }
}

/// Every kind of race between accesses of each kind, with nothing in between and with a message.
pub(crate) fn kinds() -> Vec<Case> {
    let all = ACCESSES.len();
    let message = Message {
        form: 1,
        send: RELEASE,
        receive: ACQUIRE,
        scope: GPU,
    };
    let pairs = (0..all * all).map(|index| (index / all, index % all));
    pairs
        .flat_map(|(first, second)| {
            [
                pair(first, second, &NO_MESSAGE),
                pair(first, second, &message),
            ]
        })
        .collect()
}

/// A race of each kind, and what the driver says of it where a race ends the program.
pub(crate) fn halts() -> [(Case, &'static str); 3] {
    [
        (pair(0, 1, &NO_MESSAGE), "Read after write race detected"),
        (pair(1, 0, &NO_MESSAGE), "Write after read race detected"),
        (pair(0, 0, &NO_MESSAGE), "Write after write race detected"),
    ]
}

/// A write, a message of every form, order and scope, and a read.
pub(crate) fn messages() -> Vec<Case> {
    let mut cases = Vec::new();
    for form in 1..FORMS.len() {
        for scope in [CTA, GPU, SYSTEM] {
            let (sends, receives): (&[u32], &[u32]) = match form {
                1 => (&[RELAXED, RELEASE], &[RELAXED, ACQUIRE]),
                _ => (&[0, 1, 2, 3], &[0, 1, 2, 3]),
            };
            for &send in sends {
                for &receive in receives {
                    let message = Message {
                        form,
                        send,
                        receive,
                        scope,
                    };
                    cases.push(pair(0, 1, &message));
                }
            }
        }
    }
    cases
}

/// CTAs whose elements of 1 and 2 bytes lie in one granule.
pub(crate) fn neighbours() -> Vec<Case> {
    let mut cases = Vec::new();
    for (bytes, mark) in [(1, "byte"), (2, "half")] {
        // One element each, and so many that the granules of two CTAs overlap.
        for (per_cta, grid) in [(1, 8), (29, 16), (32, 16)] {
            for overlap in [0, 1] {
                if overlap == 1 && per_cta == 1 {
                    continue;
                }
                let races = match overlap {
                    0 => vec![],
                    _ => vec![told(Module::Pairs, WRITE_AFTER_WRITE, mark, mark)],
                };
                cases.push(Case {
                    name: format!("{per_cta} elements of {bytes} bytes, {overlap} shared"),
                    module: Module::Pairs,
                    buffers: vec![256, 64],
                    ones: None,
                    launches: vec![Launch {
                        kernel: "neighbours",
                        stream: 0,
                        cluster: 1,
                        grid,
                        block: 32,
                        arguments: vec![Buffer(0), Number(bytes), Number(per_cta), Number(overlap)],
                    }],
                    expected: Expected::Exactly(races),
                    result: None,
                });
            }
        }
    }
    cases
}

/// CTAs, `each` for each of `sms` SMs on average, write to one word an SM.
pub(crate) fn same_sm(sms: u32, each: u32, meets: bool, own: bool) -> Case {
    let mark = "on the sm";
    let races = match own {
        true => vec![],
        false => vec![told(Module::Pairs, WRITE_AFTER_WRITE, mark, mark)],
    };
    Case {
        name: format!("CTAs of one SM, at once: {meets}, to words of their own: {own}"),
        module: Module::Pairs,
        buffers: vec![each * sms, sms, 64],
        ones: None,
        launches: vec![Launch {
            kernel: "same_sm",
            stream: 0,
            cluster: 1,
            grid: each * sms,
            block: 32,
            arguments: vec![
                Buffer(0),
                Buffer(1),
                Buffer(2),
                Number(meets.into()),
                Number(own.into()),
            ],
        }],
        expected: Expected::Exactly(races),
        result: None,
    }
}

/// Launches after each other on one stream, and on two that nothing orders.
pub(crate) fn streams() -> Vec<Case> {
    let module = Module::Pairs;
    let touch = |stream, write| Launch {
        kernel: "touch",
        stream,
        cluster: 1,
        grid: 4,
        block: 64,
        arguments: vec![Buffer(0), Number(write)],
    };
    let case = |name: &str, launches, expected| Case {
        name: name.to_owned(),
        module,
        buffers: vec![4 * 64, 64],
        ones: None,
        launches,
        expected: Expected::Exactly(expected),
        result: None,
    };
    let (write, read) = ("touch by write", "touch by read");
    let races = |kind, first, second| vec![told(module, kind, first, second)];
    vec![
        case(
            "write, read, read and write on one stream",
            vec![touch(0, 1), touch(0, 0), touch(0, 0), touch(0, 1)],
            vec![],
        ),
        case(
            "a write on one stream and a read on another",
            vec![touch(0, 1), touch(1, 0)],
            races(READ_AFTER_WRITE, write, read),
        ),
        case(
            "a read on one stream and a write on another",
            vec![touch(0, 0), touch(1, 1)],
            races(WRITE_AFTER_READ, read, write),
        ),
        case(
            "writes on two streams",
            vec![touch(0, 1), touch(1, 1)],
            races(WRITE_AFTER_WRITE, write, write),
        ),
    ]
}

/// How large protocols are run.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) ctas: u32,
    pub(crate) rounds: u32,
}

/// A protocol with all its edges, and with one removed.
pub(crate) struct Protocol {
    pub(crate) correct: Case,
    pub(crate) broken: Case,
}

/// `make` gives a case for the order of the edge.
fn protocol(
    name: &'static str,
    order: u32,
    marks: &[&str],
    make: impl Fn(u32) -> (Vec<u32>, Launch, Option<Result>),
) -> Protocol {
    let module = Module::Protocols;
    let case = |order, expected| {
        let (buffers, launch, result) = make(order);
        Case {
            name: format!("{name}, order {order}"),
            module,
            buffers,
            // The input of the scan; no other protocol expects anything of its first buffer.
            ones: (name == "look-back scan").then_some(0),
            launches: vec![launch],
            expected,
            result: result.filter(|_| order != RELAXED),
        }
    };
    let lines = marks.iter().map(|mark| module.line(mark)).collect();
    Protocol {
        correct: case(order, Expected::Exactly(vec![])),
        broken: case(RELAXED, Expected::Some(lines)),
    }
}

pub(crate) fn protocols(size: Size) -> Vec<Protocol> {
    let Size { ctas, rounds } = size;
    let launch = |kernel, block, arguments| Launch {
        kernel,
        stream: 0,
        cluster: 1,
        grid: ctas,
        block,
        arguments,
    };
    let threads = 64;
    let splits = 4;
    vec![
        protocol(
            "spin lock",
            ACQUIRE,
            &["counter read", "counter write"],
            |order| {
                let arguments = [
                    Buffer(0),
                    Buffer(1),
                    Buffer(2),
                    Number(rounds),
                    Number(order),
                ];
                let result = (1, vec![ctas * rounds]);
                let launch = launch("spin_lock", 32, arguments.to_vec());
                (vec![64; 3], launch, Some(result))
            },
        ),
        protocol(
            "ticket lock",
            RELEASE,
            &["ticket counter read", "ticket counter write"],
            |order| {
                let buffers = (0..4).map(Buffer);
                let arguments = buffers.chain([Number(rounds), Number(order)]).collect();
                let result = (2, vec![ctas * rounds]);
                (
                    vec![64; 4],
                    launch("ticket_lock", 32, arguments),
                    Some(result),
                )
            },
        ),
        protocol(
            "grid barrier",
            ACQUIRE,
            &["barrier write", "barrier read"],
            |order| {
                let buffers = (0..3).map(Buffer);
                let arguments = buffers.chain([Number(rounds), Number(order)]).collect();
                let result = (0, vec![rounds - 1; (ctas * threads) as usize]);
                (
                    vec![ctas * threads, 64, 64],
                    launch("grid_barrier", threads, arguments),
                    Some(result),
                )
            },
        ),
        protocol(
            "look-back scan",
            ACQUIRE,
            &[
                "scan sum read",
                "scan sum write",
                "scan prefix read",
                "scan prefix write",
            ],
            |order| {
                let buffers = (0..7).map(Buffer);
                let arguments = buffers.chain([Number(order)]).collect();
                (
                    vec![4 * ctas, 4 * ctas, ctas, ctas, ctas, 64, 64],
                    launch("look_back_scan", 32, arguments),
                    Some((1, (1..=4 * ctas).collect())),
                )
            },
        ),
        protocol(
            "split-K",
            ACQUIRE_RELEASE,
            &["part read", "part write", "part count", "part reset"],
            |order| {
                let buffers = (0..3).map(Buffer);
                let arguments = buffers.chain([Number(splits), Number(order)]).collect();
                let tiles = ctas / splits;
                let sum = |tile| (0..splits).map(|split| tile * splits + split).sum::<u32>();
                let sums = (0..tiles).flat_map(|tile| vec![sum(tile); threads as usize]);
                (
                    vec![ctas * threads, tiles * threads, tiles.max(64), 64],
                    launch("split_k", threads, arguments),
                    Some((1, sums.collect())),
                )
            },
        ),
    ]
}

/// One CTA releases `count` times, another acquires the last.
pub(crate) fn releases(count: u32) -> Case {
    Case {
        name: format!("{count} releases"),
        module: Module::Protocols,
        buffers: vec![64; 3],
        ones: None,
        launches: vec![Launch {
            kernel: "releases",
            stream: 0,
            cluster: 1,
            grid: 2,
            block: 32,
            arguments: vec![Buffer(0), Buffer(1), Buffer(2), Number(count)],
        }],
        expected: Expected::Exactly(vec![]),
        result: Some((0, vec![count])),
    }
}

/// The sum of two vectors, 1,024 elements and 128 threads a CTA.
pub(crate) fn vector_add(elements: u32) -> Case {
    Case {
        name: format!("vector add of {elements} elements"),
        module: Module::VectorAdd,
        buffers: vec![elements, elements, elements, 64],
        ones: Some(0),
        launches: vec![Launch {
            kernel: "vector_add",
            stream: 0,
            cluster: 1,
            grid: elements / 1024,
            block: 128,
            arguments: (0..3).map(Buffer).collect(),
        }],
        expected: Expected::Exactly(vec![]),
        // The float with the bits of 1 is one, though a small one.
        result: Some((2, vec![1; elements as usize])),
    }
}

/// The same without checks.
pub(crate) fn bare(checked: &Case) -> Case {
    let mut case = checked.clone();
    case.launches[0].kernel = "vector_add_bare";
    case
}

fn edge(
    kernel: &'static str,
    (grid, block): (u32, u32),
    arguments: Vec<Argument>,
    races: &[(u32, &str, &str)],
) -> Case {
    let module = Module::Edges;
    let told = |&(kind, first, second): &(u32, &str, &str)| told(module, kind, first, second);
    Case {
        name: format!("{kernel}, {grid} CTAs of {block} threads, {arguments:?}"),
        module,
        buffers: vec![4096, 64, 64, 64],
        ones: None,
        launches: vec![Launch {
            kernel,
            stream: 0,
            cluster: 1,
            grid,
            block,
            arguments,
        }],
        expected: Expected::Exactly(races.iter().map(told).collect()),
        result: None,
    }
}

/// Blocks from the smallest to the largest, lanes that part, memory that is not managed, launches that are
/// not checked, fences, every atomic.
pub(crate) fn edges() -> Vec<Case> {
    let mut cases = Vec::new();
    let flagged = |flag| vec![Buffer(0), Number(flag)];
    for (kernel, mark, blocks) in [
        ("collide", "collide", &[1, 33, 1024][..]),
        ("divergent", "at the bottom", &[32, 40]),
    ] {
        for &block in blocks {
            let race = (WRITE_AFTER_WRITE, mark, mark);
            cases.push(edge(kernel, (3, block), flagged(0), &[race]));
            cases.push(edge(kernel, (3, block), flagged(1), &[]));
        }
    }
    let mut sizes = edge("sizes", (3, 32), vec![Buffer(0)], &[]);
    let mut words = [vec![0; 24], vec![0x0707_0707; 24], vec![0x0006_0006; 48]].concat();
    words.extend([8; 96]);
    words.extend([5, 0].repeat(96));
    words.resize(4 * 96, 0);
    words.extend([1, 2, 3, 4].repeat(96));
    sizes.result = Some((0, words));
    cases.push(sizes);
    for flag in [0, 1] {
        cases.push(edge("unchecked", (3, 32), flagged(flag), &[]));
    }
    for (sender, receiver) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let arguments = vec![
            Buffer(0),
            Buffer(1),
            Buffer(2),
            Buffer(3),
            Number(sender),
            Number(receiver),
        ];
        cases.push(edge("fences", (2, 32), arguments, &[]));
    }
    let mut atomics = edge("atomics", (1, 32), vec![Buffer(0)], &[]);
    atomics.ones = Some(0);
    let mut words = vec![3, 1u32.wrapping_sub(3), 0, 7, 6, u32::MAX, 1, 1, u32::MAX];
    // From 1 up to 1 and so to 0, from 1 down to 0.
    words.extend([0, 0, 9, 7, 1]);
    // Each of the 14 has found 1.
    words.extend([14, 1]);
    // Words of 64 bits, low halves first: 2^32 + 1 and 2^33, and the larger of that and -1.
    words.extend([1, 3, 1, 3, 1, 1]);
    words.extend([2f32.to_bits(), 1]);
    let one = 1f64.to_bits();
    words.extend([one as u32, (one >> 32) as u32]);
    atomics.result = Some((0, words));
    cases.push(atomics);
    cases
}

/// CTAs hand a word round through mbarriers.
pub(crate) fn mbarrier_ring(ctas: u32, rounds: u32, publishes: bool) -> Case {
    let module = Module::Clusters;
    let mark = "handed write";
    let races = match publishes {
        true => vec![],
        false => vec![told(module, WRITE_AFTER_WRITE, mark, mark)],
    };
    Case {
        name: format!("{ctas} CTAs, {rounds} rounds of mbarriers, published: {publishes}"),
        module,
        // A head of 16 bytes, and 176 a barrier.
        buffers: vec![64, 4 + 44 * ctas, 64, 64],
        ones: None,
        launches: vec![Launch {
            kernel: "mbarrier_ring",
            stream: 0,
            cluster: 1,
            grid: ctas,
            block: 32,
            arguments: (0..4)
                .map(Buffer)
                .chain([Number(rounds), Number(publishes.into())])
                .collect(),
        }],
        expected: Expected::Exactly(races),
        result: Some((0, vec![ctas * rounds - 1])),
    }
}

/// A copy of a box, and a write to a word in it, or beside it.
pub(crate) fn boxes() -> Vec<Case> {
    let module = Module::Clusters;
    let mut cases = Vec::new();
    for (kind, race) in [
        (0, WRITE_AFTER_READ),
        (1, WRITE_AFTER_WRITE),
        (2, WRITE_AFTER_WRITE),
    ] {
        // Rows and columns 4 to 11 of 16.
        for (row, column) in [(4, 4), (11, 11), (3, 4), (4, 3), (11, 12), (12, 11)] {
            let inside = (4..12).contains(&row) && (4..12).contains(&column);
            let races = match inside {
                true => vec![told(module, race, "box", "word")],
                false => vec![],
            };
            let numbers = [kind, 16 * row + column].map(Number);
            cases.push(Case {
                name: format!("copy {kind} of a box, then row {row}, column {column}"),
                module,
                buffers: vec![256, 64, 64, 64],
                ones: None,
                launches: vec![Launch {
                    kernel: "box",
                    stream: 0,
                    cluster: 1,
                    grid: 2,
                    block: 128,
                    arguments: (0..4).map(Buffer).chain(numbers).collect(),
                }],
                expected: Expected::Exactly(races),
                result: None,
            });
        }
    }
    cases
}
