//! The architectures that `.target` may name.

use super::Error;
use crate::diagnostic::{Source, nearest};
use crate::syntax::ast::Module;

/// Every architecture from Maxwell on (PTX ISA, "PTX Module Directives: .target"). `a` stands for
/// one with features of that architecture alone, `f` for one with those of its family.
const ARCHITECTURES: &[&str] = &[
    "sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75", "sm_80",
    "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f",
    "sm_101", "sm_101a", "sm_101f", "sm_103", "sm_103a", "sm_103f", "sm_110", "sm_110a", "sm_110f",
    "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a", "sm_121f",
];

/// What may follow the architecture.
const OPTIONS: &[&str] = &[
    "texmode_unified",
    "texmode_independent",
    "debug",
    "map_f64_to_f32",
];

/// Older architectures: they exist, and nothing here knows their rules.
const TOO_OLD: &[&str] = &[
    "sm_10", "sm_11", "sm_12", "sm_13", "sm_20", "sm_21", "sm_30", "sm_32", "sm_35", "sm_37",
];

/// Checks what `.target` says.
///
/// # Errors
/// The first name that is no architecture, or no option.
pub(super) fn check(source: &Source<'_>, module: &Module) -> Result<(), Error> {
    for (index, name) in module.targets.iter().enumerate() {
        let word = name.as_str();
        let (valid, what, otherwise) = match index {
            0 => (
                ARCHITECTURES,
                "an architecture",
                "write one from sm_50 to sm_121, such as sm_80, sm_90a or sm_100f".to_owned(),
            ),
            _ => (
                OPTIONS,
                "an option of an architecture",
                format!("the options are {}", OPTIONS.join(", ")),
            ),
        };
        if valid.contains(&word) {
            continue;
        }
        let (message, help) = if index == 0 && TOO_OLD.contains(&word) {
            (
                format!("the architecture `{word}` is not supported"),
                "compile for sm_50 or later".to_owned(),
            )
        } else {
            let near = near(word, valid);
            let help = near.map_or(otherwise, |near| format!("did you mean `{near}`?"));
            (format!("`{word}` is not {what}"), help)
        };
        let error = source.error(name.span, message).with_help(help);
        return Err(Error::Ptx(error));
    }
    Ok(())
}

/// The valid name nearest to a word: among architectures that with the nearest number.
fn near(word: &str, valid: &[&'static str]) -> Option<&'static str> {
    let number = |name: &str| {
        let digits = name.strip_prefix("sm_")?.trim_end_matches(['a', 'f']);
        digits.parse::<u32>().ok()
    };
    match number(word) {
        Some(wanted) => valid
            .iter()
            .copied()
            .filter_map(|name| Some((number(name)?.abs_diff(wanted), name)))
            .min_by_key(|&(distance, _)| distance)
            .map(|(_, name)| name),
        None => nearest(word, valid.iter().copied()),
    }
}

/// The most shared memory that a CTA may ask for, in bytes (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability": the maximum per thread block).
pub(super) fn shared_bytes(module: &Module) -> u32 {
    let target = module.targets.first().map_or("", |name| name.as_str());
    let number = target
        .trim_start_matches("sm_")
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    let kib = match number.parse().unwrap_or(80) {
        0..=69 => 48,
        70..=74 => 96,
        75..=79 => 64,
        80 | 87 => 163,
        81..=89 => 99,
        90..=119 => 227,
        _ => 99,
    };
    kib << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse;

    /// What is said of a module for `target`.
    fn said(target: &str) -> Option<String> {
        let text = format!(".version 8.7\n.target {target}\n.address_size 64\n");
        let source = Source {
            file: "k.ptx",
            text: &text,
        };
        let module = parse(&source).unwrap();
        match check(&source, &module) {
            Ok(()) => None,
            Err(Error::Ptx(error)) => {
                assert_eq!(error.span.start.line, 2);
                Some(format!("{} ({})", error.message, error.help.unwrap()))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_architecture_of_the_isa_is_taken_with_every_option() {
        for target in ARCHITECTURES {
            assert_eq!(said(target), None);
            for option in OPTIONS {
                assert_eq!(said(&format!("{target}, {option}")), None);
            }
        }
    }

    #[test]
    fn what_is_no_architecture_is_refused_with_the_nearest() {
        for (target, expected) in [
            (
                "sm_banana",
                "`sm_banana` is not an architecture (write one from sm_50 to sm_121, such as sm_80, \
                 sm_90a or sm_100f)",
            ),
            (
                "sm_81",
                "`sm_81` is not an architecture (did you mean `sm_80`?)",
            ),
            (
                "sm_80a",
                "`sm_80a` is not an architecture (did you mean `sm_80`?)",
            ),
            (
                "sm_999",
                "`sm_999` is not an architecture (did you mean `sm_121`?)",
            ),
            (
                "SM_90a",
                "`SM_90a` is not an architecture (did you mean `sm_90a`?)",
            ),
            (
                "compute_80",
                "`compute_80` is not an architecture (write one from sm_50 to sm_121, ",
            ),
            (
                "sm_35",
                "the architecture `sm_35` is not supported (compile for sm_50 or later)",
            ),
            (
                "sm_80, debgu",
                "`debgu` is not an option of an architecture (did you mean `debug`?)",
            ),
            (
                "sm_80, sm_90",
                "`sm_90` is not an option of an architecture (the options are texmode_unified, ",
            ),
        ] {
            let found = said(target).unwrap();
            assert!(found.starts_with(expected), "{target}: {found}");
        }
    }
}
