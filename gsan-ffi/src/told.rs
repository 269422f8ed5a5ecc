//! Findings of a report, as C gets them.

use std::ffi::{CString, c_char, c_void};

use gsan_report::model::{
    Action, Fault, FaultKind, Order, Place, Race, RaceKind, Range, Scope, Who,
};

use crate::types::*;

/// What a program gave with a callback.
#[derive(Clone, Copy)]
pub(crate) struct User(*mut c_void);

// SAFETY: it is a number here, which is handed back to the program.
unsafe impl Send for User {}
// SAFETY: the same.
unsafe impl Sync for User {}

impl User {
    pub(crate) const fn new(user: *mut c_void) -> User {
        User(user)
    }

    pub(crate) const fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// A finding, and the texts that it points to.
pub(crate) struct Told {
    race: gsan_race,
    /// By their addresses part of `race`.
    _texts: [Option<CString>; 4],
}

impl Told {
    pub(crate) fn race(race: &Race, possible: bool) -> Told {
        let kind = match race.kind {
            RaceKind::ReadAfterWrite => GSAN_RACE_KIND_READ_AFTER_WRITE,
            RaceKind::WriteAfterRead => GSAN_RACE_KIND_WRITE_AFTER_READ,
            RaceKind::WriteAfterWrite => GSAN_RACE_KIND_WRITE_AFTER_WRITE,
        };
        let side = |side: &gsan_report::model::Side| SideText {
            action: bits(side.action),
            atomic: side.order != Order::Weak,
            asynchronous: side.asynchronous,
            scope: number(side.scope),
            ..SideText::of(&side.who, side.place.as_ref())
        };
        Told::new(
            kind,
            possible,
            &race.range,
            race.times,
            side(&race.earlier),
            side(&race.later),
        )
    }

    /// A wrong use of write-once memory; `None` for faults that no device tells of.
    pub(crate) fn fault(fault: &Fault) -> Option<Told> {
        let (kind, action) = match fault.kind {
            FaultKind::WriteOnceWrittenTwice => (GSAN_RACE_KIND_WRITTEN_TWICE, GSAN_ACTION_WRITE),
            FaultKind::WriteOnceReadUnwritten => (GSAN_RACE_KIND_READ_UNWRITTEN, GSAN_ACTION_READ),
            FaultKind::WriteOnceAtomic => (
                GSAN_RACE_KIND_WRITE_ONCE_ATOMIC,
                GSAN_ACTION_READ | GSAN_ACTION_WRITE,
            ),
            _ => return None,
        };
        let nobody = Who::default();
        let later = SideText {
            action,
            atomic: fault.kind == FaultKind::WriteOnceAtomic,
            ..SideText::of(fault.who.as_ref().unwrap_or(&nobody), fault.place.as_ref())
        };
        let earlier = SideText::of(&nobody, None);
        Some(Told::new(
            kind,
            false,
            fault.range.as_ref()?,
            fault.times,
            earlier,
            later,
        ))
    }

    fn new(
        kind: u32,
        possible: bool,
        range: &Range,
        times: u64,
        earlier: SideText,
        later: SideText,
    ) -> Told {
        let address = range.address.0;
        let allocation = range.allocation.as_ref();
        let race = gsan_race {
            size: size_of::<gsan_race>(),
            kind,
            possible: possible.into(),
            address,
            bytes: range.bytes,
            times,
            allocation: allocation.map_or(0, |allocation| address.wrapping_sub(allocation.offset)),
            allocation_bytes: allocation.map_or(0, |allocation| allocation.bytes),
            earlier: earlier.described(),
            later: later.described(),
        };
        Told {
            race,
            _texts: [earlier.file, earlier.kernel, later.file, later.kernel],
        }
    }

    /// Its texts live as long as this.
    pub(crate) const fn as_ptr(&self) -> *const gsan_race {
        &raw const self.race
    }
}

/// A side, with its texts.
#[derive(Default)]
struct SideText {
    known: bool,
    action: u32,
    atomic: bool,
    asynchronous: bool,
    scope: u32,
    device_rank: u32,
    cta: [u32; 3],
    line: u32,
    launch: u64,
    stream: u64,
    file: Option<CString>,
    kernel: Option<CString>,
}

impl SideText {
    fn of(who: &Who, place: Option<&Place>) -> SideText {
        SideText {
            known: who.cta.is_some(),
            device_rank: who.device.unwrap_or_default().into(),
            cta: who.cta.unwrap_or_default(),
            line: place.map_or(0, |place| place.line),
            launch: who.launch.unwrap_or_default(),
            stream: who.stream.map_or(0, |stream| stream.0),
            file: place.and_then(|place| text(&place.file)),
            kernel: who.kernel.as_deref().and_then(text),
            ..SideText::default()
        }
    }

    fn described(&self) -> gsan_side {
        let pointer = |text: &Option<CString>| -> *const c_char {
            text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())
        };
        gsan_side {
            size: size_of::<gsan_side>(),
            known: self.known.into(),
            action: self.action,
            atomic: self.atomic.into(),
            asynchronous: self.asynchronous.into(),
            scope: self.scope,
            device_rank: self.device_rank,
            cta: self.cta,
            line: self.line,
            launch: self.launch,
            stream: self.stream,
            file: pointer(&self.file),
            kernel: pointer(&self.kernel),
        }
    }
}

/// A text without zero bytes, which would end it.
fn text(text: &str) -> Option<CString> {
    CString::new(text.replace('\0', "")).ok()
}

const fn bits(action: Action) -> u32 {
    match action {
        Action::Read | Action::FailedCompareAndSwap => GSAN_ACTION_READ,
        Action::Write => GSAN_ACTION_WRITE,
        Action::ReadModifyWrite | Action::Reduction => GSAN_ACTION_READ | GSAN_ACTION_WRITE,
    }
}

const fn number(scope: Option<Scope>) -> u32 {
    match scope {
        None => GSAN_MEMORY_SCOPE_NONE,
        Some(Scope::Cta) => GSAN_MEMORY_SCOPE_CTA,
        Some(Scope::Cluster | Scope::Gpu) => GSAN_MEMORY_SCOPE_GPU,
        Some(Scope::Sys) => GSAN_MEMORY_SCOPE_SYSTEM,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use gsan_report::model::{Allocation, Hex, Side, Space};

    use super::*;

    fn a_race() -> Race {
        let range = Range {
            space: Space::Global,
            address: Hex(0x1010),
            bytes: 4,
            allocation: Some(Allocation {
                name: None,
                bytes: 256,
                offset: 0x10,
            }),
        };
        let later = Side {
            who: Who {
                cta: Some([3, 7, 0]),
                kernel: Some("sp\0litk".to_owned()),
                launch: Some(12),
                device: Some(1),
                stream: Some(Hex(0x7f00)),
                thread: None,
            },
            action: Action::ReadModifyWrite,
            order: Order::Relaxed,
            scope: Some(Scope::Gpu),
            asynchronous: false,
            place: Some(Place {
                file: "splitk.cu".to_owned(),
                line: 31,
                column: None,
                ptx: None,
            }),
        };
        let earlier = Side {
            who: Who::default(),
            action: Action::Write,
            order: Order::Weak,
            scope: None,
            asynchronous: true,
            place: None,
        };
        Race {
            kind: RaceKind::ReadAfterWrite,
            range,
            earlier,
            later,
            times: 9,
            replay: None,
        }
    }

    #[test]
    fn a_race_says_all_that_the_report_says() {
        let told = Told::race(&a_race(), true);
        let race = &told.race;
        assert_eq!((race.kind, race.possible, race.times), (0, 1, 9));
        assert_eq!((race.address, race.bytes), (0x1010, 4));
        assert_eq!((race.allocation, race.allocation_bytes), (0x1000, 256));
        let later = &race.later;
        assert_eq!((later.known, later.action, later.atomic), (1, 3, 1));
        assert_eq!((later.scope, later.device_rank, later.launch), (2, 1, 12));
        assert_eq!(
            (later.cta, later.line, later.stream),
            ([3, 7, 0], 31, 0x7f00)
        );
        // SAFETY: `told` has the texts.
        let (file, kernel) = unsafe { (CStr::from_ptr(later.file), CStr::from_ptr(later.kernel)) };
        assert_eq!((file, kernel), (c"splitk.cu", c"splitk"));
        let earlier = &race.earlier;
        assert_eq!((earlier.known, earlier.action, earlier.atomic), (0, 2, 0));
        assert_eq!((earlier.asynchronous, earlier.line), (1, 0));
        assert!(earlier.file.is_null() && earlier.kernel.is_null());
    }

    #[test]
    fn wrong_uses_of_write_once_memory_are_told_as_well() {
        let race = a_race();
        let fault = |kind| Fault {
            kind,
            message: String::new(),
            who: Some(race.later.who.clone()),
            place: race.later.place.clone(),
            range: Some(race.range.clone()),
            waiting: Vec::new(),
            notes: Vec::new(),
            times: 2,
            replay: None,
        };
        let told = Told::fault(&fault(FaultKind::WriteOnceWrittenTwice)).unwrap();
        assert_eq!((told.race.kind, told.race.later.action), (3, 2));
        assert_eq!((told.race.later.known, told.race.earlier.known), (1, 0));
        let told = Told::fault(&fault(FaultKind::WriteOnceReadUnwritten)).unwrap();
        assert_eq!((told.race.kind, told.race.later.action), (4, 1));
        let told = Told::fault(&fault(FaultKind::WriteOnceAtomic)).unwrap();
        assert_eq!((told.race.kind, told.race.later.atomic), (5, 1));
        assert!(Told::fault(&fault(FaultKind::Deadlock)).is_none());
    }
}
