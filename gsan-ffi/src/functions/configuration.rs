//! Version, errors, configuration.

use std::ffi::{CStr, c_char, c_int};

use gsan_runtime::process;

use crate::arguments::{output, slice, text, text_room, versioned};
use crate::call::{last_error, status};
use crate::session::session;
use crate::status::{Failure, gsan_status};
use crate::types::*;

/// The version of this interface that the library has. A program that was built with another
/// GSAN_ABI_VERSION than this does not go with it.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_abi_version() -> u32 {
    GSAN_ABI_VERSION
}

/// The version of GSan, as text.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Why this thread's last call failed: what was wrong, where, and what would be right. An empty text if
/// it did not. It lives until this thread's next call; this function, gsan_version() and
/// gsan_abi_version() do not count.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_last_error() -> *const c_char {
    last_error()
}

/// Configures by numbers. Calls win over the environment (GSAN_SECTION_KEY), which wins over gsan.toml,
/// which wins over the defaults; of several calls the last one wins, key by key. Refused as a whole if
/// anything in it is wrong. GSAN_FROZEN after the first use of anything but configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configure(config: *const gsan_config) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should, as far as it says how much that is.
        let config = unsafe {
            let config = versioned(config, "config")?;
            let count = config.num_local as usize;
            let count = if config.device_ranks.is_null() {
                0
            } else {
                count
            };
            let ranks = slice(config.device_ranks, count, "config->device_ranks")?;
            as_toml(&config, ranks)?
        };
        Ok(process::configure(&config, "gsan_configure")?)
    })
}

/// Configures by text: TOML with the keys of gsan.toml.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configure_toml(toml: *const c_char) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let toml = unsafe { text(toml, "toml") }?;
        Ok(process::configure(toml, "gsan_configure_toml")?)
    })
}

/// The configuration that holds, as TOML, with the origin of each value in a comment.
///
/// Texts are returned so: `*bytes` says how much room there is at `text`, and after the call how many
/// bytes are needed, the zero byte included. With `text` null nothing is written, and the call only
/// asks. GSAN_INVALID_ARGUMENT if there is too little room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_configuration(text: *mut c_char, bytes: *mut usize) -> gsan_status {
    status(|| {
        // SAFETY: C says that they point to what they should.
        let room = unsafe { text_room(text, bytes) }?;
        room.write(&process::configuration()?)
    })
}

/// Starts the session, which fixes the configuration. Any use does it, too.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_freeze() -> gsan_status {
    status(|| session("gsan_freeze").map(drop))
}

/// Whether the configuration is fixed: `*frozen` is 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gsan_is_frozen(frozen: *mut c_int) -> gsan_status {
    status(|| {
        // SAFETY: C says that it points to what it should.
        let frozen = unsafe { output(frozen, "frozen") }?;
        frozen.set(c_int::from(process::is_frozen()));
        Ok(())
    })
}

/// Puts everything back to the start: no session, the configuration that of environment and file. Races
/// that were found stay found. GSAN_LIVE with allocations, graphs or running work, which the text names;
/// nothing changes then.
#[unsafe(no_mangle)]
pub extern "C" fn gsan_reset() -> gsan_status {
    status(|| Ok(process::reset()?))
}

/// The same in the words of gsan.toml.
fn as_toml(config: &gsan_config, ranks: &[u32]) -> Result<String, Failure> {
    let mut sections = Sections::default();
    let backend = match config.backend {
        GSAN_BACKEND_AUTO => None,
        GSAN_BACKEND_CUDA => Some("cuda"),
        GSAN_BACKEND_HOST => Some("host"),
        other => {
            return Err(unknown(
                "backend",
                other,
                "GSAN_BACKEND_AUTO, _CUDA or _HOST",
            ));
        }
    };
    sections.text("topology", "backend", backend);
    sections.number("topology", "num_devices", config.num_devices);
    if !ranks.is_empty() {
        let given = ranks.iter().enumerate();
        let ranks: Vec<String> = given
            .filter(|&(_, &rank)| rank != u32::MAX)
            .map(|(device, rank)| format!("{device} = {rank}"))
            .collect();
        let ranks = format!("{{ {} }}", ranks.join(", "));
        sections.set("topology", "device_ranks", &ranks);
    } else if config.num_local != 0 {
        return Err(Failure::invalid(format!(
            "config->num_local is {} and config->device_ranks is null: give both or neither",
            config.num_local
        )));
    }
    sections.number("shadow", "records", config.records);
    sections.number("clock", "publications", config.clock_publications);
    match (config.has_seed, config.seed) {
        (0, 0) => {}
        (0, seed) => {
            return Err(Failure::invalid(format!(
                "config->seed is {seed} and config->has_seed is 0: set it to 1 for the seed to count"
            )));
        }
        (_, seed) => sections.set("sampling", "seed", &seed.to_string()),
    }
    let handle_type = match config.handle_type {
        GSAN_HANDLE_TYPE_AUTO => None,
        GSAN_HANDLE_TYPE_POSIX_FD => Some("posix-fd"),
        GSAN_HANDLE_TYPE_FABRIC => Some("fabric"),
        other => {
            let known = "GSAN_HANDLE_TYPE_AUTO, _POSIX_FD or _FABRIC";
            return Err(unknown("handle_type", other, known));
        }
    };
    sections.text("sharing", "handle_type", handle_type);
    let on_race = match config.halt {
        GSAN_ON_RACE_CONFIGURED => None,
        GSAN_ON_RACE_CONTINUE => Some("continue"),
        GSAN_ON_RACE_HALT => Some("halt"),
        other => {
            let known = "GSAN_ON_RACE_CONFIGURED, _CONTINUE or _HALT";
            return Err(unknown("halt", other, known));
        }
    };
    sections.text("report", "on_race", on_race);
    Ok(sections.toml)
}

fn unknown(field: &str, value: u32, known: &str) -> Failure {
    Failure::invalid(format!("config->{field} is {value}, which is not {known}"))
}

/// TOML whose keys come section by section.
#[derive(Default)]
struct Sections {
    toml: String,
    section: &'static str,
}

impl Sections {
    fn set(&mut self, section: &'static str, key: &str, value: &str) {
        if self.section != section {
            self.toml += &format!("[{section}]\n");
            self.section = section;
        }
        self.toml += &format!("{key} = {value}\n");
    }

    fn number(&mut self, section: &'static str, key: &str, value: u32) {
        if value != 0 {
            self.set(section, key, &value.to_string());
        }
    }

    fn text(&mut self, section: &'static str, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.set(section, key, &format!("\"{value}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: gsan_config = gsan_config {
        size: size_of::<gsan_config>(),
        backend: 0,
        num_devices: 0,
        device_ranks: std::ptr::null(),
        num_local: 0,
        records: 0,
        clock_publications: 0,
        seed: 0,
        has_seed: 0,
        handle_type: 0,
        halt: 0,
    };

    #[test]
    fn zero_configures_nothing() {
        assert_eq!(as_toml(&NOTHING, &[]).unwrap(), "");
    }

    #[test]
    fn every_number_has_its_key() {
        let config = gsan_config {
            backend: GSAN_BACKEND_HOST,
            num_devices: 4,
            num_local: 2,
            records: 2,
            clock_publications: 128,
            seed: 0,
            has_seed: 1,
            handle_type: GSAN_HANDLE_TYPE_FABRIC,
            halt: GSAN_ON_RACE_HALT,
            ..NOTHING
        };
        let toml = "[topology]\nbackend = \"host\"\nnum_devices = 4\ndevice_ranks = { 0 = 3, 1 = 1 }\n\
                    [shadow]\nrecords = 2\n[clock]\npublications = 128\n[sampling]\nseed = 0\n\
                    [sharing]\nhandle_type = \"fabric\"\n[report]\non_race = \"halt\"\n";
        assert_eq!(as_toml(&config, &[3, 1]).unwrap(), toml);
    }

    #[test]
    fn a_device_without_a_rank_does_not_take_part() {
        let config = gsan_config {
            num_devices: 2,
            num_local: 2,
            ..NOTHING
        };
        let toml = "[topology]\nnum_devices = 2\ndevice_ranks = { 1 = 1 }\n";
        assert_eq!(as_toml(&config, &[u32::MAX, 1]).unwrap(), toml);
    }

    #[test]
    fn numbers_without_meaning_are_refused() {
        for config in [
            gsan_config {
                backend: 3,
                ..NOTHING
            },
            gsan_config {
                num_local: 2,
                ..NOTHING
            },
            gsan_config { seed: 7, ..NOTHING },
            gsan_config {
                handle_type: 2,
                ..NOTHING
            },
            gsan_config { halt: 3, ..NOTHING },
        ] {
            let failure = as_toml(&config, &[]).unwrap_err();
            assert_eq!(failure.status, gsan_status::GSAN_INVALID_ARGUMENT);
            assert!(
                failure.message.starts_with("config->"),
                "{}",
                failure.message
            );
        }
    }
}
