//! The table of keys. Types, parser, names in the environment, documentation and template all come
//! from it: a key is written down once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use crate::pattern::Suppression;
use crate::size::Size;
use crate::value::{
    Backend, Format, HandleType, Invalid, Limits, Link, OnOverrun, OnRace, Plain, PowerOfTwo,
    Records, Value,
};

/// A key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its section.
    pub section: &'static str,
    /// Its name in the section.
    pub name: &'static str,
    /// What it means; one line or more.
    pub doc: &'static str,
    /// Its default, as TOML.
    pub default: &'static str,
    /// Variables of other programs that set it when ours does not.
    pub foreign_variables: &'static [&'static str],
    pub(crate) limits: Limits,
    pub(crate) plain: Plain,
    pub(crate) set: fn(&mut Config, &Spanned<DeValue<'_>>, &Limits) -> Result<(), Invalid>,
    pub(crate) show: fn(&Config) -> String,
    pub(crate) expected: fn(&Limits) -> String,
}

impl Key {
    /// `section.key`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable that sets it: `GSAN_SECTION_KEY`.
    pub fn variable(&self) -> String {
        format!("GSAN_{}_{}", self.section, self.name).to_ascii_uppercase()
    }

    /// What it takes, in words.
    pub fn expected(&self) -> String {
        (self.expected)(&self.limits)
    }

    /// Its value in `config`, as TOML.
    pub fn show(&self, config: &Config) -> String {
        (self.show)(config)
    }
}

/// A section of the configuration.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What its keys are about.
    pub doc: &'static str,
}

macro_rules! limits {
    () => {
        0..=u64::MAX
    };
    ($low:expr, $high:expr) => {
        $low..=$high
    };
}

macro_rules! configuration {
    ($(
        $(#[doc = $section_doc:literal])*
        $section:ident: $Section:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty = $default:literal
                    $(, from $low:expr, to $high:expr)?
                    $(, else $foreign:literal)?;
            )*
        }
    )*) => {
        /// The configuration.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $section_doc])* pub $section: $Section,)*
        }

        $(
            $(#[doc = $section_doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Section {
                $($(#[doc = $doc])* pub $key: $type,)*
            }
        )*

        impl Default for Config {
            fn default() -> Self {
                Config {
                    $($section: $Section {
                        $($key: default(stringify!($section.$key), $default),)*
                    },)*
                }
            }
        }

        /// Every section, in the order of the template.
        pub static SECTIONS: &[Section] = &[$(
            Section {
                name: stringify!($section),
                doc: concat!($($section_doc),*).trim_ascii(),
            },
        )*];

        /// Every key, in the order of the template.
        pub static KEYS: &[Key] = &[$($(
            Key {
                section: stringify!($section),
                name: stringify!($key),
                doc: concat!($($doc, "\n"),*).trim_ascii(),
                default: $default,
                foreign_variables: &[$($foreign)?],
                limits: limits!($($low, $high)?),
                plain: <$type as Value>::PLAIN,
                set: |config, value, limits| {
                    config.$section.$key = Value::read(value, limits)?;
                    Ok(())
                },
                show: |config| config.$section.$key.show(),
                expected: <$type as Value>::expected,
            },
        )*)*];
    };
}

fn default<T: Value>(key: &str, text: &str) -> T {
    DeValue::parse(text)
        .ok()
        .and_then(|value| T::read(&value, &(0..=u64::MAX)).ok())
        .unwrap_or_else(|| panic!("the default of {key} is valid: a test reads every one"))
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

configuration! {
    /// Which devices take part.
    topology: Topology {
        /// What devices are: "cuda" for GPUs, "host" for the memory of this machine, where kernels are
        /// functions of the program. "auto": GPUs if there are any.
        backend: Backend = "\"auto\"";
        /// Local CUDA device index = logical device rank.
        /// Empty: every index is its own rank. Processes that meet before they use GSan agree on ranks, which
        /// then follow from the UUIDs of the GPUs that they see.
        device_ranks: BTreeMap<u32, u16> = "{}", from 0, to 31;
        /// Devices in the topology, over all processes. 0: the visible devices, or those agreed on.
        num_devices: u32 = "0", from 0, to 32;
    }

    /// Shadow memory: what is remembered of each piece of memory.
    shadow: Shadow {
        /// Records in a cell. More remember more; 2 halve the shadow memory.
        records: Records = "4";
        /// Address space that is set aside for memory and its shadow.
        /// If it is refused, half of it is tried, down to 1TiB.
        reserve: PowerOfTwo = "\"8TiB\"", from 16 * MIB, to 64 * TIB;
    }

    /// What is known of who happened before whom.
    clock: Clock {
        /// Released clocks that are kept for each device.
        publications: u32 = "65536", from 64, to 1 << 20, else "TRITON_GSAN_CLOCK_BUFFER_SIZE";
        /// Memory for copies of clocks, for each device.
        snapshot_memory: Size = "\"256MiB\"", from 64 * KIB, to 64 * GIB;
        /// Memory for the clocks of CTAs that acquired, for each device.
        private_memory: Size = "\"256MiB\"", from 64 * KIB, to 64 * GIB;
        /// What happens when a clock is overwritten before it is acquired:
        /// "count" counts it as a loss of coverage, "halt" makes it an error in the program.
        on_overrun: OnOverrun = "\"count\"";
    }

    /// Which reads are remembered when there is no room for all.
    sampling: Sampling {
        /// Equal seeds choose equal reads. 0: a random seed, which the report says.
        seed: u64 = "0", else "TRITON_GSAN_SEED";
    }

    /// Launches of kernels.
    launch: Launch {
        /// CTAs of one stream that can be told apart on one multiprocessor at once.
        slots_per_sm: u32 = "16", from 1, to 32;
        /// Registers of a thread of a Triton kernel. Without a bound the checks use so many that fewer
        /// CTAs run at once. 0: no bound. A kernel that cannot do with it has none.
        max_registers: u32 = "128", from 0, to 255;
        /// How much of the device library is compiled with each Triton kernel. "parts": what accesses
        /// call; the rest is compiled once, and linked by nvJitLink, which comes with CUDA and with
        /// PyTorch, or the driver. "whole": all of it, which takes a kernel up to four times as long to compile.
        link: Link = "\"parts\"";
    }

    /// Memory shared between processes.
    sharing: Sharing {
        /// How memory is handed over: "posix-fd" within one host, "fabric" for channels between hosts;
        /// ranks that meet by `gsan_rendezvous_join`, or by Python's `rendezvous`, are on one host.
        handle_type: HandleType = "\"auto\"";
    }

    /// What is reported, and how.
    report: Report {
        /// "halt" stops at the first race, as an error in the program.
        on_race: OnRace = "\"continue\"";
        /// Distinct races that are kept. More are counted.
        limit: u32 = "100", from 1, to 1_000_000;
        /// The forms in which a run reports: "human", "json", "sarif".
        formats: Vec<Format> = "[\"human\"]";
        /// The file that is written when "json" or "sarif" is among the formats. If both are, it
        /// holds the JSON, and SARIF is written to the file of that name that ends in `.sarif`.
        path: PathBuf = "\"gsan-report.json\"";
        /// The exit code of a run that found something.
        exit_code: u8 = "66", from 0, to 255;
        /// true: possible races count too.
        strict: bool = "false";
        /// Source lines that are shown before the line of an access.
        context_lines: u32 = "2", from 0, to 50;
        /// Findings that are not reported but counted. Each suppression is a table; all of its
        /// patterns must match. `kind` is the kind of finding, `file` and `kernel` are those of
        /// either side, `reason` is for people and may be left out.
        suppress: Vec<Suppression> = "[]";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_limits_and_shown_as_it_is_written() {
        let config = Config::default();
        for key in KEYS {
            let value = DeValue::parse(key.default).unwrap();
            let mut again = Config::default();
            assert_eq!(
                (key.set)(&mut again, &value, &key.limits),
                Ok(()),
                "{}",
                key.path()
            );
            assert_eq!(again, config, "{}", key.path());
            assert_eq!(key.show(&config), key.default, "{}", key.path());
        }
    }

    #[test]
    fn no_two_keys_share_a_variable() {
        let variables: std::collections::BTreeSet<String> =
            KEYS.iter().map(Key::variable).collect();
        assert_eq!(variables.len(), KEYS.len());
    }

    #[test]
    fn sections_are_together_and_documented() {
        let mut of_keys: Vec<&str> = KEYS.iter().map(|key| key.section).collect();
        of_keys.dedup();
        let sections: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        assert_eq!(of_keys, sections);
        assert!(KEYS.iter().all(|key| !key.doc.is_empty()));
        assert!(SECTIONS.iter().all(|section| !section.doc.is_empty()));
    }
}
