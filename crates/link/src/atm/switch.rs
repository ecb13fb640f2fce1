//! Drives an ATM switch in real time: connects it to links at its ports and to the clock.
//!
//! Turn             [`SwitchDriver::turn`] takes a burst from every link, merges the bursts by arrival time,
//!                  switches the cells, and sends the cells whose slots are due.
//! Arrival times    all cells of a burst count as having arrived when it was read; a policer's tolerance must
//!                  allow for that.
//! Lines            output ports have slots at the port's rate, as a line does, whether shaped or not. Cells
//!                  that a link cannot take are lost.
//! Segment          if a port ends segments, segment loopbacks on circuits and paths with an entry are
//!                  answered there and not forwarded; all other OAM cells follow their circuit or path.
//! Sleep            the driver sleeps until a link is ready, or until waiting cells are due: at the end of a
//!                  frame, or after `PAUSE` if no frame ends.
//! Errors           a link that is gone is detached from its port and reported
//!                  ([`SwitchDriver::take_lost_links`]); the others continue.

use crate::{Link, LinkContext, LinkCounters};
use kiban_atm::wire::atm::{Header, Interface, PTI_OAM_SEGMENT, VCI_F4_SEGMENT};
use kiban_atm::wire::oam::{LOCATION_END, Payload};
use kiban_atm::{ConnectionId, HeaderReceiver, Received, Switch, TimedCell};
use kiban_base::{Instant, Memory, PagePool, PduPool, Wait};
use kiban_os::clock::Clock;
use kiban_os::wait::Waiting;
use kiban_os::{WaitSet, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that cells may wait after their slots before they are sent, if they do not end a frame.
const PAUSE: Duration = Duration::from_micros(200);

/// The link at a port, and its transmit queues.
struct PortState {
    link: Option<Box<dyn Link<TimedCell>>>,
    interface: Interface,
    ends_segment: bool,
    receiver: HeaderReceiver,
    inward: VecDeque<TimedCell>,
    outward: VecDeque<TimedCell>,
    /// Answers to segment loopbacks, which are sent before switched cells.
    answers: VecDeque<TimedCell>,
    answered: u64,
    lost: u64,
}

/// Drives a switch in real time.
pub struct SwitchDriver {
    switch: Switch,
    ports: Vec<PortState>,
    clock: Clock,
    wait_set: Arc<WaitSet>,
    memory: Memory,
    train: Vec<TimedCell>,
    gone: Vec<(usize, io::Error)>,
}

impl SwitchDriver {
    /// Returns a driver for a switch without links. `ports` gives each port's interface, and whether segments
    /// end at the port.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(switch: Switch, ports: &[(Interface, bool)], clock: Clock) -> io::Result<SwitchDriver> {
        let state = |&(interface, ends_segment): &(Interface, bool)| PortState {
            link: None,
            interface,
            ends_segment,
            receiver: HeaderReceiver::default(),
            inward: VecDeque::new(),
            outward: VecDeque::new(),
            answers: VecDeque::new(),
            answered: 0,
            lost: 0,
        };
        Ok(SwitchDriver {
            switch,
            ports: ports.iter().map(state).collect(),
            clock,
            wait_set: WaitSet::new()?,
            // The link interface requires packet memory, although the switch handles no frames.
            memory: Memory {
                transmit: PagePool::new(1, 4096),
                receive: PagePool::new(64, 4096),
                pdus: PduPool::new(64),
            },
            train: Vec::new(),
            gone: Vec::new(),
        })
    }

    /// Returns the switch.
    pub fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Returns a waiter for [`SwitchDriver::run`].
    pub fn waiting(&self) -> Waiting {
        Waiting::new(Wait::Interrupt, self.clock)
    }

    /// Returns a handle that wakes the driver from another thread.
    pub fn waker(&self) -> Waker {
        WaitSet::waker(&self.wait_set)
    }

    /// Attaches a link to a port.
    pub fn attach(&mut self, port: usize, link: Box<dyn Link<TimedCell>>) {
        self.wait_set.watch_link(port, link.file());
        self.ports[port].link = Some(link);
    }

    /// Returns the links that have been lost since the last call: their ports, and the errors.
    pub fn take_lost_links(&mut self) -> Vec<(usize, io::Error)> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the counters of a port's link; cells that the link did not take are counted as refused.
    pub fn link_counters(&self, port: usize) -> Option<LinkCounters> {
        let state = &self.ports[port];
        let counters = state.link.as_ref()?.counters();
        Some(LinkCounters { send_errors: counters.send_errors + state.lost, ..counters })
    }

    /// Returns the number of segment loopbacks answered at a port.
    pub fn answered(&self, port: usize) -> u64 {
        self.ports[port].answered
    }

    /// Runs one turn. Returns whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now();
        let SwitchDriver { switch, ports, memory, gone, wait_set, .. } = self;
        let mut worked = false;
        for (port, state) in ports.iter_mut().enumerate() {
            let Some(link) = &mut state.link else { continue };
            if let Err(error) = link.receive(&mut LinkContext { now, memory }, &mut state.inward) {
                gone.push((port, error));
                wait_set.forget(port);
                state.link = None;
                worked = true;
            }
            if state.ends_segment {
                state.end_segments(port, switch, now);
            }
        }
        let mut trains: Vec<(usize, &[TimedCell])> = ports
            .iter_mut()
            .enumerate()
            .filter(|(_, state)| !state.inward.is_empty())
            .map(|(port, state)| (port, &*state.inward.make_contiguous()))
            .collect();
        worked |= !trains.is_empty();
        switch.arrive_merged(&mut trains);
        ports.iter_mut().for_each(|state| state.inward.clear());
        for port in 0..self.ports.len() {
            worked |= self.send(port, now);
        }
        worked
    }

    fn send(&mut self, port: usize, now: Instant) -> bool {
        let SwitchDriver { switch, ports, memory, train, gone, wait_set, .. } = self;
        let state = &mut ports[port];
        switch.advance(port, now, train);
        state.outward.append(&mut state.answers);
        state.outward.extend(train.drain(..));
        if state.outward.is_empty() {
            return false;
        }
        if let Some(link) = &mut state.link {
            let sent = link.send(&mut state.outward, &mut LinkContext { now, memory });
            if let Err(error) = sent {
                gone.push((port, error));
                wait_set.forget(port);
                state.link = None;
            }
        }
        // A line does not wait, and without a link all cells are lost.
        state.lost += state.outward.len() as u64;
        state.outward.clear();
        true
    }

    /// Returns when the driver must run the next turn, even if nothing happens.
    fn deadline(&self) -> Instant {
        let later = self.clock.now() + PAUSE;
        let at_port = |(port, state): (usize, &PortState)| {
            let link = state.link.as_ref().map_or(Instant::NEVER, |link| link.deadline());
            let line = match self.switch.waiting(port) {
                0 => Instant::NEVER,
                _ => self.switch.next_end(port).min(later),
            };
            link.min(line)
        };
        self.ports.iter().enumerate().map(at_port).min().unwrap_or(Instant::NEVER)
    }

    /// Runs turns and sleeps until a deadline, until a link is lost, or until another thread wakes it.
    pub fn run(&mut self, waiting: &mut Waiting, until: Instant) {
        let wait_set = self.wait_set.clone();
        loop {
            while self.turn() {
                if !self.gone.is_empty() || wait_set.is_woken() || self.clock.now() >= until {
                    break;
                }
            }
            if !self.gone.is_empty() || wait_set.take_woken() || self.clock.now() >= until {
                return;
            }
            let deadline = self.deadline().min(until);
            // A turn may have set an earlier deadline, for example for a delayed unit.
            let look = || (self.turn() || wait_set.is_woken() || self.deadline() < deadline).then_some(());
            waiting.wait(&*wait_set, &*wait_set, deadline, look);
        }
    }
}

impl PortState {
    /// Answers the segment loopbacks of flows that have an entry, and removes all cells of these segment
    /// flows.
    fn end_segments(&mut self, port: usize, switch: &mut Switch, now: Instant) {
        let PortState { inward, receiver, interface, answers, answered, .. } = self;
        inward.retain(|cell| {
            let header = Header::from_word(*interface, cell.header);
            if header.pti != PTI_OAM_SEGMENT && header.vc.vci != VCI_F4_SEGMENT {
                return true;
            }
            // The switch checks headers as well, so a cell with a bad header is left to it.
            if receiver.arrive(cell) != Received::Intact {
                return true;
            }
            let by_path = ConnectionId::Path(header.vc.vpi);
            let has_entry = if header.vc.vci == VCI_F4_SEGMENT {
                switch.route_counters(port, by_path).is_some()
            } else {
                switch.route_counters(port, ConnectionId::Circuit(header.vc)).is_some()
            };
            if !has_entry {
                return true;
            }
            if let Ok((Payload::Loopback(loopback), _)) = Payload::read(&cell.payload)
                && loopback.to_be_looped
                && loopback.location == LOCATION_END
            {
                let mut cell = *cell;
                Payload::Loopback(loopback.answer()).write(&mut cell.payload);
                cell.at = now;
                answers.push_back(cell);
                *answered += 1;
            }
            false
        });
    }
}
