//! `kiban up` as an operator runs it, with this host's kernel as the peer. Each test has its own network
//! namespace.
//!
//! ```text
//! common      shared code: a directory, a board, a second host
//! service     configuration, control, reload, shutdown
//! capture     captures on a port
//! kernel      the kernel's TCP as the peer, over TAP, TUN and a veth
//! atm         two hosts that exchange cells
//! iperf       an iperf3 server and client
//! failures    lost links, garbage, floods, many connections, exhausted resources
//! files       descriptors that linger, pipes instead of files
//! fuse        a file whose close never returns
//! folders     the directory that contains the sockets
//! impostors   hostile boards run by other users and queried by root
//! attach      programs that attach through shared memory
//! run         unmodified programs
//! rdma        verbs on boards, over cells and with the kernel
//! vi          VIs over two boards' TCP
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
#[path = "../preload/mod.rs"]
mod preload;
mod rdma;
mod run;
mod sandbox;
mod service;
mod unit;
mod vi;
