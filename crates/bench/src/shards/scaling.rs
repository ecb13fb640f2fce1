//! Where scaling ends: measures the inputs of the [model](super::model), and prints what it predicts.
//!
//! Measured   the costs of packets on each kind of link, of handing them on, and of what cores share; the
//!            share of packets that arrive at the wrong one of two shards; the goodput of two shards in
//!            memory.
//! Modelled   everything about more than two shards.
//! Validated  for two shards in memory, with and without handing on, the prediction is printed beside the
//!            measurement. The prediction uses the goodput of one shard, the cost of handing on, and the
//!            number of packets that two shards have handed on, but not the goodput of two.
//! Parameter  `KIBAN_BENCH_MEMORY=50` limits the payload that all cores copy together to 50 GB/s, instead of
//!            the limit that follows from two cores.
//! Output     a table; `shards-model.json` and `shards.svg` in the records' folder.

use super::costs::{self, HandOn};
use super::measured::{FAILED, Measured};
use super::memory::{self, Keys, MSS};
use super::model::{Arrival, Case, Costs, Outcome, equal_rates, simulate};
use super::network::{self, Side, Work};
use crate::link::{Kind, PacketCosts, of_cells, of_packets};
use crate::sar;
use kiban_lab::chart::svg_log_x;
use kiban_lab::reproduce::{Curve, Figure};
use kiban_lab::{Bench, Options, Table, Target, Trial, Unit};
use serde_json::{Value, json};
use std::time::Duration;

const SHARDS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const FLOWS: [usize; 4] = [16, 64, 256, 4096];
/// Cells of a packet of 1500 bytes with LLC/SNAP and the trailer of AAL5: 1516 bytes.
const CELLS: f64 = 32.0;

/// The measured inputs. Times are in nanoseconds.
pub(super) struct Inputs {
    /// Time of one shard in memory for 1460 bytes, at both ends.
    memory_nanos: f64,
    /// Measured ratios of two shards in memory to one: with packets that arrive at their own shard, and with
    /// packets that are handed on.
    ratios: [f64; 2],
    /// Packets handed on for each 1460 bytes, in the second case.
    handed_on: f64,
    hand_on: HandOn,
    segments: PacketCosts,
    packets: PacketCosts,
    socket: PacketCosts,
    /// Reading a cell from a link, and reassembling it.
    cell: [f64; 2],
    /// The shares of packets that arrived at the wrong one of two shards.
    wrong_tun: f64,
    wrong_socket: f64,
    /// Time to copy a byte, and to write a packet to TUN, of one core alone and of each of two.
    copy: [f64; 2],
    device: [f64; 2],
    /// The limit of memory that the user has given, GB/s.
    memory_limit: Option<f64>,
}

/// Returns the median of the samples that did not fail.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.retain(|figure| !figure.is_nan());
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Measures a row whose samples have several figures; returns the medians of all of them. The first is the
/// row's.
fn row<const N: usize>(
    bench: &mut Bench,
    title: &str,
    unit: Unit,
    sample: impl Fn(&mut Trial) -> [f64; N],
) -> [f64; N] {
    let mut samples: Vec<[f64; N]> = Vec::new();
    let measure = |trial: &mut Trial| {
        let figures = sample(trial);
        samples.push(figures);
        figures[0].max(FAILED)
    };
    bench.single(&format!("model: {title}"), unit, ("input", measure), Target::None);
    std::array::from_fn(|at| median(samples.iter().map(|sample| sample[at]).collect()))
}

/// Measures the inputs.
pub(super) fn measure(bench: &mut Bench, cpus: [usize; 2], length: Duration, measured: &Measured) -> Inputs {
    let (gbit_per_second, ratio) = measured.memory.expect("the group model measures it");
    let mut handed = Vec::new();
    let record = bench.compare(
        "in memory, half of the packets handed on, two shards compared with one",
        Unit::GbitPerSecond,
        ("two shards", |_: &mut Trial| {
            let goodput = memory::goodput(2, Keys::Two, cpus, length, true);
            handed.push(goodput.handed_on);
            goodput.gbit_per_second
        }),
        ("one shard", |_: &mut Trial| memory::goodput(1, Keys::One, cpus, length, true).gbit_per_second),
        Target::None,
    );
    let handed_ratio = record.ratio.expect("two sides were compared").median;
    let nanos = Unit::Nanoseconds;
    let [pass, take] = row(bench, "handing a packet on, at the shard that passes it", nanos, |_| {
        let HandOn { pass, take } = costs::hand_on(cpus, length / 2);
        [pass, take]
    });
    let mut packets = |title, kind| {
        let [_, payload_bytes, receive, process, answers] = row(bench, title, nanos, |_| {
            let PacketCosts { payload_bytes, receive, process, answers } = of_packets(kind, cpus, length);
            [receive + process, payload_bytes, receive, process, answers]
        });
        PacketCosts { payload_bytes, receive, process, answers }
    };
    let segments = packets("a segment that arrives whole over TUN", Kind::Segments);
    let single = packets("a packet of 1500 bytes over TUN", Kind::Packets);
    let socket = packets("a packet of 1500 bytes over a packet socket", Kind::PacketSocket);
    let [link] = row(bench, "reading a cell from UDP", nanos, |_| [of_cells(cpus[0], length)]);
    let [reassembly] = row(bench, "reassembling a cell", nanos, |trial| [sar::reassembly_nanos(trial)]);
    let [alone, together] = row(bench, "copying a byte, alone", nanos, |_| costs::copy(cpus, length / 2));
    let copy = [alone, together];
    let device = row(bench, "writing a packet to TUN, alone", nanos, |_| costs::device(cpus, length / 2));
    let [wrong_percent] =
        row(bench, "packet socket, arrived at the wrong one of two shards", Unit::Percent, |_| {
            let result = network::run(Side::PacketBoard(2), Work::Send, length);
            [result.and_then(|result| result.wrong).unwrap_or(f64::NAN) * 100.0]
        });
    Inputs {
        memory_nanos: f64::from(MSS) * 8.0 / gbit_per_second,
        ratios: [ratio, handed_ratio],
        handed_on: median(handed),
        hand_on: HandOn { pass, take },
        segments,
        packets: single,
        socket,
        cell: [link, reassembly],
        wrong_tun: median(measured.wrong_tun.clone()),
        wrong_socket: wrong_percent / 100.0,
        copy,
        device,
        memory_limit: std::env::var("KIBAN_BENCH_MEMORY").ok().and_then(|gbytes| gbytes.parse().ok()),
    }
}

/// A kind of link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Segments,
    Packets,
    Socket,
    Cells,
}

impl Link {
    const ALL: [Link; 4] = [Link::Segments, Link::Packets, Link::Socket, Link::Cells];

    fn name(self) -> &'static str {
        match self {
            Link::Segments => "tun, whole segments",
            Link::Packets => "tun, packets of 1500 bytes",
            Link::Socket => "packet, packets of 1500 bytes",
            Link::Cells => "cells at shard 0",
        }
    }
}

/// The time for which cores exclude each other, from the times of one core alone and of each of two.
fn excluded([alone, together]: [f64; 2]) -> f64 {
    (together - alone).max(0.0)
}

impl Inputs {
    /// Time for which a byte that is copied occupies the memory.
    fn memory_nanos_per_byte(&self) -> f64 {
        self.memory_limit.map_or(excluded(self.copy), |gbytes| 1.0 / gbytes)
    }

    fn packet(&self, link: Link) -> PacketCosts {
        match link {
            Link::Segments => self.segments,
            Link::Packets => self.packets,
            Link::Socket => self.socket,
            // Reassembly takes the place of reading a packet.
            Link::Cells => PacketCosts { receive: CELLS * (self.cell[0] + self.cell[1]), ..self.packets },
        }
    }

    fn case(&self, link: Link, shards: usize, flows: usize, seed: u64) -> Case {
        let packet = self.packet(link);
        let HandOn { pass, take } = self.hand_on;
        let on_tun = matches!(link, Link::Segments | Link::Packets);
        let device = if on_tun { (1.0 + packet.answers) * excluded(self.device) } else { 0.0 };
        let memory = packet.payload_bytes * self.memory_nanos_per_byte();
        let mut costs =
            Costs { receive: packet.receive, process: packet.process, pass, take, device, memory };
        let arrival = match link {
            // Half of the packets that the device has not learned arrive at the right one of two shards.
            Link::Segments | Link::Packets => Arrival::Learned { unlearned: (2.0 * self.wrong_tun).min(1.0) },
            Link::Socket => Arrival::Hashed,
            Link::Cells => Arrival::First,
        };
        if link == Link::Cells {
            // Acknowledgements of other shards go through shard 0, too.
            let others = packet.answers * (shards - 1) as f64 / shards as f64;
            costs.process += others * pass;
            costs.receive += others * take;
        }
        Case { shards, flows, arrival, costs, seed }
    }

    /// Predicts the ratio of two shards in memory to one.
    fn predicted(&self, keys: Keys, seeds: u64) -> f64 {
        let HandOn { pass, take } = self.hand_on;
        // Acknowledgements are handed on, too, so a packet of a wrong flow is handed on more than once.
        let times = self.handed_on / 0.5;
        let costs =
            Costs { process: self.memory_nanos, pass: times * pass, take: times * take, ..Costs::default() };
        let arrival = match keys {
            Keys::One => Arrival::Learned { unlearned: 0.0 },
            Keys::Two => Arrival::Hashed,
        };
        let flows = 2 * memory::STREAMS;
        let of_two = |seed| simulate(&Case { shards: 2, flows, arrival, costs, seed }).packets_per_second;
        mean((0..seeds).map(of_two)) * self.memory_nanos * 1e-9
    }
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0), |(sum, count), figure| (sum + figure, count + 1));
    sum / f64::from(count)
}

/// What the model predicts for one number of shards: means over several keys of the hash.
#[derive(Clone, Copy)]
struct Prediction {
    /// Flows that take what they can get.
    greedy: f64,
    /// Share of their time for which the busiest shard, and a shard on average, are busy then.
    greedy_busy: [f64; 2],
    /// Flows that all have the same rate.
    equal: f64,
    equal_busy: [f64; 2],
}

fn predict(inputs: &Inputs, link: Link, shards: usize, flows: usize, seeds: u64) -> Prediction {
    let gbit = inputs.packet(link).payload_bytes * 8e-9;
    let outcomes = |of: fn(&Case) -> Outcome| -> (f64, [f64; 2]) {
        let all: Vec<Outcome> = (0..seeds).map(|seed| of(&inputs.case(link, shards, flows, seed))).collect();
        let of_all = |figure: fn(&Outcome) -> f64| mean(all.iter().map(figure));
        (of_all(|its| its.packets_per_second) * gbit, [of_all(Outcome::busiest), of_all(Outcome::mean)])
    };
    let (greedy, greedy_busy) = outcomes(simulate);
    let (equal, equal_busy) = outcomes(equal_rates);
    Prediction { greedy, greedy_busy, equal, equal_busy }
}

fn short(figure: f64) -> String {
    if figure >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.1}") }
}

/// Prints the inputs and the predictions, and keeps them in the records' folder.
pub(super) fn print(inputs: &Inputs, options: &Options) {
    let seeds = if options.quick { 2 } else { 10 };
    let predicted = [Keys::One, Keys::Two].map(|keys| inputs.predicted(keys, seeds));
    println!("{}", inputs_table(inputs, predicted));
    let mut table =
        Table::new("shards, model: means over keys of the hash; nothing in this table is measured")
            .text_column("link")
            .number_column("flows")
            .text_column("");
    for shards in SHARDS {
        table = table.number_column(&format!("N = {shards}"));
    }
    let mut kept = Vec::new();
    for link in Link::ALL {
        for flows in FLOWS {
            let all = SHARDS.map(|shards| predict(inputs, link, shards, flows, seeds));
            let mut add = |what: &str, figure: &dyn Fn(&Prediction) -> f64| {
                let is_first = what.starts_with("greedy");
                let name = if is_first && flows == FLOWS[0] { link.name() } else { "" };
                let count = if is_first { flows.to_string() } else { String::new() };
                let cells = all.iter().map(|its| short(figure(its)));
                table.row([name.to_owned(), count, what.to_owned()].into_iter().chain(cells));
            };
            add("greedy flows, Gbit/s", &|its: &Prediction| its.greedy);
            add("shards busy, %", &|its: &Prediction| its.greedy_busy[1] * 100.0);
            add("equal rates, Gbit/s", &|its: &Prediction| its.equal);
            add("busiest shard/mean", &|its: &Prediction| its.equal_busy[0] / its.equal_busy[1]);
            kept.push((link, flows, all));
        }
    }
    table.remark(
        "greedy flows take what they can get; with equal rates, the first shard without time left ends it",
    );
    println!("{table}");
    let Some(dir) = &options.dir else { return };
    let record = record(inputs, predicted, &kept, options.quick);
    let write = || {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("shards-model.json"), format!("{record:#}\n"))?;
        std::fs::write(dir.join("shards.svg"), picture(&kept))
    };
    match write() {
        Ok(()) => println!("model: {}/shards-model.json, {0}/shards.svg\n", dir.display()),
        Err(error) => println!("model: NOT KEPT in {}: {error}\n", dir.display()),
    }
}

fn inputs_table(inputs: &Inputs, predicted: [f64; 2]) -> Table {
    let mut table = Table::new("shards, inputs of the model: medians measured in this run")
        .text_column("input")
        .number_column("figure")
        .text_column("unit");
    let mut add = |what: &str, figure: f64, unit: &str| {
        table.row([what.to_owned(), format!("{figure:.3}"), unit.to_owned()]);
    };
    add("1460 bytes between two boards in memory", inputs.memory_nanos, "ns");
    add("handing a packet on: at the shard that passes it", inputs.hand_on.pass, "ns");
    add("handing a packet on: at the shard that takes it", inputs.hand_on.take, "ns");
    for link in Link::ALL {
        let PacketCosts { payload_bytes, receive, process, answers } = inputs.packet(link);
        add(&format!("{}: payload", link.name()), payload_bytes, "bytes");
        add(&format!("{}: reading from the link", link.name()), receive, "ns");
        add(&format!("{}: everything else", link.name()), process, "ns");
        add(&format!("{}: packets sent per packet", link.name()), answers, "");
    }
    add("TUN: packets at the wrong one of two shards", inputs.wrong_tun * 100.0, "%");
    add("packet socket: packets at the wrong one of two shards", inputs.wrong_socket * 100.0, "%");
    add("memory: cores exclude each other, per KB copied", inputs.memory_nanos_per_byte() * 1e3, "ns");
    add("TUN: cores exclude each other, per packet", excluded(inputs.device), "ns");
    for (what, predicted, measured) in [
        ("two shards in memory", predicted[0], inputs.ratios[0]),
        ("two shards in memory, half handed on", predicted[1], inputs.ratios[1]),
    ] {
        add(&format!("{what}: PREDICTED ratio to one"), predicted, "x");
        add(&format!("{what}: MEASURED ratio to one"), measured, "x");
    }
    table
}

/// Returns the inputs and predictions as JSON.
fn record(
    inputs: &Inputs,
    predicted: [f64; 2],
    kept: &[(Link, usize, [Prediction; SHARDS.len()])],
    quick: bool,
) -> Value {
    let packet = |link: Link| {
        let PacketCosts { payload_bytes, receive, process, answers } = inputs.packet(link);
        json!({ "link": link.name(), "payload_bytes": payload_bytes, "receive_ns": receive,
            "process_ns": process, "answers": answers })
    };
    let predictions = kept.iter().flat_map(|&(link, flows, ref all)| {
        SHARDS.iter().zip(all).map(move |(shards, its)| {
            json!({ "link": link.name(), "flows": flows, "shards": shards,
                "greedy_gbit_per_second": its.greedy, "greedy_busiest": its.greedy_busy[0],
                "greedy_busy_mean": its.greedy_busy[1], "equal_gbit_per_second": its.equal,
                "equal_busiest": its.equal_busy[0], "equal_busy_mean": its.equal_busy[1] })
        })
    });
    json!({
        "quick": quick,
        "measured": {
            "memory_ns": inputs.memory_nanos,
            "pass_ns": inputs.hand_on.pass,
            "take_ns": inputs.hand_on.take,
            "packets": Link::ALL.map(packet),
            "cell_read_ns": inputs.cell[0],
            "cell_reassembly_ns": inputs.cell[1],
            "wrong_tun": inputs.wrong_tun,
            "wrong_packet_socket": inputs.wrong_socket,
            "copy_ns_per_byte": inputs.copy,
            "device_ns_per_packet": inputs.device,
            "memory_limit_gbyte_per_second": inputs.memory_limit,
        },
        "validation": {
            "one_key": { "predicted": predicted[0], "measured": inputs.ratios[0] },
            "two_keys": { "predicted": predicted[1], "measured": inputs.ratios[1],
                "handed_on": inputs.handed_on },
        },
        "model": predictions.collect::<Vec<_>>(),
    })
}

/// Draws the picture of `docs/shards.md`.
fn picture(kept: &[(Link, usize, [Prediction; SHARDS.len()])]) -> String {
    let curve = |name: &str, link, flows, figure: fn(&Prediction) -> f64| {
        let (_, _, all) =
            kept.iter().find(|its| (its.0, its.1) == (link, flows)).expect("all were predicted");
        let one = figure(&all[0]);
        let points = SHARDS.iter().zip(all).map(|(shards, its)| (*shards as f64, Some(figure(its) / one)));
        Curve { name: name.to_owned(), points: points.collect() }
    };
    svg_log_x(&Figure {
        name: "shards",
        title: "Modelled throughput of a board with N shards, relative to one".to_owned(),
        x: "shards, each on a core of its own",
        y: "times one shard",
        curves: vec![
            curve("tun, 4096 flows", Link::Packets, 4096, |its| its.greedy),
            curve("packet, 4096 flows", Link::Socket, 4096, |its| its.greedy),
            curve("tun, 64 flows", Link::Packets, 64, |its| its.greedy),
            curve("tun, 64 of equal rates", Link::Packets, 64, |its| its.equal),
            curve("tun, 16 flows", Link::Packets, 16, |its| its.greedy),
            curve("cells at shard 0", Link::Cells, 4096, |its| its.greedy),
        ],
    })
}
