//! What a person reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use gsan_report::human::{self, Look};
use gsan_report::model::*;
use gsan_report::source::Sources;

const SPLITK: &str = "\
import triton
import triton.language as tl


@triton.jit
def splitk(part, out, flag, SPLIT: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0)
    s = tl.program_id(1)
    i = tl.arange(0, B)
    v = i * s
    tl.store(part + (t * SPLIT + s) * B + i, v)
    c = tl.atomic_add(flag + t, 1, sem=\"relaxed\")
    acc = tl.zeros([B], tl.int32)
    if c == SPLIT - 1:
        for j in range(SPLIT):
            acc += tl.load(part + (t * SPLIT + j) * B + i)
        tl.store(out + t * B + i, acc)
";

fn sources() -> Sources {
    let mut sources = Sources::new("/nonexistent");
    sources.insert("kernels/splitk.py", SPLITK);
    sources
}

fn place(line: u32) -> Option<Place> {
    Some(Place {
        file: "kernels/splitk.py".to_owned(),
        line,
        column: None,
        ptx: None,
    })
}

fn cta(cta: Position) -> Who {
    Who {
        thread: None,
        cta: Some(cta),
        kernel: Some("splitk".to_owned()),
        launch: Some(12),
        device: Some(0),
        stream: Some(Hex(0)),
    }
}

fn side(who: Who, action: Action, place: Option<Place>) -> Side {
    Side {
        who,
        action,
        order: Order::Weak,
        scope: None,
        asynchronous: false,
        place,
    }
}

/// The race of the split-K kernel: the last CTA reads a partial sum that nothing orders.
fn splitk() -> Race {
    Race {
        kind: RaceKind::ReadAfterWrite,
        range: Range {
            space: Space::Global,
            address: Hex(0x8200_0000_1000),
            bytes: 4,
            allocation: Some(Allocation {
                name: None,
                bytes: 131_072,
                offset: 4096,
            }),
        },
        earlier: side(cta([3, 1, 0]), Action::Write, place(11)),
        later: side(cta([3, 7, 0]), Action::Read, place(16)),
        times: 512,
        replay: None,
    }
}

fn text(race: &Race) -> String {
    human::race(race, &mut sources(), &Look::default())
}

#[test]
fn a_race_shows_both_sides_with_their_lines() {
    insta::assert_snapshot!(text(&splitk()));
}
