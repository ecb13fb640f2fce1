//! The contents of the messages of a mix: the request, and the statistics that the server returns
//! ([`crate::remote::protocol`]).
//!
//! Direction  data flows only from client to server.
//! Bounds    a request has at most [`FLOWS_MAX`] flows, [`CIRCUITS_MAX`] circuits and [`BULK_MAX`]
//!           connections.

use super::super::plan::{Fec, Kind};
use serde::{Deserialize, Serialize};

/// The maximum number of flows in a request.
pub(crate) const FLOWS_MAX: usize = 200;
/// The maximum number of circuits in a request, including copies.
pub(crate) const CIRCUITS_MAX: usize = 512;
/// The maximum number of these circuits that may be TCP connections.
pub(crate) const BULK_MAX: usize = 16;
/// The shortest and the longest sample interval, ms. The server sends a line for each sample; if a line is
/// missing, the client concludes that the server is gone.
pub(crate) const SAMPLE_MILLIS: std::ops::RangeInclusive<u64> = 100..=5000;

/// A request for a mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MixRequest {
    /// The duration, ms.
    pub(crate) millis: u32,
    /// The sample interval, ms.
    pub(crate) sample_ms: u32,
    /// Flows, in the order of their circuits.
    pub(crate) flows: Vec<Incoming>,
    /// The paths that are policed at the receiver.
    pub(crate) paths: Vec<Policed>,
}

/// A flow, reduced to what its receiver needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Incoming {
    pub(crate) kind: Kind,
    pub(crate) copies: u32,
    /// The number of the flow's path, if that path is policed.
    pub(crate) path: Option<u32>,
    pub(crate) mbps: Option<f64>,
    pub(crate) fec: Fec,
    pub(crate) block_octets: Option<u32>,
    pub(crate) stamps: bool,
    pub(crate) clock_ppm: f64,
    pub(crate) frame_octets: u32,
    pub(crate) window_kib: u32,
}

/// A path with a contract.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Policed {
    pub(crate) mbps: f64,
    pub(crate) cdvt_us: f64,
    pub(crate) tag: bool,
}

/// The statistics of a flow in a sample.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowSample {
    /// Cells that arrived and conformed.
    pub(crate) cells: u64,
    /// Cells that were missing or did not conform.
    pub(crate) cells_lost: u64,
    /// Units known to be lost.
    pub(crate) units_lost: u64,
    /// Octets of TCP.
    pub(crate) octets: u64,
    /// The median and the 99th percentile of the delay variation, us: the delay of each datagram, or each
    /// interval between TCP blocks, minus the shortest of the sample.
    pub(crate) variation_us: [Option<f64>; 2],
}

/// The totals of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FlowTotal {
    /// Cells that arrived and conformed.
    pub(crate) cells: u64,
    /// Cells that exceeded the contract and were dropped.
    pub(crate) policed: u64,
    /// Cells that exceeded the contract and were tagged.
    pub(crate) tagged: u64,
    /// Cells in duplicate datagrams.
    pub(crate) strange: u64,
    /// Datagrams received, and the number of them that arrived after a later one.
    pub(crate) datagrams: u64,
    pub(crate) reordered: u64,
    /// Units that arrived completely.
    pub(crate) whole: u64,
    /// Periods of a constant-rate stream that contain wrong octets.
    pub(crate) damaged: u64,
    pub(crate) variation_us: [Option<f64>; 2],
    /// The median and the 99th percentile of the time from when a unit was ready until its last cell arrived,
    /// minus the shortest delay of the flow's datagrams, ms.
    pub(crate) unit_ms: [Option<f64>; 2],
    pub(crate) matrices: u64,
    pub(crate) matrices_corrected: u64,
    pub(crate) matrices_uncorrectable: u64,
    pub(crate) sequence_losses: u64,
    pub(crate) clock_ppm: Option<f64>,
    pub(crate) recovered_ppm: Option<f64>,
    pub(crate) buffer_below_ms: f64,
    pub(crate) buffer_above_ms: f64,
    pub(crate) slips: u64,
    /// Octets of TCP.
    pub(crate) octets: u64,
}

/// The totals of all flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MixTotal {
    pub(crate) flows: Vec<FlowTotal>,
    /// Datagrams that the server's rate limit dropped.
    pub(crate) refused: u64,
    /// Datagrams dropped because the server's socket buffer was full.
    pub(crate) dropped_here: Option<u64>,
    /// By how much the shortest delay in the last quarter of the run exceeds that in the first quarter, us.
    pub(crate) drift_us: Option<f64>,
}
