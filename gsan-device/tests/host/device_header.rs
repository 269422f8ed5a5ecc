//! `gsan/device.cuh` as a stranger's compiler sees it: the example in its head compiles with every variant,
//! and wrong uses are refused with a word about what would be right. Passed over without clang 19.

use std::path::{Path, PathBuf};
use std::process::Command;

use gsan_device::{StateMemory, Variant};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The PTX of `source`, or what the compiler says of it; `None` if there is no compiler.
fn compile(source: &str, variant: Variant, flags: &[&str]) -> Option<Result<String, String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.cu");
    std::fs::write(&file, source).unwrap();
    let mut compiler = Command::new("clang-19");
    compiler
        .arg("@gsan-device/tests/gpu/kernels/flags")
        .arg(format!("-DGSAN_RECORDS={}", variant.records.count()))
        // The kernels below have parameters for all.
        .arg("-Wno-unused-parameter")
        .args(flags)
        .arg(file)
        .args(["-o", "-"])
        .current_dir(top());
    if variant.state == StateMemory::BySm {
        compiler.arg("-DGSAN_STATE_BY_SM");
    }
    let output = match compiler.output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: clang-19 does not start: {error}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(said),
    })
}

/// Functions of the program that have names of the header, which the header must not call for types
/// that are of their namespace.
const NAMESAKES: &str = "
    template <class T> __attribute__((device)) T load(const T*, const char*, unsigned);
    template <class T> __attribute__((device)) void store(T*, T, const char*, unsigned);
    template <class T, unsigned N>
    __attribute__((device)) void load_each(const T* const (&)[N], T (&)[N], const char*, unsigned);
    template <class T, unsigned N>
    __attribute__((device)) void store_each(T* const (&)[N], const T (&)[N], const char*, unsigned);
    template <class T> __attribute__((device)) T* words_of(T*);
    template <class To, class From> __attribute__((device)) To bits_as(const From&);";

/// Whether the compiler takes `source`, or what it says of it.
fn check(source: &str, variant: Variant) -> Option<Result<(), String>> {
    let result = compile(source, variant, &["-fsyntax-only"])?;
    Some(result.map(|_| ()))
}

/// A kernel that does `what`.
fn kernel(what: &str) -> String {
    format!(
        "#include \"gsan/device.cuh\"\n\
         struct Three {{ float x, y, z; }};\n\
         struct Owner {{ int value; __attribute__((device)) Owner(const Owner&); }};\n\
         struct Named {{ const int value; __attribute__((device)) Named(int v) : value(v) {{}} }};\n\
         namespace app {{ struct Own {{ int value; }}; {NAMESAKES} }}\n\
         using gsan::Order;\nusing gsan::Scope;\n\
         extern \"C\" __attribute__((global)) void kernel(\n\
             int* ints, const int* constants, float* floats, short* shorts, Three* threes,\n\
             Owner* owners, void* bytes, long long* longs, volatile int* volatiles,\n\
             const volatile int* both, volatile float* signals, Named* named, app::Own* own,\n\
             gsan_global_state* globals,\n\
             const void* table, uint64_t index) {{\n\
           gsan::Kernel kernel(globals, table, index);\n\
           {what}\n\
         }}\n"
    )
}

const ALL: [Variant; 4] = Variant::ALL;

#[test]
fn the_example_compiles_with_every_variant() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/gsan/device.cuh");
    let header = std::fs::read_to_string(path).unwrap();
    let lines = header.lines().take_while(|line| line.starts_with("//"));
    let example: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("//     "))
        .collect();
    assert!(example.len() > 20);
    for variant in ALL {
        match check(&example.join("\n"), variant) {
            None => return,
            Some(result) => result.unwrap_or_else(|said| panic!("{variant:?}: {said}")),
        }
    }
}

#[test]
fn right_uses_are_taken() {
    let uses = [
        "gsan::store(ints, 'a'); gsan::store(shorts, gsan::load(constants));",
        "gsan::store_vector(floats, gsan::load_vector<4>(floats + 4));",
        "int* to[] = {ints, ints + 9}; const int values[] = {1, 2}; gsan::store_each(to, values);",
        "gsan::atomic_store(floats, 1.0f, Order::kRelease, Scope::kSystem);",
        "gsan::atomic_min(longs, -1, Order::kRelaxed, Scope::kCta);",
        "gsan::fence(Scope::kGpu);",
        "kernel.grid_dependency_synchronize();",
        "int* from[] = {ints, ints + 9}; int to[2]; gsan::load_each(from, to);",
        "const int* from[] = {ints, constants}; int to[2]; gsan::load_each(from, to);",
        "[](auto* at) { gsan::store(at, gsan::load(at)); }(longs);",
        // What is volatile, by atomics.
        "*ints = gsan::atomic_load(volatiles, Order::kAcquire, Scope::kGpu);",
        "*ints = gsan::atomic_load(both, Order::kAcquire, Scope::kGpu);",
        "gsan::atomic_store(volatiles, 1, Order::kRelease, Scope::kGpu);",
        "gsan::atomic_exchange(volatiles, 1, Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_compare_exchange(volatiles, 1, 2, Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_add(signals, 1, Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_sub(volatiles, 1, Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_max(volatiles, 1, Order::kRelaxed, Scope::kGpu);",
        // Types that cannot be made without a value, or not be assigned to.
        "gsan::store(named, gsan::load(named));",
        "gsan::atomic_exchange(named, Named(1), Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_load(named, Order::kRelaxed, Scope::kGpu);",
        // Types of a namespace with functions of the same names.
        "gsan::store(own, gsan::load(own));",
        "gsan::store_vector(own, gsan::load_vector<2>(own));",
        "gsan::atomic_store(own, app::Own{1}, Order::kRelease, Scope::kGpu);",
        "gsan::atomic_exchange(own, app::Own{1}, Order::kRelaxed, Scope::kGpu);",
        "gsan::atomic_compare_exchange(own, {1}, {2}, Order::kRelaxed, Scope::kGpu);",
    ];
    // One after the other: what the compiler says names the line.
    let all: Vec<_> = uses.iter().map(|what| format!("{{ {what} }}")).collect();
    if let Some(result) = check(&kernel(&all.join("\n")), ALL[0]) {
        result.unwrap_or_else(|said| panic!("{said}"));
    }
}

#[test]
fn wrong_uses_are_refused_with_a_word() {
    const SIZES: &str = "a value has 1, 2, 4, 8 or 16 bytes";
    const VECTORS: &str = "a vector has 2, 4, 8 or 16 bytes, and a power of two of elements";
    const VOLATILE: &str = "what is volatile is no ordinary one; use atomic_load or atomic_store";
    const INTEGER: &str = "an integer of 4 or 8 bytes is needed";
    for (what, expected) in [
        ("gsan::load(threes);", SIZES),
        ("gsan::store(threes, Three{});", SIZES),
        ("gsan::load(owners);", "a value is trivially copyable"),
        ("gsan::load_vector<3>(floats);", VECTORS),
        ("gsan::load_vector<8>(floats);", VECTORS),
        ("gsan::store(constants, 1);", "const"),
        ("gsan::load(bytes);", "void"),
        ("gsan::load(volatiles);", VOLATILE),
        ("gsan::load(both);", VOLATILE),
        ("gsan::store(volatiles, 1);", VOLATILE),
        (
            "gsan::atomic_add(shorts, 1, Order::kRelaxed, Scope::kGpu);",
            "an integer of 4 or 8 bytes, a float or a double is needed",
        ),
        (
            "gsan::atomic_load(shorts, Order::kRelaxed, Scope::kGpu);",
            "an atomic has 4 or 8 bytes",
        ),
        (
            "gsan::atomic_or(floats, 1, Order::kRelaxed, Scope::kGpu);",
            INTEGER,
        ),
        (
            "gsan::atomic_max(floats, 1, Order::kRelaxed, Scope::kGpu);",
            INTEGER,
        ),
        (
            "gsan::atomic_increment(ints, 1, Order::kRelaxed, Scope::kGpu);",
            "an unsigned integer of 4 bytes is needed",
        ),
        (
            "gsan::atomic_add(ints, 1, Scope::kGpu, Order::kRelaxed);",
            "no matching function",
        ),
        ("gsan::atomic_add(ints, 1);", "no matching function"),
        ("gsan::Kernel other(kernel);", "deleted constructor"),
    ] {
        match check(&kernel(what), ALL[0]) {
            None => return,
            Some(Ok(())) => panic!("{what} compiles"),
            Some(Err(said)) => assert!(said.contains(expected), "{what}: {said}"),
        }
    }
}

/// The lines that define a variable or function of the library.
fn definitions(ptx: &str) -> Vec<&str> {
    let library = |line: &&str| line.contains("_ZN4gsan");
    let definition = |line: &&str| line.starts_with('.') && !line.starts_with(".extern");
    ptx.lines().filter(library).filter(definition).collect()
}

#[test]
fn translation_units_that_are_linked_share_one_library() {
    let kernel = kernel(
        "gsan::atomic_add(floats, 1, Order::kAcquireRelease, Scope::kGpu);\n\
         gsan::store(ints, gsan::load(constants));",
    );
    for variant in ALL {
        let ptx = match compile(&kernel, variant, &["-fgpu-rdc", "-O0"]) {
            None => return,
            Some(result) => result.unwrap_or_else(|said| panic!("{variant:?}: {said}")),
        };
        let state = match variant.state {
            StateMemory::Shared => "cta_memory",
            StateMemory::BySm => "running_globals",
        };
        let symbols = definitions(&ptx);
        assert!(symbols.iter().any(|symbol| symbol.contains(state)));
        for symbol in symbols {
            assert!(symbol.starts_with(".weak"), "{variant:?}: {symbol}");
        }
    }
}

#[test]
fn code_for_other_targets_and_for_debuggers_compiles_without_a_warning() {
    let kernel = kernel("gsan::store(ints, gsan::load(constants));");
    let sm_90 = ["--no-cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90"];
    for flags in [&sm_90[..], &["-O0", "-g"], &["-std=c++20", "-pedantic"]] {
        match compile(&kernel, ALL[0], flags) {
            None => return,
            Some(result) => drop(result.unwrap_or_else(|said| panic!("{flags:?}: {said}"))),
        }
    }
}
