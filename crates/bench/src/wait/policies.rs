//! The rows of the benchmark: the cost of each policy for each kind of traffic.

use super::stage;
use super::stage::{Cell, Hogs, Traffic};
use kiban_base::{Bell, Costs, Evidence, Instant, Report, Wait, Waiter};
use kiban_lab::bench::Round;
use kiban_lab::chart::svg_log;
use kiban_lab::reproduce::{Curve, Figure};
use kiban_lab::stats::median;
use kiban_lab::{Bench, Options, Table, Target, Trial, Unit};
use kiban_os::clock::allowed_cpus;
use kiban_os::{Clock, Waiting};
use std::hint::black_box;
use std::time::Duration;

/// All policies, from sleeping at once (the first) to adaptive (the last).
const POLICIES: [Wait; 8] = [
    Wait::Interrupt,
    hybrid(20),
    hybrid(50),
    hybrid(100),
    hybrid(140),
    hybrid(300),
    Wait::Poll,
    Wait::Adaptive,
];
/// The policies that are measured with hogs (busy threads), and in a quick run.
const POLICIES_FEW: [Wait; 4] = [Wait::Interrupt, hybrid(100), Wait::Poll, Wait::Adaptive];

const fn hybrid(micros: u64) -> Wait {
    Wait::Hybrid { spin: Duration::from_micros(micros) }
}

const fn constant(micros: u64) -> Traffic {
    Traffic::Constant { micros }
}

const fn exponential(micros: u64) -> Traffic {
    Traffic::Exponential { micros }
}

const LONG_BURSTS: Traffic = Traffic::Bursts { length: 100, micros: 10, pause_micros: 5_000 };
const SHORT_BURSTS: Traffic = Traffic::Bursts { length: 20, micros: 30, pause_micros: 1_000 };
const PERIODIC: Traffic = Traffic::Periodic { micros: 125, jitter_micros: 2 };

const QUIET: [Traffic; 17] = [
    constant(10),
    constant(20),
    constant(50),
    constant(100),
    constant(200),
    constant(500),
    constant(1_000),
    constant(2_000),
    constant(5_000),
    constant(10_000),
    exponential(20),
    exponential(50),
    exponential(200),
    exponential(1_000),
    LONG_BURSTS,
    SHORT_BURSTS,
    PERIODIC,
];
const HOGS: [Traffic; 7] =
    [constant(10), constant(50), constant(200), constant(1_000), exponential(200), LONG_BURSTS, PERIODIC];
const QUICK: [Traffic; 4] = [constant(20), constant(1_000), LONG_BURSTS, PERIODIC];
const QUICK_HOGS: [Traffic; 2] = [constant(50), LONG_BURSTS];

/// The sizes of a run.
struct Size {
    rounds: usize,
    /// The maximum number of repetitions of one cell, and the maximum for all cells of a run together.
    tries_max: usize,
    redos_max: usize,
    /// How long a run waits, in total, until other processes leave the machine idle.
    patience: Duration,
    /// The duration of a cell. A cell lasts longer if `messages_min` messages have not been sent by then.
    span: Duration,
    /// The minimum number of messages in a cell.
    messages_min: usize,
    /// The duration of a cell with hogs. It must span many of their time slices, which last some
    /// milliseconds.
    hogs_span: Duration,
    /// How long the adaptive policy runs with hogs before it is measured.
    hogs_warm: Duration,
}

impl Size {
    fn of(options: &Options) -> Size {
        let millis = Duration::from_millis;
        let full = Size {
            rounds: 3,
            tries_max: 20,
            redos_max: 400,
            patience: millis(480_000),
            span: millis(60),
            messages_min: 20,
            hogs_span: millis(250),
            hogs_warm: millis(1_500),
        };
        let quick = Size {
            rounds: 1,
            tries_max: 2,
            redos_max: 8,
            patience: millis(2_000),
            span: millis(60),
            messages_min: 20,
            hogs_span: millis(200),
            hogs_warm: millis(500),
        };
        if options.quick { quick } else { full }
    }
}

/// The number of repetitions and the waiting time that remain for the run.
struct Left {
    redos: usize,
    patience: Duration,
}

/// A row of the table: one kind of traffic, all policies, several rounds.
struct Row {
    traffic: Traffic,
    hogs: bool,
    policies: &'static [Wait],
    /// The results of each policy, per round.
    rounds: Vec<Lap>,
    /// The adaptive policy's own report, which includes the warm-up and repeated cells.
    report: Report,
}

/// One round of a row.
struct Lap {
    figures: Vec<Figures>,
    foreign_cores: f64,
    quiet: bool,
}

#[derive(Clone, Copy, Debug)]
struct Figures {
    p50: f64,
    p99: f64,
    cpu: f64,
    /// The cost per message, in microseconds, and relative to the optimum (with hogs: to sleeping at once).
    cost: f64,
    optima: f64,
}

impl Row {
    fn at(&self, wait: Wait) -> usize {
        self.policies.iter().position(|&policy| policy == wait).expect("every row has this policy")
    }

    fn median(&self, wait: Wait, figure: impl Fn(&Figures) -> f64) -> f64 {
        let at = self.at(wait);
        let figures: Vec<f64> = self.rounds.iter().map(|lap| figure(&lap.figures[at])).collect();
        median(&figures).expect("at least one round counts")
    }

    /// Returns the rounds of the given policies, for a record.
    fn rounds(&self, waits: &[Wait], figure: impl Fn(&Figures) -> f64) -> Vec<Round> {
        let places: Vec<usize> = waits.iter().map(|&wait| self.at(wait)).collect();
        let round = |lap: &Lap| Round {
            order: (0..places.len()).collect(),
            quiet: lap.quiet,
            counts: true,
            figures: places.iter().map(|&at| figure(&lap.figures[at])).collect(),
            foreign_cores: vec![Some(lap.foreign_cores); places.len()],
        };
        self.rounds.iter().map(round).collect()
    }

    /// Returns whether disturbed cells had to be counted in most rounds.
    fn is_noisy(&self) -> bool {
        2 * self.rounds.iter().filter(|lap| !lap.quiet).count() >= self.rounds.len()
    }

    fn title(&self, what: &str) -> String {
        let hogs = if self.hogs { ", hogs" } else { "" };
        let colon = if what.is_empty() { "" } else { ": " };
        format!("{}{hogs}{colon}{what}", self.traffic.name())
    }
}

/// Measures one row.
fn measure(
    traffic: Traffic,
    hogs: bool,
    options: &Options,
    size: &Size,
    left: &mut Left,
    cpus: [usize; 2],
) -> Row {
    let policies: &'static [Wait] = if hogs || options.quick { &POLICIES_FEW } else { &POLICIES };
    let (clock, base) = (Clock::new(), kiban_os::costs());
    let mut places: Vec<Waiting> = policies.iter().map(|&wait| Waiting::new(wait, clock)).collect();
    let span = if hogs { size.hogs_span } else { size.span };
    let count = |span: Duration| (span.as_secs_f64() * 1e6 / traffic.mean_micros()) as usize;
    let messages = count(span).max(size.messages_min);
    let gaps = traffic.gaps(messages + messages / 4);
    if hogs {
        let warm = traffic.gaps(count(size.hogs_warm));
        stage::run(places.last_mut().expect("adaptive is the last"), &warm, 0, cpus);
    }
    let mut row = Row { traffic, hogs, policies, rounds: Vec::new(), report: Report::default() };
    for number in 0..size.rounds {
        let mut cells: Vec<Cell> = policies.iter().map(|_| Cell::default()).collect();
        let turn = number * policies.len() / size.rounds;
        for at in (0..policies.len()).map(|at| (at + turn) % policies.len()) {
            let mut run = |patience: &mut Duration| {
                stage::until_quiet(patience);
                stage::run(&mut places[at], &gaps, messages / 4, cpus)
            };
            cells[at] = run(&mut left.patience);
            let mut tries = 0;
            while cells[at].is_disturbed(hogs) && left.redos > 0 && tries < size.tries_max {
                (left.redos, tries) = (left.redos - 1, tries + 1);
                let again = run(&mut left.patience);
                if again.foreign_cores() < cells[at].foreign_cores() {
                    cells[at] = again;
                }
            }
        }
        let costs = cells[0].costs(&base);
        let mut figures: Vec<Figures> = cells.iter().map(|cell| figures(cell, &costs)).collect();
        if hogs {
            // The time until the scheduler returns the core does not depend on the arrivals. So costs are
            // relative to sleeping at once instead of the optimum.
            let least = figures[0].cost;
            figures.iter_mut().for_each(|figures| figures.optima = figures.cost / least);
        }
        let foreign_cores = cells.iter().map(Cell::foreign_cores).fold(0.0, f64::max);
        let quiet = !cells.iter().any(|cell| cell.is_disturbed(hogs));
        row.rounds.push(Lap { figures, foreign_cores, quiet });
    }
    row.report = *places.last().expect("adaptive is the last").report();
    row
}

fn figures(cell: &Cell, costs: &Costs) -> Figures {
    let (cost, least) = (cell.cost_micros(costs.price), cell.optimum_micros(costs));
    Figures {
        p50: cell.percentile_micros(50),
        p99: cell.percentile_micros(99),
        cpu: cell.cpu_percent(),
        cost,
        optima: cost / least,
    }
}

/// Prints `p50/p99 us, CPU %, cost` of every policy.
fn print(rows: &[Row], hogs: bool) {
    let Some(first) = rows.iter().find(|row| row.hogs == hogs) else { return };
    let head = if hogs { "with a hog on each CPU" } else { "quiet" };
    for (what, cell) in [
        (
            "latency p50 / p99, us",
            (|figures| format!("{}/{}", short(figures.p50), short(figures.p99))) as fn(&Figures) -> String,
        ),
        ("receiver's CPU, %", |figures| short(figures.cpu)),
        (
            if hogs { "cost relative to sleeping at once" } else { "cost relative to the optimum" },
            |figures| short(figures.optima),
        ),
    ] {
        let mut table = Table::new(format!("{what} ({head})")).text_column("traffic");
        for wait in first.policies {
            table = table.number_column(&label(*wait));
        }
        for row in rows.iter().filter(|row| row.hogs == hogs) {
            let noisy = if row.is_noisy() { " (noisy)" } else { "" };
            let mut line = vec![row.traffic.name() + noisy];
            line.extend(row.policies.iter().map(|&wait| {
                cell(&Figures {
                    p50: row.median(wait, |figures| figures.p50),
                    p99: row.median(wait, |figures| figures.p99),
                    cpu: row.median(wait, |figures| figures.cpu),
                    cost: row.median(wait, |figures| figures.cost),
                    optima: row.median(wait, |figures| figures.optima),
                })
            }));
            table.row(line);
        }
        println!("{table}");
    }
}

/// Prints how the waits of the adaptive policy ended.
fn print_reports(rows: &[Row]) {
    let mut table = Table::new("what adaptive waiting did, % of all messages")
        .text_column("traffic")
        .number_column("available at once")
        .number_column("while polling")
        .number_column("after a nap")
        .number_column("after a wake-up")
        .number_column("times core lost");
    for row in rows {
        let Report { waits, at_once, spin_hits, blocks, disturbances, .. } = row.report;
        let percent = |part: u64| short(part as f64 * 100.0 / (waits + at_once) as f64);
        table.row([
            row.title(""),
            percent(at_once),
            percent(spin_hits),
            percent(waits.saturating_sub(spin_hits + blocks)),
            percent(blocks),
            disturbances.to_string(),
        ]);
    }
    println!("{table}");
}

fn label(wait: Wait) -> String {
    match wait {
        Wait::Interrupt => "block".into(),
        Wait::Poll => "poll".into(),
        Wait::Hybrid { spin } => format!("{}", spin.as_micros()),
        Wait::Adaptive => "adaptive".into(),
    }
}

fn short(figure: f64) -> String {
    if figure >= 100.0 {
        format!("{figure:.0}")
    } else if figure >= 10.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.2}")
    }
}

/// Writes the figure of `docs/waiting.md` to the records' folder: the cost of each policy for constant gaps.
fn picture(rows: &[Row], options: &Options) {
    let constant = |row: &&Row| !row.hogs && matches!(row.traffic, Traffic::Constant { .. });
    let Some(policies) = rows.iter().find(constant).map(|row| row.policies) else { return };
    let curve = |&wait: &Wait| Curve {
        name: label(wait),
        points: rows
            .iter()
            .filter(constant)
            .map(|row| (row.traffic.mean_micros(), Some(row.median(wait, |figures| figures.optima))))
            .collect(),
    };
    let figure = Figure {
        name: "waiting",
        title: "Cost of waiting, relative to an optimum that knows the arrivals".to_owned(),
        x: "constant gap between arrivals, us",
        y: "optima",
        // The figure has seven colours, so 140 µs is omitted. Its curve would lie between its neighbours.
        curves: policies.iter().filter(|&&wait| wait != hybrid(140)).map(curve).collect(),
    };
    if let Some(dir) = &options.dir {
        let file = dir.join("waiting.svg");
        match std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&file, svg_log(&figure))) {
            Ok(()) => println!("picture: {}\n", file.display()),
            Err(error) => println!("picture: NOT KEPT in {}: {error}\n", file.display()),
        }
    }
}

/// Compares the rows with the targets.
fn judge(bench: &mut Bench, rows: &[Row]) {
    let both = [Wait::Adaptive, Wait::Interrupt];
    let names = ["adaptive", "block"];
    for row in rows {
        let mut keep = |what: &str, unit, names: &[&str], rounds, target| {
            bench.measured(&row.title(what), unit, names, rounds, row.is_noisy(), target);
        };
        if row.hogs {
            let target = Target::ratio_at_most(1.2);
            keep("p50", Unit::Microseconds, &names, row.rounds(&both, |figures| figures.p50), target);
            keep("p99", Unit::Microseconds, &names, row.rounds(&both, |figures| figures.p99), target);
        } else if matches!(row.traffic, Traffic::Bursts { .. }) {
            let polled = row.median(Wait::Poll, |figures| figures.p50);
            let target = Target::at_most((polled * 1.15).max(polled + 1.0));
            let rounds = row.rounds(&[Wait::Adaptive, Wait::Poll], |figures| figures.p50);
            keep("p50", Unit::Microseconds, &["adaptive", "poll"], rounds, target);
        } else if row.traffic.mean_micros() >= 1_000.0 {
            let target = Target::at_most(row.median(Wait::Interrupt, |figures| figures.cpu) + 1.5);
            keep("receiver's CPU", Unit::Percent, &names, row.rounds(&both, |figures| figures.cpu), target);
        }
        let rounds = row.rounds(&[Wait::Adaptive], |figures| figures.optima);
        let what = if row.hogs { "cost relative to block" } else { "cost relative to the optimum" };
        keep(what, Unit::Times, &["adaptive"], rounds, Target::at_most(2.0));
    }
}

/// Measures the cost of the decisions themselves, in nanoseconds.
fn decisions(bench: &mut Bench) {
    let decide = |trial: &mut Trial| {
        let mut waiter = Waiter::new(Wait::Adaptive, Costs::default());
        let mut now = Instant::from_nanos(1);
        let mut number = 0u64;
        trial
            .measure(|| {
                for _ in 0..1_000 {
                    number += 1;
                    // Nine messages arrive after short gaps, then one after a long gap. The lengths of the
                    // gaps vary.
                    let gap = if number.is_multiple_of(10) { 400_000 } else { 5_000 + number % 7 * 1_000 };
                    waiter.begin(now);
                    black_box(waiter.step(now));
                    now += Duration::from_nanos(gap);
                    if gap > 100_000 {
                        black_box(waiter.step(now));
                        waiter.on_arrival(now + Duration::from_micros(20), Evidence::Rung { at: now });
                        now += Duration::from_micros(20);
                    } else {
                        waiter.on_arrival(now, Evidence::Spinning);
                    }
                }
                1_000.0
            })
            .nanos_each()
    };
    bench.single("decisions of a wait", Unit::Nanoseconds, ("adaptive", decide), Target::at_most(100.0));
    let bell = Bell::new();
    let ring = |trial: &mut Trial| {
        trial
            .measure(|| (0..1_000).map(|_| f64::from(u8::from(!black_box(&bell).ring(|| 0)))).sum())
            .nanos_each()
    };
    bench.single("ringing while nobody sleeps", Unit::Nanoseconds, ("bell", ring), Target::None);
}

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("wait", options.clone());
    let cpus = match allowed_cpus().unwrap_or_default()[..] {
        [first, second, ..] => [first, second],
        _ => {
            println!("wait: needs two CPUs, one for the producer and one for the receiver\n");
            return;
        }
    };
    let costs = kiban_os::costs();
    println!("Measured cost of a sleep: {costs:?}\n");
    let size = Size::of(options);
    let (quiet, hogs): (&[Traffic], &[Traffic]) =
        if options.quick { (&QUICK, &QUICK_HOGS) } else { (&QUIET, &HOGS) };
    // KIBAN_BENCH_ROWS selects one kind of traffic, for example KIBAN_BENCH_ROWS=bursts.
    let only = std::env::var("KIBAN_BENCH_ROWS").unwrap_or_default();
    let chosen = |traffic: &&Traffic| traffic.name().contains(&only);
    let mut left = Left { redos: size.redos_max, patience: size.patience };
    let mut row = |&traffic: &Traffic, hogs| {
        eprintln!("wait: {}{}", traffic.name(), if hogs { ", hogs" } else { "" });
        measure(traffic, hogs, options, &size, &mut left, cpus)
    };
    let mut rows: Vec<Row> = quiet.iter().filter(chosen).map(|traffic| row(traffic, false)).collect();
    let both = Hogs::on(cpus);
    rows.extend(hogs.iter().filter(chosen).map(|traffic| row(traffic, true)));
    drop(both);
    print(&rows, false);
    print(&rows, true);
    print_reports(&rows);
    picture(&rows, options);
    judge(&mut bench, &rows);
    bench.options_mut().span_nanos /= 3;
    decisions(&mut bench);
    bench.finish();
}
