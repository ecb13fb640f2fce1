//! The messages between the two ends of a mix, on the control connection of `kiban lab serve`.
//!
//! ```text
//! client: Ask::Mix(Request)   server: Ready (a port for datagrams, one for TCP, a nonce) or Impossible
//! client: a datagram with a cookie            server: Heard (the cookie)
//! client: TCP connections, Go, datagrams ...  server: Sample, Sample ...
//! client: Ended (cells sent)  server: Total
//! ```
//!
//! Direction data flows only from client to server. The server sends only these lines, and only to a client
//!           that knows the token.
//! that knows the token.
//! Target    a client sends payload to a UDP port only after the server has returned the cookie that the
//!           client sent to that port, which proves that the port is the server's. Until then the client
//!           sends at most [`COOKIE_TRIES_MAX`] short datagrams to it.
//! Bounds    a request has at most [`FLOWS_MAX`] flows, [`CIRCUITS_MAX`] circuits and [`BULK_MAX`]
//!           connections, and a line of the server at most [`SERVER_LINE_BYTES_MAX`].

use super::super::plan::{Fec, Kind};
use serde::{Deserialize, Serialize};

/// The most flows of a request.
pub(super) const FLOWS_MAX: usize = 200;
/// The maximum number of circuits in a request, including copies.
pub(super) const CIRCUITS_MAX: usize = 512;
/// The maximum number of these circuits that may be TCP connections.
pub(super) const BULK_MAX: usize = 16;
/// The shortest and the longest sample interval, ms. The server sends a line for each sample, and a missing
/// line means that it is gone.
pub(super) const SAMPLE_MILLIS: std::ops::RangeInclusive<u64> = 100..=5000;
/// The longest line that a client accepts.
pub(super) const SERVER_LINE_BYTES_MAX: u64 = 1 << 20;

/// How often a cookie is sent at most, because any datagram may be lost.
pub(super) const COOKIE_TRIES_MAX: usize = 25;

/// A request for a mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MixRequest {
    /// The duration, ms.
    pub(super) millis: u32,
    /// The sample interval, ms.
    pub(super) sample_ms: u32,
    /// Flows, in the order of their circuits.
    pub(super) flows: Vec<Incoming>,
    /// The paths that are policed at the receiver.
    pub(super) paths: Vec<Policed>,
}

/// A flow, reduced to what its receiver needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Incoming {
    pub(super) kind: Kind,
    pub(super) copies: u32,
    /// Its path, if the path is policed.
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
    /// The client has sent everything: this many datagrams on each circuit.
    Ended(Vec<u64>),
}

/// A message from the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum ServerMessage {
    /// The ports to send to, and the nonce to send.
    Ready { datagrams: u16, streams: u16, nonce: String },
    /// The cookie received in a datagram, hexadecimal.
    Heard(String),
    /// The request exceeds a limit or is invalid; the text says what to change.
    Impossible(String),
    /// What arrived in the next sample, by flow.
    Sample(Vec<FlowSample>),
    /// The totals.
    Total(Box<Total>),
}

/// The statistics of a flow in a sample.
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
    /// The median and the 99th percentile of the delay variation, us: the delay of each datagram, or each
    /// interval between TCP blocks, minus the shortest of the sample.
    pub(super) variation_us: [Option<f64>; 2],
}

/// The totals of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct FlowTotal {
    /// Cells that arrived and conformed.
    pub(super) cells: u64,
    /// Cells that exceeded the contract and were dropped.
    pub(super) policed: u64,
    /// Cells that exceeded the contract and were tagged.
    pub(super) tagged: u64,
    /// Cells in duplicate datagrams.
    pub(super) strange: u64,
    /// Datagrams received, and the number of them that arrived after a later one.
    pub(super) datagrams: u64,
    pub(super) reordered: u64,
    /// Units that arrived completely.
    pub(super) whole: u64,
    /// Periods of a constant-rate stream that contain wrong octets.
    pub(super) damaged: u64,
    pub(super) variation_us: [Option<f64>; 2],
    /// The median and the 99th percentile of the time from when a unit was ready until its last cell arrived,
    /// minus the shortest delay of the flow's datagrams, ms.
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

/// The totals of all flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Total {
    pub(super) flows: Vec<FlowTotal>,
    /// Datagrams that the server's rate limit dropped.
    pub(super) refused: u64,
    /// Datagrams dropped because the server's socket buffer was full.
    pub(super) dropped_here: Option<u64>,
    /// By how much the shortest delay of the last quarter of the time exceeds that of the first quarter, us.
    pub(super) drift_us: Option<f64>,
}
