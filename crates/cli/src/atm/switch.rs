//! `kiban atm switch`: switches cells between links, by circuit or by path.

use crate::board::control::link_cell;
use crate::output::json_line;
use clap::Args;
use kiban_lab::table::Table;
use kiban_service::config::DurationValue;
use kiban_service::switch::{LinkWords, Plan, RunningSwitch, Status, read};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Switch cells between links, by circuit or by path, with optional policing and shaping.
///
/// A link is of any kind that carries cells (docs/links.md). Routes are bidirectional unless one-way is
/// given. OAM cells follow their circuit or path. A lost link is reopened. The switch runs in the foreground
/// until ctrl-c or SIGTERM, then prints its counters; SIGUSR1 prints them at once. On a terminal the table is
/// refreshed every second. docs/atm-tools.md describes every key of FILE.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban atm switch switch.toml\
        \n  kiban atm switch --link a=udp-cells:0.0.0.0:7000-192.0.2.1:7000 --link b=atmtcp:listen:0.0.0.0 \\\n      --route a:0.100=b:1.200 --route a:0.101=b:1.201,pcr=10000,cdvt=5ms,police=tag\
        \n  kiban atm switch --link a=pseudowire:0.0.0.0-192.0.2.1,label=1000 --link b=udp-cells:0.0.0.0:7000-192.0.2.2:7000 \\\n      --route a:5=b:7 --json --every 10s                   a whole path\
        \n  kiban atm switch --check switch.toml                     only check it\
        \n\nThe same as a file:\
        \n\n  [[link]]\
        \n  name = \"a\"\
        \n  link = \"udp-cells:0.0.0.0:7000-192.0.2.1:7000\"\
        \n\n  [[link]]\
        \n  name = \"b\"\
        \n  link = \"atmtcp:listen:0.0.0.0\"\
        \n\n  [[route]]\
        \n  from = \"a:0.101\"\
        \n  to = \"b:1.201\"\
        \n  pcr = 10000\
        \n  cdvt = \"5ms\"\
        \n  police = \"tag\"\
        \n\nExit status: 0 if it was stopped, 1 if it could not start, 2 for invalid arguments.")]
pub(crate) struct Switch {
    /// Configuration file, instead of --link and --route.
    #[arg(conflicts_with_all = ["link", "route"], required_unless_present = "link")]
    file: Option<PathBuf>,
    /// Name and address of a link that carries cells.
    #[arg(long, value_name = "NAME=ADDRESS")]
    link: Vec<String>,
    /// Route a circuit (LINK:VPI.VCI) or a path (LINK:VPI) in both directions. Options follow after commas:
    /// one-way, pcr=, scr=, mbs=, cdvt=, police=drop|tag|shape, category=cbr|vbr|ubr, weight=N, queue=CELLS, frame-discard.
    #[arg(long, value_name = "FROM=TO[,OPTION]...")]
    route: Vec<String>,
    /// Cell rate of each --link [default: 149.76Mbit].
    #[arg(long, value_name = "RATE", requires = "link")]
    rate: Option<String>,
    /// Use NNI cell headers (12-bit VPIs) on each --link.
    #[arg(long, requires = "link")]
    nni: bool,
    /// Make this --link a segment endpoint, which answers segment loopbacks.
    #[arg(long, value_name = "NAME", requires = "link")]
    segment_end: Vec<String>,
    /// Start even if a link cannot be opened, and retry it later.
    #[arg(long, requires = "link")]
    retry: bool,
    /// Do not drop privileges after start, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Only check the configuration.
    #[arg(long)]
    check: bool,
    /// Also print the counters at this interval.
    #[arg(long, value_name = "TIME")]
    every: Option<DurationValue>,
    /// Print the counters as one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Switch {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let plan = match &self.file {
            Some(file) => read(file)?,
            None => {
                let Switch { nni, rate, retry, .. } = &self;
                let segment_ends = self.segment_end.clone();
                let how = LinkWords { nni: *nni, rate: rate.clone(), segment_ends, retry: *retry };
                Plan::of_words(&self.link, &self.route, &how)?
            }
        };
        if self.check {
            let (links, routes) = (plan.links.len(), plan.routes.len());
            let name = &plan.name;
            crate::output::print(&format!(
                "switch {name}: links: {links}, routes: {routes}; configuration is valid\n"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        crate::log::begin(false);
        let mut running = RunningSwitch::start(plan)?;
        if !self.no_sandbox {
            running.confine()?;
        }
        let plan = running.plan();
        tracing::info!(switch = plan.name, links = plan.links.len(), entries = plan.routes.len(), "ready");
        let is_live = !self.json && self.every.is_none() && std::io::stdout().is_terminal();
        let every = match &self.every {
            Some(every) => Some(every.0.max(Duration::from_millis(10))),
            None => is_live.then_some(Duration::from_secs(1)),
        };
        let json = self.json;
        let tell = |status: &Status| match (json, is_live) {
            (true, _) => crate::output::print(&json_line(status)?),
            (false, false) => crate::output::print(&format!("{}\n", text(status))),
            (false, true) => {
                // Clear the screen and start printing at the top.
                let mut out = std::io::stdout().lock();
                let said = write!(out, "\x1b[H\x1b[2J{}", text(status)).and_then(|()| out.flush());
                said.map_err(|error| format!("cannot write to standard output: {error}"))
            }
        };
        running.run(every, tell)?;
        tell(&running.status())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(status: &Status) -> String {
    let mut routes = Table::new(format!("switch {}, {:.0} s", status.name, status.uptime_seconds))
        .text_column("from")
        .text_column("to")
        .number_column("cells in")
        .number_column("cells queued")
        .number_column("frames")
        .number_column("dropped")
        .number_column("policed")
        .number_column("tagged");
    for route in &status.routes {
        let counter = |name: &str| route.counters.get(name).copied().unwrap_or(0).to_string();
        let figures =
            ["cells_in", "cells_queued", "frames", "cells_dropped", "cells_policed", "cells_tagged"];
        routes.row([route.from.clone(), route.to.clone()].into_iter().chain(figures.map(counter)));
    }
    let mut links = Table::new("links")
        .text_column("link")
        .text_column("address")
        .text_column("state")
        .number_column("cells in")
        .number_column("out")
        .number_column("unrouted")
        .number_column("HEC errors")
        .number_column("waiting")
        .number_column("lost")
        .number_column("losses");
    for link in &status.links {
        let counter = |name: &str| link.counters.get(name).copied().unwrap_or(0);
        let lost: u64 = link.lost.values().sum();
        let address = link_cell(&mut links, &link.name, &link.link);
        links.row([
            link.name.clone(),
            address,
            link.state.to_owned(),
            counter("units_in").to_string(),
            counter("units_out").to_string(),
            link.unknown.to_string(),
            link.hec_bad.to_string(),
            link.waiting.to_string(),
            lost.to_string(),
            link.losses.to_string(),
        ]);
        if let Some(error) = &link.error {
            links.remark(format!("{}  {error}", link.name));
        }
    }
    format!("{routes}\n{links}")
}
