//! `kiban lab`: sweeps, from a plan to a report, and measurements of real networks.

mod live;
mod merge;
mod mix;
mod net;
mod questions;
mod report;
mod run;
mod script;
mod summary;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::engine::{Plan, Question, questions as known};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure networks and models, find where throughput collapses, and say why.
///
/// Networks: 'serve' on one host; 'sweep', 'delay' and 'trace' on the other.
///
/// Traffic: 'mix' sends several kinds of it at once over a network that polices them.
///
/// Plans: a question is asked of many points. A plan names a question and the values of its parameters. 'run' makes its trials and keeps a line of JSON for each; it
/// goes on where it was ended. Parts of a plan may run on different machines and are merged. What comes later is made from
/// records alone, as often as one likes.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban lab serve                             on one host, which prints a token\n  KIBAN_LAB_TOKEN=... kiban lab sweep HOST    on the other: slow regions, why, and what helps\n  kiban lab questions wide-area-atm           what a plan may say\n  kiban lab run map.toml --out map            make it; run the same again to go on\n  kiban lab report map                        a page with maps and curves, map/report.html\n  kiban lab script slurm map.toml --shards 8  a job array\n\nExit status: 0 when every trial has a record, 1 when not or when something is wrong, 2 for a mistake in the arguments."
)]
pub(crate) struct Lab {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Net(net::Net),
    Mix(mix::Mix),
    Questions(questions::Questions),
    Run(run::Run),
    Live(live::Live),
    Merge(merge::Merge),
    Summary(summary::Summary),
    Report(report::Report),
    Script(script::Script),
}

impl Lab {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        match self.verb {
            Verb::Net(net) => net.run(),
            Verb::Mix(mix) => mix.run(),
            Verb::Questions(questions) => questions.run(),
            Verb::Run(run) => run.run(),
            Verb::Live(live) => live.run(),
            Verb::Merge(merge) => merge.run(),
            Verb::Summary(summary) => summary.run(),
            Verb::Report(report) => report.run(),
            Verb::Script(script) => script.run(),
        }
    }
}

/// Reads a plan, and judges its points.
fn plan(path: &Path) -> Result<(Plan, &'static dyn Question), String> {
    let (plan, question) = unjudged_plan(path)?;
    judge(path, &plan, question)?;
    Ok((plan, question))
}

/// Whether every point of a plan can be tried. It looks at each, which takes its time where there are millions.
fn judge(path: &Path, plan: &Plan, question: &dyn Question) -> Result<(), String> {
    plan.judge(question).map_err(|what| format!("the plan {}: {what}", path.display()))
}

/// A plan as it is written.
fn unjudged_plan(path: &Path) -> Result<(Plan, &'static dyn Question), String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("the plan {} cannot be read: {error}", path.display()))?;
    let plan = Plan::read(&text, &known::all()).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(|mistake| format!("  {mistake}")).collect();
        format!("the plan {} cannot be run:\n{}", path.display(), lines.join("\n"))
    })?;
    let question = known::find(&plan.question).expect("a plan is read for a known question");
    if let Some(command) = question.asked_by() {
        return Err(format!("the plan {}: {} is asked by '{command}'", path.display(), plan.question));
    }
    Ok((plan, question))
}

/// Hears Ctrl-C from now on: `first` is done at the first, the second ends the program.
fn on_interrupt(first: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let say = |error: std::io::Error| format!("signals cannot be heard: {error}");
    let runtime =
        kiban_real::runtime::build(tokio::runtime::Builder::new_current_thread().enable_io()).map_err(say)?;
    let hear = move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                first();
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(hear).map_err(say)?;
    Ok(())
}

/// The exit status after Ctrl-C, as shells have it: 128 and SIGINT.
const INTERRUPTED: i32 = 130;

/// At Ctrl-C says what becomes of a folder's records, and ends the program. Each record was written as soon as it was made.
fn keep_at_interrupt(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    on_interrupt(move || {
        eprintln!(
            "\nkiban: ended; what was measured is kept in {folder}: the same command goes on from there"
        );
        std::process::exit(INTERRUPTED);
    })
}

/// A folder in the current one, named by a plan.
fn folder(plan: &Path, ending: &str) -> PathBuf {
    let stem = plan.file_stem().map_or("plan".into(), |stem| stem.to_string_lossy().into_owned());
    PathBuf::from(stem + ending)
}

fn json(object: &impl Serialize) -> Result<(), String> {
    crate::print(&crate::json(object)?)
}

/// A bar on standard error, if somebody watches.
fn bar(trials: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} trials, {eta} to go {msg}");
    let style = style.expect("the template is well formed");
    ProgressBar::with_draw_target(Some(trials), ProgressDrawTarget::stderr()).with_style(style)
}

fn status(whole: bool) -> ExitCode {
    if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
