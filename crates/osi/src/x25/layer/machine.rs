//! The packet layer: requests, packets received, polls and timers.

use crate::wire::x25::{Front, Header, INTERRUPT_BYTES_MAX, Kind, cause, diagnostic};
use crate::x25::channel::{Channel, put_header};
use crate::x25::state::{Call as CallState, Reset as ResetState, Restart};
use crate::x25::{
    Below, CONTROL_PACKETS_MAX, Cause, Config, Counters, Indication, Misuse, Request, Role, Sizes,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use kiban_base::{Instant, Rope};

/// An indication waiting for the host, with the generation that its channel had when it was queued.
#[derive(Debug)]
pub(super) struct Up {
    indication: Indication,
    generation: u32,
}

/// One end of the packet layer.
#[derive(Debug)]
pub struct Layer {
    pub(super) config: Config,
    link_is_up: bool,
    pub(super) restart: Restart,
    pub(super) restart_due: Instant,
    pub(super) restart_cause: Cause,
    /// Channels in use; an absent channel for virtual calls is in state p1.
    pub(super) channels: BTreeMap<u16, Channel>,
    /// Channels that have packets to send.
    pub(super) listed: VecDeque<u16>,
    pub(super) control: VecDeque<Rope>,
    pub(super) up: VecDeque<Up>,
    pub(super) calls_up: usize,
    generation: u32,
    /// A lower bound for the earliest timer deadline.
    next_due: Instant,
    pub(super) counters: Counters,
}

impl Layer {
    /// Creates a layer whose link is down.
    pub fn new(config: Config) -> Layer {
        let window = config.window_max.max(config.default.window_in).max(config.default.window_out);
        assert!(window <= config.modulo.mask(), "a window of {window} does not fit the modulo");
        let mut channels = BTreeMap::new();
        for number in config.channels.permanent.clone().into_iter().flatten() {
            channels.insert(number, Channel::new(number, true, config.default));
        }
        Layer {
            config,
            link_is_up: false,
            restart: Restart::Own,
            restart_due: Instant::NEVER,
            restart_cause: Cause::default(),
            channels,
            listed: VecDeque::new(),
            control: VecDeque::new(),
            up: VecDeque::new(),
            calls_up: 0,
            generation: 0,
            next_due: Instant::NEVER,
            counters: Counters::default(),
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns a free channel on which this end may call: a DTE takes the highest, a DCE the lowest (§4.1.2).
    pub fn free_channel(&self) -> Option<u16> {
        let own = match self.config.role {
            Role::Dte => &self.config.channels.outgoing,
            Role::Dce => &self.config.channels.incoming,
        };
        let numbers = || [own, &self.config.channels.two_way].into_iter().flatten().cloned().flatten();
        let is_free = |number: &u16| !self.channels.contains_key(number);
        match self.config.role {
            Role::Dte => numbers().filter(is_free).max(),
            Role::Dce => numbers().filter(is_free).min(),
        }
    }

    /// Returns the sizes in use on a channel, if data may be transferred.
    pub fn sizes(&self, channel: u16) -> Option<Sizes> {
        self.channels.get(&channel).filter(|channel| channel.is_open()).map(|channel| channel.sizes)
    }

    /// Returns whether all packets sent on a channel have been acknowledged.
    pub fn is_quiet(&self, channel: u16) -> bool {
        self.channels.get(&channel).is_none_or(Channel::is_quiet)
    }

    /// Returns the number of bytes for which a channel's queue still has room.
    pub fn room(&self, channel: u16) -> usize {
        let open = self.channels.get(&channel).filter(|channel| channel.is_open());
        open.map_or(0, |channel| self.config.outgoing_bytes_max.saturating_sub(channel.outgoing_bytes()))
    }

    /// Returns whether [`Request::Interrupt`] is possible: the circuit is open, and no interrupt awaits its
    /// confirmation.
    pub fn may_interrupt(&self, channel: u16) -> bool {
        self.channels.get(&channel).is_some_and(|channel| channel.is_open() && !channel.interrupt_out)
    }

    /// Returns whether there are no calls, and no packets to send.
    pub fn is_idle(&self) -> bool {
        self.control.is_empty() && self.channels.values().all(|channel| channel.is_permanent)
    }

    /// Accepts a request of the host.
    ///
    /// # Errors
    /// [`Misuse::State`], also while the link is down or the layer restarts; [`Misuse::Channel`];
    /// [`Misuse::Full`]; [`Misuse::TooLong`], also for an interrupt without data; [`Misuse::Facilities`].
    pub fn request(&mut self, request: Request, now: Instant) -> Result<(), Misuse> {
        if !self.link_is_up {
            return Err(Misuse::State);
        }
        if let Request::Restart(cause) = request {
            self.begin_restart(cause, now);
            return Ok(());
        }
        if self.restart != Restart::Ready {
            return Err(Misuse::State);
        }
        match request {
            Request::Restart(_) => Ok(()),
            Request::Call { channel, call } => self.call(channel, call, now),
            Request::Accept { channel, call } => self.accept(channel, call),
            Request::Clear { channel, cause, user_data } => self.clear(channel, cause, user_data, now),
            Request::Data { channel, data, qualifier, delivery } => {
                let bytes_max = self.config.outgoing_bytes_max;
                let open = self.open(channel)?;
                if open.outgoing_bytes() + data.len() > bytes_max {
                    return Err(Misuse::Full);
                }
                open.push(data, qualifier, delivery);
                self.list(channel);
                Ok(())
            }
            Request::Interrupt { channel, data } => {
                let due = now + self.config.timers.interrupt;
                let open = self.open(channel)?;
                if !(1..=INTERRUPT_BYTES_MAX).contains(&data.len()) {
                    return Err(Misuse::TooLong);
                }
                if open.interrupt_out {
                    return Err(Misuse::State);
                }
                open.interrupt_out = true;
                open.interrupt_due = due;
                self.arm(due);
                self.send(channel, Kind::Interrupt, &data);
                Ok(())
            }
            Request::Reset { channel, cause } => {
                self.open(channel)?;
                self.begin_reset(channel, cause, now);
                Ok(())
            }
            Request::Receive { channel, ready } => {
                self.open(channel)?.set_ready(ready);
                self.list(channel);
                Ok(())
            }
        }
    }

    /// Handles an indication from the link.
    pub fn arrive(&mut self, below: Below, now: Instant) {
        match below {
            Below::Up => {
                self.link_is_up = true;
                self.control.clear();
                if self.config.restarts {
                    let code = match self.config.role {
                        Role::Dte => Cause {
                            cause: cause::DTE_ORIGINATED,
                            diagnostic: Some(diagnostic::DTE_OPERATIONAL),
                        },
                        Role::Dce => {
                            Cause { cause: cause::RESTART_OPERATIONAL, diagnostic: Some(diagnostic::NONE) }
                        }
                    };
                    self.begin_restart(code, now);
                } else {
                    self.restart = Restart::Ready;
                    self.tell_once(Indication::Ready);
                }
            }
            Below::Down => {
                self.link_is_up = false;
                self.control.clear();
                self.restart = Restart::Own;
                self.restart_due = Instant::NEVER;
                let code = Cause {
                    cause: self.by_us(cause::CLEAR_OUT_OF_ORDER),
                    diagnostic: Some(diagnostic::NONE),
                };
                self.end_all(code, false);
                self.tell_once(Indication::Down);
            }
            Below::Data(packet) if self.link_is_up => self.on_packet(packet, now),
            Below::Data(_) => self.counters.discarded += 1,
        }
    }

    /// Returns the next indication for the host. A unit may be acknowledged once this function has returned
    /// it; returning an interrupt confirms it.
    pub fn poll_up(&mut self) -> Option<Indication> {
        self.poll_up_at(0)
    }

    /// Returns the place of the first indication that the host does not hold back. Only units and interrupts
    /// can be held back, and only while their circuit exists: once its end or its reset is queued, they are
    /// returned too.
    pub fn next_up(&self, is_held_back: impl Fn(&Indication) -> bool) -> Option<usize> {
        // Collected once, because many units may be held back.
        let ended: BTreeSet<u16> = self
            .up
            .iter()
            .filter_map(|up| match up.indication {
                Indication::Cleared { channel, .. } | Indication::Reset { channel, .. } => Some(channel),
                _ => None,
            })
            .collect();
        self.up.iter().position(|up| match &up.indication {
            Indication::Data { channel, .. } | Indication::Interrupt { channel, .. } => {
                ended.contains(channel) || !is_held_back(&up.indication)
            }
            _ => true,
        })
    }

    /// Returns the indication at a place that [`Layer::next_up`] has returned, as [`Layer::poll_up`] returns
    /// the first.
    pub fn poll_up_at(&mut self, place: usize) -> Option<Indication> {
        let Up { indication, generation } = self.up.remove(place)?;
        match &indication {
            Indication::Data { channel, .. } => {
                let number = *channel;
                if let Some(channel) = self.of_generation(number, generation) {
                    channel.taken();
                    self.list(number);
                }
            }
            Indication::Interrupt { channel, .. } => {
                let number = *channel;
                if let Some(channel) = self.of_generation(number, generation) {
                    channel.interrupt_in = false;
                    self.send(number, Kind::InterruptConfirmation, &[]);
                }
            }
            Indication::Incoming { .. } => self.calls_up -= 1,
            Indication::Reset { channel, .. } => {
                if let Some(channel) = self.channels.get_mut(channel) {
                    channel.reset_is_told = false;
                }
            }
            _ => {}
        }
        Some(indication)
    }

    /// Returns the next packet for the link; call it when the link has room for one.
    pub fn poll_down(&mut self) -> Option<Rope> {
        if !self.link_is_up {
            return None;
        }
        if let Some(packet) = self.control.pop_front() {
            self.counters.packets_out += 1;
            return Some(packet);
        }
        while let Some(number) = self.listed.pop_front() {
            let Some(channel) = self.channels.get_mut(&number) else { continue };
            channel.is_listed = false;
            if !channel.has_packet() || self.restart != Restart::Ready {
                continue;
            }
            let packet = channel.next_packet(self.config.modulo);
            self.list(number);
            if packet.is_some() {
                self.counters.packets_out += 1;
                return packet;
            }
        }
        None
    }

    /// Returns when [`Layer::settle`] must be called; this may be earlier than any timer.
    pub fn deadline(&self) -> Instant {
        self.next_due
    }

    /// Handles timers that have expired.
    pub fn settle(&mut self, now: Instant) {
        if self.next_due > now {
            return;
        }
        if self.restart_due <= now {
            self.counters.timeouts += 1;
            let diagnostic = Some(diagnostic::RESTART_TIME);
            self.begin_restart(Cause { diagnostic, ..self.restart_cause }, now);
        }
        let late: Vec<u16> = self
            .channels
            .values()
            .filter(|channel| channel.due.min(channel.interrupt_due) <= now)
            .map(|channel| channel.number)
            .collect();
        late.into_iter().for_each(|number| self.on_late(number, now));
        let dues = self.channels.values().map(|channel| channel.due.min(channel.interrupt_due));
        self.next_due = dues.min().unwrap_or(Instant::NEVER).min(self.restart_due);
    }

    fn on_late(&mut self, number: u16, now: Instant) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        self.counters.timeouts += 1;
        let is_last = channel.tries >= self.config.tries_max;
        if channel.due > now {
            channel.interrupt_due = Instant::NEVER;
            self.reset_for(number, diagnostic::INTERRUPT_TIME, now);
            return;
        }
        channel.due = Instant::NEVER;
        match (channel.call, channel.reset) {
            (CallState::Own | CallState::Collision, _) => self.clear_for(number, diagnostic::CALL_TIME, now),
            (CallState::OwnClear, _) if is_last => self.tell_free(number),
            (CallState::OwnClear, _) => {
                let code = Cause {
                    cause: self.by_us(cause::CLEAR_LOCAL_ERROR),
                    diagnostic: Some(diagnostic::CLEAR_TIME),
                };
                self.send_clear(number, code, &[], now);
            }
            (CallState::Transfer, ResetState::Own) if is_last && !channel.is_permanent => {
                self.clear_for(number, diagnostic::RESET_TIME, now);
            }
            (CallState::Transfer, ResetState::Own) => {
                let tries = channel.tries;
                let code = Cause {
                    cause: self.by_us(cause::RESET_LOCAL_ERROR),
                    diagnostic: Some(diagnostic::RESET_TIME),
                };
                self.begin_reset(number, code, now);
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.tries = tries.saturating_add(1);
                }
            }
            _ => {}
        }
    }

    /// Returns whether the end with role `end` may call on a channel; `None` if the channel is not used for
    /// calls.
    pub(super) fn may_call(&self, number: u16, end: Role) -> Option<bool> {
        let has = |range: &Option<core::ops::RangeInclusive<u16>>| {
            range.as_ref().is_some_and(|range| range.contains(&number))
        };
        let channels = &self.config.channels;
        if has(&channels.two_way) {
            Some(true)
        } else if has(&channels.incoming) {
            Some(end == Role::Dce)
        } else if has(&channels.outgoing) {
            Some(end == Role::Dte)
        } else {
            None
        }
    }

    pub(super) fn channel(&mut self, number: u16) -> Channel {
        let mut channel = Channel::new(number, false, self.config.default);
        self.generation = self.generation.wrapping_add(1 << 16);
        channel.generation = self.generation;
        channel
    }

    fn of_generation(&mut self, number: u16, generation: u32) -> Option<&mut Channel> {
        self.channels.get_mut(&number).filter(|channel| channel.generation == generation)
    }

    pub(super) fn arm(&mut self, due: Instant) {
        self.next_due = self.next_due.min(due);
    }

    pub(super) fn indicate(&mut self, indication: Indication, generation: u32) {
        self.up.push_back(Up { indication, generation });
    }

    /// Queues an indication, unless the same one is already queued, so that a peer cannot fill the queue.
    pub(super) fn tell_once(&mut self, indication: Indication) {
        if !self.up.iter().any(|up| up.indication == indication) {
            self.indicate(indication, 0);
        }
    }

    /// Merges a reset with an earlier one that the host has not polled. The units received between the two
    /// resets are lost, which a reset permits (§4.4.3).
    pub(super) fn forget_units(&mut self, number: u16) {
        self.up.retain(|up| match &up.indication {
            Indication::Data { channel, .. } | Indication::Interrupt { channel, .. } => *channel != number,
            _ => true,
        });
    }

    /// Reports to the host that a channel is free, if the host was notified of the call.
    pub(super) fn tell_free(&mut self, number: u16) {
        if self.channels.remove(&number).is_some_and(|channel| channel.is_known) {
            self.indicate(Indication::ClearConfirmed { channel: number }, 0);
        }
    }

    pub(super) fn list(&mut self, number: u16) {
        if let Some(channel) = self.channels.get_mut(&number)
            && !channel.is_listed
            && channel.has_packet()
        {
            channel.is_listed = true;
            self.listed.push_back(number);
        }
    }

    pub(super) fn send(&mut self, channel: u16, kind: Kind, rest: &[u8]) {
        self.send_control(channel, false, kind, rest);
    }

    pub(super) fn send_cause(&mut self, channel: u16, kind: Kind, code: Cause) {
        let mut bytes = [0; 2];
        let length = code.write(&mut bytes);
        self.send(channel, kind, &bytes[..length]);
    }

    pub(super) fn send_call(&mut self, channel: u16, kind: Kind, extended: bool, rest: &[u8]) {
        self.send_control(channel, extended, kind, rest);
    }

    fn send_control(&mut self, channel: u16, extended: bool, kind: Kind, rest: &[u8]) {
        if self.control.len() >= CONTROL_PACKETS_MAX {
            self.counters.control_lost += 1;
            return;
        }
        let front = Front { modulo: self.config.modulo, qualifier: extended, delivery: false, channel };
        let mut packet = Rope::copied(rest);
        put_header(&mut packet, Header { front, kind });
        self.control.push_back(packet);
    }
}
