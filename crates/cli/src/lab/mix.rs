//! `kiban lab mix`: several kinds of traffic flows over a network with policing.

use super::net::peer::TokenArgs;
use crate::osi::peer::Host;
use crate::output::note;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiban_lab::mix::{Outcome, Plan, run, run_over};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a mix of traffic flows over a simulated ATM network with policing, or over a real network.
///
/// The plan defines the sites, the paths between them with their traffic contracts, and the flows: constant
/// bit rate, MPEG-2 over AAL1, Motion-JPEG over AAL5, audio, data, TCP. The results for each flow are its
/// rates, its cell and picture losses, and its delay variation; --csv and --svg show them over time. In
/// virtual time the same plan and seed always give the same figures. With --to, the cells are sent in UDP
/// datagrams to a host that runs `kiban lab serve`, which represents all other sites; TCP flows use the
/// kernel's TCP.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban lab mix scripts/mix/lecture.toml                the remote lecture of paper [2]\
        \n  kiban lab mix plan.toml --seed 7 --seconds 5          another seed, shorter\
        \n  kiban lab mix plan.toml --csv > series.csv            each flow over time\
        \n  kiban lab mix plan.toml --svg /tmp/figs               the flows of each path, stacked\
        \n  KIBAN_LAB_TOKEN=... kiban lab mix plan.toml --from here --to HOST    send the flows of site 'here' over a real network\
        \n\ndocs/lab-mix.md describes the keys of a plan.\
        \n\nExit status: 0 if the plan ran to its end, 1 if it failed or ended early (partial results are printed), 2 for invalid arguments.")]
pub(crate) struct Mix {
    /// Plan (TOML).
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Random seed; overrides the plan's.
    #[arg(long)]
    seed: Option<u64>,
    /// Duration in seconds; overrides the plan's.
    #[arg(long)]
    seconds: Option<f64>,
    /// Print one JSON object instead of the table.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print each flow over time as comma-separated values instead of the table.
    #[arg(long)]
    csv: bool,
    /// Write an SVG of each path's flows over time into this directory.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Send over a real network to this host, which runs `kiban lab serve` [default port: 4195].
    #[arg(long, value_name = "HOST[:PORT]")]
    to: Option<Host>,
    /// Site of the plan that this host represents; a plan with two sites defaults to the first.
    #[arg(long, value_name = "SITE", requires = "to")]
    from: Option<String>,
    #[command(flatten)]
    key: TokenArgs,
}

impl Mix {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let name = self.plan.display();
        let text = std::fs::read_to_string(&self.plan).map_err(|error| {
            format!("cannot read the plan {name}: {error}; docs/lab-mix.md describes the format")
        })?;
        let mut plan = Plan::read(&text).map_err(|error| format!("{name}: {error}"))?;
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        if !(plan.seconds.is_finite() && plan.seconds > 0.0) {
            return Err(format!("--seconds {}: must be more than 0", plan.seconds));
        }
        let bar = bar();
        let mut done = |part: f64| bar.set_position((part * 1000.0) as u64);
        let outcome = match &self.to {
            None => run(&plan, &mut done),
            Some(host) => {
                let from = self.site(&plan)?;
                let mut client = self.key.client(host)?;
                let interrupted = interrupted()?;
                let stop = || interrupted.load(Ordering::Acquire);
                run_over(&plan, &from, &mut client, &mut done, &stop)
                    .map_err(|failure| failure.to_string())?
            }
        };
        bar.finish_and_clear();
        if let Some(folder) = &self.svg {
            write_pictures(&outcome, folder)?;
        }
        if self.csv {
            crate::output::print(&outcome.csv())?;
        } else if self.json {
            crate::output::print(&crate::output::json(&outcome)?)?;
        } else {
            crate::output::print(&outcome.to_string())?;
        }
        let early = outcome.real.as_ref().and_then(|real| real.ended_early.as_ref());
        if let Some(why) = early {
            note!("kiban: the mix ended early: {why}");
        }
        Ok(super::output::status(early.is_none()))
    }

    /// Returns the plan's site that this host represents.
    fn site(&self, plan: &Plan) -> Result<String, String> {
        let names: Vec<&str> = plan.sites.iter().map(|site| site.name.text.as_str()).collect();
        match (&self.from, &names[..]) {
            (Some(from), names) if names.contains(&from.as_str()) => Ok(from.clone()),
            (Some(from), _) => {
                Err(format!("--from {from}: the plan has no such site; its sites are {}", names.join(", ")))
            }
            (None, [first, _]) => Ok((*first).to_owned()),
            (None, _) => Err(format!(
                "the plan has {} sites: choose this host's site with --from ({}); the other host represents \
                 the other sites",
                names.len(),
                names.join(", ")
            )),
        }
    }
}

/// Returns a flag that is set by the first Ctrl-C, so that partial results can be printed.
fn interrupted() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    super::interrupt::on_interrupt(move || raised.store(true, Ordering::Release))?;
    Ok(flag)
}

/// Returns a progress bar on standard error; it is hidden if standard error is not a terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent} %").expect("the template is well formed");
    ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr()).with_style(style)
}

fn write_pictures(outcome: &Outcome, folder: &Path) -> Result<(), String> {
    let say = |error: std::io::Error| format!("cannot write the figures to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(say)?;
    for (name, svg) in outcome.pictures() {
        std::fs::write(folder.join(format!("mix-{name}.svg")), svg).map_err(say)?;
    }
    Ok(())
}
