//! The types of values: how each is read from TOML and from plain text, and shown as TOML.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use crate::error::nearest;
use crate::pattern::{KINDS, Pattern, Suppression};
use crate::size::Size;

/// The limits of a number; all that 64 bits hold when a key sets none.
pub(crate) type Limits = RangeInclusive<u64>;

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// The bytes of the text that are wrong.
    pub(crate) span: Range<usize>,
    /// The value, as it was written or what it is.
    pub(crate) found: String,
    /// Why not, if that is more than "not one of the expected ones".
    pub(crate) why: Option<String>,
    /// What is taken in its place, if that is not what the key as a whole takes.
    pub(crate) expected: Option<String>,
    /// The valid value that is most like it.
    pub(crate) nearest: Option<String>,
}

impl Invalid {
    fn new(value: &Spanned<DeValue<'_>>) -> Invalid {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        Invalid {
            span: value.span(),
            found,
            why: None,
            expected: None,
            nearest: None,
        }
    }

    fn why(self, why: impl Into<String>) -> Invalid {
        Invalid {
            why: Some(why.into()),
            ..self
        }
    }
}

/// How a value is written where there are no quotation marks: in the environment and on the command
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// As in TOML.
    Toml,
    /// Text as it is; in quotation marks as in TOML.
    Text,
    /// Texts with commas between them; in brackets as in TOML.
    List,
}

/// A type of values.
pub(crate) trait Value: Sized {
    const PLAIN: Plain = Plain::Toml;

    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid>;

    /// As TOML.
    fn show(&self) -> String;

    /// What is taken, in words.
    fn expected(limits: &Limits) -> String;
}

fn integer(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<u64, Invalid> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    number
        .filter(|number| limits.contains(number))
        .ok_or_else(|| Invalid::new(value))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(impl Value for $type {
            fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
                let number = integer(value, limits)?;
                <$type>::try_from(number).map_err(|_| Invalid::new(value))
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn expected(limits: &Limits) -> String {
                let largest = (*limits.end()).min(<$type>::MAX.into());
                format!("a whole number from {} to {largest}", limits.start())
            }
        })*
    };
}

integers!(u8 u32 u64);

impl Value for bool {
    fn read(value: &Spanned<DeValue<'_>>, _: &Limits) -> Result<Self, Invalid> {
        value.get_ref().as_bool().ok_or_else(|| Invalid::new(value))
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn expected(_: &Limits) -> String {
        "true or false".to_owned()
    }
}

impl Value for Size {
    const PLAIN: Plain = Plain::Text;

    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
        let size = match value.get_ref() {
            DeValue::String(text) => text.parse().map_err(|error: crate::size::SizeError| {
                Invalid::new(value).why(error.to_string())
            })?,
            _ => Size(integer(value, limits)?),
        };
        if limits.contains(&size.0) {
            Ok(size)
        } else {
            Err(Invalid::new(value))
        }
    }

    fn show(&self) -> String {
        quoted(&self.to_string())
    }

    fn expected(limits: &Limits) -> String {
        format!(
            "a size from {} to {}, like \"256MiB\"",
            Size(*limits.start()),
            Size(*limits.end())
        )
    }
}

/// A size that is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PowerOfTwo(Size);

impl PowerOfTwo {
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0.0
    }
}

impl Value for PowerOfTwo {
    const PLAIN: Plain = Plain::Text;

    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
        let size = Size::read(value, limits)?;
        if size.0.is_power_of_two() {
            Ok(PowerOfTwo(size))
        } else {
            Err(Invalid {
                nearest: Some(quoted(&Size(1 << size.0.ilog2()).to_string())),
                ..Invalid::new(value).why("it is not a power of two")
            })
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }

    fn expected(limits: &Limits) -> String {
        format!(
            "a power of two from {} to {}, like \"8TiB\"",
            Size(*limits.start()),
            Size(*limits.end())
        )
    }
}

impl Value for PathBuf {
    const PLAIN: Plain = Plain::Text;

    fn read(value: &Spanned<DeValue<'_>>, _: &Limits) -> Result<Self, Invalid> {
        match value.get_ref() {
            DeValue::String(text) if !text.is_empty() && !text.contains('\0') => {
                Ok(PathBuf::from(&**text))
            }
            _ => Err(Invalid::new(value)),
        }
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }

    fn expected(_: &Limits) -> String {
        "the name of a file".to_owned()
    }
}

/// One of a few names.
macro_rules! choice {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $type {
            /// Every choice.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// The name in the configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl Value for $type {
            const PLAIN: Plain = Plain::Text;

            fn read(value: &Spanned<DeValue<'_>>, _: &Limits) -> Result<Self, Invalid> {
                let text = value.get_ref().as_str().ok_or_else(|| Invalid::new(value))?;
                $type::ALL
                    .iter()
                    .copied()
                    .find(|choice| choice.name() == text)
                    .ok_or_else(|| Invalid {
                        nearest: nearest(text, $type::ALL.iter().map(|choice| choice.name().to_owned()))
                            .map(|name| quoted(&name)),
                        ..Invalid::new(value)
                    })
            }

            fn show(&self) -> String {
                quoted(self.name())
            }

            fn expected(_: &Limits) -> String {
                one_of(&[$($name),*])
            }
        }
    };
}

/// `"a", "b" or "c"`.
fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

choice!(
    /// What an overrun of the clock rings does.
    OnOverrun {
        /// It is counted as a loss of coverage.
        Count = "count",
        /// It is an error in the program.
        Halt = "halt",
    }
);

choice!(
    /// How much of the device library is compiled with each kernel.
    Link {
        /// What accesses call; the rest is compiled once, and linked to the kernel's machine code.
        Parts = "parts",
        /// All of it.
        Whole = "whole",
    }
);

choice!(
    /// What devices are.
    Backend {
        /// GPUs if there are any, else the host.
        Auto = "auto",
        /// GPUs.
        Cuda = "cuda",
        /// The memory of this machine.
        Host = "host",
    }
);

choice!(
    /// What a race does.
    OnRace {
        /// It is reported, and the program goes on.
        Continue = "continue",
        /// It is an error in the program.
        Halt = "halt",
    }
);

choice!(
    /// What memory is shared with other processes by.
    HandleType {
        /// Fabric handles when PyTorch is told to use them, else file descriptors.
        Auto = "auto",
        /// POSIX file descriptors: one host.
        PosixFd = "posix-fd",
        /// Fabric handles: several hosts.
        Fabric = "fabric",
    }
);

choice!(
    /// A form of the report.
    Format {
        /// Text for people.
        Human = "human",
        /// JSON.
        Json = "json",
        /// SARIF 2.1.0.
        Sarif = "sarif",
    }
);

/// Records in a cell: 2 or 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Records {
    /// Shadow memory is twice as large as real memory.
    Two = 2,
    /// Shadow memory is four times as large as real memory.
    Four = 4,
}

impl Value for Records {
    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
        match integer(value, limits)? {
            2 => Ok(Records::Two),
            4 => Ok(Records::Four),
            _ => Err(Invalid::new(value)),
        }
    }

    fn show(&self) -> String {
        (*self as u8).to_string()
    }

    fn expected(_: &Limits) -> String {
        "2 or 4".to_owned()
    }
}

/// A list without duplicates.
impl Value for Vec<Format> {
    const PLAIN: Plain = Plain::List;

    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
        let items = value
            .get_ref()
            .as_array()
            .ok_or_else(|| Invalid::new(value))?;
        let mut formats = Vec::new();
        for item in items.iter() {
            let format = Format::read(item, limits)?;
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        Ok(formats)
    }

    fn show(&self) -> String {
        let items: Vec<String> = self.iter().map(Value::show).collect();
        format!("[{}]", items.join(", "))
    }

    fn expected(limits: &Limits) -> String {
        format!("a list of {}", Format::expected(limits))
    }
}

/// Local CUDA device indices and their logical device ranks; ranks differ.
impl Value for BTreeMap<u32, u16> {
    fn read(value: &Spanned<DeValue<'_>>, limits: &Limits) -> Result<Self, Invalid> {
        let table = value
            .get_ref()
            .as_table()
            .ok_or_else(|| Invalid::new(value))?;
        let mut ranks = BTreeMap::new();
        // A table is sorted by its keys; people read from top to bottom.
        let mut pairs: Vec<_> = table.iter().collect();
        pairs.sort_by_key(|(device, _)| device.span().start);
        for (device, rank) in pairs {
            let wrong = |why: String| Invalid {
                span: device.span(),
                found: format!("{:?}", device.get_ref()),
                why: Some(why),
                expected: None,
                nearest: None,
            };
            let index = device
                .get_ref()
                .parse()
                .map_err(|_| wrong("it is no device index".to_owned()))?;
            // TOML takes `0` and `00` for two keys.
            if ranks.contains_key(&index) {
                return Err(wrong(format!("device {index} has a rank already")));
            }
            let number = u16::read(rank, limits)?;
            if let Some((other, _)) = ranks.iter().find(|&(_, &known)| known == number) {
                let why = format!("device {other} has that rank already");
                return Err(Invalid::new(rank).why(why));
            }
            ranks.insert(index, number);
        }
        Ok(ranks)
    }

    fn show(&self) -> String {
        if self.is_empty() {
            return "{}".to_owned();
        }
        let pairs: Vec<String> = self
            .iter()
            .map(|(device, rank)| format!("{device} = {rank}"))
            .collect();
        format!("{{ {} }}", pairs.join(", "))
    }

    fn expected(limits: &Limits) -> String {
        format!(
            "a table of device indices and ranks from {} to {}, like {{ 0 = 2, 1 = 3 }}",
            limits.start(),
            limits.end()
        )
    }
}

integers!(u16);

impl Value for Vec<Suppression> {
    fn read(value: &Spanned<DeValue<'_>>, _: &Limits) -> Result<Self, Invalid> {
        let items = value
            .get_ref()
            .as_array()
            .ok_or_else(|| Invalid::new(value))?;
        items.iter().map(suppression).collect()
    }

    fn show(&self) -> String {
        let items: Vec<String> = self
            .iter()
            .map(|rule| {
                let patterns = [
                    ("kind", &rule.kind),
                    ("file", &rule.file),
                    ("kernel", &rule.kernel),
                ];
                let mut pairs: Vec<String> = patterns
                    .into_iter()
                    .filter_map(|(name, pattern)| {
                        Some(format!("{name} = {}", quoted(pattern.as_ref()?.as_str())))
                    })
                    .collect();
                if !rule.reason.is_empty() {
                    pairs.push(format!("reason = {}", quoted(&rule.reason)));
                }
                format!("{{ {} }}", pairs.join(", "))
            })
            .collect();
        format!("[{}]", items.join(", "))
    }

    fn expected(_: &Limits) -> String {
        "tables with at least one of the patterns `kind`, `file` and `kernel`, best with a `reason`"
            .to_owned()
    }
}

fn suppression(value: &Spanned<DeValue<'_>>) -> Result<Suppression, Invalid> {
    const KEYS: [&str; 4] = ["kind", "file", "kernel", "reason"];
    let table = value
        .get_ref()
        .as_table()
        .ok_or_else(|| Invalid::new(value))?;
    let mut rule = Suppression {
        kind: None,
        file: None,
        kernel: None,
        reason: String::new(),
    };
    for (key, value) in table.iter() {
        let name = key.get_ref().as_ref();
        if !KEYS.contains(&name) {
            return Err(Invalid {
                span: key.span(),
                found: format!("a table with the key `{name}`"),
                why: None,
                expected: None,
                nearest: nearest(name, KEYS.iter().map(|&key| key.to_owned()))
                    .map(|key| format!("`{key}`")),
            });
        }
        let text = value.get_ref().as_str().ok_or_else(|| {
            Invalid::new(value).why(format!("`{name}` is text in quotation marks"))
        })?;
        if name == "reason" {
            text.clone_into(&mut rule.reason);
            continue;
        }
        let pattern = Pattern::new(text).map_err(|why| Invalid::new(value).why(why))?;
        match name {
            "file" => rule.file = Some(pattern),
            "kernel" => rule.kernel = Some(pattern),
            _ if KINDS.iter().any(|kind| pattern.matches(kind)) => rule.kind = Some(pattern),
            _ => {
                return Err(Invalid {
                    expected: Some(format!("a pattern of the kinds {}", one_of(KINDS))),
                    nearest: nearest(text, KINDS.iter().map(|&kind| kind.to_owned()))
                        .map(|kind| quoted(&kind)),
                    ..Invalid::new(value).why("it matches no kind of finding")
                });
            }
        }
    }
    if rule.kind.is_none() && rule.file.is_none() && rule.kernel.is_none() {
        return Err(Invalid::new(value).why("it would hide everything"));
    }
    Ok(rule)
}
