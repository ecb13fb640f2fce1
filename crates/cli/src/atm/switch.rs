//! `kiban atm switch`: cells between links, by circuit and by path.

use super::json_line;
use crate::board::link_cell;
use clap::Args;
use kiban_lab::table::Table;
use kiban_service::config::Length;
use kiban_service::switch::{LinkWords, Plan, RunningSwitch, Status, read};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Switch cells between links: circuits and whole paths, policed or shaped where that is wanted.
///
/// Links are of any kind that carries cells (docs/links.md), entries lead both ways unless they say otherwise. OAM cells go with their
/// circuit or path. A link that is lost is opened again. It runs in the foreground until ctrl-c or SIGTERM, and tells then what passed;
/// SIGUSR1 has it told at once. On a terminal the table is renewed every second. docs/atm-tools.md has every key of FILE.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban atm switch switch.toml\n  kiban atm switch --link a=udp-cells:0.0.0.0:7000-192.0.2.1:7000 --link b=atmtcp:listen:0.0.0.0 \\\n      --route a:0.100=b:1.200 --route a:0.101=b:1.201,pcr=10000,cdvt=5ms,police=tag\n  kiban atm switch --link a=pseudowire:0.0.0.0-192.0.2.1,label=1000 --link b=udp-cells:0.0.0.0:7000-192.0.2.2:7000 \\\n      --route a:5=b:7 --json --every 10s                   a whole path\n  kiban atm switch --check switch.toml                     only judge it\n\nA file of the same:\n\n  [[link]]\n  name = \"a\"\n  link = \"udp-cells:0.0.0.0:7000-192.0.2.1:7000\"\n\n  [[link]]\n  name = \"b\"\n  link = \"atmtcp:listen:0.0.0.0\"\n\n  [[route]]\n  from = \"a:0.101\"\n  to = \"b:1.201\"\n  pcr = 10000\n  cdvt = \"5ms\"\n  police = \"tag\"\n\nExit status: 0 when it was stopped, 1 when it could not begin."
)]
pub(crate) struct Switch {
    /// The plan, in place of --link and --route.
    #[arg(conflicts_with_all = ["link", "route"], required_unless_present = "link")]
    file: Option<PathBuf>,
    /// A link of cells, and how it is called.
    #[arg(long, value_name = "NAME=ADDRESS")]
    link: Vec<String>,
    /// Where a circuit (LINK:VPI.VCI) or a path (LINK:VPI) leads, both ways. Options behind commas: one-way, pcr=, scr=, mbs=, cdvt=,
    /// police=drop|tag|shape, queue=CELLS, frame-discard.
    #[arg(long, value_name = "FROM=TO[,OPTION]...")]
    route: Vec<String>,
    /// What the line of each --link has for cells [default: 149.76Mbit].
    #[arg(long, value_name = "RATE", requires = "link")]
    rate: Option<String>,
    /// Headers of each --link have paths of 12 bits.
    #[arg(long, requires = "link")]
    nni: bool,
    /// Segments end at this --link: segment loopbacks are answered here.
    #[arg(long, value_name = "NAME", requires = "link")]
    segment_end: Vec<String>,
    /// Begin without links that are not there, and look for them later.
    #[arg(long, requires = "link")]
    retry: bool,
    /// Keep all privileges after start, for debugging.
    #[arg(long)]
    no_sandbox: bool,
    /// Only judge the plan.
    #[arg(long)]
    check: bool,
    /// Tell what passed every so often, too.
    #[arg(long, value_name = "TIME")]
    every: Option<Length>,
    /// Tell it as JSON, an object a line.
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
            crate::print(&format!("switch {name}: links: {links}, entries: {routes}; all is well\n"))?;
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
            (true, _) => crate::print(&json_line(status)?),
            (false, false) => crate::print(&format!("{}\n", text(status))),
            (false, true) => {
                // From the top of a cleared screen.
                let mut out = std::io::stdout().lock();
                let said = write!(out, "\x1b[H\x1b[2J{}", text(status)).and_then(|()| out.flush());
                said.map_err(|error| format!("standard output cannot be written: {error}"))
            }
        };
        running.run(every, tell)?;
        tell(&running.status())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(status: &Status) -> String {
    let mut routes = Table::new(format!("switch {}, {:.0} s", status.name, status.uptime_seconds))
        .words("from")
        .words("to")
        .numbers("cells in")
        .numbers("cells on")
        .numbers("frames")
        .numbers("dropped")
        .numbers("policed")
        .numbers("tagged");
    for route in &status.routes {
        let counter = |name: &str| route.counters.get(name).copied().unwrap_or(0).to_string();
        let figures =
            ["cells_in", "cells_queued", "frames", "cells_dropped", "cells_policed", "cells_tagged"];
        routes.row([route.from.clone(), route.to.clone()].into_iter().chain(figures.map(counter)));
    }
    let mut links = Table::new("links")
        .words("link")
        .words("address")
        .words("state")
        .numbers("cells in")
        .numbers("out")
        .numbers("unknown")
        .numbers("HEC wrong")
        .numbers("waiting")
        .numbers("lost")
        .numbers("losses");
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
