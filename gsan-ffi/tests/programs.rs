//! C programs that use the interface, rightly and wrongly, under AddressSanitizer.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod c;

use c::{Compiler, link, program, root, run};

/// What programs are compiled with.
const SANITIZERS: &str = "-fsanitize=address,undefined";

fn run_under_sanitizer(name: &str) {
    ends_with(0, name, &[]);
}

fn ends_with(code: i32, name: &str, arguments: &[&str]) -> String {
    ends_under(SANITIZERS, code, name, arguments)
}

fn ends_under(sanitizers: &str, code: i32, name: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut command = Compiler::C("cc").command().unwrap();
    command.args([sanitizers, "-fno-sanitize-recover=all"]);
    command.arg(
        root()
            .join("gsan-ffi/tests/c")
            .join(name)
            .with_extension("c"),
    );
    command.args(["-pthread", "-o"]).arg(&path);
    link(&mut command);
    run(&mut command);
    let output = program(&path)
        .args(arguments)
        .current_dir(folder.path())
        .env("GSAN_TOPOLOGY_BACKEND", "host")
        // Room for AddressSanitizer's own shadow.
        .env("GSAN_SHADOW_RESERVE", "64GiB")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}: {said}",
        output.status
    );
    said.into_owned()
}

#[test]
fn whatever_a_program_hands_over_it_gets_a_status_and_a_text() {
    run_under_sanitizer("misuse");
}

#[test]
fn a_correct_program_sees_what_is_there() {
    run_under_sanitizer("uses");
}

#[test]
fn threads_that_would_wait_for_ever_are_told_so() {
    run_under_sanitizer("keeps");
}

#[test]
fn a_forked_child_does_nothing_with_what_it_inherited() {
    // AddressSanitizer's allocator is not made for forks: a child waits for ever for a lock that
    // another thread of its parent held.
    ends_under("-fsanitize=undefined", 0, "forks", &[]);
}

#[test]
fn a_callback_may_call_while_the_program_resets() {
    run_under_sanitizer("callbacks");
}

#[test]
fn a_callback_may_end_the_program() {
    ends_with(7, "callbacks", &["exit"]);
}

#[test]
fn what_was_found_is_shown_after_a_reset() {
    let said = ends_with(0, "resets", &[]);
    assert!(said.contains("resets.c:1"), "{said}");
    assert!(said.contains("gsan: 1 race"), "{said}");
}

#[test]
fn what_was_found_is_shown_when_a_kernel_ends_the_program() {
    let said = ends_with(7, "resets", &["exit"]);
    assert!(said.contains("gsan: 1 race"), "{said}");
    assert!(!said.contains("waits for"), "{said}");
}
