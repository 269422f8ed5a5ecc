//! What the detector's numbers stand for, and how its races become races of a report.

use std::collections::{BTreeMap, HashMap};

use gsan_core::event::{self, Space};
use gsan_core::ids::{Cta, CtaIndex, DeviceRank, LaunchId, SiteId};
use gsan_core::{race, scope};

use crate::model;

/// The names of sites, launches and allocations.
///
/// What is missing here is reported as unknown.
#[derive(Clone, Debug, Default)]
pub struct Names {
    sites: HashMap<SiteId, model::Place>,
    launches: HashMap<LaunchId, Launch>,
    /// By first address; they do not overlap.
    allocations: BTreeMap<u64, Allocation>,
}

/// What a report says about a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// The number of the launch, as the user should see it.
    pub number: u64,
    /// The device it ran on.
    pub device: DeviceRank,
    /// The stream, as the program knows it (for CUDA, the handle).
    pub stream: u64,
    /// CTAs of the grid in x, y and z.
    pub grid: model::Position,
    /// Threads of a CTA in x, y and z.
    pub block: model::Position,
    /// Why races with this launch are only possible ones: it contains synchronisation that nobody
    /// reports.
    pub opaque: Option<String>,
}

#[derive(Clone, Debug)]
struct Allocation {
    bytes: u64,
    name: Option<String>,
}

impl Names {
    /// Names a site.
    pub fn add_site(&mut self, site: SiteId, place: model::Place) {
        self.sites.insert(site, place);
    }

    /// Names a launch.
    pub fn add_launch(&mut self, id: LaunchId, launch: Launch) {
        self.launches.insert(id, launch);
    }

    /// Names an allocation of global memory. It replaces those that it overlaps: their memory was
    /// freed.
    pub fn add_allocation(&mut self, base: u64, bytes: u64, name: Option<String>) {
        let end = base.saturating_add(bytes);
        while let Some((&start, _)) = self
            .allocations
            .range(..end)
            .next_back()
            .filter(|&(&start, held)| start >= base || start.saturating_add(held.bytes) > base)
        {
            self.allocations.remove(&start);
        }
        self.allocations.insert(base, Allocation { bytes, name });
    }

    /// Where a site is, if it has a name.
    pub fn place(&self, site: SiteId) -> Option<&model::Place> {
        self.sites.get(&site)
    }

    /// The allocation that holds `address`, and where in it.
    pub fn allocation(&self, address: u64) -> Option<model::Allocation> {
        let (&base, held) = self.allocations.range(..=address).next_back()?;
        let offset = address - base;
        (offset < held.bytes).then(|| model::Allocation {
            name: held.name.clone(),
            bytes: held.bytes,
            offset,
        })
    }

    /// A range of bytes, with its allocation.
    pub fn range(&self, space: Space, address: u64, bytes: u64) -> model::Range {
        model::Range {
            space: match space {
                Space::Global => model::Space::Global,
                Space::Shared(cta) => model::Space::Shared { cta: self.cta(cta) },
            },
            address: model::Hex(address),
            bytes,
            allocation: match space {
                Space::Global => self.allocation(address),
                Space::Shared(_) => None,
            },
        }
    }

    /// Who did something.
    pub fn who(&self, who: race::Who) -> model::Who {
        let (cta, thread) = match who {
            race::Who::Forgotten(device) => {
                return model::Who {
                    device: Some(device.0),
                    ..model::Who::default()
                };
            }
            race::Who::Cta(cta) => (cta, None),
            race::Who::Thread(thread) => (thread.cta, Some(thread.index)),
        };
        let launch = self.launches.get(&cta.launch);
        model::Who {
            thread: thread
                .map(|index| launch.map_or([index, 0, 0], |launch| position(index, launch.block))),
            cta: Some(self.cta(cta)),
            kernel: launch.map(|launch| launch.kernel.clone()),
            launch: Some(launch.map_or(cta.launch.0.into(), |launch| launch.number)),
            device: launch.map(|launch| launch.device.0),
            stream: launch.map(|launch| model::Hex(launch.stream)),
        }
    }

    /// A race of the detector as a race of a report, and why it is only possible if it is.
    pub fn race(&self, race: &race::Race) -> (model::Race, Option<String>) {
        let reason = [race.later, race.earlier].into_iter().find_map(|side| {
            let launch = self.launches.get(&side.who.launch()?)?;
            let why = launch.opaque.as_ref()?;
            Some(format!(
                "launch {} of `{}` {why}",
                launch.number, launch.kernel
            ))
        });
        let race = model::Race {
            kind: race.kind.into(),
            range: self.range(race.space, race.address, race.bytes.into()),
            earlier: self.side(&race.earlier),
            later: self.side(&race.later),
            times: 1,
            replay: None,
        };
        (race, reason)
    }

    fn side(&self, side: &race::Side) -> model::Side {
        model::Side {
            who: self.who(side.who),
            action: side.action.into(),
            order: side.order.into(),
            scope: side.scope.map(Into::into),
            asynchronous: side.asynchronous,
            place: self.sites.get(&side.site).cloned(),
        }
    }

    fn cta(&self, cta: Cta) -> model::Position {
        let CtaIndex(index) = cta.index;
        match self.launches.get(&cta.launch) {
            Some(launch) => position(index, launch.grid),
            None => [index, 0, 0],
        }
    }
}

/// The position `[x, y, z]` of number `index`, counted with x fastest. A dimension of 0 counts as 1.
pub fn position(index: u32, dimensions: model::Position) -> model::Position {
    let [width, height, _] = dimensions.map(|dimension| dimension.max(1));
    let rest = index / width;
    [index % width, rest % height, rest / height]
}

macro_rules! convert {
    ($from:path => $to:ident { $($left:ident => $right:ident,)* }) => {
        impl From<$from> for model::$to {
            fn from(value: $from) -> Self {
                match value {
                    $(<$from>::$left => model::$to::$right,)*
                }
            }
        }
    };
}

convert!(race::RaceKind => RaceKind {
    ReadAfterWrite => ReadAfterWrite,
    WriteAfterRead => WriteAfterRead,
    WriteAfterWrite => WriteAfterWrite,
});

convert!(event::Action => Action {
    Read => Read,
    Write => Write,
    Rmw => ReadModifyWrite,
    FailedRmw => FailedCompareAndSwap,
    Red => Reduction,
});

convert!(scope::Order => Order {
    Weak => Weak,
    Relaxed => Relaxed,
    Acquire => Acquire,
    Release => Release,
    AcqRel => AcqRel,
});

convert!(scope::Scope => Scope {
    Cta => Cta,
    Cluster => Cluster,
    Gpu => Gpu,
    Sys => Sys,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_x_fastest() {
        assert_eq!(position(0, [16, 8, 2]), [0, 0, 0]);
        assert_eq!(position(15, [16, 8, 2]), [15, 0, 0]);
        assert_eq!(position(16, [16, 8, 2]), [0, 1, 0]);
        assert_eq!(position(16 * 8 + 17, [16, 8, 2]), [1, 1, 1]);
        assert_eq!(position(7, [0, 0, 0]), [0, 0, 7]);
    }

    #[test]
    fn an_address_belongs_to_the_allocation_that_holds_it() {
        let mut names = Names::default();
        names.add_allocation(0x1000, 0x100, Some("a".to_owned()));
        names.add_allocation(0x2000, 0x10, None);
        assert_eq!(names.allocation(0xfff), None);
        let first = names.allocation(0x10ff).unwrap();
        assert_eq!(
            (first.name.as_deref(), first.bytes, first.offset),
            (Some("a"), 0x100, 0xff)
        );
        assert_eq!(names.allocation(0x1100), None);
        assert_eq!(names.allocation(0x2008).unwrap().offset, 8);
        assert_eq!(names.allocation(u64::MAX), None);
    }

    #[test]
    fn a_new_allocation_replaces_those_it_overlaps() {
        let mut names = Names::default();
        names.add_allocation(0x1000, 0x100, Some("before".to_owned()));
        names.add_allocation(0x1100, 0x100, Some("inside".to_owned()));
        names.add_allocation(0x1200, 0x100, Some("after".to_owned()));
        names.add_allocation(0x10f0, 0x200, Some("new".to_owned()));
        assert_eq!(names.allocation(0x1000), None);
        assert_eq!(
            names.allocation(0x1180).unwrap().name.as_deref(),
            Some("new")
        );
        assert_eq!(names.allocation(0x12f0), None);
    }

    #[test]
    fn what_has_no_name_is_unknown() {
        let names = Names::default();
        let who = names.who(race::Who::Forgotten(DeviceRank(3)));
        assert_eq!(
            who,
            model::Who {
                device: Some(3),
                ..model::Who::default()
            }
        );
        let who = names.who(race::Who::Cta(Cta {
            launch: LaunchId(5),
            index: CtaIndex(9),
        }));
        assert_eq!(
            (who.cta, who.launch, who.kernel),
            (Some([9, 0, 0]), Some(5), None)
        );
    }
}
