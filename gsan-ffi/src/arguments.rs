//! Arguments as C hands them over, checked: null, misaligned, no address at all, of an unknown size,
//! no UTF-8.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::size_of;

use crate::status::Failure;

/// No program has memory below: what is found there is a number that was taken for an address.
const FIRST_ADDRESS: usize = 4096;

/// No structure of any version is larger: a `size` beyond was not set.
const MOST_SIZE: usize = 1 << 16;

fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    let address = pointer.addr();
    if address == 0 {
        return Err(Failure::invalid(format!("{name} is null")));
    }
    if address < FIRST_ADDRESS {
        return Err(Failure::invalid(format!(
            "{name} is {address:#x}, which is no address"
        )));
    }
    let align = align_of::<T>();
    if !address.is_multiple_of(align) {
        return Err(Failure::invalid(format!(
            "{name} is {address:#x}, which is no multiple of {align}"
        )));
    }
    Ok(())
}

/// Where a result goes. It need not be initialised.
pub(crate) struct Output<'a, T> {
    place: *mut T,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Copy> Output<'_, T> {
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `output` checked the place, which its caller says to be writable.
        unsafe { self.place.write(value) };
    }
}

/// A place for a result.
///
/// # Safety
/// If `pointer` is an address at all, a `T` can be written there.
pub(crate) unsafe fn output<'a, T: Copy>(
    pointer: *mut T,
    name: &str,
) -> Result<Output<'a, T>, Failure> {
    check(pointer, name)?;
    Ok(Output {
        place: pointer,
        lifetime: PhantomData,
    })
}

/// A place for a result that may be left out.
///
/// # Safety
/// As for [`output`].
pub(crate) unsafe fn optional_output<'a, T: Copy>(
    pointer: *mut T,
    name: &str,
) -> Result<Option<Output<'a, T>>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { output(pointer, name) }.map(Some)
}

/// `count` values. None need no address.
///
/// # Safety
/// If `pointer` is an address at all, `count` values lie there.
pub(crate) unsafe fn slice<'a, T: Copy>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    fits::<T>(pointer, count, name)?;
    // SAFETY: checked above, and as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Room for up to `count` values.
pub(crate) struct Room<'a, T> {
    place: *mut T,
    count: usize,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Copy> Room<'_, T> {
    /// Writes as many of the values as there is room for.
    pub(crate) fn fill(&self, values: &[T]) {
        let count = values.len().min(self.count);
        // SAFETY: `room` checked the place, which its caller says to be writable; what is there is
        // C's, and so apart from `values`.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.place, count) };
    }
}

/// Room for `count` values. None need no address.
///
/// # Safety
/// If `pointer` is an address at all, `count` values can be written there.
pub(crate) unsafe fn room<'a, T: Copy>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<Room<'a, T>, Failure> {
    let mut place = std::ptr::NonNull::dangling().as_ptr();
    if count > 0 {
        check(pointer, name)?;
        fits::<T>(pointer, count, name)?;
        place = pointer;
    }
    Ok(Room {
        place,
        count,
        lifetime: PhantomData,
    })
}

fn fits<T>(pointer: *const T, count: usize, name: &str) -> Result<(), Failure> {
    let bytes = count.checked_mul(size_of::<T>());
    let end = bytes.and_then(|bytes| pointer.addr().checked_add(bytes));
    match (bytes, end) {
        (Some(bytes), Some(_)) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Failure::invalid(format!(
            "{name}: {count} values are more than any memory holds"
        ))),
    }
}

/// A text.
///
/// # Safety
/// If `pointer` is an address at all, a text that ends with a zero byte lies there.
pub(crate) unsafe fn c_text<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr, Failure> {
    check(pointer, name)?;
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A text in UTF-8.
///
/// # Safety
/// As for [`c_text`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as the caller says.
    let text = unsafe { c_text(pointer, name) }?;
    text.to_str().map_err(|error| {
        Failure::invalid(format!(
            "{name} is no UTF-8: the byte at {} is wrong",
            error.valid_up_to()
        ))
    })
}

/// A text in UTF-8 that may be left out.
///
/// # Safety
/// As for [`c_text`].
pub(crate) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { text(pointer, name) }.map(Some)
}

/// Where a text goes: room in bytes before, bytes needed after.
pub(crate) struct TextRoom<'a> {
    place: Option<*mut u8>,
    room: usize,
    needed: Output<'a, usize>,
}

impl TextRoom<'_> {
    /// Writes the text and its zero byte if there is room, and says how many bytes that needs.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        // A zero byte would end it.
        let text: Vec<u8> = text.bytes().filter(|&byte| byte != 0).collect();
        let needed = text.len() + 1;
        self.needed.set(needed);
        let Some(place) = self.place else {
            return Ok(());
        };
        if self.room < needed {
            return Err(Failure::invalid(format!(
                "the text needs {needed} bytes, there is room for {}",
                self.room
            )));
        }
        // SAFETY: `text_room` checked the place, which its caller says to have that much room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
            place.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// Room for a text: `*bytes` bytes at `text`, which may be null to ask how many are needed.
///
/// # Safety
/// If `bytes` is an address at all, a number lies there and can be written; if `text` is one, that
/// many bytes can be written there.
pub(crate) unsafe fn text_room<'a>(
    text: *mut c_char,
    bytes: *mut usize,
) -> Result<TextRoom<'a>, Failure> {
    // SAFETY: as the caller says.
    let needed = unsafe { output(bytes, "bytes") }?;
    let place = if text.is_null() {
        None
    } else {
        check(text, "text")?;
        Some(text.cast::<u8>())
    };
    let room = match place {
        // SAFETY: checked by `output`, and as the caller says.
        Some(_) => unsafe { bytes.read() },
        None => 0,
    };
    Ok(TextRoom {
        place,
        room,
        needed,
    })
}

/// A structure whose first field says its size, so that later versions can append to it.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Versioned: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// Its size in the first version that had it.
    const LEAST: usize;
}

/// Reads the size that a structure says it has.
///
/// # Safety
/// `pointer` is aligned, and a number lies there.
unsafe fn stated_size<T: Versioned>(pointer: *const T, name: &str) -> Result<usize, Failure> {
    // SAFETY: as the caller says; the size is the first field.
    let size = unsafe { pointer.cast::<usize>().read() };
    if !(T::LEAST..=MOST_SIZE).contains(&size) {
        return Err(Failure::invalid(format!(
            "{name}->size is {size}: set it to sizeof({}), which is {}",
            T::NAME,
            size_of::<T>()
        )));
    }
    Ok(size)
}

/// A structure that C fills. What an older program does not know of is zero.
///
/// # Safety
/// If `pointer` is an address at all, a structure that has the size it says lies there.
pub(crate) unsafe fn versioned<T: Versioned>(pointer: *const T, name: &str) -> Result<T, Failure> {
    check(pointer, name)?;
    // SAFETY: as the caller says.
    let size = unsafe { stated_size(pointer, name) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the structure has `size` bytes.
    let rest = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::invalid(format!(
            "{name} has fields that this library does not know: the program was built for a newer \
             GSan (sizeof({}) is {size} there and {} here)",
            T::NAME,
            size_of::<T>()
        )));
    }
    // SAFETY: zeros are a value, and so is what C's bytes make of it; `known` bytes are in both.
    unsafe {
        let mut value: T = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast(), known);
        Ok(value)
    }
}

/// Where a structure goes whose size C has set.
pub(crate) struct VersionedOutput<'a, T> {
    place: *mut u8,
    size: usize,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Versioned> VersionedOutput<'_, T> {
    /// Writes as much of the value as C knows of, the size excepted.
    pub(crate) fn set(&self, value: &T) {
        self.set_at(0, value);
    }

    /// The same, of an array of structures.
    pub(crate) fn set_at(&self, index: usize, value: &T) {
        let known = self.size.min(size_of::<T>());
        let from: *const u8 = std::ptr::from_ref(value).cast();
        // SAFETY: `versioned_output` checked the place, whose structures have `size` bytes each; `known`
        // bytes are in both.
        unsafe {
            let place = self.place.add(index * self.size);
            place.write_bytes(0, self.size);
            std::ptr::copy_nonoverlapping(from, place, known);
            place.cast::<usize>().write_unaligned(self.size);
        }
    }
}

/// A place for a structure.
///
/// # Safety
/// If `pointer` is an address at all, a structure whose size is set lies there and can be written. For
/// [`VersionedOutput::set_at`]: as many as are written.
pub(crate) unsafe fn versioned_output<'a, T: Versioned>(
    pointer: *mut T,
    name: &str,
) -> Result<VersionedOutput<'a, T>, Failure> {
    check(pointer, name)?;
    Ok(VersionedOutput {
        place: pointer.cast(),
        // SAFETY: as the caller says.
        size: unsafe { stated_size(pointer, name) }?,
        lifetime: PhantomData,
    })
}
