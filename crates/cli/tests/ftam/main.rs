//! `kiban ftam` as a user runs it, and as whoever means no good meets it.
//!
//! ```text
//! common      a folder, a server of what is in it, and a relay between the two ends
//! commands    what works, over TCP and TLS, and the errors for what does not
//! failures    full disks, forbidden files, peers that stop, guess, crowd and lie
//! ```

mod commands;
mod common;
mod failures;
