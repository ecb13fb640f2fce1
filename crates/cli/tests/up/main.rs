//! `kiban up` as an operator runs it, with this host's kernel as the other end, in network namespaces of the
//! tests' own.
//!
//! ```text
//! common      what all share: a folder, a board, a second host
//! service     configuration, control, reload, end
//! capture     records of what passes
//! kernel      the kernel's TCP as the peer, over TAP, TUN and a veth
//! atm         two hosts over cells
//! iperf       a server and a client of iperf3
//! failures    links that go, garbage, floods, crowds, nothing left
//! files       descriptors that linger, pipes in place of files
//! fuse        a file whose close is never answered
//! folders     the directory of the sockets
//! impostors   boards of other users, which root asks
//! attach      programs that attach, through shared memory
//! run         programs as they are
//! rdma        verbs on boards, over cells and to the kernel
//! vi          VIs over the TCP of two boards
//! sandbox     what a board drops after start
//! unit        as systemd runs it
//! ```

mod atm;
mod attach;
mod capture;
mod common;
mod failures;
mod files;
mod folders;
mod fuse;
mod impostors;
mod iperf;
mod kernel;
mod rdma;
mod run;
mod sandbox;
mod service;
mod unit;
mod vi;
