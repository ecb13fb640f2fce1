//! An X.25 interface: the packet layer on the data link of one line.
//!
//! Purpose          joins a [`Layer`] to a LAPB [`Link`], or to a device that contains LAPB
//!                  ([`crate::wire::lapb_framing::Device`]).
//! Transmit path    a packet is passed down only when the link has no packet that was never sent, so that the
//!                  P(R) in each packet is current.
//! Receive path     packets are passed up at once; the packet layer holds units until the host takes them.
//! Starting         [`Interface::start`] sets the link up. With `retry_delay`, an interface that was started
//!                  sets it up again whenever it has gone down, for as long as it exists.
//! Line             [`Interface::line_down`] reports that the line itself is gone, as when a modem hangs up.
//! Not implemented  multilink procedures.

use super::config::Config;
use super::layer::Layer;
use super::primitives::Below;
use crate::lapb;
use crate::lapb::Link;
use crate::wire::lapb_framing::Device;
use alloc::boxed::Box;
use core::time::Duration;
use kiban_base::{Instant, Rope, counters};

counters! {
    /// Counters of an interface.
    pub struct InterfaceCounters {
        /// Packets that the link did not accept.
        packets_lost,
        /// Link set-ups after the link had gone down.
        retries,
        /// Messages of a device that could not be decoded.
        invalid,
    }
}

/// What is below the packet layer.
#[derive(Debug)]
enum Lower {
    Lapb(Box<Link>, lapb::Config),
    /// A device that contains LAPB, and what to send to it first.
    Device(Option<Device>),
}

/// A packet layer on a data link.
#[derive(Debug)]
pub struct Interface {
    lower: Lower,
    layer: Layer,
    is_started: bool,
    retry_delay: Option<Duration>,
    retry_due: Instant,
    counters: InterfaceCounters,
}

impl Interface {
    /// Creates an interface whose link is down.
    pub fn new(link: lapb::Config, layer: Config) -> Interface {
        let lower = Lower::Lapb(Box::new(Link::new(link.clone())), link);
        Interface::on(lower, layer)
    }

    /// Creates an interface on a device that contains LAPB.
    pub fn on_device(layer: Config) -> Interface {
        Interface::on(Lower::Device(None), layer)
    }

    fn on(lower: Lower, layer: Config) -> Interface {
        Interface {
            lower,
            layer: Layer::new(layer),
            is_started: false,
            retry_delay: None,
            retry_due: Instant::NEVER,
            counters: InterfaceCounters::default(),
        }
    }

    /// Sets how long after the link went down it is set up again.
    pub fn with_retry_delay(mut self, delay: Duration) -> Interface {
        self.retry_delay = Some(delay);
        self
    }

    /// Sets the link up.
    pub fn start(&mut self) {
        self.is_started = true;
        match &mut self.lower {
            Lower::Lapb(link, _) => {
                // A rejected request means that the link is already up or being set up.
                let _ = link.request(lapb::Request::Connect);
            }
            Lower::Device(request) => *request = Some(Device::Connect),
        }
    }

    /// Takes the link down; packets that are not yet acknowledged are lost, so wait for
    /// [`Interface::is_idle`].
    pub fn stop(&mut self) {
        self.is_started = false;
        self.retry_due = Instant::NEVER;
        match &mut self.lower {
            Lower::Lapb(link, _) => {
                // A rejected request means that the link is already down.
                let _ = link.request(lapb::Request::Disconnect);
            }
            Lower::Device(request) => *request = Some(Device::Disconnect),
        }
    }

    /// Returns whether there are no calls, and everything sent is acknowledged.
    pub fn is_idle(&self) -> bool {
        let is_acknowledged = match &self.lower {
            Lower::Lapb(link, config) => {
                link.state() != lapb::State::Connected || link.room() == config.queue_frames_max
            }
            Lower::Device(request) => request.is_none(),
        };
        is_acknowledged && self.layer.is_idle()
    }

    /// Returns whether the link is down.
    pub fn is_down(&self) -> bool {
        match &self.lower {
            Lower::Lapb(link, _) => link.state() == lapb::State::Disconnected,
            Lower::Device(request) => request.is_none(),
        }
    }

    /// Reports that the line is gone: the link is down, and nothing is sent until the next start.
    pub fn line_down(&mut self, now: Instant) {
        self.is_started = false;
        self.retry_due = Instant::NEVER;
        match &mut self.lower {
            Lower::Lapb(link, config) => **link = Link::new(config.clone()),
            Lower::Device(request) => *request = None,
        }
        self.layer.arrive(Below::Down, now);
    }

    /// Handles a frame, without flags and FCS, or a message of the device.
    pub fn arrive(&mut self, frame: Rope, now: Instant) {
        match &mut self.lower {
            Lower::Lapb(link, _) => {
                link.arrive(frame, now);
                self.carry_up(now);
            }
            Lower::Device(_) => match Device::read(frame) {
                Ok(Device::Data(packet)) => self.layer.arrive(Below::Data(packet), now),
                Ok(Device::Connect) => self.layer.arrive(Below::Up, now),
                Ok(Device::Disconnect) => self.on_link_down(now),
                Ok(Device::Parameters) => {}
                Err(_) => self.counters.invalid += 1,
            },
        }
    }

    /// Returns the next frame to send; call it when the line has room for one.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Rope> {
        match &mut self.lower {
            Lower::Lapb(link, _) => {
                while link.unsent() == 0 && link.room() > 0 {
                    let Some(packet) = self.layer.poll_down() else { break };
                    if link.request(lapb::Request::Data(packet)).is_err() {
                        self.counters.packets_lost += 1;
                    }
                }
                link.poll_down(now)
            }
            Lower::Device(request) => {
                let message = request.take().or_else(|| self.layer.poll_down().map(Device::Data));
                message.map(Device::write)
            }
        }
    }

    /// Returns the LAPB link, for inspection.
    pub fn link(&self) -> Option<&Link> {
        match &self.lower {
            Lower::Lapb(link, _) => Some(link),
            Lower::Device(_) => None,
        }
    }

    /// Returns the packet layer, for inspection.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Returns the packet layer, for requests and indications.
    pub fn layer_mut(&mut self) -> &mut Layer {
        &mut self.layer
    }

    /// Returns the counters.
    pub fn counters(&self) -> &InterfaceCounters {
        &self.counters
    }

    /// Returns when [`Interface::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        let link = self.link().map_or(Instant::NEVER, Link::deadline);
        link.min(self.layer.deadline()).min(self.retry_due)
    }

    /// Handles timers that have expired.
    pub fn settle(&mut self, now: Instant) {
        if self.retry_due <= now {
            self.retry_due = Instant::NEVER;
            self.counters.retries += 1;
            self.start();
        }
        if let Lower::Lapb(link, _) = &mut self.lower {
            link.settle(now);
        }
        self.layer.settle(now);
        self.carry_up(now);
    }

    fn carry_up(&mut self, now: Instant) {
        let Lower::Lapb(link, _) = &mut self.lower else { return };
        let mut is_down = false;
        while let Some(indication) = link.poll_up() {
            let below = match indication {
                lapb::Indication::Connected | lapb::Indication::Reset => Below::Up,
                lapb::Indication::Data(packet) => Below::Data(packet),
                lapb::Indication::Disconnected(_) => Below::Down,
            };
            is_down = matches!(below, Below::Down);
            self.layer.arrive(below, now);
        }
        if is_down {
            self.retry_later(now);
        }
    }

    fn on_link_down(&mut self, now: Instant) {
        self.layer.arrive(Below::Down, now);
        self.retry_later(now);
    }

    fn retry_later(&mut self, now: Instant) {
        if let Some(delay) = self.retry_delay.filter(|_| self.is_started) {
            self.retry_due = now + delay;
        }
    }
}
