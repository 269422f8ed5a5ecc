//! C programs that use the interface, rightly and wrongly, under AddressSanitizer.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod c;

use c::{Compiler, link, program, root, run};

fn run_under_sanitizer(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut command = Compiler::C("cc").command().unwrap();
    command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    command.arg(
        root()
            .join("gsan-ffi/tests/c")
            .join(name)
            .with_extension("c"),
    );
    command.arg("-o").arg(&path);
    link(&mut command);
    run(&mut command);
    run(program(&path)
        .current_dir(folder.path())
        .env("GSAN_TOPOLOGY_BACKEND", "host")
        // Room for AddressSanitizer's own shadow.
        .env("GSAN_SHADOW_RESERVE", "64GiB"));
}

#[test]
fn whatever_a_program_hands_over_it_gets_a_status_and_a_text() {
    run_under_sanitizer("misuse");
}

#[test]
fn a_correct_program_sees_what_is_there() {
    run_under_sanitizer("uses");
}
