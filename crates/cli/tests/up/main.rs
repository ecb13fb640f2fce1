//! `kiban up` as an operator runs it, with this host's kernel as the peer, in the tests' own network
//! namespaces.
//!
//! ```text
//! common      shared: a directory, a board, a second host
//! service     configuration, control, reload, shutdown
//! capture     captures of a port
//! kernel      the kernel's TCP as the peer, over TAP, TUN and a veth
//! atm         two hosts over cells
//! iperf       a server and a client of iperf3
//! failures    lost links, garbage, floods, many connections, exhausted resources
//! files       descriptors that linger, pipes instead of files
//! fuse        a file whose close never returns
//! folders     the directory of the sockets
//! impostors   hostile boards of other users, which root queries
//! attach      programs that attach through shared memory
//! run         unmodified programs
//! rdma        verbs on boards, over cells and to the kernel
//! vi          VIs over the TCP of two boards
//! sandbox     the privileges that a board drops after start
//! unit        boards under systemd
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
