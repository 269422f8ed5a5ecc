//! What synchronisation costs: fences, about a microsecond each on a GPU, and accesses to global memory
//! whose result is waited for, about half of that.

use gsan_core::event::Action;
use gsan_core::scope::Order;

use crate::synchronisation::{ROOMY, Script, cta, topology};

type Step = fn(&mut Script);

/// Fences and accesses of what the last of the steps does. CTA 0 has released word 0 before, and
/// written.
fn costs(steps: &[Step]) -> [u64; 2] {
    let mut script = Script::new(topology(1, 1), ROOMY);
    let [a, b, c] = [0, 1, 2].map(|index| cta(0, index));
    script.launch(0, 0, 3).start(a, 0).start(b, 1).start(c, 2);
    for _ in 0..3 {
        script.write(a, 1).release(a, 0);
    }
    script.write(a, 1);
    for step in steps {
        script.twin.driver.costs();
        step(&mut script);
    }
    let answers = script.twin.driver.costs().answers();
    let [.., fences, accesses] = answers[..] else {
        panic!("no answer")
    };
    [fences, accesses]
}

fn a_releases(script: &mut Script) {
    script.release(cta(0, 0), 0);
}

fn b_polls(script: &mut Script) {
    script.acquire(cta(0, 1), 0);
}

fn b_polls_in_a_loop(script: &mut Script) {
    script.in_loop(cta(0, 1), Action::Read, 0);
}

fn b_fails(script: &mut Script) {
    script.in_loop(cta(0, 1), Action::FailedRmw, 0);
}

fn b_and_c_poll(script: &mut Script) {
    script.at_once([cta(0, 1), cta(0, 2)], 0);
}

fn c_and_b_poll(script: &mut Script) {
    script.at_once([cta(0, 2), cta(0, 1)], 0);
}

fn b_writes(script: &mut Script) {
    script.write(cta(0, 1), 1);
}

fn b_releases(script: &mut Script) {
    script.release(cta(0, 1), 0);
}

fn b_counts(script: &mut Script) {
    script.strong(cta(0, 1), Action::Rmw, Order::Relaxed, 0);
}

fn b_arrives(script: &mut Script) {
    script.strong(cta(0, 1), Action::Rmw, Order::AcqRel, 0);
}

#[test]
fn synchronisation_needs_few_fences_and_accesses() {
    let mut over = Vec::new();
    for (what, steps, [fences, accesses]) in [
        (
            "a release after one's own",
            &[a_releases as Step][..],
            [4, 16],
        ),
        (
            "a release while another polls",
            &[b_polls, a_releases],
            [4, 16],
        ),
        ("an acquire of something new", &[b_polls], [4, 18]),
        (
            "a poll that finds what it found",
            &[b_polls, b_polls],
            [2, 10],
        ),
        (
            "a poll that found it twice",
            &[b_polls_in_a_loop, b_polls_in_a_loop, b_polls_in_a_loop],
            [1, 4],
        ),
        (
            "polls of two by atomics that write",
            &[b_and_c_poll, c_and_b_poll, b_and_c_poll, c_and_b_poll],
            [0, 8],
        ),
        (
            "a compare-and-swap that failed before",
            &[b_fails, b_fails, b_fails],
            [0, 4],
        ),
        ("a relaxed atomic", &[b_counts], [2, 10]),
        (
            "a release of a lock",
            &[b_polls, b_writes, b_releases],
            [4, 22],
        ),
        (
            "a release that joins another",
            &[b_writes, b_releases],
            [13, 35],
        ),
        (
            "an arrival that joins another",
            &[b_writes, b_arrives],
            [14, 43],
        ),
    ] {
        let found = costs(steps);
        println!("{what}: {} fences, {} accesses", found[0], found[1]);
        if found[0] > fences || found[1] > accesses {
            over.push(what);
        }
    }
    assert_eq!(over, <[&str; 0]>::default());
}
