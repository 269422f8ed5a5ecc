//! What every function is wrapped in: panics stop here, and errors become a status and a text.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::status::{Failure, gsan_status};

thread_local! {
    /// Why this thread's last call failed; `None`: it did not.
    static LAST_ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
    /// How many functions of the ABI this thread is inside of: callbacks may call others.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where and why it panicked there.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of a function that returns a status.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> gsan_status {
    match guarded(body) {
        Ok(()) => gsan_status::GSAN_OK,
        Err(status) => status,
    }
}

/// Runs the body of a function that returns a value, which is `otherwise` when it fails.
pub(crate) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(body).unwrap_or(otherwise)
}

/// Why this thread's last call failed, or an empty text.
pub(crate) fn last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST_ERROR
        .try_with(|last| match &*last.borrow() {
            Some(message) => message.as_ptr(),
            None => NOTHING.as_ptr(),
        })
        .unwrap_or(NOTHING.as_ptr())
}

fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, gsan_status> {
    note_panics();
    set_last_error(None);
    let _inside = Inside::enter();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(gsan_status::GSAN_INTERNAL, panic_message()),
    };
    // A callback of the body may have left its own.
    set_last_error(Some(&failure.message));
    Err(failure.status)
}

fn set_last_error(message: Option<&str>) {
    let message = message.map(|message| {
        let bytes: Vec<u8> = message.bytes().filter(|&byte| byte != 0).collect();
        CString::new(bytes).unwrap_or_default()
    });
    // A thread that is going away has no place for it any more.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = message);
}

/// The time that a thread spends inside of a function.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// Lets panics inside of functions be noted instead of printed. This is the hook of the library's own
/// copy of Rust; others in the process have their own.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
                return others(info);
            }
            let _ = PANIC.try_with(|panic| *panic.borrow_mut() = info.to_string());
        }));
    });
}

fn panic_message() -> String {
    let what = PANIC
        .try_with(|panic| std::mem::take(&mut *panic.borrow_mut()))
        .unwrap_or_default();
    format!("a fault of GSan, not of the program: {what}; please report it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> String {
        // SAFETY: the text is this thread's, and no call comes in between.
        let text = unsafe { CStr::from_ptr(last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn an_error_is_that_of_the_last_call() {
        assert_eq!(said(), "");
        let failed = status(|| Err(Failure::invalid("no such thing")));
        assert_eq!(failed, gsan_status::GSAN_INVALID_ARGUMENT);
        assert_eq!(said(), "no such thing");
        assert_eq!(status(|| Ok(())), gsan_status::GSAN_OK);
        assert_eq!(said(), "");
    }

    #[test]
    fn an_error_is_of_its_thread() {
        status(|| Err(Failure::invalid("mine")));
        std::thread::spawn(|| {
            assert_eq!(said(), "");
            status(|| Err(Failure::invalid("yours")));
        })
        .join()
        .unwrap();
        assert_eq!(said(), "mine");
    }

    #[test]
    fn a_panic_becomes_a_status_that_says_where() {
        let panicked = value(7, || {
            if last_error().is_null() {
                return Ok(8);
            }
            panic!("something is wrong")
        });
        assert_eq!(panicked, 7);
        assert!(said().contains("call.rs"), "{}", said());
        assert!(said().contains("something is wrong"), "{}", said());
        let panicked = status(|| panic!("again"));
        assert_eq!(panicked, gsan_status::GSAN_INTERNAL);
        assert!(said().contains("again"), "{}", said());
    }

    #[test]
    fn a_callback_may_call_and_fail() {
        let outer = status(|| {
            status(|| Err(Failure::invalid("inner")));
            Err(Failure::invalid("outer"))
        });
        assert_eq!(outer, gsan_status::GSAN_INVALID_ARGUMENT);
        assert_eq!(said(), "outer");
    }

    #[test]
    fn a_text_ends_where_it_ends() {
        status(|| Err(Failure::invalid("before\0after")));
        assert_eq!(said(), "beforeafter");
    }
}
