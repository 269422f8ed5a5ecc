//! What instructions decode to. Expected values are read off the PTX ISA document.

use gsan_core::event::FenceKind;
use gsan_core::scope::{Order, Scope};
use gsan_ptx::alu::compare::{Compared, Comparison};
use gsan_ptx::alu::{Rmw, Unary};
use gsan_ptx::diagnostic::Source;
use gsan_ptx::lower::{entries, lower};
use gsan_ptx::program::Program;
use gsan_ptx::program::ir::{
    Arrival, Callee, MbarrierAction, MemoryAccess, MemorySpace, Op, Storage,
};
use gsan_ptx::program::operand::{Operand, SymbolSpace};
use gsan_ptx::program::symbols::{FunctionId, Place, RelocationTarget};
use gsan_ptx::syntax::parse;

fn decode(text: &str) -> Program {
    let source = Source {
        file: "k.ptx",
        text,
    };
    let module = parse(&source).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let entries: Vec<_> = entries(&module).collect();
    lower(source, &module, &entries).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

/// A module with these items and a kernel with these statements.
fn kernel(items: &str, statements: &str) -> Program {
    decode(&format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n{items}\n\
         .entry k(.param .u64 p, .param .align 4 .b8 s[12], .param .u64 .ptr .global q) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<4>; \
         .reg .b128 %q<2>;\n\
         {statements}\n}}"
    ))
}

/// The operations of a kernel, without the return at its end.
fn ops(statements: &str) -> (Program, Vec<Op>) {
    let program = kernel(".shared .b32 sh[4];", statements);
    let mut ops: Vec<Op> = program.code.iter().map(|inst| inst.op).collect();
    assert_eq!(ops.pop(), Some(Op::Return));
    (program, ops)
}

fn op(statement: &str) -> Op {
    match ops(statement).1[..] {
        [op] => op,
        ref ops => panic!("{statement}: {ops:?}"),
    }
}

fn access(statement: &str) -> MemoryAccess {
    match op(statement) {
        Op::Load { access, .. } | Op::Store { access, .. } | Op::Atomic { access, .. } => access,
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn every_instruction_that_ptxas_was_shown_is_decoded() {
    let program = decode(include_str!("../../fuzz/corpus/parse/instructions.ptx"));
    assert_eq!(program.functions.len(), 3);
    assert!(program.functions[0].dynamic_shared);
}

#[test]
fn every_instruction_of_the_device_library_is_decoded() {
    let program = decode(include_str!("../../fuzz/corpus/parse/device_library.ptx"));
    assert!(program.code.len() > 150);
}

#[test]
fn orders_and_scopes_of_accesses() {
    for (statement, order, scope) in [
        ("ld.global.b32 %r1, [%rd1];", Order::Weak, None),
        ("ld.weak.global.b32 %r1, [%rd1];", Order::Weak, None),
        ("ld.global.nc.b32 %r1, [%rd1];", Order::Weak, None),
        (
            "ld.volatile.global.b32 %r1, [%rd1];",
            Order::Relaxed,
            Some(Scope::Sys),
        ),
        (
            "st.volatile.shared.b32 [%r1], 0;",
            Order::Relaxed,
            Some(Scope::Sys),
        ),
        (
            "ld.relaxed.cluster.b32 %r1, [%rd1];",
            Order::Relaxed,
            Some(Scope::Cluster),
        ),
        (
            "ld.global.gpu.acquire.b32 %r1, [%rd1];",
            Order::Acquire,
            Some(Scope::Gpu),
        ),
        (
            "st.release.sys.b32 [%rd1], 0;",
            Order::Release,
            Some(Scope::Sys),
        ),
        (
            "atom.add.u32 %r1, [%rd1], 1;",
            Order::Relaxed,
            Some(Scope::Gpu),
        ),
        (
            "atom.acq_rel.cta.add.u32 %r1, [%rd1], 1;",
            Order::AcqRel,
            Some(Scope::Cta),
        ),
        (
            "red.release.sys.add.u32 [%rd1], 1;",
            Order::Release,
            Some(Scope::Sys),
        ),
    ] {
        let access = access(statement);
        assert_eq!(access.order, order, "{statement}");
        if let Some(scope) = scope {
            assert_eq!(access.scope, scope, "{statement}");
        }
    }
}

#[test]
fn fences() {
    let fence = |statement| match op(statement) {
        Op::Fence { kind, scope } => (kind, scope),
        other => panic!("{statement}: {other:?}"),
    };
    assert_eq!(fence("fence.acq_rel.gpu;"), (FenceKind::AcqRel, Scope::Gpu));
    assert_eq!(fence("fence.gpu;"), (FenceKind::AcqRel, Scope::Gpu));
    assert_eq!(fence("fence.sc.cta;"), (FenceKind::Sc, Scope::Cta));
    assert_eq!(fence("membar.gl;"), (FenceKind::Sc, Scope::Gpu));
    assert_eq!(fence("fence.proxy.async.global;").0, FenceKind::ProxyAsync);
}

#[test]
fn a_signed_load_extends_its_sign_only_into_a_wider_register() {
    assert!(access("ld.global.s8 %r1, [%rd1];").element.signed);
    assert!(!access("ld.global.u8 %r1, [%rd1];").element.signed);
    assert!(!access("ld.global.s32 %r1, [%rd1];").element.signed);
}

#[test]
fn spaces_of_variables_and_parameters() {
    assert_eq!(access("ld.b32 %r1, [sh];").space, MemorySpace::Shared);
    assert_eq!(access("ld.param.b32 %r1, [s+4];").space, MemorySpace::Param);
    assert_eq!(access("ld.b32 %r1, [%rd1];").space, MemorySpace::Generic);
    let (program, ops) = ops("{ .param .b32 a; st.param.b32 [a], 1; }");
    assert!(matches!(
        ops[0],
        Op::Store { address, access, .. } if access.space == MemorySpace::Local
            && address.base == Operand::Symbol(SymbolSpace::Local, 0)
    ));
    assert_eq!(program.functions[0].local_bytes, 4);
}

#[test]
fn parameters_of_a_kernel_are_laid_out_with_their_alignment() {
    let program = kernel("", "");
    let entry = program.entry("k").unwrap();
    let params: Vec<_> = (entry.params.iter())
        .map(|p| (p.name.as_str(), p.offset, p.bytes, p.pointer))
        .collect();
    assert_eq!(
        params,
        [("p", 0, 8, false), ("s", 8, 12, false), ("q", 24, 8, true)]
    );
    assert_eq!(entry.param_bytes, 32);
}

#[test]
fn registers_take_room_only_if_they_are_used() {
    let program = kernel(
        "",
        ".reg .b32 %z<4294967295>; mov.b32 %z4294967294, %r1; mov.b128 {%rd1, %rd2}, %q1;",
    );
    assert_eq!(program.functions[0].registers, 6);
}

#[test]
fn an_inner_declaration_hides_an_outer_one() {
    let (_, ops) = ops("mov.b32 %r1, 1; { .reg .b64 %r1; mov.b64 %r1, 2; } mov.b32 %r1, 3;");
    let registers: Vec<_> = (ops.iter())
        .map(|op| match op {
            Op::Move { dst, .. } => *dst,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(registers[0], registers[2]);
    assert_ne!(registers[0], registers[1]);
}

#[test]
fn branches_go_to_the_nearest_label_of_that_name() {
    let (_, ops) = ops("L: bra L; { bra L; L: bra M; } M: bra L;");
    assert_eq!(ops, [0, 2, 3, 0].map(|target| Op::Branch { target }));
}

#[test]
fn a_label_at_the_end_is_the_return() {
    let program = kernel("", "@%p1 bra END; END:");
    assert_eq!(program.code[0].op, Op::Branch { target: 1 });
    assert_eq!(program.code[1].op, Op::Return);
}

#[test]
fn a_branch_table_lists_instructions() {
    let (program, ops) = ops("t: .branchtargets A, B, A; A: brx.idx %r1, t; B: trap;");
    assert!(matches!(ops[0], Op::BranchTable { table: 0, .. }));
    assert_eq!(program.tables, [[0, 1, 0]]);
}

#[test]
fn a_narrow_signed_conversion_fills_its_register() {
    let (_, wide) = ops("cvt.s8.s32 %r1, %r2;");
    assert_eq!(wide.len(), 2, "{wide:?}");
    let (_, narrow) = ops("cvt.s16.s32 %h1, %r2;");
    assert_eq!(narrow.len(), 1, "{narrow:?}");
}

#[test]
fn comparisons_of_the_unsigned_names() {
    for (name, comparison) in [
        ("lo", Comparison::Lt),
        ("ls", Comparison::Le),
        ("hi", Comparison::Gt),
        ("hs", Comparison::Ge),
    ] {
        match op(&format!("setp.{name}.u32 %p1, %r1, %r2;")) {
            Op::SetPredicate {
                test, other: None, ..
            } => {
                assert_eq!(test.comparison, comparison);
                assert!(matches!(test.compared, Compared::Int(int) if !int.signed));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn negated_predicates_of_logic_are_computed_first() {
    let (_, ops) = ops("and.pred %p1, %p2, !%p3;");
    let [
        Op::Unary {
            f: Unary::NotPredicate,
            dst,
            ..
        },
        Op::Binary { b, .. },
    ] = ops[..]
    else {
        panic!("{ops:?}");
    };
    assert_eq!(b, Operand::Reg(dst));
}

#[test]
fn numbers_take_the_width_of_their_type() {
    let value = |statement| {
        let (program, ops) = ops(statement);
        match ops[0] {
            Op::Move {
                src: Operand::Const(id),
                ..
            } => program.constants[id.0 as usize],
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(value("mov.u32 %r1, -1;"), 0xffff_ffff);
    assert_eq!(value("mov.b16 %h1, 0x12345;"), 0x2345);
    assert_eq!(value("mov.f32 %f1, 1.0;"), 0x3f80_0000);
    assert_eq!(value("mov.f32 %f1, 0f7F800000;"), 0x7f80_0000);
    assert_eq!(value("mov.b32 %r1, 0f3F800000;"), 0x3f80_0000);
    assert_eq!(value("mov.f64 %rd1, 0f3F800000;"), 0x3ff0_0000_0000_0000);
    assert_eq!(value("mov.b64 %rd1, -1;"), u64::MAX);
}

#[test]
fn additions_of_f32_flush_subnormals_outside_shared_memory() {
    let ftz = |statement| match op(statement) {
        Op::Atomic {
            rmw: Rmw::Float(_, _, mode),
            ..
        } => mode.ftz,
        other => panic!("{other:?}"),
    };
    assert!(ftz("atom.global.add.f32 %f1, [%rd1], %f2;"));
    assert!(!ftz("atom.shared.add.f32 %f1, [%r1], %f2;"));
}

#[test]
fn vectors_move_all_their_elements() {
    let (program, ops) =
        ops("ld.global.v4.b32 {%r1, _, %r2, %r3}, [%rd1]; st.global.v2.b64 [%rd1], {%rd2, 7};");
    let Op::Load { dst, access, .. } = ops[0] else {
        panic!()
    };
    assert_eq!(program.registers_of(dst).len(), 4);
    assert_eq!(access.element.bytes, 4);
    let Op::Store {
        sources, access, ..
    } = ops[1]
    else {
        panic!()
    };
    assert_eq!(program.operands_of(sources).len(), 2);
    assert_eq!(access.element.bytes, 8);
    let (program, ops) = self::ops("ld.global.b128 %q1, [%rd1];");
    let Op::Load { dst, access, .. } = ops[0] else {
        panic!()
    };
    assert_eq!(program.registers_of(dst).len(), 2);
    assert_eq!(access.element.bytes, 16);
}

#[test]
fn a_call_says_where_arguments_and_results_lie_in_both_frames() {
    let program = kernel(
        ".func (.param .b32 r) f(.param .b64 a, .reg .b32 b) { .reg .b32 x; mov.b32 x, b; ret; }",
        "{ .param .b32 unused; .param .b64 arg; .param .b32 res; call (res), f, (arg, %r1); }",
    );
    let [call] = &program.calls[..] else { panic!() };
    assert_eq!(call.callee, Callee::Direct(FunctionId(1)));
    assert_eq!(call.results.len(), 1);
    // The callee's frame: the result at 0, the first argument behind it, at a multiple of 8.
    assert_eq!(call.results[0].from, Storage::Local(0));
    assert_eq!(call.results[0].to, Storage::Local(16));
    assert_eq!(call.results[0].bytes, 4);
    assert_eq!(call.arguments[0].from, Storage::Local(8));
    assert_eq!(call.arguments[0].to, Storage::Local(8));
    assert_eq!(call.arguments[0].bytes, 8);
    assert_eq!(call.arguments[1].bytes, 4);
    assert!(matches!(
        call.arguments[1].to,
        Storage::Value(Operand::Reg(_))
    ));
    assert_eq!(program.functions[1].local_bytes, 16);
}

#[test]
fn a_call_through_a_register_may_reach_all_functions_of_its_shape() {
    let program = kernel(
        ".func (.param .b32 r) f(.param .b32 a) { ret; }\n\
         .func (.param .b32 r) g(.param .b32 a) { ret; }\n\
         .func (.param .b64 r) h(.param .b32 a) { ret; }\n\
         .global .u64 table[3] = {f, g, h};",
        "t: .callprototype (.param .b32 _) _ (.param .b32 _); call (%r1), %rd1, (%r2), t;",
    );
    let Callee::Indirect { candidates, .. } = &program.calls[0].callee else {
        panic!()
    };
    let names: Vec<_> = (candidates.iter())
        .map(|id| program.functions[id.0 as usize].name.as_str())
        .collect();
    assert_eq!(names, ["f", "g"]);
}

#[test]
fn functions_nobody_needs_are_not_decoded() {
    let program = kernel(".func f() { wgmma.fence.sync.aligned; ret; }", "ret;");
    assert_eq!(program.functions.len(), 1);
}

#[test]
fn variables_have_their_initial_bytes() {
    let program = kernel(
        ".global .b8 a[3] = {1, -1};\n\
         .global .align 4 .b32 m[2][2] = {{1, 2}, {3}};\n\
         .const .f32 c = 1.0;\n\
         .global .v2 .b16 v = {1, 2};\n\
         .global .b64 pointers[2] = {m+4, f};\n\
         .global .b8 bytes[8] = {0xff(a), 0xff00(a), 0xff0000(a), 0xff000000(a), 0xff00000000(a), \
         0xff0000000000(a), 0xff000000000000(a), 0xff00000000000000(a)};\n\
         .func f() { ret; }",
        "ret;",
    );
    let variables: Vec<_> = (program.data.variables.iter())
        .map(|v| {
            (
                v.name.as_str(),
                v.offset,
                v.bytes,
                v.init.as_slice(),
                v.constant,
            )
        })
        .collect();
    assert_eq!(
        variables,
        [
            ("a", 0, 3, &[1, 255][..], false),
            ("m", 4, 16, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0], false),
            ("c", 20, 4, &[0, 0, 0x80, 0x3f], true),
            ("v", 24, 4, &[1, 0, 2, 0], false),
            ("pointers", 32, 16, &[0; 16], false),
            ("bytes", 48, 8, &[0; 8], false),
        ]
    );
    let relocations: Vec<_> = (program.data.relocations.iter())
        .map(|r| (r.at, r.target))
        .collect();
    assert_eq!(
        relocations,
        [
            (32, RelocationTarget::Data(8)),
            (40, RelocationTarget::Function(FunctionId(1))),
            (48, RelocationTarget::Data(0)),
        ]
    );
}

#[test]
fn dynamic_shared_memory_begins_behind_all_static_variables() {
    let program = kernel(
        ".shared .b8 a[5]; .extern .shared .align 128 .b8 dynamic[]; .shared .b32 b;",
        ".shared .b64 c; mov.u32 %r1, dynamic; mov.u32 %r2, b;",
    );
    let symbol = |index: usize| match program.code[index].op {
        Op::Move {
            src: Operand::Symbol(SymbolSpace::Shared, offset),
            ..
        } => offset,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(symbol(0) % 128, 0);
    assert!(symbol(0) >= symbol(1) + 4);
    assert_eq!(symbol(0), program.dynamic_shared_offset());
    assert!(program.functions[0].dynamic_shared);
}

#[test]
fn places_are_lines_of_the_file_and_of_the_source() {
    let program = decode(
        ".version 8.7\n.target sm_80\n.entry k() {\n  .loc 2 7 3\n  bar.sync 0;\n  ret;\n}\n\
         .file 1 \"a.cu\"\n.file 2 \"b.cu\"\n",
    );
    assert_eq!(
        program.places[0],
        Place {
            ptx_line: 5,
            file: Some(1),
            line: 7,
            column: 3
        }
    );
    assert_eq!(program.files, ["a.cu", "b.cu"]);
}

/// LLVM numbers the lines of inline assembly on from the line of its source.
#[test]
fn inline_assembly_is_on_the_line_it_begins_on() {
    let program = kernel(
        ".file 1 \"a.py\"",
        ".loc 1 20 5\nadd.s32 %r1, %r1, 1;\n\
         // begin inline asm\n.loc 1 22 9\nmov.u32 %r1, 0x0;\n\
         {\n.loc 1 23 9\nmov.u32 %r2, 0x0;\n}\n.loc 1 24 9\nld.global.b32 %r1, [%rd1];\n\
         // end inline asm\n\
         add.s32 %r1, %r1, 2;\n\
         // begin inline asm\n.loc 1 22 30\nmov.u32 %r3, 0x0;\n.loc 1 23 30\nmov.u32 %r3, 1;\n\
         // end inline asm\n\
         .loc 1 25 1\nadd.s32 %r1, %r1, 3;\n.loc 1 26 1\nret;\n",
    );
    let lines: Vec<(u32, u32)> = (program.places.iter())
        .map(|place| (place.line, place.column))
        .collect();
    assert_eq!(
        lines[..9],
        [
            (20, 5),
            (22, 9),
            (22, 9),
            (22, 9),
            (22, 9),
            (22, 30),
            (22, 30),
            (25, 1),
            (26, 1)
        ]
    );
}

fn mbarrier(statement: &str) -> (MbarrierAction, MemorySpace) {
    match op(statement) {
        Op::Mbarrier { action, space, .. } => (action, space),
        other => panic!("{statement}: {other:?}"),
    }
}

#[test]
fn arrivals_at_mbarriers_release_unless_they_are_relaxed() {
    for (statement, expected) in [
        (
            "mbarrier.arrive.shared.b64 %rd1, [%r1];",
            (Arrival::Counted, false, true),
        ),
        (
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 3;",
            (Arrival::Counted, false, true),
        ),
        (
            "mbarrier.arrive_drop.noComplete.shared.b64 %rd1, [%r1], 3;",
            (Arrival::NoComplete, true, true),
        ),
        (
            "mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 %rd1, [%r1], %r2;",
            (Arrival::ExpectTx, false, false),
        ),
    ] {
        let (action, space) = mbarrier(statement);
        let MbarrierAction::Arrive {
            kind,
            drops,
            releases,
            ..
        } = action
        else {
            panic!("{statement}: {action:?}");
        };
        assert_eq!((kind, drops, releases), expected, "{statement}");
        assert_eq!(space, MemorySpace::Shared);
    }
}

#[test]
fn waits_for_mbarriers_acquire_unless_they_are_relaxed() {
    for (statement, expected, space) in [
        (
            "mbarrier.test_wait.b64 %p1, [%rd1], %rd2;",
            (false, true),
            MemorySpace::Generic,
        ),
        (
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r1], 1, 0x989680;",
            (true, true),
            MemorySpace::Shared,
        ),
        (
            "mbarrier.test_wait.parity.relaxed.cluster.shared.b64 %p1, [%r1], %r2;",
            (true, false),
            MemorySpace::Shared,
        ),
    ] {
        let (action, found) = mbarrier(statement);
        let MbarrierAction::Wait {
            parity, acquires, ..
        } = action
        else {
            panic!("{statement}: {action:?}");
        };
        assert_eq!((parity, acquires), expected, "{statement}");
        assert_eq!(found, space, "{statement}");
    }
}

#[test]
fn copies_arrive_at_mbarriers_with_or_without_a_pending_arrival_of_their_own() {
    for (statement, increments) in [
        ("cp.async.mbarrier.arrive.shared.b64 [%r1];", true),
        ("cp.async.mbarrier.arrive.noinc.b64 [%rd1];", false),
    ] {
        let action = MbarrierAction::CopyArrive { increments };
        assert_eq!(mbarrier(statement).0, action, "{statement}");
    }
}
