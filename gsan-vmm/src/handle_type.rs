//! Which kind of handle memory is created for, as configured.

use crate::backend::{Device, HandleKind};
use crate::error::Error;
use crate::owned::{Driver, Held, Memory};

/// The configuration's `sharing.handle_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleType {
    /// File descriptors.
    PosixFd,
    /// Fabric handles, or an error where the devices do not support them.
    Fabric,
    /// Fabric handles if they were asked for and the devices support them, else file descriptors.
    Auto {
        /// Whether the program asks for them.
        fabric_asked: bool,
    },
}

impl HandleType {
    /// `auto`, for a program with this value of `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// The variable is a list `option:value,…`; any option that names the fabric and is not
    /// switched off, or has the fabric as its value, asks for fabric handles.
    pub fn auto(alloc_conf: Option<&str>) -> HandleType {
        let asks = |option: &str| {
            let option = option.to_ascii_lowercase();
            let off = ["false", "0", "off"].iter().any(|off| {
                option
                    .rsplit_once(':')
                    .is_some_and(|(_, value)| value.trim() == *off)
            });
            option.contains("fabric") && !off
        };
        HandleType::Auto {
            fabric_asked: alloc_conf.is_some_and(|conf| conf.split(',').any(asks)),
        }
    }

    /// The kind of handle to create memory for. Fabric handles are tried on every device before
    /// they are chosen: a device may say that it supports them and the system may still refuse
    /// (they need the IMEX service).
    ///
    /// # Errors
    /// When fabric handles are demanded and do not work.
    pub(crate) fn choose(self, driver: &Driver) -> Result<HandleKind, Error> {
        match self {
            HandleType::PosixFd
            | HandleType::Auto {
                fabric_asked: false,
            } => Ok(HandleKind::PosixFd),
            HandleType::Fabric | HandleType::Auto { fabric_asked: true } => {
                let devices = 0..driver.devices().len() as u32;
                let tried = devices.map(Device).try_for_each(|device| {
                    let unit = driver.granularity();
                    let memory = Memory::create(driver, device, unit, HandleKind::Fabric)?;
                    let _held = Held::real(driver, memory);
                    driver.export(memory.id(), HandleKind::Fabric).map(drop)
                });
                match tried {
                    Ok(()) => Ok(HandleKind::Fabric),
                    Err(source) if self == HandleType::Fabric => Err(Error::NoSharing {
                        kind: HandleKind::Fabric,
                        source,
                    }),
                    Err(error) => {
                        tracing::warn!(%error, "fabric handles do not work here; using descriptors");
                        Ok(HandleKind::PosixFd)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_asks_for_fabric_handles_when_pytorch_is_told_to_use_them() {
        let asked = |conf| HandleType::auto(conf) == HandleType::Auto { fabric_asked: true };
        assert!(!asked(None));
        assert!(!asked(Some("")));
        assert!(!asked(Some(
            "expandable_segments:True,max_split_size_mb:128"
        )));
        assert!(asked(Some(
            "expandable_segments:True,expandable_segments_handle_type:FABRIC"
        )));
        assert!(asked(Some("use_fabric_handles:True")));
        assert!(!asked(Some("use_fabric_handles: False")));
    }
}
