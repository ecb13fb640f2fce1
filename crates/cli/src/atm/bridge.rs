//! `kiban atm bridge`: bridges Ethernet over one circuit, using the same kind of board as `kiban up`.

use clap::Args;
use kiban_service::control::{ControlServer, MetricsListener};
use kiban_service::{Plan, Running};
use std::process::ExitCode;

/// Bridge Ethernet over an ATM circuit (RFC 2684), from a TAP device or a network interface.
///
/// Frames are sent with LLC/SNAP (PID 00-07, or 00-01 with --fcs; both are received) or with --vc-mux. The
/// bridge is a board of `kiban up` with a `[[bridge]]` of one circuit, so kiban status, top, capture and down
/// work with it. docs/atm-tools.md describes bridges of several circuits. It runs in the foreground until
/// ctrl-c or SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban atm bridge tap:tap0 udp-cells:0.0.0.0:7000-192.0.2.1:7000 0.100 --host-address 10.5.0.1/24\
        \n  kiban atm bridge packet:eth1 pseudowire:0.0.0.0-192.0.2.1,label=1000 0.100 --pcr 10000\
        \n  kiban atm bridge tap:tap0 udp-cells:0.0.0.0:7000-192.0.2.1:7000 8.35 --vc-mux\
        \n  kiban status bridge-tap0\
        \n\nExit status: 0 if it was stopped, 1 if it could not start, 2 for invalid arguments.")]
pub(crate) struct Bridge {
    /// Ethernet link: tap:NAME, packet:INTERFACE or another of docs/links.md.
    frames: String,
    /// Cell link: udp-cells:, tcp-cells:, pseudowire: or atmtcp:.
    cells: String,
    /// Circuit, as VPI.VCI.
    circuit: String,
    /// Use VC multiplexing, without LLC/SNAP headers (RFC 2684 section 6.2).
    #[arg(long)]
    vc_mux: bool,
    /// Send frames with their frame check sequence (FCS).
    #[arg(long)]
    fcs: bool,
    /// Address and prefix length of this host on the TAP device that is created.
    #[arg(long, value_name = "ADDRESS/BITS")]
    host_address: Option<String>,
    /// MTU of that device.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Shape the circuit to this peak cell rate, in cells/s.
    #[arg(long, value_name = "CELLS")]
    pcr: Option<f64>,
    /// Name of the board, for kiban status [default: bridge- and the device].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Bridge {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let text = self.config()?;
        let plan = Plan::read(&text, "bridge").map_err(|error| {
            // Omit the line number, because the user has not written this configuration.
            let kiban_service::config::ConfigError { wrong, remedy, .. } = error;
            format!("{wrong}: {remedy}")
        })?;
        crate::log::begin(false);
        let mut running = Running::start(plan, None)?;
        let desk = ControlServer::open(&running.plan().name, MetricsListener::default(), running.requests())?;
        running.confine()?;
        desk.ready();
        tracing::info!(board = running.plan().name, "ready");
        running.run();
        drop(desk);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the board's configuration.
    fn config(&self) -> Result<String, String> {
        // A JSON string is also a TOML string.
        let quote = |text: &str| serde_json::to_string(text).map_err(|error| error.to_string());
        let device = self.frames.split([',', '?']).next().unwrap_or_default();
        let device = device.rsplit(':').next().unwrap_or_default();
        let name = self.name.clone().unwrap_or_else(|| format!("bridge-{device}"));
        let encapsulation = if self.vc_mux { "vc-mux" } else { "llc" };
        let mut text = format!(
            "name = {}\n[[port]]\nname = \"atm\"\nlink = {}\n[[port.pvc]]\nvc = {}\nencapsulation = \"{encapsulation}\"\n",
            quote(&name)?,
            quote(&self.cells)?,
            quote(&self.circuit)?
        );
        if let Some(pcr) = self.pcr {
            text += &format!("pcr = {pcr:?}\n");
        }
        let circuit = format!("atm:{}", self.circuit);
        text += &format!(
            "[[bridge]]\nname = \"frames\"\nlink = {}\ncircuits = {}\nfcs = {}\n",
            quote(&self.frames)?,
            quote(&circuit)?,
            self.fcs
        );
        if let Some(address) = &self.host_address {
            text += &format!("host_address = {}\n", quote(address)?);
        }
        if let Some(mtu) = self.mtu {
            text += &format!("mtu = {mtu}\n");
        }
        Ok(text)
    }
}
