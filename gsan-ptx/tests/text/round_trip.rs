use std::fs;
use std::path::{Path, PathBuf};

use gsan_ptx::diagnostic::{Diagnostic, Source};
use gsan_ptx::lower::{entries, lower};
use gsan_ptx::syntax::ast::Module;
use gsan_ptx::syntax::parse;
use proptest::prelude::*;

use crate::generate;

fn read(text: &str) -> Result<Module, Box<Diagnostic>> {
    parse(&Source {
        file: "t.ptx",
        text,
    })
}

/// What was read from `text` is read again from how it is printed.
fn round_trip(text: &str) -> Result<Module, Box<Diagnostic>> {
    let module = read(text)?;
    let printed = module.to_string();
    match read(&printed) {
        Ok(again) => assert_eq!(module, again, "{printed}"),
        Err(error) => panic!("{}\n{printed}", error.render(false)),
    }
    Ok(module)
}

/// Decodes every kernel of `text`, if it can be read at all.
fn decode(text: &str) -> Result<(), Box<Diagnostic>> {
    let module = round_trip(text)?;
    let entries: Vec<_> = entries(&module).collect();
    let source = Source {
        file: "t.ptx",
        text,
    };
    lower(source, &module, &entries)?;
    Ok(())
}

fn files_under(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("the entry can be read").path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files_under(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn files(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    files_under(&directory, &mut found);
    found
}

fn fixtures() -> Vec<PathBuf> {
    let mut found = files("fixtures");
    found.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_printed_module_is_read_as_the_same_module(module in generate::module()) {
        let printed = module.to_string();
        match read(&printed) {
            Ok(again) => {
                prop_assert_eq!(&module, &again, "{}", printed);
                let _ = decode(&printed);
            }
            Err(error) => prop_assert!(false, "{}\n{}", error.render(false), printed),
        }
    }

    #[test]
    fn no_text_makes_anything_panic(text in "\\PC*") {
        let _ = decode(&text);
    }

    /// Words of the language in any order get further than noise does.
    #[test]
    fn no_sequence_of_tokens_makes_anything_panic(
        tokens in proptest::collection::vec(proptest::sample::select(TOKENS), 0..60),
    ) {
        let text = format!("{HEAD}.entry f\n{{\n{}", tokens.join(" "));
        let _ = decode(&text);
        let text = format!("{HEAD}{}", tokens.join(" "));
        let _ = decode(&text);
    }

    #[test]
    fn no_damage_to_a_real_module_makes_anything_panic(
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec(damage(), 1..6),
    ) {
        let mut text = which.get(SEEDS).as_bytes().to_vec();
        for change in damage {
            change.apply(&mut text);
        }
        let _ = decode(&String::from_utf8_lossy(&text));
    }
}

const HEAD: &str = ".version 8.7\n.target sm_80\n.address_size 64\n";

const TOKENS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    ";",
    ":",
    "@",
    "|",
    "!",
    "+",
    "-",
    "=",
    "?",
    "_",
    "%r1",
    "$L",
    "a",
    "call",
    "ld",
    "5",
    "5U",
    "0x10",
    "0f3F800000",
    "1.5",
    "\"s\"",
    ".x",
    ".b32",
    ".reg",
    ".param",
    ".shared",
    ".global",
    ".align",
    ".v4",
    ".loc",
    ".file",
    ".pragma",
    ".entry",
    ".func",
    ".visible",
    ".section",
    ".callprototype",
    ".branchtargets",
    ".reqntid",
    ".attribute",
    ".ptr",
    ".L2::128B",
    "function_name",
    "inlined_at",
    "generic",
    "WARP_SZ",
    ".s64",
];

const SEEDS: &[&str] = &[
    include_str!("../../fuzz/corpus/parse/clang_call.ptx"),
    include_str!("../../fuzz/corpus/parse/forms.ptx"),
    include_str!("../../fixtures/cuda/cp_async_pipeline.ptx"),
    include_str!("../../fuzz/corpus/parse/instructions.ptx"),
];

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index, usize),
    Copy(prop::sample::Index, prop::sample::Index, usize),
    Insert(prop::sample::Index, &'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Flip(at, byte)),
        (at(), 1usize..200).prop_map(|(at, bytes)| Damage::Cut(at, bytes)),
        (at(), at(), 1usize..200).prop_map(|(from, to, bytes)| Damage::Copy(from, to, bytes)),
        (at(), prop::sample::select(TOKENS)).prop_map(|(at, token)| Damage::Insert(at, token)),
    ]
}

impl Damage {
    fn apply(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        match self {
            Damage::Flip(at, byte) => {
                let at = at.index(text.len());
                text[at] = *byte;
            }
            Damage::Cut(at, bytes) => {
                let at = at.index(text.len());
                text.drain(at..(at + bytes).min(text.len()));
            }
            Damage::Copy(from, to, bytes) => {
                let from = from.index(text.len());
                let part = text[from..(from + bytes).min(text.len())].to_vec();
                let to = to.index(text.len());
                text.splice(to..to, part);
            }
            Damage::Insert(at, token) => {
                let at = at.index(text.len());
                text.splice(at..at, token.bytes());
            }
        }
    }
}

#[test]
fn every_fixture_is_read_printed_and_decoded() {
    let fixtures = fixtures();
    assert!(!fixtures.is_empty());
    for path in fixtures {
        let text = fs::read_to_string(&path).unwrap();
        if let Err(error) = decode(&text) {
            panic!("{}: {}", path.display(), error.render(false));
        }
    }
}

#[test]
fn the_fuzz_corpus_makes_nothing_panic() {
    let corpus = files("fuzz/corpus/parse");
    assert!(!corpus.is_empty());
    for path in corpus {
        let _ = decode(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
    }
}

#[test]
fn every_form_of_the_language_is_read() {
    for seed in SEEDS {
        round_trip(seed).unwrap_or_else(|error| panic!("{}", error.render(false)));
    }
}

#[test]
fn names_of_vector_elements_are_synonyms() {
    let text = |x: &str| format!("{HEAD}.func f {{ mov.u32 a, v{x}; }}");
    assert_eq!(read(&text(".r")), read(&text(".x")));
    assert_eq!(read(&text(".a")), read(&text(".w")));
}

#[test]
fn constant_expressions_are_folded() {
    let value = |expression: &str| {
        let text = format!("{HEAD}.func f {{ mov.b64 a, {expression}; }}");
        let module = read(&text).unwrap_or_else(|error| panic!("{}", error.render(false)));
        module
            .to_string()
            .split("a, ")
            .nth(1)
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned()
    };
    for (expression, expected) in [
        ("(1<<4)|3", "19"),
        ("1+2*3", "7"),
        ("-7/2", "-3"),
        ("-7%2", "-1"),
        ("-7>>1", "-4"),
        ("0xfU-0x10", "18446744073709551615U"),
        ("1?2:3", "2"),
        ("0?2:0?3:4", "4"),
        ("-1<0U", "0"),
        ("-1<0", "1"),
        ("!5||~0==-1", "1"),
        ("(.u64)-1>>63", "1U"),
        ("(.s64)0xffffffffffffffff", "-1"),
        ("1<<64", "0"),
        ("WARP_SZ-1", "31"),
        ("0x8000000000000000", "9223372036854775808U"),
        ("1.5*2.0", "0d4008000000000000"),
        ("-0f3F800000", "0fBF800000"),
        ("6&3^1", "3"),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn blocks_may_be_nested_as_deep_as_said_and_no_deeper() {
    let nested = |levels: u32| {
        let levels = levels as usize;
        format!("{HEAD}.func f {}{}", "{".repeat(levels), "}".repeat(levels))
    };
    assert!(round_trip(&nested(gsan_ptx::syntax::MAX_NESTING)).is_ok());
    let error = read(&nested(gsan_ptx::syntax::MAX_NESTING + 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.ptx:4:74: nested more than 64 levels deep"
    );
    assert!(read(&nested(100_000)).is_err());
}
