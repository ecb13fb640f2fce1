//! One point of figures 2 and 3 of paper \[5\]: a file transfer between OSI boards, by the sizes of F-DATA,
//! TPDU and packet, the windows, the line, and the mechanisms that the board has.
//!
//! Method    as in `kiban reproduce osi-board`: the board of 1992 with its modelled processors, or today's
//!           kiban without these limits.
//! Medium    two boards on a line, or one board in internal loopback. In loopback there are no packets and
//!           no frames, so their sizes and windows have no effect; throughput is doubled, as in the paper.
//! Limits    the lower module of 1992 holds 14336 bytes, whatever the window. The seed has no effect, because
//!           the set-up contains nothing random.

use super::parameters::{one_of, parameter, within};
use crate::engine::{Failure, Metric, Metrics, Parameter, Point, Question, Time, Value};
use crate::heat::Best;
use crate::reproduce::osi_board::transfer;
use crate::reproduce::osi_board::{LINE_BITS_PER_SECOND, transfer::FILE_BYTES};
use kiban_osi::stack::meter::Task;
use kiban_osi::transport;
use kiban_sim::osi::{Costs, Mechanism, Mechanisms, Medium, OSI_BOARD_1992, Setup};

const MEDIA: [&str; 2] = ["line", "loopback"];
const BOARDS: [&str; 2] = ["1992", "today"];
const PACKETS: std::ops::RangeInclusive<u64> = 16..=4096;

pub(super) struct OsiBoard {
    parameters: Vec<Parameter>,
}

impl OsiBoard {
    pub(super) fn new() -> OsiBoard {
        let kbps = LINE_BITS_PER_SECOND / 1000;
        let parameters = vec![
            parameter("fdata_bytes", "length of an F-DATA", Value::Count(8000)),
            parameter("tpdu_bytes", "largest TPDU, with its header", Value::Count(2048)),
            parameter("packet_bytes", "octets in an X.25 packet, a power of two", Value::Count(2048)),
            parameter("window_packets", "window of the X.25 call", Value::Count(7)),
            parameter("k_frames", "k of LAPB: unacknowledged frames", Value::Count(7)),
            parameter("line_kbps", "rate of the line in each direction, kbit/s", Value::Count(kbps)),
            parameter("medium", "line or loopback", Value::Word("line".into())),
            parameter("board", "1992 (modelled) or today", Value::Word("1992".into())),
            parameter(
                "without",
                "a mechanism that the board of 1992 lacks: none, no-copy, primitives or shared-buffers",
                Value::Word("none".into()),
            ),
            parameter("file_bytes", "size of the file", Value::Count(FILE_BYTES as u64)),
        ];
        OsiBoard { parameters }
    }
}

struct Parameters {
    setup: Setup,
    loops: bool,
    line_bits_per_second: u64,
    file_bytes: usize,
}

impl Parameters {
    fn of(point: &Point) -> Result<Parameters, Failure> {
        let impossible = |why: &str| Err(Failure::Impossible(why.to_owned()));
        let loops = one_of(point, "medium", &MEDIA)? == "loopback";
        let fdata_bytes = within(point, "fdata_bytes", 1, 1 << 20)? as usize;
        let tpdu_max = if loops { 65_531 } else { transport::TPDU_BYTES_MAX_X25 as u64 };
        let tpdu_bytes = within(point, "tpdu_bytes", transport::TPDU_BYTES_MIN as u64, tpdu_max)? as usize;
        let packet_bytes = within(point, "packet_bytes", *PACKETS.start(), *PACKETS.end())? as u16;
        if !packet_bytes.is_power_of_two() {
            return impossible("packet_bytes must be a power of two");
        }
        let window_packets = within(point, "window_packets", 1, 127)? as u8;
        let window_frames = within(point, "k_frames", 1, 127)? as u8;
        let line_bits_per_second = within(point, "line_kbps", 1, 10_000_000)? * 1000;
        let file_bytes = within(point, "file_bytes", 1, 1 << 28)? as usize;
        let words: Vec<&str> = std::iter::once("none").chain(Mechanism::ALL.map(Mechanism::name)).collect();
        let without = one_of(point, "without", &words)?;
        let missing = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == without);
        let costs = match one_of(point, "board", &BOARDS)? {
            "1992" => {
                let mechanisms = missing.map_or(Mechanisms::ALL, Mechanisms::without);
                Some(Costs { mechanisms, ..OSI_BOARD_1992 })
            }
            _ if missing.is_some() => return impossible("without applies to board = \"1992\" only"),
            _ if loops => {
                return impossible("board = \"today\" takes no time in loopback: use medium = \"line\"");
            }
            _ => None,
        };
        let join = if loops { Medium::Loopback } else { Medium::line(line_bits_per_second) };
        let setup = Setup {
            fdata_bytes,
            tpdu_bytes,
            packet_bytes,
            window_packets,
            window_frames,
            costs,
            ..Setup::new(join)
        };
        Ok(Parameters { setup, loops, line_bits_per_second, file_bytes })
    }
}

impl Question for OsiBoard {
    fn name(&self) -> &'static str {
        "osi-board"
    }

    fn what(&self) -> &'static str {
        "How fast does an OSI 7-layer board transfer a file, and which task takes the time?"
    }

    fn time(&self) -> Time {
        Time::Virtual
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn metrics(&self) -> &[Metric] {
        &[
            Metric {
                name: "mbps",
                what: "throughput of the file; doubled in loopback",
                unit: "Mbit/s",
                best: Best::High,
            },
            Metric {
                name: "line_use",
                what: "utilization of the sender's line, 0 to 1",
                unit: "",
                best: Best::High,
            },
            Metric {
                name: "busy_sender",
                what: "sender's tasks without LIF: share of the time",
                unit: "",
                best: Best::Low,
            },
            Metric { name: "busy_receiver", what: "the same for the receiver", unit: "", best: Best::Low },
            Metric {
                name: "lif_sender",
                what: "sender's LIF with its polls: share of the time",
                unit: "",
                best: Best::Low,
            },
        ]
    }

    fn validate(&self, point: &Point) -> Result<(), Failure> {
        Parameters::of(point).map(drop)
    }

    fn trial(&self, point: &Point, seed: u64) -> Result<Metrics, Failure> {
        let Parameters { setup, loops, line_bits_per_second, file_bytes } = Parameters::of(point)?;
        let run = transfer::run(&Setup { seed, ..setup }, file_bytes);
        let seconds = run.took.as_secs_f64();
        let spent = [0, 1].map(|side| run.boards.spent(side).map(|time| time.as_secs_f64()));
        let lower = Task::Lower as usize;
        let busy = spent.map(|tasks| (tasks.iter().sum::<f64>() - tasks[lower]) / seconds);
        let line_use = if loops { 0.0 } else { run.bits as f64 / (seconds * line_bits_per_second as f64) };
        let figures = [
            ("mbps", transfer::mbps(loops, file_bytes, run.took)),
            ("line_use", line_use),
            ("busy_sender", busy[0]),
            ("busy_receiver", busy[1]),
            ("lif_sender", spent[0][lower] / seconds),
        ];
        let tasks = spent.map(|tasks| {
            let named = Task::ALL.iter().zip(tasks).map(|(task, time)| (task.name().to_owned(), time.into()));
            serde_json::Value::Object(named.collect())
        });
        let evidence = serde_json::json!({ "seconds": seconds, "task_seconds": tasks });
        Ok(Metrics::of(&figures, evidence))
    }
}
