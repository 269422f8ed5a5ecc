//! Objects that C holds: numbers that are looked up. A number that was given back, or was never given
//! out, finds nothing.

use std::any::Any;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::session::attached;
use crate::status::Failure;

/// Something that C holds by a pointer to `C`, which is no address.
pub(crate) trait Object: Any + Send + Sync {
    /// The type in the header.
    type C;
    /// What messages call it.
    const KIND: &'static str;
}

struct Entry {
    kind: &'static str,
    object: Arc<dyn Any + Send + Sync>,
}

static ENTRIES: LazyLock<Mutex<SlotMap<DefaultKey, Entry>>> = LazyLock::new(Mutex::default);

fn entries() -> MutexGuard<'static, SlotMap<DefaultKey, Entry>> {
    // Nothing panics while it is held.
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands an object out.
pub(crate) fn insert<T: Object>(object: T) -> *mut T::C {
    let entry = Entry {
        kind: T::KIND,
        object: Arc::new(object),
    };
    let number = entries().insert(entry).data().as_ffi();
    std::ptr::without_provenance_mut(number as usize)
}

/// The object behind a handle.
pub(crate) fn get<T: Object>(handle: *mut T::C) -> Result<Arc<T>, Failure> {
    attached()?;
    let key = key(handle)?;
    let entries = entries();
    let entry = entries.get(key).ok_or_else(|| stale::<T>(handle))?;
    let object = Arc::clone(&entry.object);
    object
        .downcast()
        .map_err(|_| other_kind::<T>(handle, entry.kind))
}

/// The object behind a handle, which finds nothing from now on. Of several callers one gets it.
pub(crate) fn remove<T: Object>(handle: *mut T::C) -> Result<Arc<T>, Failure> {
    attached()?;
    let key = key(handle)?;
    let mut entries = entries();
    let entry = entries.get(key).ok_or_else(|| stale::<T>(handle))?;
    let object = Arc::clone(&entry.object);
    let object = object
        .downcast()
        .map_err(|_| other_kind::<T>(handle, entry.kind))?;
    let entry = entries.remove(key);
    drop(entries);
    drop(entry);
    Ok(object)
}

fn key<C>(handle: *mut C) -> Result<DefaultKey, Failure> {
    if handle.is_null() {
        return Err(Failure::invalid("the handle is null"));
    }
    Ok(KeyData::from_ffi(handle.addr() as u64).into())
}

fn stale<T: Object>(handle: *mut T::C) -> Failure {
    Failure::invalid(format!(
        "{:#x} is no {} of GSan: it was ended already, or is no handle at all",
        handle.addr(),
        T::KIND
    ))
}

fn other_kind<T: Object>(handle: *mut T::C, found: &str) -> Failure {
    let article = |kind: &str| {
        if kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
            "an"
        } else {
            "a"
        }
    };
    Failure::invalid(format!(
        "{:#x} is {} {found}, not {} {}",
        handle.addr(),
        article(found),
        article(T::KIND),
        T::KIND
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u32);
    impl Object for Thing {
        type C = u8;
        const KIND: &'static str = "thing";
    }

    struct Other;
    impl Object for Other {
        type C = u8;
        const KIND: &'static str = "other";
    }

    #[test]
    fn a_handle_finds_its_object_until_it_is_removed() {
        let first = insert(Thing(1));
        let second = insert(Thing(2));
        assert_eq!(get::<Thing>(first).unwrap().0, 1);
        assert_eq!(get::<Thing>(second).unwrap().0, 2);
        assert_eq!(remove::<Thing>(first).unwrap().0, 1);
        assert!(get::<Thing>(first).is_err());
        assert!(remove::<Thing>(first).is_err());
        // Its place may be taken again; the handle stays stale.
        let third = insert(Thing(3));
        assert!(get::<Thing>(first).is_err());
        assert_eq!(remove::<Thing>(third).unwrap().0, 3);
        assert_eq!(remove::<Thing>(second).unwrap().0, 2);
    }

    #[test]
    fn what_is_no_handle_finds_nothing() {
        let local = 0_u8;
        for garbage in [0, 1, 8, usize::MAX, 1 << 63, (&raw const local).addr()] {
            let handle = std::ptr::without_provenance_mut(garbage);
            assert!(get::<Thing>(handle).is_err(), "{garbage:#x}");
            assert!(remove::<Thing>(handle).is_err(), "{garbage:#x}");
        }
    }

    #[test]
    fn a_handle_of_another_kind_is_told() {
        let handle = insert(Other);
        let Err(failure) = get::<Thing>(handle) else {
            panic!("it is no thing");
        };
        assert!(failure.message.ends_with("is an other, not a thing"));
        assert!(remove::<Thing>(handle).is_err());
        assert!(remove::<Other>(handle).is_ok());
    }
}
