//! The runs of the OSI board, and the comparison with what the paper says about figures 2 and 3.

use super::super::{Constant, Curve, Figure, Report, Row, Verdict, off};
use super::measured;
use super::measured::Measured;
use super::transfer::{self, FILE_BYTES, Run};
use crate::table::Table;
use kiban_osi::stack::meter::Task;
use kiban_sim::cost::Origin;
use kiban_sim::osi::{CONSTANTS, Costs, Medium, OSI_BOARD_1992, Setup};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Values and statements from the paper.
mod published {
    pub(in crate::reproduce) const LINE_MBPS: f64 = 1.5;
    pub(in crate::reproduce) const LINE_FROM_BYTES: usize = 4000;
    pub(in crate::reproduce) const LOOPBACK_MBPS: f64 = 4.0;
    /// The lowest throughput in loopback with TPDUs of at least 512 bytes.
    pub(in crate::reproduce) const LOOPBACK_LEAST_MBPS: f64 = 2.5;
    /// The relative tolerance for "about".
    pub(in crate::reproduce) const TOLERANCE: f64 = 0.15;
    /// The relative tolerance within which a rate counts as constant.
    pub(in crate::reproduce) const LEVEL: f64 = 0.05;
    /// The minimum coefficient of determination of a nearly linear decrease.
    pub(in crate::reproduce) const STRAIGHT: f64 = 0.99;
    /// The factor below which a time has grown "not so much". There are 3.9 times as many F-DATA.
    pub(in crate::reproduce) const LITTLE: f64 = 2.0;
}

pub(crate) const LINE_BITS_PER_SECOND: u64 = 2_000_000;
const FDATA: [usize; 7] = [500, 1000, 2000, 3000, 4000, 6000, 8000];
const FDATA_QUICK: [usize; 4] = [1000, 2000, 4000, 8000];
const TPDU: [usize; 5] = [128, 256, 512, 1024, 2048];
/// The costs per host byte for which the position of the curve's bend is recomputed, nanoseconds.
const HOST_BYTE_NS: [u64; 6] = [0, 125, 250, 375, 500, 625];

/// The scope of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Whether to run all points, or only those that the rows need.
    pub full: bool,
}

impl Effort {
    /// The default scope.
    pub const FULL: Effort = Effort { full: true };
    /// Fewer points.
    pub const QUICK: Effort = Effort { full: false };

    fn fdata(self) -> &'static [usize] {
        if self.full { &FDATA } else { &FDATA_QUICK }
    }

    /// Returns the number of points, for a progress bar.
    pub fn points(self) -> u64 {
        2 * (self.fdata().len() + TPDU.len()) as u64
    }
}

/// The paper's two set-ups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Line,
    Loopback,
}

fn run(setting: Setting, fdata_bytes: usize, tpdu_bytes: usize, costs: Option<Costs>) -> Run {
    let join = match setting {
        Setting::Line => Medium::line(LINE_BITS_PER_SECOND),
        Setting::Loopback => Medium::Loopback,
    };
    transfer::run(&Setup { fdata_bytes, tpdu_bytes, costs, ..Setup::new(join) }, FILE_BYTES)
}

fn mbps(setting: Setting, took: Duration) -> f64 {
    transfer::mbps(setting == Setting::Loopback, FILE_BYTES, took)
}

fn rate(setting: Setting, fdata_bytes: usize, tpdu_bytes: usize, costs: Costs) -> f64 {
    mbps(setting, run(setting, fdata_bytes, tpdu_bytes, Some(costs)).took)
}

/// The utilization of a line.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LineUse {
    /// Goodput, Mbit/s.
    pub mbps: f64,
    /// Utilization in percent, including headers, flags and inserted zeros.
    pub percent: f64,
}

/// Runs the transfer over the line without a modelled processor, with TPDUs of 2048 bytes.
pub fn unhindered(fdata_bytes: usize) -> LineUse {
    let Run { took, bits, .. } = run(Setting::Line, fdata_bytes, 2048, None);
    let can = took.as_secs_f64() * LINE_BITS_PER_SECOND as f64;
    LineUse { mbps: mbps(Setting::Line, took), percent: bits as f64 / can * 100.0 }
}

/// A bar of figure 3.
#[derive(Clone, Debug, Serialize)]
pub struct Tasks {
    /// `sender` or `receiver`.
    pub end: &'static str,
    /// Bytes per F-DATA.
    pub fdata_bytes: usize,
    /// Seconds per task, from the host down.
    pub seconds: [f64; Task::ALL.len()],
    /// The duration of the whole transfer, seconds.
    pub took_seconds: f64,
}

impl Tasks {
    fn of(&self, task: Task) -> f64 {
        self.seconds[task as usize]
    }
}

/// The reproduction of the paper.
#[derive(Clone, Debug, Serialize)]
pub struct OsiBoard {
    /// Published values and results, constants, figure 2.
    #[serde(flatten)]
    pub report: Report,
    /// Figure 3.
    pub figure_3: Vec<Tasks>,
    /// Measurements on this machine, if requested.
    pub measured: Vec<Measured>,
}

/// Runs all modelled points. Calls `progress` after every point.
pub fn make(effort: Effort, progress: &mut dyn FnMut()) -> OsiBoard {
    let mut curve = |name: &str, setting, points: &[(usize, usize, usize)]| {
        let point = |&(x, fdata, tpdu): &(usize, usize, usize)| {
            progress();
            (x as f64, Some(rate(setting, fdata, tpdu, OSI_BOARD_1992)))
        };
        Curve { name: name.to_owned(), points: points.iter().map(point).collect() }
    };
    let by_fdata: Vec<_> = effort.fdata().iter().map(|&bytes| (bytes, bytes, 2048)).collect();
    let by_tpdu = TPDU.map(|bytes| (bytes, 8000, bytes));
    let two_a = Figure {
        name: "figure-2a",
        title: "figure 2(a): Mbit/s by F-DATA, TPDU 2048".to_owned(),
        x: "F-DATA bytes",
        y: "Mbit/s",
        curves: vec![
            curve("line", Setting::Line, &by_fdata),
            curve("loopback x 2", Setting::Loopback, &by_fdata),
        ],
    };
    let two_b = Figure {
        name: "figure-2b",
        title: "figure 2(b): Mbit/s by TPDU, F-DATA 8000".to_owned(),
        x: "TPDU bytes",
        y: "Mbit/s",
        curves: vec![
            curve("line", Setting::Line, &by_tpdu),
            curve("loopback x 2", Setting::Loopback, &by_tpdu),
        ],
    };
    let figure_3: Vec<Tasks> = [8000, 2000].into_iter().flat_map(tasks).collect();
    let mut rows = throughput(&two_a, &two_b);
    rows.extend(times(&figure_3));
    let report = Report {
        paper: "osi-board",
        source: "Idoue, Kato, Suzuki (KDD), the general-purpose OSI 7-layer board, 1992",
        today: "the same line without the model of the board's processor; the last table gives loopback \
            rates measured on this machine",
        rows,
        constants: constants(),
        figures: vec![two_a, two_b],
    };
    OsiBoard { report, figure_3, measured: Vec::new() }
}

fn constants() -> Vec<Constant> {
    let constant = |constant: &kiban_sim::osi::Constant| {
        let (origin, why) = match constant.origin {
            Origin::Sourced(why) => ("sourced", why),
            Origin::Fitted(why) => ("fitted", why),
            Origin::Assumed(why) => ("assumed", why),
        };
        Constant { name: constant.name, value: (constant.value)(&OSI_BOARD_1992), origin, why }
    };
    CONSTANTS.iter().map(constant).collect()
}

fn tasks(fdata_bytes: usize) -> [Tasks; 2] {
    let Run { boards, took, .. } = run(Setting::Line, fdata_bytes, 2048, Some(OSI_BOARD_1992));
    [("sender", 0), ("receiver", 1)].map(|(end, side)| Tasks {
        end,
        fdata_bytes,
        seconds: boards.spent(side).map(|time| time.as_secs_f64()),
        took_seconds: took.as_secs_f64(),
    })
}

// ---- Figure 2

fn at(curve: &Curve, x: usize) -> f64 {
    curve.points.iter().find(|(at, _)| *at == x as f64).and_then(|(_, y)| *y).unwrap_or(0.0)
}

fn is_near(here: f64, published: f64) -> bool {
    (here / published - 1.0).abs() <= published::TOLERANCE
}

/// Returns the smallest F-DATA size from which the line rate stays close to the rate with the largest F-DATA.
fn level_from(rate: impl Fn(usize) -> f64) -> usize {
    let most = rate(8000);
    let level = |bytes: &&usize| rate(**bytes) >= most * (1.0 - published::LEVEL);
    *FDATA_QUICK.iter().rev().take_while(level).last().unwrap_or(&8000)
}

/// Returns the coefficient of determination of a linear fit to a curve.
fn straightness(curve: &Curve) -> f64 {
    let points: Vec<(f64, f64)> = curve.points.iter().filter_map(|&(x, y)| Some((x, y?))).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    sum(&|x, y| x * y).powi(2) / (sum(&|x, _| x * x) * sum(&|_, y| y * y))
}

/// Returns the model with another cost per host byte, and with a coding cost that keeps the loopback rate
/// unchanged.
fn with_host_byte(nanos: u64) -> Costs {
    let picos = nanos * 1000;
    // For an F-DATA of 8000 bytes, both ends move every byte, and there are four codings or decodings.
    let less = (OSI_BOARD_1992.host_byte_ps as i64 - picos as i64) * 2 * 8000 / 4 / 1000;
    let coding = |time: Duration| Duration::from_nanos((time.as_nanos() as i64 + less).max(0) as u64);
    let Costs { encoding, decoding, .. } = OSI_BOARD_1992;
    Costs { host_byte_ps: picos, encoding: coding(encoding), decoding: coding(decoding), ..OSI_BOARD_1992 }
}

fn throughput(two_a: &Figure, two_b: &Figure) -> Vec<Row> {
    let ([line, loopback], [line_b, loopback_b]) = (&two_a.curves[..], &two_b.curves[..]) else {
        unreachable!("so they were drawn")
    };
    let (line_8000, line_4000) = (at(line, 8000), at(line, published::LINE_FROM_BYTES));
    let from = level_from(|bytes| at(line, bytes));
    let same: Vec<String> = HOST_BYTE_NS
        .into_iter()
        .filter(|nanos| level_from(|bytes| rate(Setting::Line, bytes, 2048, with_host_byte(*nanos))) == from)
        .map(|nanos| nanos.to_string())
        .collect();
    let today = |bytes| Some(format!("{:.2}", unhindered(bytes).mbps));
    let most = at(loopback, 8000);
    let least = at(loopback_b, 512);
    let between = at(loopback_b, 1024);
    let falls = loopback.points.windows(2).all(|two| two[0].1 < two[1].1);
    let straight = straightness(line_b);
    let margin =
        TPDU.map(|bytes| at(loopback_b, bytes) / at(line_b, bytes)).into_iter().fold(f64::MAX, f64::min);
    vec![
        Row {
            today: today(8000),
            verdict: Verdict::of(Verdict::Fitted, is_near(line_8000, published::LINE_MBPS)),
            note: Some(format!(
                "The difference is {}. The lower module's cost per frame was fitted to this value.",
                off(line_8000, 1.5)
            )),
            ..Row::new(
                "§3 (1)",
                "line, F-DATA 8000, TPDU 2048, Mbit/s",
                "about 1.5",
                format!("{line_8000:.2}"),
            )
        },
        Row {
            today: today(4000),
            verdict: Verdict::of(Verdict::Met, is_near(line_4000, published::LINE_MBPS)),
            note: Some(format!("The difference is {}.", off(line_4000, published::LINE_MBPS))),
            ..Row::new("§3 (1)", "line, F-DATA 4000, Mbit/s", "about 1.5", format!("{line_4000:.2}"))
        },
        Row {
            verdict: Verdict::of(Verdict::Met, from == published::LINE_FROM_BYTES),
            note: Some(format!(
                "The value is the smallest of 1000, 2000, 4000 and 8000 bytes that reaches 95 % of the rate \
                at 8000; at 2000, the rate is {:.2} Mbit/s. Costs of {} ns per host byte give the same \
                result if the costs of encoding and decoding are adjusted to keep the loopback rate.",
                at(line, 2000),
                same.join(", ")
            )),
            ..Row::new(
                "§3 (1)",
                "line: smallest F-DATA that reaches this rate, bytes",
                "4000",
                from.to_string(),
            )
        },
        Row {
            verdict: Verdict::of(Verdict::Fitted, is_near(most, published::LOOPBACK_MBPS)),
            note: Some(format!(
                "The difference is {}. The sum of encoding and decoding was fitted to this value.",
                off(most, published::LOOPBACK_MBPS)
            )),
            ..Row::new(
                "§3 (1)",
                "loopback x 2, F-DATA 8000, TPDU 2048, Mbit/s",
                "about 4",
                format!("{most:.2}"),
            )
        },
        Row {
            verdict: Verdict::of(Verdict::Fitted, is_near(least, published::LOOPBACK_LEAST_MBPS)),
            note: Some(format!(
                "The difference is {}. The cost of a task's turn was fitted to this value.",
                off(least, published::LOOPBACK_LEAST_MBPS)
            )),
            ..Row::new("§3 (4)", "the same, TPDU 512, Mbit/s", "2.5", format!("{least:.2}"))
        },
        Row {
            verdict: Verdict::of(
                Verdict::Met,
                (published::LOOPBACK_LEAST_MBPS..=published::LOOPBACK_MBPS).contains(&between),
            ),
            ..Row::new("§3 (4)", "the same, TPDU 1024, Mbit/s", "2.5 to 4", format!("{between:.2}"))
        },
        Row {
            verdict: Verdict::of(Verdict::Met, falls),
            note: Some("The rate at every F-DATA size is lower than at the next larger size.".to_owned()),
            ..Row::new(
                "§3 (5)",
                "loopback rate falls with smaller F-DATA: rate at 2000, Mbit/s",
                "falls",
                format!("{:.2}", at(loopback, 2000)),
            )
        },
        Row {
            verdict: Verdict::of(Verdict::Fitted, straight >= published::STRAIGHT),
            note: Some(
                "The value is R squared of a linear fit to the curve from 128 to 2048 bytes. At 0.99 or \
                more, the curve counts as linear. To obtain this, the lower module's cost per byte was set \
                to zero."
                    .to_owned(),
            ),
            ..Row::new(
                "Fig. 2(b)",
                "line rate falls linearly with the TPDU size",
                "nearly",
                format!("{straight:.4}"),
            )
        },
        Row {
            verdict: Verdict::of(Verdict::Met, margin > 1.0),
            note: Some(
                "The value is the minimum, over all TPDU sizes, of the loopback rate divided by the line \
                rate."
                    .to_owned(),
            ),
            ..Row::new(
                "§3 (2)",
                "speed of the upper module relative to the lower one, factor",
                "faster",
                format!("{margin:.1}"),
            )
        },
    ]
}

// ---- Figure 3

fn times(figure_3: &[Tasks]) -> Vec<Row> {
    let [sender, receiver, sender_2000, receiver_2000] = figure_3 else { unreachable!("four were made") };
    let of = |ends: [&Tasks; 2], task| ends.into_iter().map(|end| end.of(task)).sum::<f64>();
    let (large, small) = ([sender, receiver], [sender_2000, receiver_2000]);
    let factors = [Task::Ftam, Task::Presentation, Task::Session, Task::Transport]
        .map(|task| of(small, task) / of(large, task));
    let little = published::LITTLE;
    // (small + x) / (large + x) = little, for the time x that all bytes of the file take at both ends.
    let (session_small, session_large) = (of(small, Task::Session), of(large, Task::Session));
    let beside = (session_small - little * session_large) / (little - 1.0);
    let byte_ns = beside / (2.0 * FILE_BYTES as f64) * 1e9;
    let copy_ns = OSI_BOARD_1992.copy_byte_ps as f64 / 1e3;
    vec![
        lif("8000", Verdict::Met, sender, receiver),
        lif("2000", Verdict::Fitted, sender_2000, receiver_2000),
        Row {
            verdict: Verdict::of(Verdict::Met, factors[0].min(factors[1]) > little && factors[3] < little),
            note: Some(format!(
                "The paper compares rates of growth (増加の割合), so the values are factors, of the sums over \
                both ends. A factor counts as large above {little}, and as little below.",
            )),
            ..Row::new(
                "Fig. 3",
                "growth from F-DATA 8000 to 2000, factors: FTAM, PL; TL",
                "large; little",
                format!("{:.1}, {:.1}; {:.1}", factors[0], factors[1], factors[3]),
            )
        },
        Row {
            verdict: Verdict::of(Verdict::Conflict, byte_ns > 0.5 * copy_ns),
            note: Some(format!(
                "Every F-DATA is one session data unit, so a session layer without cost per byte takes as much \
                longer as there are more F-DATA. To grow by less than {little}, it would have to spend {byte_ns:.0} \
                ns on each byte, nearly as much as copying it ({copy_ns:.0} ns); but §1 says that no layer copies \
                user data.",
            )),
            ..Row::new(
                "Fig. 3",
                "growth from F-DATA 8000 to 2000, factor: SL",
                "little",
                format!("{:.1}", factors[2]),
            )
        },
    ]
}

/// Compares the share of LIF at both ends.
fn lif(fdata: &str, verdict: Verdict, sender: &Tasks, receiver: &Tasks) -> Row {
    let percent = |tasks: &Tasks| tasks.of(Task::Lower) / tasks.seconds.iter().sum::<f64>() * 100.0;
    Row {
        verdict: Verdict::of(verdict, sender.of(Task::Lower) > 2.0 * receiver.of(Task::Lower)),
        note: Some(format!(
            "The paper's explanation, which is part of the model, is that the sender polls all the time while \
            the lower module has no room. The values count as met if the sender's LIF takes more than twice \
            the receiver's time; here it takes {:.2} s, and the receiver's {:.2} s.{}",
            sender.of(Task::Lower),
            receiver.of(Task::Lower),
            if verdict == Verdict::Fitted {
                " With F-DATA of 2000, the layers above are the bottleneck, so the sender waits only if the \
                receiver is the slower end: decoding was fitted to be slower than encoding."
            } else {
                ""
            }
        )),
        ..Row::new(
            "Fig. 3",
            format!("LIF, F-DATA {fdata}, % of the tasks' time: sender, receiver"),
            "sender's large",
            format!("{:.0}, {:.0}", percent(sender), percent(receiver)),
        )
    }
}

// ---- Text output

impl OsiBoard {
    fn tasks_table(&self) -> Table {
        let heads = Table::new("figure 3: time of each task on the line, TPDU 2048, s")
            .text_column("end")
            .number_column("F-DATA");
        let mut table = Task::ALL
            .into_iter()
            .fold(heads, |table, task| table.number_column(task.name()))
            .number_column("transfer");
        for bar in &self.figure_3 {
            let cells = [bar.end.to_owned(), bar.fdata_bytes.to_string()];
            let seconds =
                bar.seconds.iter().chain([&bar.took_seconds]).map(|seconds| format!("{seconds:.2}"));
            table.row(cells.into_iter().chain(seconds));
        }
        table.remark("HIF: the host interface. LIF: the interface to the lower module, including its polls.");
        table
    }
}

impl fmt::Display for OsiBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        write!(f, "{}", self.tasks_table())?;
        if !self.measured.is_empty() {
            write!(f, "\n{}", measured::table(&self.measured))?;
        }
        Ok(())
    }
}
