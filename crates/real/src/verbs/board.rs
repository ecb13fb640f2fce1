//! What the engine's lock guards: the NIC, and what the program calls its parts.
//!
//! Goal      whatever the NIC has to say reaches the channel, the queue pair or the connection that it is about, before
//!           anybody looks.

use super::connections::{Ends, Listeners};
use super::datagrams::Datagrams;
use super::ports::Ports;
use super::queue_pairs::QueuePairs;
use super::{Channel, CqTells, Happening, Ways, What};
use crate::link::same_user::Asker;
use crate::rdma::Lower;
use crate::rdma::core::Core;
use crate::turn::Machine;
use kiban_ground::Instant;
use kiban_stack::iwarp::rnic::{Config, Event};
use kiban_wire::rdmap::Reason;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The NIC and its names.
pub(super) struct Board {
    pub(super) core: Core,
    pub(super) cqs: HashMap<u32, CqTells>,
    pub(super) srqs: HashMap<u32, (Arc<Channel<Happening>>, u64)>,
    pub(super) qps: QueuePairs,
    pub(super) ports: Ports,
    pub(super) ends: Ends,
    pub(super) listeners: Listeners,
    pub(super) datagrams: Datagrams,
    /// Who asks whose a peer's socket is.
    pub(super) asker: Asker,
    /// The connection manager offers and takes what only kiban's ends know.
    pub(super) offers: bool,
    /// Somebody was told something.
    pub(super) news: bool,
}

impl Board {
    pub(super) fn open(config: Config, ways: Ways, outer: &OwnedFd) -> io::Result<Board> {
        let mut core = Core::open(Lower::Tcp { from: None }, config, outer)?;
        core.follow_all();
        if ways.shared_memory {
            core.share_memory();
        }
        Ok(Board {
            core,
            cqs: HashMap::new(),
            srqs: HashMap::new(),
            qps: QueuePairs::default(),
            ports: Ports::default(),
            ends: Ends::default(),
            listeners: Listeners::default(),
            datagrams: Datagrams::open(outer)?,
            asker: Asker::open()?,
            offers: ways.extensions,
            news: false,
        })
    }

    /// Tells what has happened: whether something followed from it that wants to be sent.
    fn hear(&mut self, now: Instant) -> bool {
        // What datagrams brought has not gone through the core's own hands.
        while let Some(cq) = self.core.told.pop_front().or_else(|| self.core.nic.core.cq_event()) {
            if let Some(CqTells { completions: Some(channel), cookie, .. }) = self.cqs.get(&cq) {
                channel.tell(*cookie);
                self.news = true;
            }
        }
        while let Some(event) = self.core.events.pop_front().or_else(|| self.core.nic.core.event()) {
            self.tell(event, now);
        }
        self.hear_connections(now)
    }

    /// Sends what there is to send, and what follows from it: nobody else would before the next drive.
    fn go_on(&mut self, now: Instant) {
        while self.hear(now) {
            self.core.flush(now);
        }
    }

    fn tell(&mut self, event: Event, now: Instant) {
        self.news = true;
        match event {
            Event::CqOverrun { cq } => {
                if let Some(CqTells { happenings, cookie, .. }) = self.cqs.get(&cq) {
                    happenings.tell(Happening { cookie: *cookie, what: What::CqError });
                }
            }
            Event::SrqLimit { srq } => {
                if let Some((happenings, cookie)) = self.srqs.get(&srq) {
                    happenings.tell(Happening { cookie: *cookie, what: What::SrqLimit });
                }
            }
            // The connection manager, and the completions, say what has become of a queue pair that lost its peer.
            Event::QpFailed { reason: None, .. } | Event::PeerTerminated { .. } => {}
            Event::QpFailed { qp, reason: Some(reason) } => {
                let what = match reason {
                    Reason { layer: 0 | 1, kind: 1, .. } => What::QpAccessError,
                    Reason::LOCAL_ERROR => What::QpFatal,
                    _ => What::QpRequestError,
                };
                self.qps.tell(qp, what);
            }
            Event::Abandoned { qp } => self.on_abandoned(qp, now),
            Event::LastReceive { qp } => self.qps.tell(qp, What::QpLastReceive),
        }
    }
}

impl Machine for Board {
    fn drive(&mut self, now: Instant) {
        self.core.drive(now);
        self.take_datagrams();
        self.advance_meetings(now);
        self.go_on(now);
    }

    fn settle(&mut self, now: Instant) {
        self.flush(now);
    }

    fn flush(&mut self, now: Instant) {
        self.core.flush(now);
        self.send_datagrams();
        self.go_on(now);
    }

    fn take_news(&mut self) -> bool {
        self.core.take_news() | std::mem::take(&mut self.news)
    }

    fn deadline(&self) -> Instant {
        self.core.deadline().min(self.meetings_deadline())
    }

    fn has_more(&self) -> bool {
        self.core.has_more() || self.datagrams.has_more()
    }

    fn arm(&mut self) {
        self.core.arm();
    }

    fn disarm(&mut self) -> Option<u64> {
        self.core.disarm()
    }

    fn after_sleep(&mut self) {
        self.core.after_sleep();
    }
}

/// Watches a file on the engine's epoll for as long as it is there.
pub(super) fn watch(epoll: &OwnedFd, file: impl std::os::fd::AsFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, file, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?)
}
