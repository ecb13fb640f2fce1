//! `kiban up` as an operator runs it, with this host's kernel as the peer. Each test has its own network
//! namespace.
//!
//! ```text
//! common              shared code: a directory, a board, a second host
//! dashboard           Grafana's dashboard, with Prometheus
//! service             configuration, control, reload, shutdown
//! failures            lost links, garbage, floods, many connections, exhausted resources
//! unit                boards under systemd
//! links/kernel        the kernel's TCP as the peer, over TAP, TUN and a veth
//! links/atm           two hosts that exchange cells
//! links/dhcp          an address leased from dnsmasq
//! links/iperf         an iperf3 server and client
//! links/capture       captures on a port
//! links/ping          pings from a board
//! links/snooping      a bridge that learns the multicast groups of a board
//! nics/rdma           verbs on boards, over cells and with the kernel
//! nics/board_nic      programs that use a board's NIC
//! nics/board_verbs    unmodified programs that use a board's NIC
//! nics/nic_hostile    programs that misuse a board's NIC
//! nics/vi             VIs over two boards' TCP
//! programs/attach     programs that attach through shared memory
//! programs/datagrams  datagram sockets of programs
//! programs/lab        measurements over the TCP of two boards
//! programs/run        unmodified programs
//! security/files      descriptors that linger, pipes instead of files
//! security/fuse       a file whose close never returns
//! security/folders    the directory that contains the sockets
//! security/impostors  hostile boards run by other users and queried by root
//! security/sandbox    the privileges that a board drops after start
//! ```

mod common;
mod dashboard;
mod failures;
mod links;
mod nics;
#[path = "../preload/mod.rs"]
mod preload;
mod programs;
mod security;
mod service;
mod unit;
