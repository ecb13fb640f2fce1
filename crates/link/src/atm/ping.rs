//! ATM pings over a link: sends OAM loopback cells on a circuit or a path and measures their round-trip times
//! (I.610 §10.2.3).
//!
//! Requests         F5 on a circuit (payload types 4 and 5), or F4 on a path (VCIs 3 and 4); segment or end
//!                  to end.
//! Correlation      the pinger recognises its own cells by random correlation tags, which cannot be predicted
//!                  from earlier ones. Each answer counts once, however late.
//! Replies          loopback requests on the same flow are answered, so that both ends of a line can ping
//!                  each other.
//! Limits           at most [`OUTSTANDING_MAX`] outstanding pings; beyond that, the oldest is forgotten.
//! Not implemented  loopback at an intermediate point identified by its location.

use crate::{Link, LinkContext, LinkCounters};
use kiban_atm::wire::atm::{
    CELL_PAYLOAD_BYTES, Header, Interface, PTI_OAM_END_TO_END, PTI_OAM_SEGMENT, VCI_F4_END_TO_END,
    VCI_F4_SEGMENT, Vc,
};
use kiban_atm::wire::oam::{self, LOCATION_END, Payload};
use kiban_atm::{HeaderReceiver, Received, TimedCell};
use kiban_base::{Instant, Memory, PagePool, PduPool, SecureRng, Wait};
use kiban_os::clock::Clock;
use kiban_os::random;
use kiban_os::wait::Waiting;
use kiban_os::{WaitSet, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Limit of outstanding pings.
pub const OUTSTANDING_MAX: usize = 4096;

/// The flow that is pinged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// A circuit: F5.
    Circuit(Vc),
    /// A path: F4.
    Path(u16),
}

impl Flow {
    /// Returns the header of the flow's cells.
    fn header(self, segment: bool) -> Header {
        let (vc, pti) = match (self, segment) {
            (Flow::Circuit(vc), true) => (vc, PTI_OAM_SEGMENT),
            (Flow::Circuit(vc), false) => (vc, PTI_OAM_END_TO_END),
            (Flow::Path(vpi), true) => (Vc::new(vpi, VCI_F4_SEGMENT), 0),
            (Flow::Path(vpi), false) => (Vc::new(vpi, VCI_F4_END_TO_END), 0),
        };
        Header { gfc: 0, vc, pti, clp: false }
    }
}

/// A ping that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its sequence number, from 0.
    pub sequence: u64,
    /// Its round-trip time.
    pub round_trip: Duration,
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A ping was answered.
    Answer(Answer),
    /// Another thread woke the pinger.
    Woken,
    /// The deadline was reached.
    Time,
}

/// Sends pings and collects the answers.
pub struct Pinger {
    link: Box<dyn Link<TimedCell>>,
    /// The header word of the pinger's own requests, and the two header words of the requests that it
    /// answers.
    word: u32,
    words: [u32; 2],
    interface: Interface,
    receiver: HeaderReceiver,
    memory: Memory,
    rng: SecureRng,
    clock: Clock,
    wait_set: Arc<WaitSet>,
    /// Tag, sequence number and send time of each outstanding ping, oldest first.
    outstanding: VecDeque<(u32, u64, Instant)>,
    inward: VecDeque<TimedCell>,
    outward: VecDeque<TimedCell>,
    came: VecDeque<Answer>,
    next: u64,
    answered: u64,
}

impl Pinger {
    /// Returns a pinger for a flow on a link; `interface` determines the layout of its header words.
    ///
    /// # Errors
    /// The system has no descriptors or no random numbers.
    pub fn new(
        link: Box<dyn Link<TimedCell>>,
        flow: Flow,
        segment: bool,
        interface: Interface,
    ) -> io::Result<Pinger> {
        let wait_set = WaitSet::new()?;
        wait_set.watch_link(0, link.file());
        let clock = Clock::new();
        Ok(Pinger {
            link,
            word: flow.header(segment).to_word(interface),
            words: [true, false].map(|segment| flow.header(segment).to_word(interface)),
            interface,
            receiver: HeaderReceiver::default(),
            // The link interface requires packet memory, although the pinger handles no frames.
            memory: Memory {
                transmit: PagePool::new(1, 4096),
                receive: PagePool::new(64, 4096),
                pdus: PduPool::new(64),
            },
            rng: SecureRng::new(random::key()?),
            clock,
            wait_set,
            outstanding: VecDeque::new(),
            inward: VecDeque::new(),
            outward: VecDeque::new(),
            came: VecDeque::new(),
            next: 0,
            answered: 0,
        })
    }

    /// Returns the clock on which the pinger's times are based.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns a waiter for [`Pinger::wait`].
    pub fn waiting(&self) -> Waiting {
        Waiting::new(Wait::Interrupt, self.clock)
    }

    /// Returns a handle that wakes the pinger from another thread.
    pub fn waker(&self) -> Waker {
        WaitSet::waker(&self.wait_set)
    }

    /// Returns the number of pings sent so far.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Returns the number of requests from other stations that the pinger has answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the counters of the link.
    pub fn link_counters(&self) -> LinkCounters {
        self.link.counters()
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// The link is gone.
    pub fn send(&mut self) -> io::Result<()> {
        let tag = loop {
            let tag = self.rng.draw_u32();
            if !self.outstanding.iter().any(|ping| ping.0 == tag) {
                break tag;
            }
        };
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.queue(self.word, oam::Loopback::request(tag));
        // Read the clock before sending, so that the link's own delay is included.
        self.outstanding.push_back((tag, self.next, self.clock.now()));
        self.next += 1;
        self.push()
    }

    /// Waits until a ping comes back, until the deadline, or until another thread wakes it.
    ///
    /// # Errors
    /// The link is gone.
    pub fn wait(&mut self, waiting: &mut Waiting, until: Instant) -> io::Result<Event> {
        let wait_set = self.wait_set.clone();
        loop {
            self.pull()?;
            if let Some(answer) = self.came.pop_front() {
                return Ok(Event::Answer(answer));
            }
            if wait_set.take_woken() {
                return Ok(Event::Woken);
            }
            if self.clock.now() >= until {
                return Ok(Event::Time);
            }
            let deadline = self.link.deadline().min(until);
            let look = || match self.pull() {
                Ok(()) if self.came.is_empty() && !wait_set.is_woken() => None,
                result => Some(result),
            };
            waiting.wait(&*wait_set, &*wait_set, deadline, look).unwrap_or(Ok(()))?;
        }
    }

    fn queue(&mut self, word: u32, loopback: oam::Loopback) {
        let mut payload = [0; CELL_PAYLOAD_BYTES];
        Payload::Loopback(loopback).write(&mut payload);
        self.outward.push_back(TimedCell::new(self.clock.now(), word, payload));
    }

    fn push(&mut self) -> io::Result<()> {
        let lent = &mut LinkContext { now: self.clock.now(), memory: &mut self.memory };
        let sent = self.link.send(&mut self.outward, lent);
        // A line does not wait, so cells that the link cannot take are lost.
        self.outward.clear();
        sent
    }

    fn pull(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let lent = &mut LinkContext { now, memory: &mut self.memory };
        let received = self.link.receive(lent, &mut self.inward);
        while let Some(cell) = self.inward.pop_front() {
            let word = match self.receiver.arrive(&cell) {
                Received::Intact => cell.header,
                Received::Corrected(word) => word,
                Received::Bad => continue,
            };
            let header = Header { gfc: 0, clp: false, ..Header::from_word(self.interface, word) };
            let word = header.to_word(self.interface);
            if !self.words.contains(&word) {
                continue;
            }
            let Ok((Payload::Loopback(loopback), _)) = Payload::read(&cell.payload) else { continue };
            if !loopback.to_be_looped && word == self.word {
                self.on_answer(loopback.correlation_tag, now);
            } else if loopback.to_be_looped && loopback.location == LOCATION_END {
                self.answered += 1;
                self.queue(word, loopback.answer());
            }
        }
        if !self.outward.is_empty() {
            self.push()?;
        }
        received
    }

    fn on_answer(&mut self, tag: u32, now: Instant) {
        if let Some(index) = self.outstanding.iter().position(|ping| ping.0 == tag) {
            let (_, sequence, at) = self.outstanding.remove(index).expect("it was found there");
            self.came.push_back(Answer { sequence, round_trip: now.since(at) });
        }
    }
}
