//! What programs see of the library: the header and the exported names.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod c;

use std::collections::BTreeSet;
use std::process::Command;

use c::{Compiler, library_folder, link, program, root, run};

#[test]
fn the_header_compiles_as_c11_and_cpp17_and_says_what_structures_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("header");
    for compiler in Compiler::ALL {
        let Some(mut command) = compiler.command() else {
            continue;
        };
        command.arg(root().join("gsan-ffi/tests/c/header.c"));
        command.arg("-o").arg(&path);
        link(&mut command);
        run(&mut command);
        run(&mut program(&path));
    }
}

fn exported() -> BTreeSet<String> {
    let library = library_folder().join("libgsan.so");
    let output = run(Command::new("nm")
        .args(["-D", "--defined-only", "-P"])
        .arg(library));
    let output = String::from_utf8(output.stdout).unwrap();
    output
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

/// The functions that the header declares, by their place before a parenthesis.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("gsan-ffi/abi/1.txt")).unwrap();
    let functions = header
        .lines()
        .filter(|line| !line.starts_with(['#']) && !line.starts_with("typedef"));
    let name = |line: &str| {
        let before = line.split('(').next().unwrap();
        before.rsplit([' ', '*']).next().unwrap().to_owned()
    };
    functions.map(name).collect()
}

#[test]
fn exactly_what_the_header_declares_is_exported() {
    let declared = declared();
    assert!(declared.len() > 60, "{declared:?}");
    assert_eq!(exported(), declared);
    let allocator = ["gsanMalloc", "gsanMallocWriteOnce", "gsanFree"];
    assert!(
        declared
            .iter()
            .all(|name| name.starts_with("gsan_") || allocator.contains(&name.as_str()))
    );
}
