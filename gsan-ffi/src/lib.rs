//! The C ABI: `libgsan.so` and `gsan.h`.
//!
//! **Owns** the functions that C calls, the structures that they take, and what stands between C
//! and Rust: arguments are checked before anything is done with them ([`arguments`]), objects are
//! handed out as numbers that are looked up ([`handles`]), errors become a status and a text for the
//! thread ([`call`]).
//!
//! **Must never know** how anything is done: each function translates and calls `gsan-runtime`.
//!
//! The header is written from this crate by `cargo xtask header`: documentation of functions and
//! structures is text for people who write C, and modules come in the order of the header.
//!
//! **Invariants**
//! - No panic leaves a function: it becomes `GSAN_INTERNAL`.
//! - Nothing that C hands over is read before it was found to be there, aligned, and of a size that is
//!   known. A handle is never an address.
//! - What is exported begins with `gsan_`, or is one of the three functions of the pluggable
//!   allocator. What has been exported by a version of the ABI stays as it is (`abi/`).

#![expect(
    clippy::missing_safety_doc,
    reason = "every function may be called by anybody at any time; what pointers must point to is \
              said in the documentation of each"
)]

mod arguments;
mod call;
pub mod functions;
mod handles;
mod session;
mod status;
mod told;
pub mod types;

pub use functions::*;
pub use status::gsan_status;
pub use types::*;
