//! A port's link: how it is opened, lost and reopened.

use crate::capture::CapturePoint;
use crate::config::PortPlan;
use crate::link;
use crate::link_state::LinkState;
use crate::status::Rates;
use kiban_base::Instant;
use kiban_link::{AnyLink, LinkCounters};
use kiban_tcpip::dhcp::{Client, Lease, State};
use std::io;
use std::sync::Arc;

/// A port's link, or the device through which this host's kernel shares the port.
pub(super) struct PortLink {
    pub(super) plan: PortPlan,
    /// The device name, if this is the kernel's side of a port.
    pub(super) device: Option<String>,
    pub(super) capture: Arc<CapturePoint>,
    pub(super) state: LinkState,
    pub(super) sampled: LinkCounters,
    pub(super) rates: Rates,
    /// The lease as last logged.
    lease: LoggedLease,
}

/// What the log says of a port's lease.
#[derive(Default)]
struct LoggedLease {
    lease: Option<Lease>,
    is_rebinding: bool,
    declines: u64,
}

impl PortLink {
    pub(super) fn new(plan: PortPlan, device: Option<String>) -> PortLink {
        PortLink {
            plan,
            device,
            capture: Arc::default(),
            state: LinkState::new(),
            sampled: LinkCounters::default(),
            rates: Rates::default(),
            lease: LoggedLease::default(),
        }
    }

    /// Opens the link, with a queue for each of `shards` shards.
    pub(super) fn open(&self, shards: usize) -> io::Result<Vec<AnyLink>> {
        match &self.device {
            None => link::open(&self.plan, &self.capture, shards),
            Some(device) => Ok(vec![link::open_host(&self.plan, device, &self.capture)?]),
        }
    }

    /// Returns the link's name; the kernel's side of a port has a separate name.
    pub(super) fn name(&self) -> String {
        match self.device {
            None => self.plan.name.clone(),
            Some(_) => format!("{}.host", self.plan.name),
        }
    }

    /// Returns the link's address.
    pub(super) fn address(&self) -> &str {
        self.device.as_deref().unwrap_or(&self.plan.link)
    }

    /// Logs what has happened to the port's lease since the last call.
    pub(super) fn log_lease(&mut self, client: &Client) {
        let port = self.plan.name.as_str();
        let LoggedLease { lease, is_rebinding, declines } = &mut self.lease;
        let (new, rebinds) = (client.lease(), client.state() == State::Rebinding);
        match (lease.as_ref(), new) {
            (Some(old), Some(new)) if old.address == new.address => {
                if old.expires_at != new.expires_at {
                    tracing::debug!(port, address = %new.address, server = %new.server, "lease renewed");
                }
            }
            (None, None) => {}
            (old, new) => {
                if let Some(old) = old {
                    tracing::warn!(port, address = %old.address, server = %old.server, "lease lost");
                }
                if let Some(new) = new {
                    let address = format!("{}/{}", new.address, new.prefix.bits());
                    let router = new.router.map(tracing::field::display);
                    tracing::info!(port, address, server = %new.server, router, "address leased");
                }
            }
        }
        if rebinds && !*is_rebinding {
            tracing::warn!(port, "DHCP server does not answer: requesting an extension from any server");
        }
        if client.counters().declines_out > *declines {
            tracing::warn!(port, "leased address declined: another station uses it");
        }
        *is_rebinding = rebinds;
        *declines = client.counters().declines_out;
        if lease.as_ref() != new {
            *lease = new.cloned();
        }
    }

    pub(super) fn lose(&mut self, error: &io::Error, now: Instant) {
        tracing::warn!(port = self.plan.name, link = self.address(), %error, "link lost");
        self.state.lose(error, now);
    }

    pub(super) fn fail(&mut self, error: &io::Error, now: Instant) {
        self.state.fail(error, now);
        tracing::debug!(port = self.plan.name, %error, "link still lost");
    }

    pub(super) fn rise(&mut self, now: Instant) {
        tracing::info!(port = self.plan.name, link = self.address(), "link up");
        self.state.rise(now);
    }
}
