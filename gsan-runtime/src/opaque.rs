//! Kernels that synchronise in ways that nobody reports.
//!
//! Triton's instrumentation tells of Triton's own operations. What a kernel does beside them, in inline
//! assembly, by extern functions, by fences and by volatile loads, may order accesses that then look like
//! races. It shows in Triton's intermediate representation: in the PTX, the operations of the kernel are no
//! longer apart from those that instrumentation has put in.

/// What may order memory, in inline assembly: parts of PTX instructions.
const ORDERING: [&str; 12] = [
    "fence",
    "membar",
    "acquire",
    "release",
    "acq_rel",
    "relaxed",
    "volatile",
    "atom",
    "red",
    "mbarrier",
    "cluster",
    "griddepcontrol",
];

/// Functions of CUDA's library for mathematics, which touch no memory that others see.
const MATHEMATICS: &str = "__nv_";

/// Whether a kernel synchronises in ways that nobody reports: the first such thing, in words. `ir` is
/// Triton's intermediate representation of it, `ttir` or `ttgir`.
pub fn hidden_synchronisation(ir: &str) -> Option<String> {
    ir.lines().find_map(of_line)
}

/// Whether a text is Triton's intermediate representation.
pub fn is_triton_ir(text: &str) -> bool {
    text.contains("tt.func")
}

fn of_line(line: &str) -> Option<String> {
    if let Some(rest) = after(line, "tt.elementwise_inline_asm") {
        let assembly = quoted(rest)?;
        let found = instructions(assembly).find(|instruction| orders(instruction))?;
        return Some(format!("inline assembly with `{found}`"));
    }
    if let Some(rest) = after(line, "tt.extern_elementwise") {
        let name = after(rest, "symbol = ").and_then(quoted).unwrap_or("?");
        let harmless = name.starts_with(MATHEMATICS) || rest.contains("pure = true");
        return (!harmless).then(|| format!("the extern function `{name}`"));
    }
    if line.contains("tt.load") && line.contains("isVolatile = true") {
        return Some("a volatile load".to_owned());
    }
    if operation(line) == Some("ttng.fence") {
        return Some("a fence".to_owned());
    }
    None
}

/// What a line does: `%a, %b = operation …` or `operation …`.
fn operation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = if line.starts_with('%') {
        line.split_once(" = ")?.1
    } else {
        line
    };
    line.trim_start_matches('"').split([' ', '"', '(']).next()
}

fn after<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    text.find(what).map(|at| &text[at + what.len()..])
}

/// The first quoted text.
fn quoted(text: &str) -> Option<&str> {
    let start = text.find('"')? + 1;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(&text[start..at]),
            _ => {}
        }
    }
    None
}

/// The opcodes of assembly, with their modifiers.
fn instructions(assembly: &str) -> impl Iterator<Item = &str> {
    // Line breaks are written as escapes.
    let statements = assembly.split([';', '{', '}', '\n']);
    let statements = statements.flat_map(|statement| statement.split("\\0A"));
    statements.filter_map(|statement| {
        let words = statement.split_whitespace();
        // `@p` is a guard, `label:` a place.
        words
            .filter(|word| !word.starts_with('@') && !word.ends_with(':') && *word != "\\09")
            .map(|word| word.trim_start_matches("\\09"))
            .next()
    })
}

fn orders(instruction: &str) -> bool {
    instruction.split('.').any(|part| ORDERING.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Triton 3.9 writes it.
    fn assembly(text: &str) -> String {
        format!(
            "    %one = tt.elementwise_inline_asm \"{text}\" {{constraints = \"=r,r\", packed_element = 1 \
             : i32, pure = false}} %cst : tensor<128xi32, #blocked> -> tensor<128xi32, #blocked> loc(#loc26)"
        )
    }

    #[test]
    fn assembly_that_orders_memory_is_hidden_synchronisation() {
        for (text, what) in [
            ("fence.acq_rel.gpu; mov.u32 $0, $1;", "fence.acq_rel.gpu"),
            ("mov.u32 $0, $1; membar.gl;", "membar.gl"),
            (
                "ld.global.acquire.gpu.b32 $0, [$1];",
                "ld.global.acquire.gpu.b32",
            ),
            (
                "{ .reg .pred p; @p st.release.gpu.b32 [$1], $0; }",
                "st.release.gpu.b32",
            ),
            (
                "\\09atom.global.add.u32 $0, [$1], 1;",
                "atom.global.add.u32",
            ),
            (
                "mov.u32 $0, $1;\\0A\\09ld.volatile.global.b32 $0, [$1];",
                "ld.volatile.global.b32",
            ),
            ("WAIT: ld.relaxed.sys.b32 $0, [$1];", "ld.relaxed.sys.b32"),
            ("red.global.add.u32 [$1], 1;", "red.global.add.u32"),
            ("griddepcontrol.wait;", "griddepcontrol.wait"),
        ] {
            let found = hidden_synchronisation(&assembly(text));
            assert_eq!(found, Some(format!("inline assembly with `{what}`")));
        }
    }

    #[test]
    fn assembly_that_computes_is_not() {
        for text in [
            "mov.u32 $0, $1;",
            "ex2.approx.ftz.f32 $0, $1;",
            "{ .reg .b32 red; prmt.b32 red, $1, 0, 0x5140; cvt.rn.f16x2.e4m3x2 $0, red; }",
            "redux.sync.add.s32 $0, $1, 0xffffffff;",
            "ld.global.b32 $0, [$1];",
        ] {
            assert_eq!(hidden_synchronisation(&assembly(text)), None, "{text}");
        }
    }

    #[test]
    fn extern_functions_volatile_loads_and_fences_count() {
        let function = |symbol: &str, pure| {
            format!(
                "%s = tt.extern_elementwise %v {{libname = \"\", libpath = \"\", pure = {pure}, symbol = \
                 \"{symbol}\"}} : (tensor<128xf32, #blocked>) -> tensor<128xf32, #blocked> loc(#loc25)"
            )
        };
        assert_eq!(hidden_synchronisation(&function("__nv_sinf", true)), None);
        assert_eq!(hidden_synchronisation(&function("__nv_sinf", false)), None);
        let found = hidden_synchronisation(&function("nvshmem_quiet", false));
        assert_eq!(
            found.as_deref(),
            Some("the extern function `nvshmem_quiet`")
        );
        let load = "    %v = tt.load %1 {isVolatile = true} : tensor<128x!tt.ptr<i32>> loc(#loc23)";
        assert_eq!(
            hidden_synchronisation(load).as_deref(),
            Some("a volatile load")
        );
        let load = "    %v = tt.load %1 : tensor<128x!tt.ptr<i32>, #blocked> loc(#loc23)";
        assert_eq!(hidden_synchronisation(load), None);
        assert_eq!(
            hidden_synchronisation("  ttng.fence {x = 1}").as_deref(),
            Some("a fence")
        );
        // Of shared memory and asynchronous copies, within a CTA.
        assert_eq!(
            hidden_synchronisation("  ttng.fence_async_shared {bCluster = false}"),
            None
        );
    }

    #[test]
    fn the_first_of_a_whole_kernel_is_told() {
        let kernel = format!(
            "module {{\n  tt.func public @k() {{\n{}\n{}\n  }}\n}}",
            assembly("mov.u32 $0, $1;"),
            assembly("fence.sc.sys;")
        );
        assert!(is_triton_ir(&kernel));
        let found = hidden_synchronisation(&kernel);
        assert_eq!(
            found.as_deref(),
            Some("inline assembly with `fence.sc.sys`")
        );
        assert!(!is_triton_ir(".version 8.0\n.target sm_80"));
    }
}
