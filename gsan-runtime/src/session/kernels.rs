//! The numbers of kernels, by name: those of the ordering, kept where a launch finds them quickly.

use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;

/// Kernels that were launched. Numbers start at 1; 0 is a kernel without a name.
#[derive(Default)]
pub(super) struct Kernels {
    numbers: RwLock<FxHashMap<Arc<str>, u32>>,
}

impl Kernels {
    /// The number of a kernel. `register` gives a new one its number, and tells others of it.
    pub(super) fn number<E>(
        &self,
        name: &str,
        register: impl FnOnce() -> Result<u32, E>,
    ) -> Result<u32, E> {
        if name.is_empty() {
            return Ok(0);
        }
        let known = {
            let numbers = self.numbers.read().unwrap_or_else(PoisonError::into_inner);
            numbers.get(name).copied()
        };
        if let Some(number) = known {
            return Ok(number);
        }
        let mut numbers = self.numbers.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = numbers.get(name) {
            return Ok(number);
        }
        let number = register()?;
        numbers.insert(name.into(), number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_kernel_is_registered_once() {
        let kernels = Kernels::default();
        let mut registered = 0;
        let mut number = |name: &str| {
            let register = || {
                registered += 1;
                Ok::<u32, Infallible>(registered)
            };
            kernels.number(name, register).unwrap()
        };
        let numbers = ["fill", "sum", "fill", ""].map(&mut number);
        assert_eq!(numbers, [1, 2, 1, 0]);
        assert_eq!(registered, 2);
    }

    #[test]
    fn a_kernel_that_could_not_be_registered_is_tried_again() {
        let kernels = Kernels::default();
        assert_eq!(kernels.number("fill", || Err("no")), Err("no"));
        assert_eq!(kernels.number("fill", || Ok::<_, &str>(5)), Ok(5));
    }
}
