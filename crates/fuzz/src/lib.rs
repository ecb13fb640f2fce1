//! Hostile input: what comes from a wire is read, answered and counted, and nothing breaks.
//!
//! Goal      a target for every decoder, for a board behind each kind of port, and for a session in all its states.
//! Target    a function of bytes that panics when a promise is broken. It shows *features* of what happened, such as
//!           rules broken and counters moved: an input that shows a new one is worth keeping.
//! Corpus    `corpus/<target>/`: inputs that reached something when they were found, and those that once broke it.
//! Short     `cargo test -p kiban-fuzz`: the whole corpus, and some thousands of mutations from a fixed seed.
//! Long      `make fuzz`: libFuzzer, guided by coverage, on stable Rust.
//! Left out  sanitizers: all crates but `ground` and `real` forbid unsafe code.
#![forbid(unsafe_code)]

mod aal1;
mod atm_board;
mod circuits;
mod craft;
mod efe_endpoint;
mod ethernet_board;
mod ftam;
#[cfg(test)]
mod hostile;
mod input;
mod ip_board;
mod iwarp;
pub mod mutate;
mod oracle;
mod osi;
mod osi_lower;
mod rnic;
mod session;
mod stand;
pub mod streams;
mod vi_nic;
mod wire;
mod x25;

use kiban_ground::RngKey;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// Returns the key of a board, NIC or endpoint under attack.
#[expect(clippy::disallowed_methods, reason = "the same input does the same each time")]
pub(crate) fn key(seed: u64) -> RngKey {
    RngKey::for_simulation(seed)
}

/// Takes features of what an input did.
pub struct Features<'a> {
    see: &'a mut dyn FnMut(u64),
}

impl<'a> Features<'a> {
    /// Features go to `see`, each as a number.
    pub fn to(see: &'a mut dyn FnMut(u64)) -> Features<'a> {
        Features { see }
    }

    /// Shows one.
    pub(crate) fn show(&mut self, feature: impl Hash) {
        let mut hasher = DefaultHasher::new();
        feature.hash(&mut hasher);
        (self.see)(hasher.finish());
    }
}

/// Something that takes hostile bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name; that of a decoder is its file's in `wire`.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8], &mut Features<'_>),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Every target.
pub fn targets() -> Vec<Target> {
    let mut all = wire::TARGETS.to_vec();
    all.extend_from_slice(osi::TARGETS);
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
        Target { name: "meeting", run: iwarp::meeting, seeds: iwarp::meeting_seeds },
        Target { name: "rdmap", run: iwarp::rdmap, seeds: iwarp::rdmap_seeds },
        Target { name: "rnic", run: rnic::run, seeds: rnic::seeds },
        Target { name: "efe_endpoint", run: efe_endpoint::run, seeds: efe_endpoint::seeds },
        Target { name: "lapb", run: x25::lapb, seeds: x25::lapb_seeds },
        Target { name: "x25", run: x25::x25, seeds: x25::x25_seeds },
        Target { name: "xot", run: x25::xot, seeds: x25::xot_seeds },
        Target { name: "lapb_link", run: circuits::link, seeds: circuits::seeds },
        Target { name: "x25_layer", run: circuits::layer, seeds: circuits::seeds },
        Target { name: "xot_connection", run: circuits::connection, seeds: circuits::seeds },
        Target { name: "streams", run: streams::run, seeds: streams::seeds },
        Target { name: "tpkt", run: osi_lower::tpkt, seeds: || vec![vec![3, 0, 0, 22], vec![3, 0, 0, 6]] },
        Target { name: "cotp", run: osi_lower::cotp, seeds: osi_lower::cotp_seeds },
        Target { name: "spdus", run: osi_lower::spdus, seeds: osi_lower::spdus_seeds },
        Target { name: "osi_lower", run: osi_lower::run, seeds: osi_lower::seeds },
        Target { name: "ftam", run: ftam::decoder, seeds: ftam::decoder_seeds },
        Target { name: "ftam_machine", run: ftam::machine, seeds: ftam::machine_seeds },
    ]);
    all
}

impl Target {
    /// Where its corpus is.
    pub fn corpus_dir(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }

    /// Its stored inputs with their names, in the order of the names; none where there is no directory.
    ///
    /// # Panics
    /// When an input cannot be read.
    pub fn corpus(&self) -> Vec<(String, Vec<u8>)> {
        let Ok(entries) = std::fs::read_dir(self.corpus_dir()) else { return Vec::new() };
        let mut inputs: Vec<_> = entries
            .map(|entry| {
                let path = entry.expect("an entry of the corpus").path();
                let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
                (name, std::fs::read(&path).expect("an input of the corpus can be read"))
            })
            .collect();
        inputs.sort();
        inputs
    }
}
