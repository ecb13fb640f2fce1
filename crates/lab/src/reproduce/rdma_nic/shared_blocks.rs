//! What the paper's design costs where it did not measure: both directions at once, which share the tables
//! and the DMA controller, and physical buffers that end within a message.

use super::work::{self, Buffers};
use crate::table::Table;
use kiban_sim::rnic_both_ways::Dmac;
use kiban_sim::rnic_clocks::{RDMA_NIC_2008, mib_per_second};
use serde::Serialize;

/// The throughput of Writes of one size while both directions are busy, MiB/s.
#[derive(Clone, Debug, Serialize)]
pub struct Contention {
    /// Message size.
    pub bytes: usize,
    /// Each direction alone, one message after another.
    pub alone: [f64; 2],
    /// Both, if the DMA controller has a data path for each direction.
    pub both: [f64; 2],
    /// Both, if the DMA controller moves a word per clock in total.
    pub both_one_path: [f64; 2],
}

/// The throughput of sending a long message from physical buffers of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Cuts {
    /// Size of the physical buffers; `None` if one holds the whole message.
    pub buffer_bytes: Option<usize>,
    /// Segments of the message.
    pub segments: u64,
    /// MiB/s.
    pub mib_per_second: f64,
}

/// Message sizes for both directions at once, and numbers of messages that make about 2 MiB.
const BOTH_WAYS: [(usize, usize); 4] = [(64, 32768), (1024, 2048), (4096, 512), (65536, 32)];
/// Bytes of the message that is sent from physical buffers.
const CUT_BYTES: usize = 65536;

/// Runs both directions at once.
pub(super) fn contention() -> Vec<Contention> {
    let row = |(bytes, messages): (usize, usize)| {
        let one = work::writes(bytes, 1, Buffers::One);
        let [sending, receiving] = [one.sending.repeat(messages), one.receiving.repeat(messages)];
        let alone = [&sending, &receiving].map(|steps| {
            let times = RDMA_NIC_2008.in_sequence(steps);
            mib_per_second(times.bytes, times.end)
        });
        let both = |dmac| {
            let both = RDMA_NIC_2008.both_ways(&sending, &receiving, dmac);
            [both.send, both.receive]
        };
        Contention { bytes, alone, both: both(Dmac::OnePathEach), both_one_path: both(Dmac::OnePathForBoth) }
    };
    BOTH_WAYS.into_iter().map(row).collect()
}

/// Sends from physical buffers of several sizes.
pub(super) fn cuts() -> Vec<Cuts> {
    let row = |buffer_bytes: Option<usize>| {
        let buffers = buffer_bytes.map_or(Buffers::One, Buffers::Of);
        let times = RDMA_NIC_2008.in_sequence(&work::writes(CUT_BYTES, 1, buffers).sending);
        let mib_per_second = mib_per_second(times.bytes, times.end);
        Cuts { buffer_bytes, segments: times.segments, mib_per_second }
    };
    [None, Some(16384), Some(4096), Some(1024)].into_iter().map(row).collect()
}

/// Returns the table of both directions at once.
pub(super) fn contention_table(rows: &[Contention]) -> Table {
    let mut table = Table::new("both directions at once, as in 2008, MiB/s")
        .number_column("bytes")
        .number_column("send alone")
        .number_column("receive alone")
        .number_column("send")
        .number_column("receive")
        .number_column("send, one path")
        .number_column("receive, one path");
    for row in rows {
        let rates = [row.alone, row.both, row.both_one_path].concat();
        let rates = rates.iter().map(|rate| format!("{rate:.1}"));
        table.row(std::iter::once(row.bytes.to_string()).chain(rates));
    }
    table.remark(
        "Both modules share the SMT, the PBLMT and the DMA controller. one path: the controller moves one \
        word per clock in total; otherwise, one in each direction. The paper does not say which.",
    );
    table
}

/// Returns the table of physical buffers.
pub(super) fn cuts_table(rows: &[Cuts]) -> Table {
    let mut table = Table::new("a Write of 64 KiB from physical buffers, as in 2008")
        .text_column("buffer bytes")
        .number_column("segments")
        .number_column("MiB/s");
    for row in rows {
        table.row([
            row.buffer_bytes.map_or_else(|| "all in one".to_owned(), |bytes| bytes.to_string()),
            row.segments.to_string(),
            format!("{:.1}", row.mib_per_second),
        ]);
    }
    table.remark("Each buffer is one DMA transfer, and a segment ends with its transfer (section 6.2.3).");
    table
}
