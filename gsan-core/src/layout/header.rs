//! The C header with everything that device code reads, written from the Rust definitions.

use core::fmt::Write;

use super::{Constant, Structure};
use crate::loss::Loss;
use crate::{record, reservoir};

/// All structures, each after those it contains.
pub fn structures() -> Vec<Structure> {
    use super::*;
    vec![
        Publication::describe(),
        Segment::describe(),
        ClockHeader::describe(),
        Checkpoints::describe(),
        RowHeader::describe(),
        LaunchDescriptor::describe(),
        Overtaken::describe(),
        LaunchState::describe(),
        ThreadState::describe(),
        HistoryEntry::describe(),
        RaceSide::describe(),
        RaceEntry::describe(),
        RaceRing::describe(),
        Site::describe(),
        SiteMirror::describe(),
        KernelName::describe(),
        AtomicEvent::describe(),
        Meeting::describe(),
        ClusterScratch::describe(),
        MbarrierTable::describe(),
        Mbarrier::describe(),
        Constants::describe(),
        CounterLine::describe(),
        Offsets::describe(),
        GlobalState::describe(),
        Step::describe(),
    ]
}

/// The tables of constants, each with what it is about.
fn constants() -> [(&'static str, &'static [Constant]); 13] {
    [
        ("Fields of a word of a cell.", record::bits::CONSTANTS),
        ("Scopes in a record.", record::scope::CONSTANTS),
        (
            "The hash that decides which readers a full cell keeps.",
            reservoir::hash::CONSTANTS,
        ),
        ("Clock entries and clocks.", super::entry::CONSTANTS),
        ("Flags of a launch.", super::launch_flags::CONSTANTS),
        (
            "Flags and words of a resident CTA.",
            super::thread_flags::CONSTANTS,
        ),
        ("The history.", super::history::CONSTANTS),
        (
            "The event of an atomic access.",
            super::event_codes::CONSTANTS,
        ),
        ("Meetings.", super::meeting_codes::CONSTANTS),
        ("Numbers in a race entry.", super::race_codes::CONSTANTS),
        ("Numbers of a site.", super::site_codes::CONSTANTS),
        ("The state region.", super::limits::CONSTANTS),
        (
            "Steps of the host in streams.",
            super::step_codes::CONSTANTS,
        ),
    ]
}

const TOP: &str = "\
/* Memory that the GSan host library and device code share.
 *
 * Written by `cargo xtask header` from gsan-core/src/layout: do not edit.
 * C11, C++17 and CUDA C++.
 */
#ifndef GSAN_LAYOUT_H
#define GSAN_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define GSAN_STATIC_ASSERT(condition) static_assert(condition, #condition)
#define GSAN_ALIGNED(bytes) alignas(bytes)
#else
#define GSAN_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#define GSAN_ALIGNED(bytes) _Alignas(bytes)
#endif
";

/// The text of `gsan/layout.h`.
pub fn header() -> String {
    let mut text = String::from(TOP);
    write_header(&mut text).expect("writing to a string cannot fail");
    text
}

fn write_header(text: &mut String) -> core::fmt::Result {
    for (about, table) in constants() {
        write!(text, "\n/* {about} */\n\n")?;
        for constant in table {
            comment(text, "", constant.doc)?;
            let Constant { name, value, .. } = constant;
            match (constant.size, *value) {
                (4, 0..4096) => writeln!(text, "#define {name} {value}u")?,
                (4, _) => writeln!(text, "#define {name} {value:#x}u")?,
                _ => writeln!(text, "#define {name} UINT64_C({value:#x})")?,
            }
        }
    }
    writeln!(text, "\n/* Limits that were met, by number. */\n")?;
    for loss in Loss::ALL {
        let name = loss.name().to_uppercase().replace('-', "_");
        writeln!(text, "#define GSAN_LOSS_{name} {}u", loss as u32)?;
    }
    writeln!(text, "#define GSAN_LOSS_COUNT {}u", Loss::COUNT)?;
    for structure in structures() {
        text.push('\n');
        write_structure(text, &structure)?;
    }
    writeln!(text, "\n#endif")
}

fn write_structure(text: &mut String, structure: &Structure) -> core::fmt::Result {
    let Structure {
        name, size, align, ..
    } = structure;
    comment(text, "", structure.doc)?;
    writeln!(text, "struct {name} {{")?;
    for (index, field) in structure.fields.iter().enumerate() {
        comment(text, "    ", field.doc)?;
        let alignment = if index == 0 {
            format!("GSAN_ALIGNED({align}) ")
        } else {
            String::new()
        };
        writeln!(text, "    {alignment}{};", field.declaration)?;
    }
    writeln!(text, "}};")?;
    writeln!(text, "GSAN_STATIC_ASSERT(sizeof(struct {name}) == {size});")?;
    for field in &structure.fields {
        let (member, offset) = (field.name, field.offset);
        writeln!(
            text,
            "GSAN_STATIC_ASSERT(offsetof(struct {name}, {member}) == {offset});"
        )?;
    }
    Ok(())
}

/// Rust documentation as a C comment: links to other structures become their names.
fn comment(text: &mut String, indent: &str, doc: &[&str]) -> core::fmt::Result {
    let plain = |line: &str| line.replace("[`", "").replace("`]", "").replace('`', "");
    match doc {
        [] => Ok(()),
        [line] => writeln!(text, "{indent}/*{} */", plain(line)),
        [first, rest @ ..] => {
            writeln!(text, "{indent}/*{}", plain(first))?;
            for line in rest {
                writeln!(text, "{indent} *{}", plain(line))?;
            }
            writeln!(text, "{indent} */")
        }
    }
}
