//! The main weakness of each paper's machine, and the same measurement with today's kiban.
//!
//! Method    each weakness is measured in virtual time under the paper's conditions: the same line, hosts,
//!           clock rates or load. [`Weakness::how`] says what kiban does differently.
//! Verdict   a weakness counts as eliminated if the measured value meets [`Weakness::bound`].

use super::flow::{self, Flow, Interval};
use super::osi_board::{self, LineUse};
use super::wide_area::map::{Map, SLOW_MBPS, USUAL_MBPS};
use super::wide_area::{BUFFERS, MESSAGES};
use super::{Report, Verdict};
use crate::table::Table;
use kiban_sim::Plan;
use kiban_tcpip::tcp;
use serde::Serialize;
use std::time::Duration;

/// A weakness.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Weakness {
    /// The paper's name on the command line.
    pub paper: &'static str,
    /// A description.
    pub what: &'static str,
    /// The result with the model of the paper's machine.
    pub then: String,
    /// The result with kiban at its best.
    pub best: String,
    /// Whether the weakness is eliminated.
    pub gone: bool,
    /// The condition under which the weakness counts as eliminated.
    pub bound: &'static str,
    /// How kiban differs, and what remains of the weakness.
    pub how: &'static str,
    /// Where the value is recorded.
    pub kept: &'static str,
}

/// F-DATA sizes of the measurement of line utilization, bytes.
const FDATA: [usize; 7] = [500, 1000, 2000, 3000, 4000, 6000, 8000];
/// Sessions and window of paper \[1\]'s worst point.
const SESSIONS: usize = 60;
const WINDOW_BYTES: u32 = 256 << 10;
/// The minimum share of a session that counts as fair, in percent of an equal share.
const EVEN_PERCENT: f64 = 90.0;
/// The minimum utilization of a line that counts as full, in percent.
const FULL_PERCENT: f64 = 99.0;

/// The results of the additional runs.
#[derive(Clone, Debug)]
pub(super) struct Made {
    flow: Flow,
    pub(super) map: Map,
    line: Vec<(usize, LineUse)>,
}

/// Returns the number of points, for a progress bar.
pub(super) fn points() -> u64 {
    (1 + MESSAGES.len() * BUFFERS.len() + FDATA.len()) as u64
}

/// Returns the best TCP settings for the paper's workstations. They are the paper's own, except that a
/// blocked writer continues as soon as there is any room, instead of waiting for room for 5120 bytes. This
/// avoids the deadlock between the writer and the receiver's delayed acknowledgement. The modern profile also
/// avoids it, but acknowledges only every second segment, and these buffers hold only two.
pub fn early_wakeup_config() -> tcp::Config {
    tcp::Config {
        send_low_water_bytes: tcp::Config::modern().send_low_water_bytes,
        ..tcp::Config::solaris23()
    }
}

/// Runs the additional points; calls `done` after every point.
pub(super) fn make(cell: Duration, interval: Interval, done: &(dyn Fn() + Sync)) -> Made {
    let tell = |value| {
        done();
        value
    };
    let flow = flow::measure(&Plan::with_window(WINDOW_BYTES), SESSIONS, interval);
    done();
    let map = Map::of(
        "map-best",
        "solaris23, writer woken early",
        &early_wakeup_config(),
        (&MESSAGES, &BUFFERS),
        cell,
        done,
    );
    let line = FDATA.map(|bytes| tell((bytes, osi_board::unhindered(bytes))));
    Made { flow, map, line: line.to_vec() }
}

/// Returns the row whose description of the quantity begins with `what`.
fn find<'a>(report: &'a Report, what: &str) -> &'a super::Row {
    report.rows.iter().find(|row| row.what.starts_with(what)).expect("the row has this name")
}

/// Returns the verdict on each weakness.
pub(super) fn verdicts(
    made: &Made,
    [atm_board, wide_area, rdma_nic, via_library, osi_board]: [&Report; 5],
) -> Vec<Weakness> {
    let Made { flow, map, line } = made;
    let least = map.iter().map(|(_, _, cell)| cell.mbps).fold(f64::INFINITY, f64::min);
    let usual: Vec<f64> = map
        .iter()
        .filter(|(buffer, message, _)| *buffer >= 10_000 && *message >= 1000)
        .map(|(_, _, cell)| cell.mbps)
        .collect();
    let fast = usual.iter().filter(|mbps| **mbps > USUAL_MBPS).count();
    let waits: f64 = map.iter().map(|(_, _, cell)| cell.waits_per_second).sum();
    let lost = find(via_library, "packets lost, all buffers and sizes");
    let dip = find(rdma_nic, "receive: rate dips at");
    let used = line.iter().map(|(_, line)| line.percent).fold(f64::INFINITY, f64::min);
    let rates = |of: &[(usize, LineUse)]| {
        let (first, last) =
            (of.first().map_or(0.0, |one| one.1.mbps), of.last().map_or(0.0, |one| one.1.mbps));
        format!("{first:.2} with 500, {last:.2} with 8000 bytes")
    };
    let board = osi_board.figures.iter().find(|figure| figure.name == "figure-2a").expect("it was drawn");
    let ends = |points: &[(f64, Option<f64>)]| {
        let said = points.first().into_iter().chain(points.last());
        said.map(|(x, y)| format!("{:.2} with {x}", y.unwrap_or(0.0))).collect::<Vec<_>>().join(", ")
    };
    vec![
        Weakness {
            paper: "atm-board",
            what: "starvation: 256 KB windows, 60 sessions",
            then: format!(
                "only {} sessions transfer data",
                find(atm_board, "256 KB: maximum active sessions").here
            ),
            best: format!(
                "{} of {SESSIONS} transfer data, {:.1} Mbit/s in total; the slowest has {:.0} % of an \
                equal share",
                flow.active_streams, flow.mbps, flow.least_percent
            ),
            gone: flow.active_streams == SESSIONS && flow.least_percent >= EVEN_PERCENT,
            bound: "all sessions transfer data, each at least 90 % of an equal share",
            how: "A ledger shares memory: each of n greedy sessions gets 1/(n+1) of it.",
            kept: "cli/tests/snapshots/all.txt; sim/tests/memory/starvation.rs",
        },
        Weakness {
            paper: "wide-area-atm",
            what: "collapse: the writer waits for the reader's delayed-ACK timer",
            then: format!(
                "{} stalls per second in all cells; {} cells of the slow region below {SLOW_MBPS:.0} Mbit/s",
                find(wide_area, "delayed-ACK stalls").here,
                find(wide_area, "cells below").here
            ),
            best: format!(
                "{waits:.0} stalls; slowest cell {least:.1} Mbit/s; {fast} of {} cells with buffers from \
                10,000 and messages from 1000 above {USUAL_MBPS:.0}",
                usual.len()
            ),
            gone: waits == 0.0 && least >= SLOW_MBPS,
            bound: "no cell has delayed-ACK stalls, and no cell is below 10 Mbit/s",
            how: "On the same modelled workstations, one rule is removed (send_low_water_bytes as in the \
                profile modern): the writer continues as soon as there is room.",
            kept: "cli/tests/snapshots/all.txt",
        },
        Weakness {
            paper: "rdma-nic",
            what: "a dip where a message first needs a second segment",
            then: format!("receive rate dips at {} bytes", dip.here),
            best: format!("dips at: {}", dip.today.as_deref().unwrap_or("not made")),
            gone: dip.today.as_deref() == Some("none"),
            bound: "no power of two has a rate 1 % below those of both its neighbours",
            how: "Look-ups for the next segment overlap with the transfer of the current one.",
            kept: "lab/tests/snapshots/rdma-nic.txt",
        },
        Weakness {
            paper: "via-library",
            what: "packets lost although the buffer could hold all packets of a stall",
            then: format!(
                "{} % with 100 us of polling and 7 MB",
                find(via_library, "loss, 100 us, 7 MB").here
            ),
            best: format!("{} packets lost with unreliable delivery", lost.here),
            gone: lost.verdict == Verdict::Ours && lost.here == "0",
            bound: "no packet is lost",
            how: "Waiting is adaptive. Where a stall would use up the descriptors, it polls before a sleep, for up to \
                300 us.",
            kept: "lab/tests/snapshots/via-library.txt",
        },
        Weakness {
            paper: "osi-board",
            what: "throughput falls with small F-DATA, Mbit/s on a 2 Mbit/s line",
            then: ends(&board.curves[0].points),
            best: format!("{}; line utilization at least {used:.1} %", rates(line)),
            gone: used >= FULL_PERCENT,
            bound: "the line is full at every F-DATA size (the rest is headers)",
            how: "There are no copies between layers and no separate tasks. In loopback, every F-DATA still \
                incurs the cost of its encoding, which is measured below.",
            kept: "cli/tests/snapshots/all.txt",
        },
    ]
}

/// Returns the weaknesses as a text table.
pub(super) fn table(weaknesses: &[Weakness]) -> Table {
    let mut table = Table::new("weaknesses: the paper's machine, and kiban at its best")
        .text_column("paper")
        .text_column("weakness")
        .text_column("kiban as the paper's machine")
        .text_column("kiban at its best")
        .text_column("gone");
    for one in weaknesses {
        let mark = table.note(format!("The weakness counts as gone if {}. {}", one.bound, one.how));
        let gone = if one.gone { "yes" } else { "NO" };
        table.row([one.paper, one.what, &one.then, &one.best, &format!("{gone} {mark}")]);
    }
    table.remark("The notes say when a weakness counts as gone and what kiban does about it.");
    table
}
