//! Fuzz targets for hostile input: any bytes from the network must be parsed, answered and counted without
//! breaking anything.
//!
//! Goal      provide a target for every decoder, for a board behind each kind of port, and for a session in
//!           all its states.
//! Target    a function of bytes that panics when an invariant is violated. It reports *features* of the run,
//!           such as violated rules and increased counters. An input with a new feature is kept.
//! Corpus    `corpus/<target>/` holds inputs that had a new feature when they were found, and inputs that
//!           once caused a failure.
//! Short     `cargo test -p kiban-fuzz` runs the whole corpus, and a few thousand mutations from a fixed
//!           seed.
//! Long      `make fuzz` runs libFuzzer, guided by coverage, on stable Rust.
//! Left out  sanitizers: all protocol crates but `base` forbid unsafe code.
#![forbid(unsafe_code)]

mod atm;
mod features;
mod input;
mod key;
pub mod mutate;
mod osi;
mod rdma;
mod target;
mod tcpip;
mod vi_nic;
mod wire;

pub use features::Features;
pub use target::Target;
pub use tcpip::streams;

use atm::{aal1, atm_board};
use osi::{circuits, ftam, hif, lower, switch, upper, x25};
use rdma::{efe_endpoint, iwarp, nic_hif, rnic, roce, roce_cm, roce_endpoint};
use tcpip::{ethernet_board, ip_board, oracle, session};

/// Returns every target.
pub fn targets() -> Vec<Target> {
    let mut all = wire::TARGETS.to_vec();
    all.extend_from_slice(upper::TARGETS);
    all.extend([
        Target { name: "aal1", run: aal1::decoder, seeds: aal1::decoder_seeds },
        Target { name: "aal1_receiver", run: aal1::receiver, seeds: aal1::receiver_seeds },
        Target { name: "oracle", run: oracle::run, seeds: oracle::seeds },
        Target { name: "ip_board", run: ip_board::run, seeds: ip_board::seeds },
        Target { name: "ethernet_board", run: ethernet_board::run, seeds: ethernet_board::seeds },
        Target { name: "atm_board", run: atm_board::run, seeds: atm_board::seeds },
        Target { name: "session", run: session::run, seeds: session::seeds },
        Target { name: "vi_nic", run: vi_nic::run, seeds: vi_nic::seeds },
        Target { name: "ddp", run: iwarp::ddp, seeds: iwarp::ddp_seeds },
        Target { name: "datagram", run: iwarp::datagram, seeds: iwarp::datagram_seeds },
        Target { name: "oob_setup", run: iwarp::oob_setup, seeds: iwarp::oob_setup_seeds },
        Target { name: "rdmap", run: iwarp::rdmap, seeds: iwarp::rdmap_seeds },
        Target { name: "roce", run: roce::packet, seeds: roce::seeds },
        Target { name: "roce_cm", run: roce_cm::decoder, seeds: roce_cm::decoder_seeds },
        Target { name: "roce_cm_machine", run: roce_cm::machine, seeds: roce_cm::machine_seeds },
        Target { name: "nic_hif", run: nic_hif::run, seeds: nic_hif::seeds },
        Target { name: "rnic", run: rnic::run, seeds: rnic::seeds },
        Target { name: "roce_endpoint", run: roce_endpoint::run, seeds: roce_endpoint::seeds },
        Target { name: "efe_endpoint", run: efe_endpoint::run, seeds: efe_endpoint::seeds },
        Target { name: "lapb", run: x25::lapb, seeds: x25::lapb_seeds },
        Target { name: "x25", run: x25::x25, seeds: x25::x25_seeds },
        Target { name: "xot", run: x25::xot, seeds: x25::xot_seeds },
        Target { name: "lapb_framing", run: x25::lapb_framing, seeds: x25::lapb_framing_seeds },
        Target { name: "x29", run: x25::x29, seeds: x25::x29_seeds },
        Target { name: "x25_switch", run: switch::switch, seeds: switch::seeds },
        Target { name: "pad", run: switch::pad, seeds: switch::seeds },
        Target { name: "lapb_link", run: circuits::link, seeds: circuits::seeds },
        Target { name: "x25_layer", run: circuits::layer, seeds: circuits::seeds },
        Target { name: "xot_connection", run: circuits::connection, seeds: circuits::seeds },
        Target { name: "streams", run: streams::run, seeds: streams::seeds },
        Target { name: "tpkt", run: lower::tpkt, seeds: || vec![vec![3, 0, 0, 22], vec![3, 0, 0, 6]] },
        Target { name: "cotp", run: lower::cotp, seeds: lower::cotp_seeds },
        Target { name: "spdus", run: lower::spdus, seeds: lower::spdus_seeds },
        Target { name: "osi_lower", run: lower::run, seeds: lower::seeds },
        Target { name: "ftam", run: ftam::decoder, seeds: ftam::decoder_seeds },
        Target { name: "ftam_machine", run: ftam::machine, seeds: ftam::machine_seeds },
        Target { name: "hif", run: hif::run, seeds: hif::seeds },
    ]);
    all
}
