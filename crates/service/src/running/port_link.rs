//! A port's link: how it is opened, lost and reopened.

use crate::capture::CapturePoint;
use crate::config::PortPlan;
use crate::link;
use crate::link_state::LinkState;
use crate::status::Rates;
use kiban_base::Instant;
use kiban_link::{AnyLink, LinkCounters};
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
        }
    }

    pub(super) fn open(&self) -> io::Result<AnyLink> {
        match &self.device {
            None => link::open(&self.plan, &self.capture),
            Some(device) => link::open_host(&self.plan, device, &self.capture),
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
