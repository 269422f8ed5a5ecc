//! Names of source files, each at one address: the device library recognises them by that.

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Files {
    names: Mutex<HashSet<Arc<CStr>>>,
}

impl Files {
    /// `name`, at the address at which it stays.
    pub(super) fn intern(&self, name: &CStr) -> Arc<CStr> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<CStr> = name.into();
        names.insert(Arc::clone(&name));
        name
    }
}
