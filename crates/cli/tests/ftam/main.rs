//! `kiban ftam` as a user runs it, and under attack.
//!
//! ```text
//! common      a directory, a server of it, and a relay between client and server
//! commands    what works, over TCP and TLS, and the errors for what does not
//! failures    full disks, forbidden files, peers that stall, guess passwords, flood or send invalid data
//! ```

mod commands;
mod common;
mod failures;
