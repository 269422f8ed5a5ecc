//! Turns races into what people and other programs read.
//!
//! **Owns** the report as data ([`model`], versioned, with a JSON Schema), how races of the
//! detector become part of it ([`names`], [`builder`]: duplicates, suppressions, the limit, merging
//! of several processes' parts), and its three forms: text with source lines ([`human`]), JSON
//! ([`json`]) and SARIF 2.1.0 ([`sarif`]).
//!
//! **Must never know** how races are found, what a GPU is, where reports are kept, or what the
//! command line looks like. The only files it opens are the source files it shows ([`source`]).
//!
//! **Invariants**
//! - Both sides of a race are always said, and what is not known of one is said to be unknown.
//! - Nothing is dropped silently: suppressed findings, findings over the limit and losses of
//!   coverage are counted and told.
//! - A stored report that is written and read again is equal to the first.
//! - No input makes it panic: reports, source files and names come from strangers.
//! - Counts saturate.
//!
//! ```
//! use gsan_core::event::{Action, Space};
//! use gsan_core::ids::{DeviceRank, LaunchId, SiteId, Thread};
//! use gsan_core::race::{Race, RaceKind, Side, Who};
//! use gsan_core::scope::Order;
//! use gsan_report::builder::Builder;
//! use gsan_report::human::{self, Look};
//! use gsan_report::model::Place;
//! use gsan_report::names::{Launch, Names};
//! use gsan_report::source::Sources;
//!
//! let mut names = Names::default();
//! names.add_launch(
//!     LaunchId(1),
//!     Launch {
//!         kernel: "fill".to_owned(),
//!         number: 1,
//!         device: DeviceRank(0),
//!         stream: 0,
//!         grid: [2, 1, 1],
//!         block: [32, 1, 1],
//!         opaque: None,
//!     },
//! );
//! let place = Place { file: "fill.cu".to_owned(), line: 2, column: None, ptx: None };
//! names.add_site(SiteId(1), place);
//! names.add_allocation(0x1000, 256, Some("out".to_owned()));
//!
//! let write = |cta| Side {
//!     who: Who::Thread(Thread::new(LaunchId(1), cta, 0)),
//!     action: Action::Write,
//!     order: Order::Weak,
//!     scope: None,
//!     asynchronous: false,
//!     site: SiteId(1),
//! };
//! let race = Race {
//!     kind: RaceKind::WriteAfterWrite,
//!     space: Space::Global,
//!     address: 0x1010,
//!     bytes: 4,
//!     earlier: write(0),
//!     later: write(1),
//! };
//!
//! let mut builder = Builder::new(100, &[]);
//! builder.race(&race, &names, None);
//! let report = builder.finish();
//! assert!(report.has_findings(false));
//!
//! let mut sources = Sources::new(".");
//! sources.insert("fill.cu", "__global__ void fill(int *out) {\n    out[4] = blockIdx.x;\n}\n");
//! let text = human::report(&report, &mut sources, &Look::default());
//! assert!(text.contains("write by thread (0, 0, 0) of CTA (1, 0, 0) of `fill`"));
//! ```

pub mod builder;
mod drawing;
pub mod human;
pub mod json;
pub mod loss;
pub mod model;
pub mod names;
pub mod sarif;
pub mod source;
mod words;
