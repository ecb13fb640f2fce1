//! The switch: events of ports, and the circuits between them.

use super::CircuitId;
use super::circuit::{Circuit, Leg, State, adapt, adapt_cause, answer};
use super::ports::{Kind, Port, PortId};
use crate::wire::x25::{cause, diagnostic};
use crate::x25::xot::Xot;
use crate::x25::{Call, Cause, Indication, Interface, Request};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, Rope, counters};

counters! {
    /// Counters of a switch.
    pub struct Counters {
        /// Calls received.
        calls,
        /// Calls refused because there were too many circuits, or one call too many on an XOT connection.
        calls_refused,
        /// Units that could not be passed on, because their circuit was being reset or cleared.
        units_lost,
    }
}

/// Configuration of a switch.
#[derive(Clone, Copy, Debug)]
pub struct SwitchConfig {
    /// Maximum number of circuits.
    pub circuits_max: usize,
    /// How long data that came before a clear may take to be acknowledged on the other side.
    pub clear_timeout: Duration,
}

impl Default for SwitchConfig {
    fn default() -> SwitchConfig {
        SwitchConfig { circuits_max: 1000, clear_timeout: Duration::from_secs(30) }
    }
}

/// What the switch asks and tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A call, for which the driver finds a port.
    Incoming {
        /// The circuit.
        circuit: CircuitId,
        /// The port on which the call came.
        port: PortId,
        /// The call.
        call: Call,
    },
    /// A call was accepted.
    Open {
        /// The circuit.
        circuit: CircuitId,
    },
    /// A circuit has ended.
    Closed {
        /// The circuit.
        circuit: CircuitId,
        /// Whether it had been open.
        was_open: bool,
        /// The cause and diagnostic.
        cause: Cause,
        /// The number of bytes sent by the calling and by the called side.
        bytes: [u64; 2],
    },
    /// Calls can be made on a line.
    Up(PortId),
    /// A line's link is down.
    Down(PortId),
    /// An XOT connection carries no call any more: close it, and remove its port.
    Finished(PortId),
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    ports: BTreeMap<PortId, Port>,
    circuits: BTreeMap<CircuitId, Circuit>,
    events: VecDeque<Event>,
    ports_made: PortId,
    circuits_made: CircuitId,
    counters: Counters,
}

impl Switch {
    /// Creates a switch without ports.
    pub fn new(config: SwitchConfig) -> Switch {
        Switch {
            config,
            ports: BTreeMap::new(),
            circuits: BTreeMap::new(),
            events: VecDeque::new(),
            ports_made: 0,
            circuits_made: 0,
            counters: Counters::default(),
        }
    }

    /// Adds a line. The driver starts it with [`Switch::start`].
    pub fn add_interface(&mut self, interface: Interface) -> PortId {
        self.add(Kind::Interface(Box::new(interface)))
    }

    /// Adds an XOT connection.
    pub fn add_xot(&mut self, xot: Xot) -> PortId {
        self.add(Kind::Xot(Box::new(xot)))
    }

    fn add(&mut self, kind: Kind) -> PortId {
        self.ports_made += 1;
        self.ports.insert(self.ports_made, Port::new(kind));
        self.ports_made
    }

    /// Sets up the link of a line.
    pub fn start(&mut self, port: PortId) {
        if let Some(Port { kind: Kind::Interface(interface), .. }) = self.ports.get_mut(&port) {
            interface.start();
        }
    }

    /// Takes the link of a line down.
    pub fn stop(&mut self, port: PortId) {
        if let Some(Port { kind: Kind::Interface(interface), .. }) = self.ports.get_mut(&port) {
            interface.stop();
        }
    }

    /// Reports that a line is gone, or that an XOT connection is closed.
    pub fn down(&mut self, port: PortId, now: Instant) {
        if let Some(of) = self.ports.get_mut(&port) {
            of.down(now);
            self.work(now);
        }
    }

    /// Removes a port; its circuits end.
    pub fn remove(&mut self, port: PortId, now: Instant) {
        self.down(port, now);
        self.ports.remove(&port);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of circuits.
    pub fn circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Returns whether an XOT connection has not had a call.
    pub fn is_unused(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|port| !port.is_used)
    }

    /// Returns a line, for inspection.
    pub fn interface(&self, port: PortId) -> Option<&Interface> {
        match &self.ports.get(&port)?.kind {
            Kind::Interface(interface) => Some(interface),
            Kind::Xot(_) => None,
        }
    }

    /// Makes the call of a circuit on a port. If the port cannot make it, the circuit is cleared.
    pub fn connect(&mut self, circuit: CircuitId, port: PortId, call: Call, now: Instant) {
        let Some(of) = self.circuits.get_mut(&circuit).filter(|of| of.state == State::Routing) else {
            return;
        };
        let made = match self.ports.get_mut(&port) {
            None => Err(cause::CLEAR_OUT_OF_ORDER),
            Some(target) => call_on(target, call, now),
        };
        match made {
            Ok(channel) => {
                of.state = State::Calling;
                of.legs[1] = Some(Leg { port, channel });
                let target = self.ports.get_mut(&port).expect("the call was made on it");
                target.circuits.insert(channel, circuit);
                target.is_used = true;
            }
            Err(code) => self.refuse(circuit, code, now),
        }
        self.work(now);
    }

    /// Refuses the call of a circuit.
    pub fn refuse(&mut self, circuit: CircuitId, cause: u8, now: Instant) {
        let cause = Cause { cause, diagnostic: Some(diagnostic::NONE) };
        if self.circuits.get(&circuit).is_some_and(|of| of.state == State::Routing) {
            self.end(circuit, cause, Vec::new(), now);
            self.work(now);
        }
    }

    /// Handles a frame of a line, or bytes of an XOT connection.
    pub fn arrive(&mut self, port: PortId, bytes: Rope, now: Instant) {
        if let Some(of) = self.ports.get_mut(&port) {
            of.arrive(bytes, now);
            self.work(now);
        }
    }

    /// Returns the next frame for a line, or the next packet for an XOT connection; call it when there is
    /// room for one.
    pub fn poll_down(&mut self, port: PortId, now: Instant) -> Option<Rope> {
        self.ports.get_mut(&port)?.poll_down(now)
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            for (id, port) in &mut self.ports {
                if !port.is_finished && port.is_over() {
                    port.is_finished = true;
                    self.events.push_back(Event::Finished(*id));
                }
            }
        }
        self.events.pop_front()
    }

    /// Returns when [`Switch::settle`] must be called.
    pub fn deadline(&self) -> Instant {
        let clears = self.circuits.values().map(|circuit| match circuit.state {
            State::Clearing { due, .. } => due,
            _ => Instant::NEVER,
        });
        self.ports.values().map(Port::deadline).chain(clears).min().unwrap_or(Instant::NEVER)
    }

    /// Handles timers that have expired.
    pub fn settle(&mut self, now: Instant) {
        for port in self.ports.values_mut() {
            if port.deadline() <= now {
                port.settle(now);
            }
        }
        self.work(now);
    }

    /// Moves everything that can move.
    fn work(&mut self, now: Instant) {
        let ports: Vec<PortId> = self.ports.keys().copied().collect();
        let mut has_moved = true;
        while core::mem::take(&mut has_moved) {
            for port in &ports {
                while let Some(indication) = self.next_of(*port) {
                    has_moved = true;
                    self.on_indication(*port, indication, now);
                }
            }
        }
        self.clear_when_quiet(now);
    }

    /// Returns a port's next indication that the other side of its circuit has room for.
    fn next_of(&mut self, port: PortId) -> Option<Indication> {
        let of = self.ports.get(&port)?;
        let place = of.layer().next_up(|indication| {
            let (channel, is_data) = match indication {
                Indication::Data { channel, .. } => (*channel, true),
                Indication::Interrupt { channel, .. } => (*channel, false),
                _ => return false,
            };
            let Some((leg, layer)) = self
                .other(Leg { port, channel })
                .and_then(|leg| self.ports.get(&leg.port).map(|target| (leg, target.layer())))
            else {
                return false;
            };
            if is_data {
                layer.room(leg.channel) < layer.config().unit_bytes_max
            } else {
                !layer.may_interrupt(leg.channel)
            }
        })?;
        self.ports.get_mut(&port)?.poll_up_at(place)
    }

    /// Returns the other leg of an open circuit.
    fn other(&self, leg: Leg) -> Option<Leg> {
        let circuit = self.circuits.get(self.ports.get(&leg.port)?.circuits.get(&leg.channel)?)?;
        let side = circuit.side(leg).filter(|_| circuit.state == State::Open)?;
        circuit.legs[1 - side]
    }

    fn on_indication(&mut self, port: PortId, indication: Indication, now: Instant) {
        match indication {
            Indication::Incoming { channel, call } => self.on_incoming(Leg { port, channel }, call, now),
            Indication::Accepted { channel, call, .. } => self.on_accepted(Leg { port, channel }, call, now),
            Indication::Cleared { channel, cause, user_data, .. } => {
                self.on_cleared(Leg { port, channel }, cause, user_data, now);
            }
            Indication::Data { channel, data, qualifier, delivery } => {
                self.on_data(Leg { port, channel }, (data, qualifier, delivery), now);
            }
            Indication::Interrupt { channel, data } => {
                let of = |leg: Leg| Request::Interrupt { channel: leg.channel, data };
                self.pass(Leg { port, channel }, of, now);
            }
            Indication::Reset { channel, cause, .. } => {
                let leg = Leg { port, channel };
                let Some(target) = self.other(leg) else { return };
                let Some(config) = self.ports.get(&target.port).map(|port| port.layer().config()) else {
                    return;
                };
                let cause = adapt_cause(cause, config);
                self.pass(leg, |leg| Request::Reset { channel: leg.channel, cause }, now);
            }
            Indication::Ready => self.events.push_back(Event::Up(port)),
            Indication::Down => {
                let is_line =
                    self.ports.get(&port).is_some_and(|port| matches!(port.kind, Kind::Interface(_)));
                if is_line {
                    self.events.push_back(Event::Down(port));
                }
            }
            Indication::Restarted(_)
            | Indication::ClearConfirmed { .. }
            | Indication::Delivered { .. }
            | Indication::InterruptConfirmed { .. }
            | Indication::ResetConfirmed { .. }
            | Indication::Diagnostic(..) => {}
        }
    }

    fn on_incoming(&mut self, leg: Leg, call: Call, now: Instant) {
        self.counters.calls += 1;
        let Some(port) = self.ports.get_mut(&leg.port) else { return };
        // An XOT connection carries one call. A second one, also from a router that this switch has called,
        // would not be subject to the driver's limits for connections.
        let is_second = matches!(port.kind, Kind::Xot(_)) && core::mem::replace(&mut port.is_used, true);
        if is_second || self.circuits.len() >= self.config.circuits_max {
            self.counters.calls_refused += 1;
            let cause = Cause { cause: cause::CLEAR_CONGESTION, diagnostic: Some(diagnostic::NONE) };
            let cause = adapt_cause(cause, port.layer().config());
            let clear = Request::Clear { channel: leg.channel, cause, user_data: Vec::new() };
            // If the call has ended in the meantime, there is nothing to clear.
            let _ = port.request(clear, now);
            return;
        }
        self.circuits_made += 1;
        let circuit = self.circuits_made;
        port.circuits.insert(leg.channel, circuit);
        let made =
            Circuit { legs: [Some(leg), None], state: State::Routing, call: call.clone(), bytes: [0; 2] };
        self.circuits.insert(circuit, made);
        self.events.push_back(Event::Incoming { circuit, port: leg.port, call });
    }

    fn on_accepted(&mut self, leg: Leg, call: Call, now: Instant) {
        let Some(circuit) = self.circuit_of(leg) else { return };
        let of = self.circuits.get_mut(&circuit).expect("the port's circuits exist");
        let Some(caller) = of.legs[0].filter(|_| of.state == State::Calling) else { return };
        let call = answer(call, &of.call);
        let accept = Request::Accept { channel: caller.channel, call };
        let is_accepted =
            self.ports.get_mut(&caller.port).is_some_and(|port| port.request(accept, now).is_ok());
        if is_accepted {
            of.state = State::Open;
            self.events.push_back(Event::Open { circuit });
        } else {
            // The called side has answered with facilities that the calling side cannot have.
            let cause = Cause { cause: cause::CLEAR_REMOTE_ERROR, diagnostic: Some(diagnostic::NONE) };
            self.end(circuit, cause, Vec::new(), now);
        }
    }

    fn on_cleared(&mut self, leg: Leg, cause: Cause, user_data: Vec<u8>, now: Instant) {
        let Some(circuit) = self.circuit_of(leg) else { return };
        self.drop_leg(circuit, leg);
        self.end(circuit, cause, user_data, now);
    }

    fn on_data(&mut self, leg: Leg, (data, qualifier, delivery): (Rope, bool, bool), now: Instant) {
        let (bytes, circuit) = (data.len() as u64, self.circuit_of(leg));
        let of = |leg: Leg| Request::Data { channel: leg.channel, data, qualifier, delivery };
        if !self.pass(leg, of, now) {
            self.counters.units_lost += 1;
        } else if let Some(circuit) = circuit.and_then(|circuit| self.circuits.get_mut(&circuit))
            && let Some(side) = circuit.side(leg)
        {
            circuit.bytes[side] += bytes;
        }
    }

    /// Passes a request to the other side of a circuit; returns whether it was accepted.
    fn pass(&mut self, from: Leg, request: impl FnOnce(Leg) -> Request, now: Instant) -> bool {
        let Some(leg) = self.other(from) else { return false };
        self.ports.get_mut(&leg.port).is_some_and(|port| port.request(request(leg), now).is_ok())
    }

    fn circuit_of(&self, leg: Leg) -> Option<CircuitId> {
        self.ports.get(&leg.port)?.circuits.get(&leg.channel).copied()
    }

    fn drop_leg(&mut self, circuit: CircuitId, leg: Leg) {
        if let Some(port) = self.ports.get_mut(&leg.port) {
            port.circuits.remove(&leg.channel);
        }
        if let Some(of) = self.circuits.get_mut(&circuit) {
            for own in &mut of.legs {
                *own = own.filter(|own| *own != leg);
            }
        }
    }

    /// Begins the end of a circuit: its remaining legs will be cleared.
    fn end(&mut self, circuit: CircuitId, cause: Cause, user_data: Vec<u8>, now: Instant) {
        let Some(of) = self.circuits.get_mut(&circuit) else { return };
        if matches!(of.state, State::Clearing { .. }) {
            return;
        }
        let was_open = of.state == State::Open;
        self.events.push_back(Event::Closed { circuit, was_open, cause, bytes: of.bytes });
        of.state = State::Clearing { cause, user_data, due: now + self.config.clear_timeout };
    }

    /// Clears the remaining legs of ended circuits whose data is acknowledged.
    fn clear_when_quiet(&mut self, now: Instant) {
        let ended: Vec<(CircuitId, Leg)> = self
            .circuits
            .iter()
            .filter_map(|(id, circuit)| match circuit.state {
                State::Clearing { due, .. } => Some((*id, circuit, due)),
                _ => None,
            })
            .flat_map(|(id, circuit, due)| circuit.legs.iter().flatten().map(move |leg| (id, *leg, due)))
            .filter(|(_, leg, due)| {
                let port = self.ports.get(&leg.port);
                *due <= now || port.is_none_or(|port| port.layer().is_quiet(leg.channel))
            })
            .map(|(id, leg, _)| (id, leg))
            .collect();
        for (id, leg) in ended {
            if let Some(Circuit { state: State::Clearing { cause, user_data, .. }, .. }) =
                self.circuits.get(&id)
                && let Some(port) = self.ports.get_mut(&leg.port)
            {
                let cause = adapt_cause(*cause, port.layer().config());
                let clear = |user_data| Request::Clear { channel: leg.channel, cause, user_data };
                if port.request(clear(user_data.clone()), now).is_err() {
                    // The caller did not ask for fast select, so the clear carries no user data; otherwise
                    // the call has ended in the meantime.
                    let _ = port.request(clear(Vec::new()), now);
                }
            }
            self.drop_leg(id, leg);
        }
        self.circuits.retain(|_, circuit| {
            !matches!(circuit.state, State::Clearing { .. }) || circuit.legs.iter().any(Option::is_some)
        });
    }
}

/// Makes a call on a port; returns its channel, or the cause with which to clear the caller.
fn call_on(port: &mut Port, mut call: Call, now: Instant) -> Result<u16, u8> {
    let channel = port.free_channel().ok_or(cause::CLEAR_CONGESTION)?;
    adapt(&mut call, port.layer().config());
    match port.request(Request::Call { channel, call }, now) {
        Ok(()) => Ok(channel),
        Err(crate::x25::Misuse::Facilities | crate::x25::Misuse::TooLong) => {
            Err(cause::CLEAR_INVALID_FACILITY)
        }
        Err(_) => Err(cause::CLEAR_OUT_OF_ORDER),
    }
}
