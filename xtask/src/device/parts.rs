//! A library in two parts: what is compiled with each kernel, and what is compiled once for all.
//!
//! Functions that are marked GSAN_COLD and GSAN_ONCE go into the second part, for which clang marks them `minsize` and `hot`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::{output, without_flags};

/// The state of a CTA in shared memory, which both parts use.
const CTA_MEMORY: &str = "_ZN4gsanL10cta_memoryE";

/// A library whose functions are told apart.
pub(super) struct Parts {
    text: String,
    cold: BTreeSet<String>,
    /// Those of them that the other part calls.
    called: BTreeSet<String>,
}

impl Parts {
    /// From LLVM assembly, as clang writes it.
    pub(super) fn of(text: Vec<u8>) -> Result<Parts> {
        let text = String::from_utf8(without_flags(&text)).context("LLVM assembly is not UTF-8")?;
        let text = text
            .replace(
                &format!("@{CTA_MEMORY} = internal"),
                &format!("@{CTA_MEMORY} ="),
            )
            // Names that PTX can have too.
            .replace("@.str", "@gsan_message");
        let cold = cold(&text)?;
        let mut parts = Parts {
            text,
            cold,
            called: BTreeSet::new(),
        };
        let rest = String::from_utf8(parts.rest("-S")?).context("LLVM assembly is not UTF-8")?;
        let declared = rest.lines().filter(|line| line.starts_with("declare "));
        let names = declared.filter_map(name);
        parts.called = names
            .filter(|name| parts.cold.contains(*name))
            .map(str::to_owned)
            .collect();
        Ok(parts)
    }

    /// Bitcode of what is compiled with each kernel.
    pub(super) fn in_kernel(&self) -> Result<Vec<u8>> {
        self.rest("-o=-")
    }

    fn rest(&self, form: &str) -> Result<Vec<u8>> {
        let mut arguments = vec!["--delete".to_owned(), form.to_owned()];
        if self.text.contains(CTA_MEMORY) {
            arguments.push(format!("--glob={CTA_MEMORY}"));
        }
        arguments.extend(self.cold.iter().map(|name| format!("--func={name}")));
        output("llvm-extract-19", arguments, self.text.as_bytes())
    }

    /// PTX of what is compiled once.
    pub(super) fn once(&self) -> Result<Vec<u8>> {
        // What nobody calls here is kept nevertheless.
        let text = self.text.replace("define linkonce_odr", "define weak_odr");
        let mut seen: Vec<&str> = self.called.iter().map(String::as_str).collect();
        seen.push(CTA_MEMORY);
        let seen = format!("-internalize-public-api-list={}", seen.join(","));
        let passes = "-passes=internalize,globaldce,default<O2>";
        let optimised = output("opt-19", [passes, &seen, "-", "-o", "-"], text.as_bytes())?;
        let options = [
            "-march=nvptx64",
            "-mcpu=sm_80",
            "-mattr=+ptx78",
            "-O2",
            "-",
            "-o",
            "-",
        ];
        let ptx = String::from_utf8(output("llc-19", options, &optimised)?)?;
        // What is relaxed LLVM takes for volatile, which the assembler leaves as it is.
        let relaxed = ptx
            .replace("ld.volatile.shared.", "ld.relaxed.cta.shared.")
            .replace("st.volatile.shared.", "st.relaxed.cta.shared.");
        Ok(relaxed.into_bytes())
    }
}

/// The functions whose attributes say `minsize` or `hot`.
fn cold(text: &str) -> Result<BTreeSet<String>> {
    let groups: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("attributes "))
        .filter(|line| line.contains(" minsize ") || line.contains(" hot "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let functions = text.lines().filter(|line| line.starts_with("define "));
    let marked = functions.filter(|line| line.split(' ').any(|word| groups.contains(word)));
    let names: BTreeSet<String> = marked.filter_map(name).map(str::to_owned).collect();
    ensure!(
        !names.is_empty(),
        "no function is marked `minsize` or `hot`"
    );
    Ok(names)
}

/// The name of the function that a line declares or defines.
fn name(line: &str) -> Option<&str> {
    line.split_once('@')?
        .1
        .split_once('(')
        .map(|(name, _)| name)
}
