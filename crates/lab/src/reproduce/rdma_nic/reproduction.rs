//! The clock cycles of the RNIC cores, and the comparison with tables 1 and 2 and figure 10.

use super::super::{Constant, Curve, Figure, Report, Row, Verdict, off};
use super::shared_blocks::{self, Contention, Cuts, contention_table, cuts_table};
use super::work;
use super::work::{Buffers, PAYLOAD_BYTES, Steps};
use crate::table::Table;
use kiban_rdma::rnic::clocks::Step;
use kiban_sim::cost::Origin;
use kiban_sim::rnic_clocks::{
    CLOCK_HZ, CONSTANTS, RDMA_NIC_2008, StepTimes, WORD_BYTES, mib_per_second, words,
};
use serde::Serialize;
use std::fmt;

/// Values and statements from the paper.
mod published {
    use kiban_rdma::rnic::clocks::Step;
    use kiban_rdma::wire::ddp::TAGGED_BYTES;

    pub(in crate::reproduce) const THEORY_MIB: f64 = 953.6;
    pub(in crate::reproduce) const SEND_MIB: f64 = 881.0;
    pub(in crate::reproduce) const RECEIVE_MIB: f64 = 795.0;
    pub(in crate::reproduce) const SEND_PERCENT: f64 = 92.4;
    pub(in crate::reproduce) const RECEIVE_PERCENT: f64 = 83.4;
    /// The relative difference that still is "nearly equal".
    pub(in crate::reproduce) const NEARLY: f64 = 0.15;
    /// The relative tolerance for a throughput.
    pub(in crate::reproduce) const TOLERANCE: f64 = 0.01;
    pub(in crate::reproduce) const SEND_FROM_BYTES: usize = 4096;
    pub(in crate::reproduce) const RECEIVE_FROM_BYTES: usize = 1024;
    pub(in crate::reproduce) const DIP_BYTES: usize = 2048;
    pub(in crate::reproduce) const WRITE_NS: u64 = 352;
    pub(in crate::reproduce) const READ_REQUEST_NS: u64 = 168;
    /// Table 2: module, work, clock cycles, and the corresponding step of kiban's core. The last row is the
    /// transfer of one word of payload.
    pub(in crate::reproduce) const TABLE_2: [(&str, &str, u64, Step); 16] = [
        ("SQ work manager", "fetch WQE", 3, Step::FetchWqe),
        ("SQ work manager", "judge fence", 1, Step::Fence),
        ("SQ work manager", "request", 1, Step::Request),
        ("SM requester", "take and pass on", 1, Step::Requester),
        ("work acceptor", "take and pass on", 1, Step::Acceptor),
        ("SM work resolver", "take request", 1, Step::Accept),
        ("SM work resolver", "check operation", 1, Step::CheckOperation),
        ("SM work resolver", "read STag", 10, Step::ReadStag),
        ("SM work resolver", "check STag", 1, Step::CheckStag),
        ("SM work resolver", "read PBL", 10, Step::ReadPbl),
        ("SM work resolver", "request DMA", 1, Step::DmaRequest),
        ("segment generator", "take DMA length", 3, Step::DmaLength),
        ("segment generator", "segment length", 1, Step::SegmentLength),
        ("segment generator", "write header", 4, Step::Header(TAGGED_BYTES as u32)),
        ("segment generator", "read DMA data", 4, Step::ReadDma),
        ("segment generator", "write payload", 1, Step::WritePayload(super::WORD_BYTES)),
    ];
}

/// Message sizes: the powers of two, on which the verdicts are based, and the sizes at which the number of
/// segments changes.
const SIZES: [usize; 17] =
    [64, 128, 256, 512, 1024, 1456, 1464, 2048, 2912, 2920, 4096, 4368, 4376, 8192, 16384, 32768, 65536];
/// The percentage of the maximum throughput that counts as close to the maximum.
const NEAR_PERCENT: u32 = 90;

/// Converts clock cycles to nanoseconds.
const fn ns(clocks: u64) -> u64 {
    clocks * (1_000_000_000 / CLOCK_HZ)
}

/// A row of table 2.
#[derive(Clone, Debug, Serialize)]
pub struct StepRow {
    /// The block of the NIC.
    pub module: &'static str,
    /// The work of the step.
    pub work: &'static str,
    /// The published number of clock cycles.
    pub published: u64,
    /// The positions of this step in a Write of one word, counted from 1.
    pub places: Vec<usize>,
    /// The number of clock cycles in the model.
    pub here: u64,
}

/// The steady-state throughput of one direction of a core with long messages.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// The core and the direction.
    pub core: String,
    /// Goodput, MiB/s.
    pub mib_per_second: f64,
    /// Clock cycles per segment.
    pub clocks: u64,
    /// Clock cycles per segment in which no word is transferred.
    pub idle: u64,
    /// Goodput in percent of the limit of the segment format.
    pub of_limit_percent: f64,
    /// The maximum number of payload words that wait until their memory address is known; `None` if it was
    /// not measured.
    pub stood_words: Option<u64>,
}

/// The reproduction of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct RdmaNic {
    /// Published values and results, constants, figure 10.
    #[serde(flatten)]
    pub report: Report,
    /// Table 2.
    pub table_2: Vec<StepRow>,
    /// The gain from pipelining.
    pub gains: Vec<Gain>,
    /// The cost of both directions sharing tables and the DMA controller: send, receive.
    pub contention: Vec<Contention>,
    /// The cost of cutting segments where physical buffers end.
    pub cuts: Vec<Cuts>,
}

/// The end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sending,
    Receiving,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Core {
    /// The time if the steps run one after another.
    Of2008,
    Overlapped,
}

fn moments(core: Core, end: End, steps: &Steps) -> StepTimes {
    let steps = match end {
        End::Sending => &steps.sending,
        End::Receiving => &steps.receiving,
    };
    match core {
        Core::Of2008 => RDMA_NIC_2008.in_sequence(steps),
        Core::Overlapped => RDMA_NIC_2008.overlapped(steps),
    }
}

/// Returns the throughput of one message, as measured in the paper.
fn rate(core: Core, end: End, steps: &Steps) -> f64 {
    let moments = moments(core, end, steps);
    mib_per_second(moments.bytes, moments.end)
}

/// Returns the cost of one more full segment of a long message: clock cycles, idle clock cycles, waiting
/// words.
fn further(core: Core, end: End) -> (u64, u64, u64) {
    let [fewer, more] =
        [32, 33].map(|count| moments(core, end, &work::writes(count * PAYLOAD_BYTES, 1, Buffers::One)));
    let clocks = more.end - fewer.end;
    (clocks, clocks - (more.moving - fewer.moving), more.stood)
}

/// Runs all experiments.
pub fn make() -> RdmaNic {
    let all: Vec<(usize, Steps)> =
        SIZES.iter().map(|&bytes| (bytes, work::writes(bytes, 1, Buffers::One))).collect();
    let figures = [End::Sending, End::Receiving].map(|end| figure_10(&all, end));
    let table_2 = table_2();
    let gains = gains();

    let mut rows = latency(&table_2);
    rows.extend(theory());
    rows.extend(throughput(&figures, &all));
    rows.extend(overlapping(&gains));
    let report = Report {
        paper: "rdma-nic",
        source: "Uchiyama and others (Keio, NEC), the RDMA communication mechanism on ExpEther, 2008",
        today: "the same blocks with the same numbers of clocks, but each block works on the next segment \
            while the current one is transferred",
        rows,
        constants: constants(),
        figures: figures.into(),
    };
    RdmaNic { report, table_2, gains, contention: shared_blocks::contention(), cuts: shared_blocks::cuts() }
}

fn constants() -> Vec<Constant> {
    let segment = Constant {
        name: "segment",
        value: format!("{} B: header 2 words, payload {PAYLOAD_BYTES} B", work::SEGMENT_BYTES),
        origin: "assumed",
        why: "section 6.2.3 limits a segment to 1472 B and keeps a mask only for the last word of a transfer; \
            that the header takes two of these words follows from DDP's 14 B, not from the paper",
    };
    let transfers = Constant {
        name: "DMA transfers",
        value: "one for each message".to_owned(),
        origin: "assumed",
        why: "section 6.2.3 also cuts segments where a transfer ends; the paper does not say how long the \
            physical buffers are, so none ends within a message here; a table below has shorter ones",
    };
    let request = Constant {
        name: "read request: DMA length",
        value: format!("{} clocks", RDMA_NIC_2008.dma_length),
        origin: "fitted",
        why: "table 1: without them, the request takes 18 clocks instead of 21",
    };
    let clocks = CONSTANTS.iter().map(|constant| {
        let (origin, why) = match constant.origin {
            Origin::Sourced(why) => ("sourced", why),
            Origin::Fitted(why) => ("fitted", why),
            Origin::Assumed(why) => ("assumed", why),
        };
        Constant { name: constant.name, value: (constant.value)(&RDMA_NIC_2008), origin, why }
    });
    [segment, transfers, request].into_iter().chain(clocks).collect()
}

// ---- Tables 1 and 2

fn table_2() -> Vec<StepRow> {
    let steps = work::writes(WORD_BYTES as usize, 1, Buffers::One).sending;
    let row = |&(module, work, published, step): &(&'static str, &'static str, u64, Step)| {
        let places = steps.iter().enumerate().filter(|(_, taken)| **taken == step).map(|(at, _)| at + 1);
        StepRow { module, work, published, places: places.collect(), here: RDMA_NIC_2008.of(step) }
    };
    published::TABLE_2.iter().map(row).collect()
}

fn latency(table_2: &[StepRow]) -> Vec<Row> {
    let in_order = table_2.iter().enumerate().filter(|(at, row)| row.places == [at + 1]).count();
    let write = work::writes(WORD_BYTES as usize, 1, Buffers::One);
    let first = |core| moments(core, End::Sending, &write).first_payload.map_or(0, ns);
    let request = work::read_request(4096);
    let sequence = RDMA_NIC_2008.in_sequence(&request).end;
    let judging: u64 = [Step::ReadStag, Step::CheckStag].map(|step| RDMA_NIC_2008.of(step)).iter().sum();
    let of_2008 = sequence - judging + RDMA_NIC_2008.dma_length;
    let sum: u64 = table_2.iter().map(|row| row.published).sum();
    let without = sum - RDMA_NIC_2008.read_stag - RDMA_NIC_2008.read_pbl;
    let published_clocks = published::READ_REQUEST_NS / ns(1);
    vec![
        Row {
            verdict: Verdict::of(Verdict::Met, in_order == table_2.len()),
            note: Some(
                "The steps are those that the core logged while it built the segment for a Write of one \
                word (see table 2 below)."
                    .to_owned(),
            ),
            ..Row::new(
                "Table 2",
                "steps that the core takes once and in this order",
                "16",
                in_order.to_string(),
            )
        },
        Row {
            today: Some(ns(RDMA_NIC_2008.overlapped(&write.sending).end).to_string()),
            verdict: Verdict::of(Verdict::Exact, first(Core::Of2008) == published::WRITE_NS),
            note: Some(format!(
                "The core's steps take {sum} clocks, the sum of table 2. Overlapping does not make the \
                first payload earlier."
            )),
            ..Row::new("Table 1", "RDMA Write: first payload, ns", "352", first(Core::Of2008).to_string())
        },
        Row {
            verdict: Verdict::of(
                Verdict::Met,
                without.abs_diff(published_clocks) as f64 <= published_clocks as f64 * published::NEARLY,
            ),
            note: Some(format!(
                "The text says that the request takes nearly (ほぼ等しい) the steps of table 2 without \
                reading STag and PBL, which are {without} clocks; table 1 has {published_clocks}, up to the \
                last word of the header instead of the first of the payload. A difference of at most {:.0} % \
                counts as nearly.",
                published::NEARLY * 100.0
            )),
            ..Row::new(
                "Table 1",
                "RDMA Read request: header sent, by the text, ns",
                "168",
                ns(without).to_string(),
            )
        },
        Row {
            today: Some(ns(RDMA_NIC_2008.overlapped(&request).end).to_string()),
            verdict: Verdict::of(Verdict::Fitted, ns(of_2008) == published::READ_REQUEST_NS),
            note: Some(format!(
                "kiban's core takes {sequence} clocks. It validates the memory for the response before it \
                sends the request ({judging} clocks); the paper's core reads no STag here. Its segment \
                generator takes no DMA length for a request; that the paper's does ({} clocks) is fitted to \
                this value: {sequence} - {judging} + {} = {of_2008}. The header and the body are six words.",
                RDMA_NIC_2008.dma_length, RDMA_NIC_2008.dma_length
            )),
            ..Row::new(
                "Table 1",
                "RDMA Read request: header sent, by the core's steps, ns",
                "168",
                ns(of_2008).to_string(),
            )
        },
    ]
}

// ---- Figure 10

/// Returns the figure for one end. The paper has both ends in one figure, where their curves overlap.
fn figure_10(all: &[(usize, Steps)], end: End) -> Figure {
    let curve = |name: &str, core| Curve {
        name: name.to_owned(),
        points: all.iter().map(|(bytes, steps)| (*bytes as f64, Some(rate(core, end, steps)))).collect(),
    };
    // Compute the cost of each additional message in a sequence of messages.
    let back_to_back = {
        let point = |&(bytes, _): &(usize, Steps)| {
            let [fewer, more] = [8, 16]
                .map(|count| moments(Core::Overlapped, end, &work::writes(bytes, count, Buffers::One)));
            (bytes as f64, Some(mib_per_second(more.bytes - fewer.bytes, more.end - fewer.end)))
        };
        Curve { name: "back to back".to_owned(), points: all.iter().map(point).collect() }
    };
    let (name, verb) = match end {
        End::Sending => ("figure-10-send", "sending"),
        End::Receiving => ("figure-10-receive", "receiving"),
    };
    Figure {
        name,
        title: format!("figure 10: {verb} one RDMA Write, throughput by length, MiB/s"),
        x: "bytes",
        y: "MiB/s",
        curves: vec![curve("2008", Core::Of2008), curve("overlapped", Core::Overlapped), back_to_back],
    }
}

fn theory_mib() -> f64 {
    mib_per_second(u64::from(WORD_BYTES), 1)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn theory() -> Vec<Row> {
    let theory = theory_mib();
    let mut rows = vec![Row {
        verdict: Verdict::of(Verdict::Exact, (theory * 10.0).floor() / 10.0 == published::THEORY_MIB),
        note: Some(
            "The paper truncates 953.67. Its MB are MiB: 64 bits at 125 MHz are 1000 MB/s, and the \
            percentages below are correct only for MiB."
                .to_owned(),
        ),
        ..Row::new("§7.2", "64 bits at 125 MHz, MB/s", "953.6", format!("{theory:.2}"))
    }];
    for (what, mib, percent) in [
        ("881 MB/s sent, % of 953.6", published::SEND_MIB, published::SEND_PERCENT),
        ("795 MB/s received, % of 953.6", published::RECEIVE_MIB, published::RECEIVE_PERCENT),
    ] {
        let here = tenths(mib / theory * 100.0);
        rows.push(Row {
            verdict: Verdict::of(Verdict::Exact, here == percent),
            ..Row::new("§8", what, percent.to_string(), here.to_string())
        });
    }
    rows
}

/// Returns the points of a curve at powers of two: bytes and MiB/s.
fn doublings(curve: &Curve) -> Vec<(usize, f64)> {
    let points = curve.points.iter().filter_map(|&(x, y)| Some((x as usize, y?)));
    points.filter(|(bytes, _)| bytes.is_power_of_two()).collect()
}

/// Returns the smallest power of two from which a curve reaches `percent` of `most`.
fn near_from(curve: &Curve, most: f64, percent: u32) -> usize {
    let points = doublings(curve);
    let below = points.iter().rposition(|(_, rate)| *rate < most * f64::from(percent) / 100.0);
    points.get(below.map_or(0, |at| at + 1)).map_or(0, |(bytes, _)| *bytes)
}

/// Returns the powers of two at which a curve dips: its value is lower than at both neighbouring powers by
/// more than the tolerance of the published figure.
fn dips(curve: &Curve) -> Vec<usize> {
    let points = doublings(curve);
    let lower = |one: f64, other: f64| one < other * (1.0 - published::TOLERANCE);
    let low =
        points.windows(3).filter(|three| lower(three[1].1, three[0].1) && lower(three[1].1, three[2].1));
    low.map(|three| three[1].0).collect()
}

fn list(sizes: &[usize]) -> String {
    if sizes.is_empty() {
        return "none".to_owned();
    }
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

fn throughput(figures: &[Figure; 2], all: &[(usize, Steps)]) -> Vec<Row> {
    let [[send, send_overlapped], [receive, receive_overlapped]] =
        figures.each_ref().map(|figure| [&figure.curves[0], &figure.curves[1]]);
    let long = |core, end| mib_per_second(PAYLOAD_BYTES as u64, further(core, end).0);
    let last = |curve: &Curve| curve.points.last().and_then(|(_, rate)| *rate).unwrap_or(0.0);
    let mut rows = Vec::new();
    for (what, end, curve, mib) in [
        ("send", End::Sending, send, published::SEND_MIB),
        ("receive", End::Receiving, receive, published::RECEIVE_MIB),
    ] {
        let (here, at_64) = (long(Core::Of2008, end), last(curve));
        let near = |rate: f64| (rate / mib - 1.0).abs() <= published::TOLERANCE;
        rows.push(Row {
            today: Some(format!("{:.1}", long(Core::Overlapped, end))),
            verdict: Verdict::of(Verdict::Fitted, near(here) && near(at_64)),
            note: Some(format!(
                "The difference is {}. The rate is computed from the cost of one more segment of \
                {PAYLOAD_BYTES} B; at 64 KiB, it is {at_64:.1} MiB/s ({}). The pause after a segment was \
                fitted to this value.",
                off(here, mib),
                off(at_64, mib)
            )),
            ..Row::new(
                "Fig. 10",
                format!("{what}: asymptote of the rate, MiB/s"),
                mib.to_string(),
                format!("{here:.1}"),
            )
        });
    }
    for (what, curve, overlapped, end, from) in [
        ("send", send, send_overlapped, End::Sending, published::SEND_FROM_BYTES),
        ("receive", receive, receive_overlapped, End::Receiving, published::RECEIVE_FROM_BYTES),
    ] {
        let here = near_from(curve, long(Core::Of2008, end), NEAR_PERCENT);
        let gives = |percent: &u32| near_from(curve, long(Core::Of2008, end), *percent) == from;
        let (least, most) = ((1..100).find(gives), (1..100).rfind(gives));
        rows.push(Row {
            today: Some(near_from(overlapped, long(Core::Overlapped, end), NEAR_PERCENT).to_string()),
            verdict: Verdict::of(Verdict::Met, here == from),
            note: Some(format!(
                "The paper gives no number. The value is the smallest power of two from which the rate \
                stays at {NEAR_PERCENT} % of the maximum or above; thresholds from {} to {} % give the \
                published value. The start-up time of a message follows from table 2 and the look-ups and \
                was not fitted.",
                least.unwrap_or(0),
                most.unwrap_or(0)
            )),
            ..Row::new(
                "Fig. 10",
                format!("{what}: smallest length close to the maximum, bytes"),
                from.to_string(),
                here.to_string(),
            )
        });
    }
    let (receives, sends) = (dips(receive), dips(send));
    rows.push(Row {
        today: Some(list(&dips(receive_overlapped))),
        verdict: Verdict::of(Verdict::Met, receives == [published::DIP_BYTES]),
        note: Some(
            "The values are the powers of two at which the rate is at least 1 % lower than at half and at \
            twice the length. The paper explains the fall after 1472 B by segments that are verified more \
            than once. That is why a second segment costs more than its payload; that 2048 B are also slower \
            than 1024 B needs the pause of 11 clocks, without which their rates would be equal."
                .to_owned(),
        ),
        ..Row::new(
            "Fig. 10",
            "receive: rate dips at, bytes",
            published::DIP_BYTES.to_string(),
            list(&receives),
        )
    });
    rows.push(Row {
        verdict: Verdict::of(Verdict::Met, sends.is_empty()),
        ..Row::new("Fig. 10", "send: rate dips at, bytes", "none", list(&sends))
    });
    let (_, steps) = all.last().expect("there are sizes");
    let look_ups = |steps: &[Step]| steps.iter().filter(|step| **step == Step::ReadStag).count();
    let segments = moments(Core::Of2008, End::Receiving, steps).segments as usize;
    let (sent, received) = (look_ups(&steps.sending), look_ups(&steps.receiving));
    rows.push(Row {
        verdict: Verdict::of(Verdict::Met, (sent, received) == (1, segments)),
        note: Some(format!(
            "The values are counts of the cores' steps for 64 KiB, which is {segments} segments."
        )),
        ..Row::new(
            "§7.2",
            "STag look-ups: sent, received",
            "1, one per segment",
            format!("{sent}, {received}"),
        )
    });
    rows
}

// ---- Overlapping

/// Returns the words of the longest segment, header and payload.
fn segment_words() -> u64 {
    words(work::SEGMENT_BYTES as u32)
}

fn limit_mib() -> f64 {
    mib_per_second(PAYLOAD_BYTES as u64, segment_words())
}

fn gains() -> Vec<Gain> {
    let one = |name: &str, core, end| {
        let (clocks, idle, stood) = further(core, end);
        let mib_per_second = mib_per_second(PAYLOAD_BYTES as u64, clocks);
        Gain {
            core: name.to_owned(),
            mib_per_second,
            clocks,
            idle,
            of_limit_percent: mib_per_second / limit_mib() * 100.0,
            stood_words: (core == Core::Overlapped && end == End::Receiving).then_some(stood),
        }
    };
    vec![
        one("send, as in 2008", Core::Of2008, End::Sending),
        one("send, overlapped", Core::Overlapped, End::Sending),
        one("receive, as in 2008", Core::Of2008, End::Receiving),
        one("receive, overlapped", Core::Overlapped, End::Receiving),
    ]
}

fn overlapping(gains: &[Gain]) -> Vec<Row> {
    let [send, send_overlapped, receive, receive_overlapped] = gains else { unreachable!("four were made") };
    let pair = |of: fn(&Gain) -> String, one, two| format!("{}, {}", of(one), of(two));
    let idle = |gain: &Gain| gain.idle.to_string();
    let percent = |gain: &Gain| format!("{:.1}", gain.of_limit_percent);
    vec![
        Row {
            today: Some(pair(idle, send_overlapped, receive_overlapped)),
            verdict: Verdict::of(Verdict::Ours, send_overlapped.idle + receive_overlapped.idle == 0),
            note: Some(
                "The values apply to long messages. No block becomes faster, and each block still pauses, \
                but the pauses and the look-ups no longer delay the words."
                    .to_owned(),
            ),
            ..Row::new("Overlap", "idle clocks per segment: send, receive", "", pair(idle, send, receive))
        },
        Row {
            today: Some(pair(percent, send_overlapped, receive_overlapped)),
            verdict: Verdict::of(
                Verdict::Ours,
                send_overlapped.of_limit_percent.min(receive_overlapped.of_limit_percent) >= 99.9,
            ),
            note: Some(format!(
                "The format's limit is {:.1} MiB/s: {PAYLOAD_BYTES} B in {} clocks, two of which are the \
                header's.",
                limit_mib(),
                segment_words()
            )),
            ..Row::new("Overlap", "% of the format's limit: send, receive", "", pair(percent, send, receive))
        },
    ]
}

// ---- Text output

impl RdmaNic {
    /// Returns table 2, and the tables of pipelining, of both directions at once and of physical buffers.
    pub fn tables(&self) -> [Table; 4] {
        [self.steps_table(), self.gains_table(), contention_table(&self.contention), cuts_table(&self.cuts)]
    }

    fn steps_table(&self) -> Table {
        let mut table = Table::new("table 2: clocks until the first payload of an RDMA Write")
            .text_column("module")
            .text_column("work")
            .number_column("published")
            .number_column("here")
            .number_column("the core's step");
        for row in &self.table_2 {
            table.row([
                row.module.to_owned(),
                row.work.to_owned(),
                row.published.to_string(),
                row.here.to_string(),
                list(&row.places),
            ]);
        }
        let sum = |of: fn(&StepRow) -> u64| self.table_2.iter().map(of).sum::<u64>().to_string();
        table.row(["", "sum", &sum(|row| row.published), &sum(|row| row.here)]);
        table.remark(
            "The published clocks are the paper's. The last column is the position at which kiban's core \
            logged the step for a Write of one word.",
        );
        table
    }

    fn gains_table(&self) -> Table {
        let mut table = Table::new("gain from overlapping, long messages")
            .text_column("core")
            .number_column("MiB/s")
            .number_column("% of the format's limit")
            .number_column("clocks per segment")
            .number_column("idle")
            .number_column("waiting words");
        for gain in &self.gains {
            table.row([
                gain.core.clone(),
                format!("{:.1}", gain.mib_per_second),
                format!("{:.1}", gain.of_limit_percent),
                gain.clocks.to_string(),
                gain.idle.to_string(),
                gain.stood_words.map(|words| words.to_string()).unwrap_or_default(),
            ]);
        }
        table.remark(
            "waiting words: payload words that are read before their memory address is known; the FIFO must \
            hold them.",
        );
        table
    }
}

impl fmt::Display for RdmaNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        self.tables().iter().try_for_each(|table| write!(f, "\n{table}"))
    }
}
