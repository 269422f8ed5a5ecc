//! A C program that does everything wrong, under AddressSanitizer.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod c;

use c::{Compiler, link, program, root, run};

#[test]
fn whatever_a_program_hands_over_it_gets_a_status_and_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("misuse");
    let mut command = Compiler::C("cc").command().unwrap();
    command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    command.arg(root().join("gsan-ffi/tests/c/misuse.c"));
    command.arg("-o").arg(&path);
    link(&mut command);
    run(&mut command);
    run(program(&path)
        .current_dir(folder.path())
        .env("GSAN_TOPOLOGY_BACKEND", "host")
        // Room for AddressSanitizer's own shadow.
        .env("GSAN_SHADOW_RESERVE", "64GiB")
        .env("ASAN_OPTIONS", "detect_leaks=0"));
}
