//! The pump: moves bytes between a socket and the protocol endpoint that runs on it.
//!
//! Purpose    all pending data is sent in one gathering write, without copying payload; all available data is
//!            received in one read, into memory that is passed up without copying.
//! Operation  two steps alternate: the endpoint works, then the socket is written and read as far as
//!            possible.
//! Reading    the read size begins small and grows as long as reads fill it, so that thousands of idle
//!            connections use little memory.
//! Limits     nothing is read while [`End::wants_bytes`] is false. The endpoint limits how much data waits to
//!            be sent.

mod end;
#[cfg(test)]
mod tests;
mod turns;

pub use end::End;
pub use turns::pump;
