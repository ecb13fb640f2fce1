//! RoCEv2 and EFE over UDP sockets, compared with the sockets alone.
//!
//! Claim     a Write into another process's memory moves at least 0.7 times the payload of a bare UDP stream,
//!           and half a round trip of a short Send takes at most 1.3 times that of a bare datagram.
//! Sides     Writes are compared with trains of datagrams of the size that a packet of the Write has
//!           (UDP_SEGMENT and UDP_GRO), and Sends with a bare ping-pong of such datagrams. Beside them stand
//!           kiban's iWARP and raw TCP with the same block size, over the same link.
//! EFE       Writes over EFE are compared with trains of datagrams of the length of EFE's frames.
//! Minimum   the same bare stream is compared with the least that RoCEv2 asks of its ends (`minimum.rs`).
//! Links     the loopback, and a veth pair between two network namespaces with MTU 1500 and 9000.
//! Fair      the other end is another process on another CPU. Both sides wait in the same way. The whole
//!           payload of a bare datagram counts, so the headers of RoCEv2 count against it. The bare stream
//!           has no flow control: it is measured at the receiver, and what does not fit into its socket is
//!           lost. RoCEv2 is measured at the sender until the receiver has acknowledged everything.
//! CPU       is compared between two sides that sleep, because polling ends use all of it. The bare stream
//!           spends CPU time on datagrams that are lost, so RoCEv2 is compared with raw TCP instead.
//! Groups    `KIBAN_BENCH_ROWS=loopback,minimum,efe,veth,beside,send,cost,idle` selects groups of rows;
//!           `beside` adds iWARP and raw TCP to the streams of `loopback` and `veth`, and `minimum` adds its
//!           row to that of `veth`.

mod end;
mod idle;
mod minimum;
mod rows;
mod streams;
mod udp;

pub(crate) use rows::run;

use crate::rdma::wait;

/// Executes a command as the other end of a comparison. Returns whether it is one of this family.
pub(crate) fn serve(words: &[&str]) -> bool {
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    match words[0] {
        "roce" => streams::serve(number(1), wait(words[2])),
        "roce-idle" => idle::serve(number(1)),
        "roce-minimum-sink" => minimum::sink(number(1)),
        "udp-sink" => udp::sink(wait(words[1])),
        "udp-echo" => udp::echo(number(1)),
        _ => return false,
    }
    true
}
