//! What is said about PTX that reads well but cannot be executed.

use gsan_ptx::diagnostic::Source;
use gsan_ptx::lower::{entries, lower};
use gsan_ptx::syntax::parse;

const HEAD: &str = ".version 8.7\n.target sm_80\n.address_size 64\n";

fn say(text: &str) -> String {
    let source = Source {
        file: "k.ptx",
        text,
    };
    let module = parse(&source).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let entries: Vec<_> = entries(&module).collect();
    match lower(source, &module, &entries) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.render(false),
    }
}

/// The messages for modules with these items, and a kernel if they have none.
fn messages(cases: &[&str]) -> String {
    let messages: Vec<String> = cases
        .iter()
        .map(|case| {
            let kernel = if case.contains(".entry") {
                ""
            } else {
                ".entry k() { ret; }\n"
            };
            say(&format!("{HEAD}{case}\n{kernel}"))
        })
        .collect();
    messages.join("\n\n")
}

/// The messages for statements of a kernel.
fn in_kernel(cases: &[&str]) -> String {
    let cases: Vec<String> = cases
        .iter()
        .map(|case| {
            format!(
                ".global .b32 g[4];\n.shared .b32 s[4];\n.extern .global .b32 elsewhere;\n\
                 .extern .func (.param .b64 r) malloc(.param .b64 n);\n\
                 .func (.param .b32 r) f(.param .b32 a) {{ ret; }}\n\
                 .entry k(.param .u64 p) {{\n  .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<5>; \
                 .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .u32 %u; .reg .v4 .f32 %v; .reg .b128 %q;\n  \
                 .local .b32 l;\n  {case}\n}}\n"
            )
        })
        .collect();
    messages(&cases.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_is_not_supported_is_named() {
    insta::assert_snapshot!(in_kernel(&[
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%rd1], 32;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;",
        "mapa.shared::cluster.u32 %r1, %r2, 0;",
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f0}, [g, {%r1}];",
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%r2];",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1}, {%r1}, {%r1}, {%r1};",
        "lop3.or.b32 %r1|%p1, %r1, %r2, %r3, 0x80, %p2;",
        "shfl.bfly.b32 %r1, %r2, 1, 31;",
        "fence.proxy.tensormap::generic.release.gpu;",
        "ld.global.b32 %r1, g[2];",
        "redux.sync.min.f32 %f1, %f2, -1;",
        "cvta.shared.u32 %r1, %r2;",
    ]));
}

#[test]
fn mbarriers() {
    insta::assert_snapshot!(in_kernel(&[
        "mbarrier.shared.b64 [%r1], 1;",
        "mbarrier.init.shared.b64 [%r1];",
        "mbarrier.init.shared.b32 [%r1], 1;",
        "mbarrier.init.global.b64 [%rd1], 1;",
        "mbarrier.init.shared.b64 [g], 1;",
        "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1];",
        "mbarrier.arrive.shared.b64 %r1, [%r1];",
        "mbarrier.arrive.acquire.cta.shared.b64 %rd1, [%r1];",
        "mbarrier.test_wait.shared.b64 %r1, [%r1], %rd1;",
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %rd1;",
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0, 100;",
        "mbarrier.try_weit.parity.shared.b64 %p1, [%r1], 0;",
        "mbarrier.pending_count.b64 %rd1, %rd1;",
        "cp.async.mbarrier.shared.b64 [%r1];",
    ]));
}

#[test]
fn opcodes_and_modifiers() {
    insta::assert_snapshot!(in_kernel(&[
        "addd.s32 %r1, %r2, %r3;",
        "frobnicate.s32 %r1;",
        "add.b32 %r1, %r2, %r3;",
        "add %r1, %r2, %r3;",
        "add.ss32 %r1, %r2, %r3;",
        "ld.global.gpuu.acquire.b32 %r1, [%rd1];",
        "ld.global.acquire.b32 %r1, [%rd1];",
        "ld.gpu.b32 %r1, [%rd1];",
        "add.sat.u32 %r1, %r2, %r3;",
        "mul.s32 %r1, %r2, %r3;",
        "mul.lo.f32 %f1, %f2, %f3;",
        "setp.s32 %p1, %r1, %r2;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.lo.s32 %p1, %r1, %r2;",
        "cvt.f32.s32 %f1, %r1;",
        "cvt.s32.f32 %r1, %f1;",
        "atom.global.add.s64 %rd1, [%rd2], 1;",
        "red.global.exch.b32 [%rd1], 1;",
        "red.acquire.gpu.global.add.u32 [%rd1], 1;",
        "atom.local.add.u32 %r1, [l], 1;",
        "ld.global.v8.b64 %rd1, [%rd1];",
        "bar.b32 0;",
        "fence.acq_rel;",
    ]));
}

#[test]
fn operands() {
    insta::assert_snapshot!(in_kernel(&[
        "add.s32 %r1, %r2;",
        "add.s32 %r5, %r2, %r3;",
        "add.s32 %s1, %r2, %r3;",
        "add.s32 %rr1, %r2, %r3;",
        "add.s32 5, %r2, %r3;",
        "add.s32 _, %r2, %r3;",
        "add.s32 %tid.x, %r2, %r3;",
        "add.s32 %r1, %rd2, %r3;",
        "add.s32 %r1, %f2, %r3;",
        "add.f32 %f1, %u, %f2;",
        "add.f32 %f1, %f2, 1;",
        "add.s32 %r1, %r2, 1.5;",
        "add.s32 %r1, %r2, [%rd1];",
        "mov.u64 %rd1, %tid.x;",
        "mov.u32 %r1, %tid;",
        "mov.u32 %r1, %laneid.x;",
        "mov.f32 %f1, %v;",
        "mov.f32 %f1, %f2.x;",
        "mov.u32 %r1, g;",
        "mov.u64 %rd1, L; L:",
        "mov.b64 %rd1, {%r1, %r2, %r3};",
        "mov.b64 %rd1, {%h1, %h2};",
        "@%r1 ret;",
        "selp.b32 %r1, %r2, %r3, !%p1;",
        "ld.global.v2.b32 {%r1, %r2, %r3}, [%rd1];",
        "ld.global.b64 %r1, [%rd1];",
        "st.global.b32 [%rd1], {%r1, %r2};",
        "lop3.b32 %r1, %r2, %r3, %r4, 256;",
        "cp.async.ca.shared.global [s], [%rd1], 12;",
        "elect.sync %r1, -1;",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f0}, {%r1,%r2}, {%r1,%r2}, {%f1,%f2,%f3,%f0};",
    ]));
}

#[test]
fn addresses() {
    insta::assert_snapshot!(in_kernel(&[
        "ld.global.b32 %r1, %rd1;",
        "ld.global.b32 %r1, [%r2];",
        "ld.global.b32 %r1, [%f1];",
        "ld.global.b32 %r1, [s];",
        "ld.shared.b32 %r1, [g+4];",
        "ld.global.b32 %r1, [gg];",
        "ld.global.b32 %r1, [elsewhere];",
        "ld.global.b32 %r1, [f];",
        "ld.local.b32 %r1, [p];",
        "st.param.b64 [p], %rd1;",
        "st.const.b32 [%rd1], %r1;",
        "mov.u64 %rd1, malloc;",
        "mov.u64 %rd1, g+-8;",
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [s];",
    ]));
}

#[test]
fn branches_and_calls() {
    insta::assert_snapshot!(in_kernel(&[
        "bra $L1; $L2:",
        "bra %r1;",
        "bra L; { L: ret; }",
        "brx.idx %r1, L; L:",
        "L: ret; L: ret;",
        "call nowhere;",
        "{ .param .b64 a; .param .b64 r; call (r), malloc, (a); }",
        "call k, (%rd1);",
        "call f, (%r1);",
        "call (%r1), f, (%rd1);",
        "{ .param .b64 a; call (%r1), f, (a); }",
        "call (%r1), f, (p);",
        "call (%r1), %rd1, (%r2);",
        "call (%r1), %rd1, (%r2), f;",
        "call (%r1), %r1, (%r2), t; t: .calltargets f;",
        "call (%r1), %rd1, (%r2), t; t: .calltargets ff;",
        "call;",
    ]));
}

#[test]
fn declarations() {
    insta::assert_snapshot!(messages(&[
        ".global .b32 x; .global .b32 x;",
        ".func f() { ret; } .func f() { ret; }",
        ".local .b32 x;",
        ".global .b32 x[2] = {1, 2, 3};",
        ".global .b32 x[2][2] = {{1, 2}, {3, 4}, {5, 6}};",
        ".global .b32 x = {1, {2}};",
        ".global .b32 x = 1.5;",
        ".global .f32 x = y;",
        ".global .b64 x = y;",
        ".shared .b32 s; .global .b64 x = s;",
        ".shared .b32 s = 1;",
        ".global .b32 x[4294967296];",
        ".global .b8 a[2147483648]; .global .b8 b[2147483648];",
        ".global .texref t;",
        ".alias a, b;",
        ".entry k() { .reg .b32 %r<4>; .reg .b64 %r<4>; ret; }",
        ".entry k() { .reg .b32 x; .shared .b32 x; ret; }",
        ".entry k() { .reg .b32 %r<4>; .reg .b32 %r3; ret; }",
        ".entry k() { .reg .texref t; ret; }",
        ".entry k() { .local .b32 x[]; ret; }",
        ".entry k() { .local .b32 x[2147483647]; ret; }",
        ".entry k() { .local .b32 x = 1; ret; }",
        ".entry k(.param .texref t) { ret; }",
        ".entry k(.param .b8 a[]) { ret; }",
        ".entry k() .reqntid 4294967296 { ret; }",
    ]));
    insta::assert_snapshot!(
        "addresses_of_32_bits",
        say(".version 8.7\n.target sm_80\n.address_size 32\n.entry k() { ret; }")
    );
}
