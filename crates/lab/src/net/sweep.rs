//! A sweep: points, one after the other; maps, causes, advice, and the proof.
//!
//! Resume    what the folder has is not measured again, so a sweep that was ended, by whomever, goes on where it was.
//! Death     a peer that is lost is called again for [`Sweep::patience`]; then the sweep ends with what it has.
//! Guard     a trial during which others used the processors is made again; if every repeat was as bad, the least bad is kept,
//!           and says so.
//! Clock     moments are of the monotone clock; a step of the day's clock moves nothing but the date of files.

use super::advice::{Proof, against};
use super::boundary::should_be_slow;
use super::cause::{Cause, explain, is_slow};
use super::evidence::{Evidence, Pattern};
use super::map::{Cell, Map};
use super::protocol::Welcome;
use super::session::{Path, Session};
use super::setup::{SYSTEM, Setup};
use super::store::Store;
use super::stream::Stream;
use super::transactions::Transactions;
use crate::engine::key::{VERSION, key};
use crate::engine::{Failure, Question, Record};
use crate::environment::Environment;
use crate::load::{Foreign, Meter, ProcMeter};
use crate::table::{Table, figure};
use kiban_real::measure::pause::pace;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often a lost peer is called.
const CALL: Duration = Duration::from_millis(500);

/// What is to be measured: all combinations.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Message lengths, bytes.
    pub messages: Vec<u32>,
    /// Socket buffers, bytes; 0: the system's own.
    pub buffers: Vec<u32>,
    /// How the client writes.
    pub patterns: Vec<Pattern>,
    /// TCP_NODELAY.
    pub no_delay: Vec<bool>,
    /// MSS, bytes; 0: the path's.
    pub mss: Vec<u32>,
    /// Congestion controls; `system`: the system's.
    pub congestion: Vec<String>,
    /// How long each point is measured, s.
    pub seconds: f64,
}

impl Plan {
    /// What the cells of a map have in common, one for each map; message and buffer are the first.
    fn groups(&self) -> Vec<Setup> {
        let mut groups = Vec::new();
        for pattern in &self.patterns {
            for no_delay in &self.no_delay {
                for mss in &self.mss {
                    for congestion in &self.congestion {
                        groups.push(Setup {
                            pattern: *pattern,
                            message_bytes: 1,
                            buffer_bytes: None,
                            no_delay: *no_delay,
                            mss_bytes: (*mss > 0).then_some(*mss),
                            congestion: (congestion != SYSTEM).then(|| congestion.clone()),
                            seconds: self.seconds,
                        });
                    }
                }
            }
        }
        groups
    }

    fn cell(&self, group: &Setup, buffer: u32, message: u32) -> Setup {
        Setup { message_bytes: message, buffer_bytes: (buffer > 0).then_some(buffer), ..group.clone() }
    }

    /// All points.
    pub fn setups(&self) -> Vec<Setup> {
        let mut setups = Vec::new();
        for group in self.groups() {
            for buffer in &self.buffers {
                setups.extend(self.messages.iter().map(|message| self.cell(&group, *buffer, *message)));
            }
        }
        setups
    }
}

/// How foreign load is guarded against.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Guard {
    /// Processors that others may use.
    pub foreign_cores_max: f64,
    /// How often a disturbed trial is made again.
    pub repeats: u32,
}

/// A sweep of a host.
pub struct Sweep {
    /// With the host.
    pub session: Arc<Session>,
    /// Where records go.
    pub store: Store,
    /// Against foreign load.
    pub guard: Guard,
    /// How long a lost peer is called.
    pub patience: Duration,
}

/// What stopped a sweep.
enum Stop {
    /// This point cannot be measured; others may be.
    Point(String),
    /// Nothing can be measured any more.
    All(String),
}

/// How often a cause was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// In words.
    pub words: String,
    /// Cells.
    pub cells: usize,
    /// What was seen in the worst of them.
    pub example: String,
    /// That cell.
    pub case: String,
}

/// What a sweep found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The host.
    pub host: String,
    /// What its server says of itself.
    pub server: Welcome,
    /// The path.
    pub path: Path,
    /// Where it was measured.
    pub environment: Environment,
    /// A map for each combination but message and buffer.
    pub maps: Vec<Map>,
    /// Causes, the most frequent first.
    pub causes: Vec<CauseCount>,
    /// What to change, and what it did.
    pub advice: Vec<Proof>,
    /// Points that make no sense, and why.
    pub impossible: Vec<String>,
    /// Points that were measured under foreign load.
    pub disturbed: usize,
    /// Points that the folder had already.
    pub resumed: usize,
    /// Why the sweep ended before its time; none if it did not.
    pub ended_early: Option<String>,
}

impl Sweep {
    /// Measures what is missing of a plan, and sums up. `progress` hears how many of how many points are done, and what comes next.
    ///
    /// # Errors
    /// The host cannot be reached at all, or refuses.
    pub fn run(&mut self, plan: &Plan, progress: &dyn Fn(usize, usize, &str)) -> Result<Report, Failure> {
        let (server, path) = self.session.path()?;
        let mut report = Report {
            host: self.session.host().to_owned(),
            server,
            path,
            environment: Environment::read(),
            maps: Vec::new(),
            causes: Vec::new(),
            advice: Vec::new(),
            impossible: Vec::new(),
            disturbed: 0,
            resumed: 0,
            ended_early: None,
        };
        let setups = plan.setups();
        for (done, setup) in setups.iter().enumerate() {
            progress(done, setups.len(), &setup.words());
            if self.kept(setup).is_some() {
                report.resumed += 1;
                continue;
            }
            match self.measure(setup) {
                Ok(_) => {}
                Err(Stop::Point(why)) => report.impossible.push(format!("{}: {why}", setup.words())),
                Err(Stop::All(why)) => {
                    report.ended_early = Some(why);
                    break;
                }
            }
        }
        progress(setups.len(), setups.len(), "summing up");
        self.sum_up(plan, &mut report);
        if report.ended_early.is_none() {
            self.prove(plan, &mut report, progress);
        }
        Ok(report)
    }

    fn question(&self, pattern: Pattern) -> Box<dyn Question> {
        let session = Arc::clone(&self.session);
        match pattern {
            Pattern::Stream => Box::new(Stream(session)),
            _ => Box::new(Transactions(session)),
        }
    }

    fn key(&self, setup: &Setup) -> String {
        let name = self.question(setup.pattern).name();
        key(name, VERSION, &setup.point(self.session.host()), 0, Some(0))
    }

    fn kept(&self, setup: &Setup) -> Option<&Record> {
        self.store.get(&self.key(setup))
    }

    fn evidence(&self, setup: &Setup) -> Option<(f64, Evidence)> {
        let record = self.kept(setup)?;
        let evidence: Evidence = serde_json::from_value(record.evidence.clone()).ok()?;
        let name = if setup.pattern == Pattern::Stream { "mbps" } else { "transactions_per_second" };
        Some((*record.metrics.get(name)?, evidence))
    }

    /// Measures a point and keeps it.
    fn measure(&mut self, setup: &Setup) -> Result<(), Stop> {
        let question = self.question(setup.pattern);
        let point = setup.point(self.session.host());
        let clock = self.session.clock();
        let mut meter = ProcMeter::new(clock);
        let mut best: Option<(f64, bool, crate::engine::Metrics)> = None;
        let mut lost_since = None;
        let mut tries = 0;
        while tries <= self.guard.repeats {
            let before = meter.read();
            let metrics = match question.trial(&point, 0) {
                Ok(metrics) => metrics,
                Err(Failure::Impossible(why)) => return Err(Stop::Point(why)),
                Err(Failure::Lost(why)) => {
                    let since = *lost_since.get_or_insert(clock.now());
                    if clock.now().since(since) >= self.patience {
                        let kept = self.store.len();
                        return Err(Stop::All(format!(
                            "{why}; {kept} points are kept: the same command goes on from there"
                        )));
                    }
                    pace(CALL);
                    continue;
                }
            };
            tries += 1;
            let foreign = before.zip(meter.read()).map(|(before, after)| Foreign::between(before, after));
            let cores = foreign.map_or(0.0, Foreign::cores);
            let is_disturbed = foreign.is_some_and(|foreign| foreign.exceeds(self.guard.foreign_cores_max));
            if best.as_ref().is_none_or(|(least, ..)| cores < *least) {
                best = Some((cores, is_disturbed, metrics));
            }
            if !is_disturbed {
                break;
            }
        }
        let (cores, is_disturbed, metrics) = best.expect("a trial came to an end");
        let record = Record {
            key: self.key(setup),
            question: question.name().to_owned(),
            point,
            repetition: 0,
            seed: 0,
            version: VERSION.to_owned(),
            environment: Some(Environment::read()),
            metrics: metrics.figures,
            evidence: metrics.evidence,
            foreign_cores: is_disturbed.then_some(cores),
        };
        self.store.add(record).map_err(Stop::All)
    }

    /// The best stream, and the best of all, Mbit/s.
    fn best(&self, plan: &Plan) -> (f64, f64) {
        let mut best = (0.0f64, 0.0f64);
        for setup in plan.setups() {
            let Some((_, evidence)) = self.evidence(&setup) else { continue };
            best.1 = best.1.max(evidence.mbps());
            if setup.pattern == Pattern::Stream {
                best.0 = best.0.max(evidence.mbps());
            }
        }
        best
    }

    fn sum_up(&self, plan: &Plan, report: &mut Report) {
        let (best_stream, _) = self.best(plan);
        let mut found: BTreeMap<Cause, Vec<(f64, Setup, String)>> = BTreeMap::new();
        for group in plan.groups() {
            let cell = |buffer: u32, message: u32| {
                let setup = plan.cell(&group, buffer, message);
                let predicted_slow = should_be_slow(&setup, &report.path, best_stream);
                let mut cell =
                    Cell { figure: None, mbps: 0.0, predicted_slow, cause: None, because: String::new() };
                let Some((number, evidence)) = self.evidence(&setup) else { return (setup, cell) };
                (cell.figure, cell.mbps) = (Some(number), evidence.mbps());
                if is_slow(&evidence, best_stream) {
                    let explanation = explain(&evidence);
                    (cell.cause, cell.because) = (Some(explanation.cause), explanation.because);
                }
                (setup, cell)
            };
            let mut rows = Vec::new();
            for buffer in &plan.buffers {
                let mut row = Vec::new();
                for message in &plan.messages {
                    let (setup, cell) = cell(*buffer, *message);
                    if let (Some(cause), Some(number)) = (cell.cause, cell.figure) {
                        found.entry(cause).or_default().push((number, setup, cell.because.clone()));
                    }
                    row.push(cell);
                }
                rows.push(row);
            }
            report.maps.push(Map {
                title: title(&group),
                pattern: group.pattern,
                unit: unit(group.pattern).to_owned(),
                messages: plan.messages.clone(),
                buffers: plan.buffers.clone(),
                cells: rows,
            });
        }
        let mut counts: Vec<_> = found
            .into_iter()
            .map(|(cause, mut cells)| {
                cells.sort_by(|one, other| one.0.total_cmp(&other.0));
                let (_, setup, because) = &cells[0];
                let count = CauseCount {
                    cause,
                    words: cause.words().to_owned(),
                    cells: cells.len(),
                    example: because.clone(),
                    case: setup.words(),
                };
                (count, setup.clone())
            })
            .collect();
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(count.cells));
        report.causes = counts.into_iter().map(|(count, _)| count).collect();
        let kept = plan.setups();
        report.disturbed = kept
            .iter()
            .filter_map(|setup| self.kept(setup))
            .filter(|kept| kept.foreign_cores.is_some())
            .count();
    }

    /// Tries each advice on the worst case of its cause.
    fn prove(&mut self, plan: &Plan, report: &mut Report, progress: &dyn Fn(usize, usize, &str)) {
        let (best_stream, best) = self.best(plan);
        let best = best.max(report.path.rate_mbps);
        let setups = plan.setups();
        for count in report.causes.clone() {
            let Some(setup) = setups.iter().find(|setup| setup.words() == count.case) else { continue };
            let Some((before, evidence)) = self.evidence(setup) else { continue };
            let list = against(count.cause, setup, &evidence, best, &report.server.congestion);
            for advice in list {
                let mut proof = Proof {
                    advice: advice.words,
                    case: count.case.clone(),
                    before,
                    after: None,
                    unit: unit(setup.pattern).to_owned(),
                    removed: false,
                    note: String::new(),
                };
                if let Some(changed) = advice.setup {
                    progress(setups.len(), setups.len(), &format!("proving: {}", changed.words()));
                    let measured =
                        if self.kept(&changed).is_some() { Ok(()) } else { self.measure(&changed) };
                    match measured {
                        Ok(()) => {
                            if let Some((after, evidence)) = self.evidence(&changed) {
                                proof.after = Some(after);
                                proof.removed = !is_slow(&evidence, best_stream) && after > before;
                            }
                        }
                        Err(Stop::Point(why)) => proof.note = why,
                        Err(Stop::All(why)) => {
                            report.ended_early = Some(why);
                            return;
                        }
                    }
                }
                report.advice.push(proof);
            }
        }
    }
}

fn unit(pattern: Pattern) -> &'static str {
    if pattern == Pattern::Stream { "Mbit/s" } else { "exchanges/s" }
}

fn title(group: &Setup) -> String {
    let mut title = format!("{}, Nagle {}", group.pattern.name(), if group.no_delay { "off" } else { "on" });
    if let Some(mss) = group.mss_bytes {
        title += &format!(", MSS {mss}");
    }
    if let Some(name) = &group.congestion {
        title += &format!(", {name}");
    }
    title
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}, kiban {}; round trip {:.3} ms, MSS {} bytes, {} Mbit/s or more\nmeasured from {}\n",
            self.host,
            self.server.kernel,
            self.server.kiban,
            self.path.round_trip_us * 1e-3,
            self.path.mss_bytes,
            figure(self.path.rate_mbps),
            self.environment.line()
        )?;
        for map in &self.maps {
            writeln!(f, "{map}")?;
        }
        if self.causes.is_empty() {
            writeln!(f, "No cell is slow.")?;
        } else {
            let mut table =
                Table::new("Why cells are slow").words("").words("cause").numbers("cells").words("worst");
            for count in &self.causes {
                let letter = count.cause.letter().to_string();
                table.row([letter, count.words.clone(), count.cells.to_string(), count.case.clone()]);
            }
            writeln!(f, "{table}")?;
            for count in &self.causes {
                writeln!(f, "{}: {}", count.cause.letter(), count.example)?;
            }
            writeln!(f)?;
        }
        if !self.advice.is_empty() {
            writeln!(f, "What to change, tried on the worst case of each cause")?;
            for proof in &self.advice {
                let before = figure(proof.before);
                match proof.after {
                    Some(after) => writeln!(
                        f,
                        "- {}\n  {}: {before} -> {} {} ({})",
                        proof.advice,
                        if proof.removed { "PROVED" } else { "not proved" },
                        figure(after),
                        proof.unit,
                        proof.case
                    )?,
                    None if proof.note.is_empty() => writeln!(f, "- {}", proof.advice)?,
                    None => writeln!(f, "- {}\n  could not be tried: {}", proof.advice, proof.note)?,
                }
            }
        }
        for why in &self.impossible {
            writeln!(f, "not measured: {why}")?;
        }
        if self.resumed > 0 {
            writeln!(f, "{} points had been measured before", self.resumed)?;
        }
        if self.disturbed > 0 {
            writeln!(f, "{} points were measured under foreign load, every repeat too", self.disturbed)?;
        }
        if let Some(why) = &self.ended_early {
            writeln!(f, "ENDED EARLY: {why}")?;
        }
        Ok(())
    }
}
