//! `kiban ftam` as a user runs it, and under attack.
//!
//! ```text
//! common      a directory, a server for it, and a relay between client and server
//! commands    the commands over TCP and TLS, and their errors
//! failures    full disks, forbidden files, peers that stall, guess passwords, flood or send invalid data
//! ```

mod commands;
mod common;
mod failures;
