//! `kiban lab run`: runs the trials of a plan.

use crate::output::note;
use clap::Args;
use kiban_lab::engine::{self, Cache, Manifest, Options, Progress, Shard, sweep};
use kiban_lab::table::counted;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The command asks for confirmation above this number of trials.
const TRIALS_MAX: u64 = 100_000;

/// Run the trials of a plan that have no record yet.
///
/// Each trial is appended to records.jsonl as soon as it ends, so a run can be interrupted at any time; the
/// same command resumes it. Virtual-time trials use all processors. Real-time trials run one at a time, and a
/// trial disturbed by other processes is repeated.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab run map.toml                        into map.lab\
        \n  kiban lab run map.toml --out /data/map        resumes it if it was interrupted\
        \n  kiban lab run map.toml --shard 3/8 --out 3    the third of eight parts; merge them afterwards\
        \n  kiban lab run map.toml --cache ~/.cache/kiban  reuse records of other runs")]
pub(super) struct Run {
    /// Plan (TOML); 'kiban lab questions NAME' prints an example.
    plan: PathBuf,
    /// Directory of the run; created if it does not exist [default: the plan's name with .lab].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run shard k of n; k starts at 1.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Share records of virtual-time trials with other runs through this directory.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Threads for virtual-time trials [default: one per processor].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Do not ask for confirmation, however many trials there are.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (plan, question) = super::plan::parse_plan(&self.plan)?;
        let shard = self.shard.unwrap_or(Shard::ALL);
        let trials = shard.count(plan.trials());
        if trials > TRIALS_MAX && !self.yes && !confirmed(trials)? {
            return Err("cancelled: no trial was run".to_owned());
        }
        super::plan::validate(&self.plan, &plan, question)?;
        let ending =
            if shard.is_all() { ".lab".to_owned() } else { format!("-{shard}.lab").replace('/', "-of-") };
        let out = self.out.unwrap_or_else(|| super::plan::folder(&self.plan, &ending));
        let say = |error: engine::StoreError| error.to_string();
        let run = engine::Run::open(&out, Manifest::new(question.time(), plan, shard)).map_err(say)?;
        for broken in &run.found().broken {
            note!("kiban: {}: line {} was skipped: {}", out.display(), broken.line, broken.why);
        }
        super::interrupt::keep_at_interrupt(&out)?;
        let cache = self.cache.as_deref().map(Cache::new);
        let options = Options { workers: self.jobs.map(usize::from), ..Options::default() };
        let bar = super::output::bar(trials);
        let progress = |progress: Progress<'_>| {
            let outcome = progress.outcome;
            bar.set_position(outcome.done());
            if outcome.redone > 0 {
                bar.set_message(format!("({} repeated)", outcome.redone));
            }
        };
        let outcome = sweep(question, &run, cache.as_ref(), &options, &progress).map_err(say)?;
        bar.finish_and_clear();
        if self.json {
            super::output::json(&outcome)?;
        } else {
            crate::output::print(&words(&outcome, &out.display().to_string()))?;
        }
        for failure in &outcome.failures {
            note!("kiban: failed: {failure}");
        }
        // A part of a run is merged with the others first.
        if shard.is_all() && outcome.is_complete() {
            super::output::tell_next(&out);
        }
        Ok(super::output::status(outcome.is_complete()))
    }
}

fn words(outcome: &engine::Outcome, out: &str) -> String {
    let engine::Outcome { trials, found, cached, made, redone, disturbed, failed, .. } = outcome;
    let mut words = vec![format!("{made} run")];
    for (count, what) in [
        (found, "already recorded"),
        (cached, "from the cache"),
        (redone, "repeated because of other processes or a lost peer"),
        (disturbed, "marked as disturbed: other processes affected every attempt"),
        (failed, "FAILED: run the same command to retry them"),
    ] {
        if *count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    format!("{out}: {}: {}\n", counted(*trials, "trial"), words.join(", "))
}

/// Asks for confirmation on the terminal.
///
/// # Errors
/// If there is no terminal.
fn confirmed(trials: u64) -> Result<bool, String> {
    let what = format!("the plan has {trials} trials to run, more than {TRIALS_MAX}");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(format!(
            "{what}, and there is no terminal to ask for confirmation: use --yes to run them all, --shard to \
             run a part, or fewer values"
        ));
    }
    let terminal_error = |error: std::io::Error| format!("cannot use the terminal: {error}");
    let mut terminal = std::io::stderr();
    write!(terminal, "{what}. Start? [y/N] ").and_then(|()| terminal.flush()).map_err(terminal_error)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(terminal_error)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
