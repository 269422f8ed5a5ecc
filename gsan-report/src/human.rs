//! Reports as text for people, with source lines.

use std::collections::BTreeSet;

use annotate_snippets::{Level, Renderer};

use crate::drawing::{Drawing, Said};
use crate::model::{Fault, PossibleRace, Race, Replay, Report, Suppression, Unchecked};
use crate::source::Sources;
use crate::words;

/// How text should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With ANSI colours.
    pub color: bool,
    /// How many columns there are.
    pub width: usize,
    /// How many lines are shown before the line of the later side.
    pub context_lines: u32,
}

impl Default for Look {
    fn default() -> Self {
        Look {
            color: false,
            width: 140,
            context_lines: 2,
        }
    }
}

impl Look {
    /// The narrowest and the widest terminal that text is fitted to.
    const WIDTHS: (usize, usize) = (40, 400);

    /// A renderer of this look.
    pub(crate) fn renderer(&self) -> Renderer {
        let renderer = if self.color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let (narrowest, widest) = Look::WIDTHS;
        renderer.term_width(self.width.clamp(narrowest, widest))
    }
}

/// How many places of a deadlock are shown.
const MAX_WAITING: usize = 16;

/// The whole report: findings, losses of coverage, suppressions, what was not checked, summary.
pub fn report(report: &Report, sources: &mut Sources, look: &Look) -> String {
    let mut text = findings(report, sources, look);
    text.push_str(&rest(report, look));
    text
}

/// Races, faults and possible races.
pub fn findings(report: &Report, sources: &mut Sources, look: &Look) -> String {
    let mut text = String::new();
    for item in &report.races {
        text.push_str(&race(item, sources, look));
    }
    for item in &report.faults {
        text.push_str(&fault(item, sources, look));
    }
    for item in &report.possible_races {
        text.push_str(&possible_race(item, sources, look));
    }
    text
}

/// What a report says beside its findings: losses of coverage, suppressions, what was not checked,
/// summary.
pub fn rest(report: &Report, look: &Look) -> String {
    let mut text = String::new();
    for loss in &report.losses {
        let mut drawing = Drawing::new(look);
        drawing.note("help", loss.loss.cure());
        let meaning = loss.loss.meaning(loss.times);
        let (level, title) = match loss.loss.is_usual() {
            true => (Level::NOTE, meaning),
            false => (Level::WARNING, format!("coverage lost: {meaning}")),
        };
        text.push_str(&drawing.render(level, Some(loss.loss.0.name()), &title));
    }
    text.push_str(&suppressions(&report.suppressions, look));
    text.push_str(&unchecked(&report.unchecked, look));
    text.push_str(&summary(report, look));
    text
}

/// One race, followed by an empty line.
pub fn race(race: &Race, sources: &mut Sources, look: &Look) -> String {
    any_race(race, sources, look).render(Level::ERROR, Some(race.kind.name()), &words::title(race))
}

/// One possible race, followed by an empty line.
pub fn possible_race(possible: &PossibleRace, sources: &mut Sources, look: &Look) -> String {
    let PossibleRace { reason, race } = possible;
    let mut drawing = any_race(race, sources, look);
    drawing.note("possible", format!("not certain, because {reason}"));
    let title = format!("possible {}", words::title(race));
    drawing.render(Level::NOTE, Some(race.kind.name()), &title)
}

fn any_race(race: &Race, sources: &mut Sources, look: &Look) -> Drawing {
    let mut drawing = Drawing::new(look);
    let later = words::later(race);
    drawing.place(
        race.later.place.as_ref(),
        sources,
        Said {
            label: later.clone(),
            name: "later",
            note: later,
        },
    );
    let earlier = words::earlier(race);
    drawing.place(
        race.earlier.place.as_ref(),
        sources,
        Said {
            label: format!("earlier {earlier}"),
            name: "earlier",
            note: earlier,
        },
    );
    if let Some(allocation) = &race.range.allocation {
        drawing.note("memory", words::allocation(allocation));
    }
    if let Some(why) = words::atomics(race) {
        drawing.note("scope", why);
    }
    for (name, side) in [("later", &race.later), ("earlier", &race.earlier)] {
        if let Some(ptx) = side.place.as_ref().and_then(|place| place.ptx.as_ref()) {
            drawing.note("ptx", format!("{}:{} ({name})", ptx.file, ptx.line));
        }
    }
    if race.times != 1 {
        drawing.note(
            "seen",
            format!("{} times between these two lines", race.times),
        );
    }
    replay(&mut drawing, race.replay.as_ref());
    drawing
}

/// One fault, followed by an empty line.
pub fn fault(fault: &Fault, sources: &mut Sources, look: &Look) -> String {
    let mut drawing = Drawing::new(look);
    if let Some(who) = &fault.who {
        let by = words::who(who, true);
        drawing.place(
            fault.place.as_ref(),
            sources,
            Said {
                label: format!("by {by}"),
                name: "by",
                note: by,
            },
        );
    } else if fault.place.is_some() {
        drawing.place(fault.place.as_ref(), sources, Said::default());
    }
    for waiting in fault.waiting.iter().take(MAX_WAITING) {
        let who = words::waiting(waiting);
        drawing.place(
            waiting.place.as_ref(),
            sources,
            Said {
                label: who.clone(),
                name: "waiting",
                note: who,
            },
        );
    }
    if fault.waiting.len() > MAX_WAITING {
        let more = (fault.waiting.len() - MAX_WAITING) as u64;
        drawing.note(
            "waiting",
            format!("threads wait at {}", words::count(more, "more place")),
        );
    }
    let allocation = fault
        .range
        .as_ref()
        .and_then(|range| range.allocation.as_ref());
    if let Some(allocation) = allocation {
        drawing.note("memory", words::allocation(allocation));
    }
    let places = fault.place.iter().chain(
        fault
            .waiting
            .iter()
            .filter_map(|waiting| waiting.place.as_ref()),
    );
    let instructions: BTreeSet<_> = places
        .filter_map(|place| place.ptx.as_ref())
        .map(|ptx| (&ptx.file, ptx.line))
        .take(MAX_WAITING)
        .collect();
    for (file, line) in instructions {
        drawing.note("ptx", format!("{file}:{line}"));
    }
    for line in fault.notes.iter().flat_map(|note| note.lines()) {
        drawing.note("note", line);
    }
    if fault.times != 1 {
        drawing.note("seen", format!("{} times", fault.times));
    }
    replay(&mut drawing, fault.replay.as_ref());
    drawing.render(Level::ERROR, Some(fault.kind.name()), &words::fault(fault))
}

fn replay(drawing: &mut Drawing, replay: Option<&Replay>) {
    if let Some(Replay { seed, command }) = replay {
        drawing.note("seed", seed.to_string());
        drawing.note("replay", command);
    }
}

fn suppressions(suppressions: &[Suppression], look: &Look) -> String {
    let mut text = String::new();
    let (idle, busy): (Vec<_>, Vec<_>) = suppressions.iter().partition(|rule| rule.times == 0);
    if !busy.is_empty() {
        let times = busy
            .iter()
            .fold(0_u64, |sum, rule| sum.saturating_add(rule.times));
        let mut drawing = Drawing::new(look);
        for rule in busy {
            drawing.note(
                "suppressed",
                format!("{} by {}", rule.times, words::suppression(rule)),
            );
        }
        let title = format!("{} suppressed", words::count(times, "finding"));
        text.push_str(&drawing.render(Level::NOTE, None, &title));
    }
    for rule in idle {
        let mut drawing = Drawing::new(look);
        drawing.note("rule", words::suppression(rule));
        drawing.note(
            "help",
            "remove it from `report.suppress` if it is not needed",
        );
        text.push_str(&drawing.render(Level::WARNING, None, "a suppression matched nothing"));
    }
    text
}

fn unchecked(inputs: &[Unchecked], look: &Look) -> String {
    if inputs.is_empty() {
        return String::new();
    }
    let mut drawing = Drawing::new(look);
    for input in inputs {
        drawing.note("input", words::unchecked(input));
        if let Some(help) = &input.help {
            drawing.note("help", help);
        }
    }
    let number = inputs.len() as u64;
    let verb = if number == 1 { "was" } else { "were" };
    let title = format!("{} {verb} not checked", words::count(number, "input"));
    drawing.render(Level::WARNING, None, &title)
}

fn summary(report: &Report, look: &Look) -> String {
    let summary = &report.summary;
    let mut drawing = Drawing::new(look);
    let launches = words::count_of(summary.launches, "launch", "launches");
    let mut checked = match summary.accesses {
        // Processes count from time to time, and one may have crashed before it did.
        0 if has_findings(report) => format!("accesses that were not counted in {launches}"),
        accesses => format!(
            "{} in {launches}",
            words::count_of(accesses, "access", "accesses")
        ),
    };
    if summary.schedules > 0 {
        checked.push_str(&format!(
            " of {}",
            words::count(summary.schedules, "schedule")
        ));
    }
    if summary.processes > 1 {
        checked.push_str(&format!(" of {} processes", summary.processes));
    }
    drawing.note("checked", checked);
    let mut memory = format!("{} covered", words::size(summary.covered_bytes));
    if summary.uncovered_bytes > 0 {
        memory.push_str(&format!(
            ", {} not covered",
            words::size(summary.uncovered_bytes)
        ));
    }
    drawing.note("memory", memory);
    if summary.not_kept > 0 {
        drawing.note(
            "limit",
            format!(
                "{} seen after `report.limit` was reached",
                words::count(summary.not_kept, "more finding")
            ),
        );
    }
    if !summary.seeds.is_empty() {
        drawing.note("seed", words::some_of(&summary.seeds));
    }
    drawing.render(Level::INFO.with_name("gsan"), None, &verdict(report))
}

fn has_findings(report: &Report) -> bool {
    report.has_findings(true)
}

/// What a report comes to, in a few words: `2 races, 1 fault`.
pub fn verdict(report: &Report) -> String {
    let summary = &report.summary;
    let found = [
        (report.races.len(), "race"),
        (report.faults.len(), "fault"),
        (report.possible_races.len(), "possible race"),
    ];
    let mut parts: Vec<String> = found
        .into_iter()
        .filter(|&(number, _)| number > 0)
        .map(|(number, what)| words::count(number as u64, what))
        .collect();
    if parts.is_empty() {
        let nothing = match (summary.accesses, report.is_complete(), summary.not_kept) {
            (.., 1..) => "no finding was kept",
            (0, ..) => "nothing was checked",
            (_, false, _) => "no races in what was checked",
            (_, true, _) => "no races",
        };
        parts.push(nothing.to_owned());
    }
    if !report.is_complete() {
        let number = report.unchecked.len() as u64;
        parts.push(format!("{} not checked", words::count(number, "input")));
    }
    parts.join(", ")
}
