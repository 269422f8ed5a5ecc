//! How the parts of a finding are said, the same in text and in SARIF.

use std::collections::BTreeSet;

use crate::model::{
    Action, Allocation, Fault, Order, Position, Race, Range, Scope, Side, Space, Suppression,
    Unchecked, Waiting, Who,
};

/// Names longer than this are cut in the middle: mangled names of templates have no bound.
const MAX_NAME: usize = 160;

/// `1 race`, `2 races`.
pub(crate) fn count(number: u64, one: &str) -> String {
    count_of(number, one, &format!("{one}s"))
}

/// `1 access`, `2 accesses`.
pub(crate) fn count_of(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The first few numbers, and that there are more.
pub(crate) fn some_of(numbers: &BTreeSet<u64>) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> = numbers.iter().take(SHOWN).map(u64::to_string).collect();
    if numbers.len() > SHOWN {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}

/// `kind "write-after-write", file "*/third_party/*" (benign: idempotent writes)`.
pub(crate) fn suppression(rule: &Suppression) -> String {
    let patterns = [
        ("kind", &rule.kind),
        ("file", &rule.file),
        ("kernel", &rule.kernel),
    ];
    let given: Vec<String> = patterns
        .into_iter()
        .filter_map(|(name, pattern)| Some(format!("{name} {:?}", pattern.as_ref()?)))
        .collect();
    let given = given.join(", ");
    match rule.reason.as_str() {
        "" => given,
        reason => format!("{given} ({reason})"),
    }
}

/// ``k.ptx:12: `wgmma` is not supported``.
pub(crate) fn unchecked(input: &Unchecked) -> String {
    let Unchecked {
        file,
        reason,
        place,
        ..
    } = input;
    match place {
        Some(place) if place.file == *file => format!("{file}:{}: {reason}", place.line),
        Some(place) => format!("{file}: {reason} ({}:{})", place.file, place.line),
        None => format!("{file}: {reason}"),
    }
}

/// `0 B`, `1.5 KiB`, `25 GiB`: cut to a tenth of the unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.checked_ilog2().unwrap_or(0) / 10;
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    let name = UNITS[unit as usize];
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        rest => format!("{}.{rest} {name}", tenths / 10),
    }
}

pub(crate) fn title(race: &Race) -> String {
    format!("data race on {}", range(&race.range))
}

pub(crate) fn range(range: &Range) -> String {
    let bytes = count(range.bytes, "byte");
    match range.space {
        Space::Global => format!("{bytes} at {}", range.address),
        Space::Shared { cta } => format!(
            "{bytes} at {} in the shared memory of CTA {}",
            range.address,
            position(cta)
        ),
    }
}

pub(crate) fn allocation(allocation: &Allocation) -> String {
    let Allocation {
        name,
        bytes,
        offset,
    } = allocation;
    match name {
        Some(name) => format!("byte {offset} of `{}`, {bytes} bytes", short(name)),
        None => format!("byte {offset} of a {bytes}-byte allocation"),
    }
}

/// `read`, `asynchronous write`, `atomic read-modify-write (relaxed, cta scope)`.
pub(crate) fn access(side: &Side) -> String {
    let atomic = side.scope.is_some() || side.order != Order::Weak;
    let what = match (side.action, atomic) {
        (Action::Read, false) => "read",
        (Action::Write, false) => "write",
        (Action::Read, true) => "atomic read",
        (Action::Write, true) => "atomic write",
        (Action::ReadModifyWrite, _) => "atomic read-modify-write",
        (Action::FailedCompareAndSwap, _) => "failed compare-and-swap",
        (Action::Reduction, _) => "atomic reduction",
    };
    let mut text = String::new();
    if side.asynchronous {
        text.push_str("asynchronous ");
    }
    text.push_str(what);
    if atomic {
        text.push_str(" (");
        text.push_str(order(side.order));
        if let Some(reach) = side.scope {
            text.push_str(", ");
            text.push_str(scope(reach));
            text.push_str(" scope");
        }
        text.push(')');
    }
    text
}

const fn order(order: Order) -> &'static str {
    match order {
        Order::Weak => "weak",
        Order::Relaxed => "relaxed",
        Order::Acquire => "acquire",
        Order::Release => "release",
        Order::AcqRel => "acquire-release",
    }
}

const fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Cta => "cta",
        Scope::Cluster => "cluster",
        Scope::Gpu => "gpu",
        Scope::Sys => "sys",
    }
}

/// `read by CTA (3, 7, 0) of …`.
pub(crate) fn later(race: &Race) -> String {
    format!("{} by {}", access(&race.later), who(&race.later.who, true))
}

/// `write by CTA (3, 1, 0) of …`. When both sides are of one launch, its stream is said by the
/// later one only.
pub(crate) fn earlier(race: &Race) -> String {
    let [one, other] = [&race.earlier.who, &race.later.who];
    let with_stream =
        one.launch.is_none() || (one.launch, one.stream) != (other.launch, other.stream);
    format!("{} by {}", access(&race.earlier), who(one, with_stream))
}

/// `thread (1, 0, 0) of CTA (3, 7, 0) of `splitk`, launch 12, GPU 0, stream 0x0`.
pub(crate) fn who(who: &Who, with_stream: bool) -> String {
    let Who {
        thread,
        cta,
        kernel,
        launch,
        device,
        stream,
    } = who;
    let mut text = match (thread, cta) {
        (Some(thread), Some(cta)) => {
            format!("thread {} of CTA {}", position(*thread), position(*cta))
        }
        (Some(thread), None) => format!("thread {} of a forgotten CTA", position(*thread)),
        (None, Some(cta)) => format!("CTA {}", position(*cta)),
        (None, None) => "a forgotten CTA".to_owned(),
    };
    if let Some(kernel) = kernel {
        text.push_str(&format!(" of `{}`", short(kernel)));
    }
    if let Some(launch) = launch {
        text.push_str(&format!(", launch {launch}"));
    }
    if let Some(device) = device {
        text.push_str(&format!(", GPU {device}"));
    }
    if let (true, Some(stream)) = (with_stream, stream) {
        text.push_str(&format!(", stream {stream}"));
    }
    text
}

/// Why two atomics race with each other, if both sides are atomic.
pub(crate) fn atomics(race: &Race) -> Option<String> {
    let (Some(earlier), Some(later)) = (race.earlier.scope, race.later.scope) else {
        return None;
    };
    let [one, other] = [&race.earlier.who, &race.later.who];
    let same_launch = one.launch.is_some() && one.launch == other.launch;
    let same_cta = same_launch && one.cta.is_some() && one.cta == other.cta;
    let same_device = same_launch || (one.device.is_some() && one.device == other.device);
    // Whether CTAs share a cluster is not stored; a cluster scope that was wide enough would have
    // left another reason.
    let falls_short = |reach: Scope| match reach {
        Scope::Cta | Scope::Cluster => !same_cta,
        Scope::Gpu => !same_device,
        Scope::Sys => false,
    };
    let between = if same_device { "two CTAs" } else { "two GPUs" };
    let both = "both sides are atomic, but";
    Some(match (falls_short(earlier), falls_short(later)) {
        (true, true) if earlier == later => {
            format!(
                "{both} {} scope does not reach across {between}",
                scope(earlier)
            )
        }
        (true, true) => format!(
            "{both} neither {} nor {} scope reaches across {between}",
            scope(earlier),
            scope(later)
        ),
        (true, false) => format!(
            "{both} the {} scope of the earlier one does not reach across {between}",
            scope(earlier)
        ),
        (false, true) => format!(
            "{both} the {} scope of the later one does not reach across {between}",
            scope(later)
        ),
        (false, false) => {
            format!("{both} they do not access the same bytes in the same way")
        }
    })
}

/// `64 threads wait for barrier 0, among them thread …`.
pub(crate) fn waiting(waiting: &Waiting) -> String {
    let Waiting { threads, what, .. } = waiting;
    let who = who(&waiting.who, false);
    match threads {
        0 | 1 => format!("{who} waits for {what}"),
        _ => format!("{threads} threads wait for {what}, among them {who}"),
    }
}

/// The sentence of a fault.
pub(crate) fn fault(fault: &Fault) -> String {
    match &fault.range {
        // Some messages say it themselves.
        Some(bytes) if !fault.message.contains(&bytes.address.to_string()) => {
            format!("{}: {}", fault.message, range(bytes))
        }
        _ => fault.message.clone(),
    }
}

fn position([x, y, z]: Position) -> String {
    format!("({x}, {y}, {z})")
}

/// A name of bearable length.
pub(crate) fn short(name: &str) -> std::borrow::Cow<'_, str> {
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name.into();
    }
    let head = name.chars().take(MAX_NAME / 2);
    let tail = name.chars().skip(length - MAX_NAME / 2);
    head.chain("...".chars()).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_cut_to_a_tenth_of_their_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (2047, "1.9 KiB"),
            (131_072, "128 KiB"),
            (3 << 29, "1.5 GiB"),
            (25 << 30, "25 GiB"),
            ((25 << 30) + (1 << 29), "25.5 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn the_bytes_of_a_fault_are_said_once() {
        let with = |message: &str| Fault {
            range: Some(Range {
                space: Space::Global,
                address: crate::model::Hex(0x1000),
                bytes: 4,
                allocation: None,
            }),
            ..Fault::new(crate::model::FaultKind::OutOfBounds, message)
        };
        for (message, said) in [
            (
                "read out of bounds",
                "read out of bounds: 4 bytes at 0x1000",
            ),
            (
                "read of 4 bytes at 0x1000 out of bounds",
                "read of 4 bytes at 0x1000 out of bounds",
            ),
        ] {
            assert_eq!(fault(&with(message)), said);
        }
    }

    #[test]
    fn long_names_are_cut_in_the_middle() {
        let name = format!("{}x{}", "ä".repeat(200), "b".repeat(200));
        let cut = short(&name);
        assert_eq!(cut.chars().count(), MAX_NAME + 3);
        assert!(cut.starts_with("ää") && cut.contains("...") && cut.ends_with("bb"));
    }
}
