//! `kiban up`: a board as a service of this host.

use clap::Args;
use kiban_service::control::{Desk, Figures, boards};
use kiban_service::{Plan, Running, read};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a board on this host: links at its ports, services behind them.
///
/// The file says what the board is: ports on TUN and TAP devices or other links, addresses, routes, services (echo, discard, source,
/// http, forward). It is judged whole before anything is touched. The board runs in the foreground, for a terminal or a service
/// manager, until ctrl-c, SIGTERM or `kiban down`; then sessions have `drain = "10s"` to end. SIGHUP and `kiban reload` read the file
/// again. docs/operations.md has every key, a unit for systemd and the figures for Prometheus.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban up board.toml\n  kiban up --check board.toml      only judge it\n  kiban status                     from another terminal\n\nThe least of files, for an echo at 10.9.0.2 that this host reaches through a TAP device:\n\n  [[port]]\n  name = \"lan\"\n  link = \"tap:kiban0\"\n  address = \"10.9.0.2/24\"\n  host_address = \"10.9.0.1/24\"\n\n  [[service]]\n  kind = \"echo\"\n  listen = \"10.9.0.2:7\"\n\nVariables:\n  KIBAN_LOG          which log lines: warn, info, debug\n  XDG_RUNTIME_DIR    where the control socket is; /run/kiban where it is not set\n\nExit status: 0 when the board was stopped, 1 when it could not begin."
)]
pub(crate) struct Up {
    /// The configuration.
    file: PathBuf,
    /// Only judge the configuration.
    #[arg(long)]
    check: bool,
}

impl Up {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let plan = read(&self.file)?;
        if self.check {
            let (ports, services) = (plan.ports.len(), plan.services.len());
            crate::print(&format!(
                "board {}: ports: {ports}, services: {services}; all is well\n",
                plan.name
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        // Its links would be found taken, which says less.
        if boards().contains(&plan.name) {
            let name = &plan.name;
            return Err(format!(
                "a board {name} runs already: kiban down {name} stops it; or give this one another `name`"
            ));
        }
        crate::log::begin(plan.log_json);
        // A port that is taken is told before anything has happened.
        let figures = Figures::bind(plan.metrics)?;
        let mut running = Running::start(plan, Some(&self.file))?;
        let desk = Desk::open(&running.plan().name, figures, running.orders())?;
        running.confine()?;
        desk.ready();
        let plan = running.plan();
        tracing::info!(board = plan.name, ports = plan.ports.len(), services = plan.services.len(), "ready");
        warn(plan);
        let metrics = desk.metrics();
        running.tell(move |plan| {
            warn(plan);
            let _ = metrics.send(plan.metrics);
        });
        running.run();
        drop(desk);
        Ok(ExitCode::SUCCESS)
    }
}

/// What is possible, and hardly meant.
fn warn(plan: &Plan) {
    if let Some(service) = plan.lends_in_vain() {
        let what = "all addresses of the board are this host's: its programs reach nobody; leave `host` out";
        tracing::warn!(service, "{what}");
    }
}
