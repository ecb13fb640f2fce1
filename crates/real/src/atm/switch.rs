//! The driver of an ATM switch in real time: links at its ports, the clock.
//!
//! Turn      [`SwitchDriver::turn`] takes a burst from every link, merged by its moments, switches it, and sends what its slots let out.
//! Moments   cells of a burst arrive at the moment at which it was read: what is policed has to allow for that in its tolerance.
//! Lines     output ports have slots, as a line has: at the port's rate, shaped or not. What a link cannot take is lost on it.
//! Segment   where a port ends segments, segment loopbacks of circuits and paths with an entry are answered there and go no further;
//!           all other OAM cells go with their circuit or path.
//! Sleep     on all links, and until cells that wait have left: the end of a frame, or `PAUSE` where no frame ends.
//! Fault     a link that is gone is taken off its port and told ([`SwitchDriver::gone`]); the others go on.

use crate::clock::Clock;
use crate::doors::{Doors, Waker};
use crate::link::{Lent, Link, LinkCounters};
use crate::wait::Waiting;
use kiban_ground::{Blocks, Instant, Memory, Pool, Wait};
use kiban_stack::atm::{HeaderReceiver, Name, Received, Switch, TimedCell};
use kiban_wire::atm::{Header, Interface, PTI_OAM_SEGMENT, VCI_F4_SEGMENT};
use kiban_wire::oam::{LOCATION_END, Payload};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long cells may wait that end no frame, beyond their slots.
const PAUSE: Duration = Duration::from_micros(200);

/// A port's side towards its link.
struct Place {
    link: Option<Box<dyn Link<TimedCell>>>,
    interface: Interface,
    ends_segment: bool,
    receiver: HeaderReceiver,
    inward: VecDeque<TimedCell>,
    outward: VecDeque<TimedCell>,
    /// Answers to segment loopbacks, which leave before what is switched.
    answers: VecDeque<TimedCell>,
    answered: u64,
    lost: u64,
}

/// A switch in real time.
pub struct SwitchDriver {
    switch: Switch,
    places: Vec<Place>,
    clock: Clock,
    doors: Arc<Doors>,
    memory: Memory,
    train: Vec<TimedCell>,
    gone: Vec<(usize, io::Error)>,
}

impl SwitchDriver {
    /// Drives a switch without links: for each port its interface, and whether segments end there.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(switch: Switch, ports: &[(Interface, bool)], clock: Clock) -> io::Result<SwitchDriver> {
        let place = |&(interface, ends_segment): &(Interface, bool)| Place {
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
            places: ports.iter().map(place).collect(),
            clock,
            doors: Doors::new()?,
            // Links of frames want some, though no frame is for us.
            memory: Memory {
                transmit: Pool::new(1, 4096),
                receive: Pool::new(64, 4096),
                blocks: Blocks::new(64),
            },
            train: Vec::new(),
            gone: Vec::new(),
        })
    }

    /// The switch.
    pub fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// A waiting place for it.
    pub fn waiting(&self) -> Waiting {
        Waiting::new(Wait::Interrupt, self.clock)
    }

    /// Wakes it from another thread.
    pub fn waker(&self) -> Waker {
        Doors::waker(&self.doors)
    }

    /// Joins a link to a port.
    ///
    /// # Errors
    /// The link's file cannot be watched.
    pub fn join(&mut self, port: usize, link: Box<dyn Link<TimedCell>>) -> io::Result<()> {
        self.doors.watch_link(port, link.file());
        self.places[port].link = Some(link);
        Ok(())
    }

    /// Links that have gone since it was last asked: their ports, and why.
    pub fn gone(&mut self) -> Vec<(usize, io::Error)> {
        std::mem::take(&mut self.gone)
    }

    /// What has happened on the link of a port; cells for which it had no room are refused as well.
    pub fn link_counters(&self, port: usize) -> Option<LinkCounters> {
        let place = &self.places[port];
        let counters = place.link.as_ref()?.counters();
        Some(LinkCounters { refused: counters.refused + place.lost, ..counters })
    }

    /// Segment loopbacks that were answered at a port.
    pub fn answered(&self, port: usize) -> u64 {
        self.places[port].answered
    }

    /// One turn. Whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now();
        let SwitchDriver { switch, places, memory, gone, doors, .. } = self;
        let mut worked = false;
        for (port, place) in places.iter_mut().enumerate() {
            let Some(link) = &mut place.link else { continue };
            if let Err(error) = link.receive(&mut Lent { now, memory }, &mut place.inward) {
                gone.push((port, error));
                doors.forget(port);
                place.link = None;
                worked = true;
            }
            if place.ends_segment {
                place.end_segments(port, switch, now);
            }
        }
        let mut trains: Vec<(usize, &[TimedCell])> = places
            .iter_mut()
            .enumerate()
            .filter(|(_, place)| !place.inward.is_empty())
            .map(|(port, place)| (port, &*place.inward.make_contiguous()))
            .collect();
        worked |= !trains.is_empty();
        switch.arrive_merged(&mut trains);
        places.iter_mut().for_each(|place| place.inward.clear());
        for port in 0..self.places.len() {
            worked |= self.send(port, now);
        }
        worked
    }

    fn send(&mut self, port: usize, now: Instant) -> bool {
        let SwitchDriver { switch, places, memory, train, gone, doors, .. } = self;
        let place = &mut places[port];
        switch.advance(port, now, train);
        place.outward.append(&mut place.answers);
        place.outward.extend(train.drain(..));
        if place.outward.is_empty() {
            return false;
        }
        if let Some(link) = &mut place.link {
            let sent = link.send(&mut place.outward, &mut Lent { now, memory });
            if let Err(error) = sent {
                gone.push((port, error));
                doors.forget(port);
                place.link = None;
            }
        }
        // A line does not wait, and one that is cut takes nothing.
        place.lost += place.outward.len() as u64;
        place.outward.clear();
        true
    }

    /// When it has to look again, whatever happens.
    fn deadline(&self) -> Instant {
        let later = self.clock.now() + PAUSE;
        let at_port = |(port, place): (usize, &Place)| {
            let link = place.link.as_ref().map_or(Instant::NEVER, |link| link.deadline());
            let line = match self.switch.waiting(port) {
                0 => Instant::NEVER,
                _ => self.switch.next_end(port).min(later),
            };
            link.min(line)
        };
        self.places.iter().enumerate().map(at_port).min().unwrap_or(Instant::NEVER)
    }

    /// Works and waits until a deadline, until a link is lost, or until somebody wakes it.
    pub fn run(&mut self, waiting: &mut Waiting, until: Instant) {
        let doors = self.doors.clone();
        loop {
            while self.turn() {
                if !self.gone.is_empty() || doors.is_woken() || self.clock.now() >= until {
                    break;
                }
            }
            if !self.gone.is_empty() || doors.take_woken() || self.clock.now() >= until {
                return;
            }
            let deadline = self.deadline().min(until);
            // What has come may be under way for a while: then there is an earlier moment to look.
            let look = || (self.turn() || doors.is_woken() || self.deadline() < deadline).then_some(());
            waiting.wait(&*doors, &*doors, deadline, look);
        }
    }
}

impl Place {
    /// Answers the segment loopbacks of flows that have an entry, and takes all cells of their segment flows out.
    fn end_segments(&mut self, port: usize, switch: &mut Switch, now: Instant) {
        let Place { inward, receiver, interface, answers, answered, .. } = self;
        inward.retain(|cell| {
            let header = Header::from_word(*interface, cell.header);
            if header.pti != PTI_OAM_SEGMENT && header.vc.vci != VCI_F4_SEGMENT {
                return true;
            }
            // The switch looks at headers as well; a cell that is not to be believed is left to it.
            if receiver.receive(cell) != Received::Intact {
                return true;
            }
            let by_path = Name::Path(header.vc.vpi);
            let has_entry = if header.vc.vci == VCI_F4_SEGMENT {
                switch.route_counters(port, by_path).is_some()
            } else {
                switch.route_counters(port, Name::Circuit(header.vc)).is_some()
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
