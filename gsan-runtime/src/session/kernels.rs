//! The names of kernels, and their numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use gsan_core::layout::limits;
use rustc_hash::FxHashMap;

/// Kernels by name. Numbers start at 1; 0 is a kernel without a name, and those of which there are too
/// many.
#[derive(Default)]
pub(super) struct Kernels {
    table: RwLock<Table>,
    unnamed: AtomicU64,
}

#[derive(Default)]
struct Table {
    numbers: FxHashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Kernels {
    /// The number of a kernel. `register` is told of a new one, before anybody gets its number.
    pub(super) fn number(&self, name: &str, register: impl FnOnce(u32, &str)) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let known = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.numbers.get(name).copied()
        };
        if let Some(number) = known {
            return number;
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = table.numbers.get(name) {
            return number;
        }
        if table.names.len() + 1 >= limits::KERNELS as usize {
            self.unnamed.fetch_add(1, Relaxed);
            return 0;
        }
        let name: Arc<str> = name.into();
        table.names.push(Arc::clone(&name));
        let number = table.names.len() as u32;
        register(number, &name);
        table.numbers.insert(name, number);
        number
    }

    /// The name of a number.
    pub(super) fn name(&self, number: u32) -> Option<Arc<str>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.names.get((number as usize).checked_sub(1)?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_keeps_its_number_and_is_registered_once() {
        let kernels = Kernels::default();
        let mut registered = Vec::new();
        let mut number = |name: &str| {
            kernels.number(name, |number, name| {
                registered.push((number, name.to_owned()))
            })
        };
        assert_eq!(number("fill"), 1);
        assert_eq!(number("sum"), 2);
        assert_eq!(number("fill"), 1);
        assert_eq!(number(""), 0);
        assert_eq!(registered, [(1, "fill".to_owned()), (2, "sum".to_owned())]);
        assert_eq!(kernels.name(2).as_deref(), Some("sum"));
        assert_eq!(kernels.name(0), None);
        assert_eq!(kernels.name(3), None);
    }

    #[test]
    fn kernels_beyond_the_table_have_no_name() {
        let kernels = Kernels::default();
        for kernel in 1..limits::KERNELS {
            assert_eq!(kernels.number(&kernel.to_string(), |_, _| {}), kernel);
        }
        assert_eq!(kernels.number("one more", |_, _| {}), 0);
        assert_eq!(kernels.number("1", |_, _| {}), 1);
    }
}
