//! `kiban ftam` as a user runs it, and under attack.
//!
//! ```text
//! common      a directory, a server for it, and a relay between client and server
//! client      the hosts file, wildcards, standard input and output, parallel transfers, mirror
//! collect     files that are fetched and then deleted, also by a client that is killed
//! commands    the commands over TCP and TLS, and their errors
//! peer        scripted peers of both roles
//! foreign     peers that behave as other implementations do
//! failures    full disks, forbidden files, peers that stall, guess passwords, flood or send invalid data
//! ```

mod client;
mod collect;
mod commands;
mod common;
mod failures;
mod foreign;
mod peer;
