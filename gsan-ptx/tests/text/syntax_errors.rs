//! What is said about text that is not PTX.

use gsan_ptx::diagnostic::Source;
use gsan_ptx::syntax::parse;

const HEAD: &str = ".version 8.7\n.target sm_80\n.address_size 64\n";

fn say(text: &str) -> String {
    match parse(&Source {
        file: "k.ptx",
        text,
    }) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.render(false),
    }
}

/// The messages for `cases`, each under the header of a module.
fn messages(cases: &[&str]) -> String {
    let messages: Vec<String> = cases
        .iter()
        .map(|case| say(&format!("{HEAD}{case}")))
        .collect();
    messages.join("\n\n")
}

/// The messages for statements of a function.
fn in_function(cases: &[&str]) -> String {
    let cases: Vec<String> = cases
        .iter()
        .map(|case| format!(".func f\n{{\n  {case}\n}}\n"))
        .collect();
    messages(&cases.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn heads_of_modules() {
    let cases = [
        "",
        "int main() {}",
        ".version eight",
        ".version 8",
        ".version 8.7\n.entry k {}",
        ".version 8.7\n.target",
        ".version 8.7\n.target sm_80\n.address_size 48",
    ];
    insta::assert_snapshot!(cases.map(say).join("\n\n"));
}

#[test]
fn characters_and_numbers() {
    insta::assert_snapshot!(in_function(&[
        "mov.u32 %r1, `5`;",
        "mov. u32 %r1, 5;",
        "mov.u32 %r1, 5u;",
        "mov.u32 %r1, 08;",
        "mov.u32 %r1, 0b12;",
        "mov.u32 %r1, 0x;",
        "mov.u64 %rd1, 18446744073709551616;",
        "mov.f32 %f1, 0f3F8;",
        "mov.f64 %f1, 0d3F800000;",
        "mov.f32 %f1, 1.5x;",
        "/* never closed",
        ".pragma \"never closed;",
    ]));
}

#[test]
fn items() {
    insta::assert_snapshot!(messages(&[
        "kernel();",
        ".visble .entry k {}",
        ".visible .entri k {}",
        ".global u32 x;",
        ".global .u23 x;",
        ".global .align 3 .u32 x;",
        ".global .u32 x = ;",
        ".global .u32 x[2 = 1;",
        ".global .u32 x = {1, 2;",
        ".global .u32 x = 1/0;",
        ".global .u32 x = 1.0 + 1;",
        ".global .u32 x = ~1.0;",
        ".global .u32 x[1.5];",
        ".global .attribute(managed) .u32 x;",
        ".alias a b;",
        ".file one \"a\"",
        ".file 1 a",
        ".file 1 \"a\", 1",
        ".section .debug_str { .b8 1",
        ".section .debug_str",
    ]));
}

#[test]
fn heads_of_functions() {
    insta::assert_snapshot!(messages(&[
        ".entry k(.prm .u64 a) {}",
        ".entry k(.param .u64) {}",
        ".entry k(.param .u64 a {}",
        ".entry k() .reqntdi 128 {}",
        ".entry k() .reqntid 1, 2, 3, 4 {}",
        ".entry k() .maxnreg {}",
        ".entry k() .reqntid -1 {}",
        ".entry k()",
        ".entry {}",
    ]));
}

#[test]
fn statements() {
    insta::assert_snapshot!(in_function(&[
        "add.s32 %r1 %r2, 1;",
        "add.s32 %r1, %r2, 1\n  ret;",
        "add.s32 %r1, , 1;",
        "add.s32 %r1, (%r2), 1;",
        "ld.global.u32 %r1, [%rd1-4];",
        "mov.u64 %rd1, x-4;",
        "ld.global.u32 %r1, [%rd1;",
        "ld.global.u32 %r1, [];",
        "mov.b64 %rd1, {%r1, %r2;",
        "@5 bra L;",
        "@%p1 { ret; }",
        ".rge .b32 %r1;",
        ".reg .b32 %r<x>;",
        ".reg .b32 %r<4;",
        ".loc 1 2",
        ".loc 1 2 3, inlined_at 1 2 3",
        ".branchtargets a;",
        "t: .branchtargets 5;",
        "p: .callprototype _ (.param .b32)",
        "call f, (a;",
        "setp.eq.s32 %p1|5, %r1, 0;",
        ";",
    ]));
}

#[test]
fn blocks_that_are_never_closed() {
    insta::assert_snapshot!(messages(&[".func f {\n  {\n  ret;\n}\n", ".func f {"]));
}

#[test]
fn a_long_token_is_shortened() {
    let text = format!("{HEAD}{}", "x".repeat(1000));
    let error = parse(&Source {
        file: "k.ptx",
        text: &text,
    })
    .unwrap_err();
    assert_eq!(
        error.message,
        format!(
            "expected a function, a variable or a directive, found `{}…`",
            "x".repeat(40)
        )
    );
}
