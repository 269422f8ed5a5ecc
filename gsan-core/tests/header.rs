//! The C header says what the Rust definitions say.

#![expect(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use gsan_core::layout::header::{header, structures};

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

#[test]
fn the_header_is_the_one_that_the_definitions_give() {
    let path = include().join("gsan/layout.h");
    let written = std::fs::read_to_string(&path).expect("the header is there");
    assert!(
        written == header(),
        "{} is out of date: run `cargo xtask header`",
        path.display()
    );
}

/// Every size and offset, a line each, as C would print it.
fn expected() -> String {
    let mut text = String::new();
    for structure in structures() {
        let name = structure.name;
        writeln!(text, "{name} {} {}", structure.size, structure.align).unwrap();
        for field in structure.fields {
            writeln!(
                text,
                "{name}.{} {} {}",
                field.name, field.offset, field.size
            )
            .unwrap();
        }
    }
    text
}

/// A program, in C and C++ alike, that prints the same.
fn program() -> String {
    let mut text = String::from(
        "#include \"gsan/layout.h\"\n#include <stdio.h>\n\
         #ifdef __cplusplus\n#define ALIGN alignof\n#else\n#define ALIGN _Alignof\n#endif\n\
         int main(void) {\n",
    );
    for structure in structures() {
        let name = structure.name;
        writeln!(
            text,
            "printf(\"{name} %d %d\\n\", (int)sizeof(struct {name}), (int)ALIGN(struct {name}));"
        )
        .unwrap();
        for field in structure.fields {
            let field = field.name;
            writeln!(
                text,
                "printf(\"{name}.{field} %d %d\\n\", (int)offsetof(struct {name}, {field}), \
                 (int)sizeof(((struct {name} *)0)->{field}));"
            )
            .unwrap();
        }
    }
    text.push_str("return 0;\n}\n");
    text
}

fn compiles_and_prints_the_same(compiler: &str, language: &str, standard: &str) {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("layout.c");
    let binary = directory.path().join("layout");
    std::fs::write(&source, program()).unwrap();
    let compiled = Command::new(compiler)
        .args([
            "-x",
            language,
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .arg("-I")
        .arg(include())
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap_or_else(|error| panic!("this test needs a compiler named {compiler}: {error}"));
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), expected());
}

#[test]
fn c11_sees_the_sizes_and_offsets_of_rust() {
    compiles_and_prints_the_same("cc", "c", "-std=c11");
}

#[test]
fn cpp17_sees_the_sizes_and_offsets_of_rust() {
    compiles_and_prints_the_same("c++", "c++", "-std=c++17");
}
