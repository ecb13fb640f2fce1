//! `kiban up`: runs a board as a service on this host.

use clap::Args;
use kiban_service::control::{ControlServer, MetricsListener, boards};
use kiban_service::{Plan, Running, read};
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a board on this host, with its links and services.
///
/// The configuration file names the ports (TUN and TAP devices or other links), addresses, routes and
/// services: echo, discard, source, http, forward, sockets (for `kiban run`) and attach (for `kiban connect`
/// and other programs that use shared memory). All of it is checked before anything is changed. The board
/// runs in the foreground, in a terminal or under a service manager, until ctrl-c, SIGTERM or `kiban down`;
/// sessions then have `drain = "10s"` to finish. SIGHUP and `kiban reload` reload the file.
/// docs/settings.md lists every key; docs/operations.md has a systemd unit and the Prometheus metrics.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban up board.toml\
        \n  kiban up --check board.toml      check the file and exit\
        \n  kiban status                     from another terminal\
        \n\nA minimal file: an echo server at 10.9.0.2, which this host reaches through a TAP device:\
        \n\n  [[port]]\
        \n  name = \"lan\"\
        \n  link = \"tap:kiban0\"\
        \n  address = \"10.9.0.2/24\"\
        \n  host_address = \"10.9.0.1/24\"\
        \n\n  [[service]]\
        \n  kind = \"echo\"\
        \n  listen = \"10.9.0.2:7\"\
        \n\nVariables:\
        \n  KIBAN_LOG          log level: warn, info, debug\
        \n  XDG_RUNTIME_DIR    directory of the control socket; if unset, /run/kiban for root, else /tmp/kiban-UID\
        \n\nExit status: 0 if the board was stopped, 1 if it could not start.")]
pub(crate) struct Up {
    /// The configuration file (TOML).
    file: PathBuf,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

impl Up {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let plan = read(&self.file)?;
        if self.check {
            let (ports, services) = (plan.ports.len(), plan.services.len());
            crate::output::print(&format!(
                "board {}: ports: {ports}, services: {services}; configuration is valid\n",
                plan.name
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        // Without this check, opening the links would fail with a less helpful message.
        if boards().contains(&plan.name) {
            let name = &plan.name;
            return Err(format!(
                "a board {name} is already running: stop it with kiban down {name}, or give this one another \
                 `name`"
            ));
        }
        crate::log::begin(plan.log_json);
        // Each socket of a program is an open file.
        kiban_os::limit::raise();
        // If the port is in use, fail before changing anything.
        let figures = MetricsListener::bind(plan.metrics)?;
        let mut running = Running::start(plan, Some(&self.file))?;
        let desk = ControlServer::open(&running.plan().name, figures, running.requests())?;
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

/// Warns about a configuration that is valid but probably wrong.
fn warn(plan: &Plan) {
    if let Some(service) = plan.unreachable_service() {
        let what = "all addresses of the board belong to this host, so its programs cannot connect anywhere; \
            remove `host`";
        tracing::warn!(service, "{what}");
    }
}
