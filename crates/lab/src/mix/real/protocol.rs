//! The messages of the two ends of a mix on the control connection of `kiban lab serve`.
//!
//! ```text
//! client: Ask::Mix(Request)   server: Ready (a port for datagrams, one for TCP, a nonce) or Impossible
//! client: a datagram with a cookie            server: Heard (the cookie)
//! client: TCP connections, Go, datagrams ...  server: Sample, Sample ...
//! client: Ended (cells sent)  server: Total
//! ```
//!
//! Direction data flows only from client to server; the server sends nothing but these lines, to a client
//! that knows the token.
//! Aim       a client sends payload to a port of UDP only after the server has returned the cookie that the
//!           client sent to that port, so the port is the server's. Until then at most [`COOKIE_TRIES_MAX`]
//!           short datagrams go there.
//! Bounds    a request has at most [`FLOWS_MAX`] flows, [`CIRCUITS_MAX`] circuits and [`BULK_MAX`]
//!           connections, and a line of the server at most [`TOLD_BYTES_MAX`].

use super::super::plan::{Fec, Kind};
use serde::{Deserialize, Serialize};

/// Flows of a request.
pub(super) const FLOWS_MAX: usize = 200;
/// Their circuits, copies counted.
pub(super) const CIRCUITS_MAX: usize = 512;
/// Connections of TCP among these.
pub(super) const BULK_MAX: usize = 16;
/// The shortest and the longest sample interval, ms: each sample is a line, and a missing line means that the
/// peer is gone.
pub(super) const SAMPLE_MILLIS: std::ops::RangeInclusive<u64> = 100..=5000;
/// The longest line that a client accepts.
pub(super) const TOLD_BYTES_MAX: u64 = 1 << 20;

/// How many times a cookie is sent, because any may be lost.
pub(super) const COOKIE_TRIES_MAX: usize = 25;

/// A request for a mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MixRequest {
    /// For how long, ms.
    pub(super) millis: u32,
    /// The sample interval, ms.
    pub(super) sample_ms: u32,
    /// Flows, in the order of their circuits.
    pub(super) flows: Vec<Incoming>,
    /// Paths that are policed at the receiver.
    pub(super) paths: Vec<Policed>,
}

/// A flow as its receiver has to know it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Incoming {
    pub(super) kind: Kind,
    pub(super) copies: u32,
    /// Its path, if that is policed.
    pub(super) path: Option<u32>,
    pub(super) mbps: Option<f64>,
    pub(super) fec: Fec,
    pub(super) block_octets: Option<u32>,
    pub(super) stamps: bool,
    pub(super) clock_ppm: f64,
    pub(super) frame_octets: u32,
    pub(super) window_kib: u32,
}

/// A path with a contract.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Policed {
    pub(super) mbps: f64,
    pub(super) cdvt_us: f64,
    pub(super) tag: bool,
}

/// A message from the client after its request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum ClientMessage {
    /// Start.
    Go,
    /// Everything has been sent: this many datagrams of each circuit.
    Ended(Vec<u64>),
}

/// A message from the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum ServerMessage {
    /// Send there.
    Ready { datagrams: u16, streams: u16, nonce: String },
    /// The cookie received in a datagram, hexadecimal.
    Heard(String),
    /// A limit is in the way, or the request makes no sense: what to change.
    Impossible(String),
    /// What arrived in the next sample, by flow.
    Sample(Vec<FlowSample>),
    /// The totals.
    Total(Box<Total>),
}

/// A flow in a sample.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct FlowSample {
    /// Cells that arrived and conformed.
    pub(super) cells: u64,
    /// Cells that were missing or did not conform.
    pub(super) cells_lost: u64,
    /// Units known to be lost.
    pub(super) units_lost: u64,
    /// Octets of TCP.
    pub(super) octets: u64,
    /// By how much datagrams, or blocks of TCP, were later than the fastest of the sample, us: half of them,
    /// and 99 of 100.
    pub(super) variation_us: [Option<f64>; 2],
}

/// A flow in all.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct FlowTotal {
    /// Cells that arrived and conformed.
    pub(super) cells: u64,
    /// Cells that broke the contract and were dropped.
    pub(super) policed: u64,
    /// Cells that broke it and were marked.
    pub(super) tagged: u64,
    /// Cells in duplicate datagrams.
    pub(super) strange: u64,
    /// Datagrams, and those of them that arrived after a later one.
    pub(super) datagrams: u64,
    pub(super) reordered: u64,
    /// Units that arrived completely.
    pub(super) whole: u64,
    /// Periods with wrong octets, of a stream.
    pub(super) damaged: u64,
    pub(super) variation_us: [Option<f64>; 2],
    /// From when a unit was there until its last cell was, less the least way of the flow's datagrams, ms.
    pub(super) unit_ms: [Option<f64>; 2],
    pub(super) matrices: u64,
    pub(super) matrices_corrected: u64,
    pub(super) matrices_uncorrectable: u64,
    pub(super) sequence_losses: u64,
    pub(super) clock_ppm: Option<f64>,
    pub(super) recovered_ppm: Option<f64>,
    pub(super) buffer_below_ms: f64,
    pub(super) buffer_above_ms: f64,
    pub(super) slips: u64,
    /// Octets of TCP.
    pub(super) octets: u64,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Total {
    pub(super) flows: Vec<FlowTotal>,
    /// Datagrams that the server's limit of its rate refused.
    pub(super) refused: u64,
    /// Datagrams that found the server's own buffer full.
    pub(super) dropped_here: Option<u64>,
    /// By how much the fastest datagram of the last quarter was later than that of the first, us.
    pub(super) drift_us: Option<f64>,
}
