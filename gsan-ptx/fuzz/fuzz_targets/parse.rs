//! Any bytes: parsing ends without a panic, and what was parsed is printed and parsed as the same.
#![no_main]

use gsan_ptx::diagnostic::Source;
use gsan_ptx::syntax::parse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(module) = parse(&Source { file: "fuzz.ptx", text: &text }) else {
        return;
    };
    let printed = module.to_string();
    let again = parse(&Source { file: "printed.ptx", text: &printed });
    assert_eq!(again.as_ref(), Ok(&module));
});
