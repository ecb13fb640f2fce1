//! The state behind the engine's lock: the NIC, and the program's names for its objects.
//!
//! Purpose  delivers every event of the NIC to the channel, queue pair or connection that it concerns before
//!          a caller can look for it.

use super::board::BoardVerbs;
use super::channel::Channel;
use super::datagrams::Datagrams;
use super::ends::{Ends, Listeners};
use super::events::{AsyncEvent, AsyncEventKind, CqChannels, Features, Wire};
use super::pairs::QueuePairs;
use super::ports::Ports;
use super::roce::RoceLinks;
use super::xrc::Xrc;
use crate::Lower;
use crate::board_nic::BoardNic;
use crate::linked_nic::LinkedNic;
use crate::same_user::{SocketKind, SocketOwners};
use kiban_base::Instant;
use kiban_os::turn::Machine;
use kiban_rdma::rnic::{Config, Event};
use kiban_rdma::wire::rdmap::Reason;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The NIC and the program's names for its objects.
pub(super) struct EngineState {
    /// The NIC of this process. It is idle if the engine uses that of a board.
    pub(super) core: LinkedNic,
    pub(super) board: Option<BoardVerbs>,
    pub(super) cqs: HashMap<u32, CqChannels>,
    pub(super) srqs: HashMap<u32, (Arc<Channel<AsyncEvent>>, u64)>,
    pub(super) xrc: Xrc,
    pub(super) qps: QueuePairs,
    pub(super) ports: Ports,
    pub(super) ends: Ends,
    pub(super) listeners: Listeners,
    pub(super) datagrams: Datagrams,
    /// Set if queue pairs speak RoCEv2.
    pub(super) roce: Option<RoceLinks>,
    /// Determines the owners of peers' sockets.
    pub(super) socket_owners: SocketOwners,
    /// Whether the connection manager offers and accepts kiban's own extensions.
    pub(super) offers: bool,
    /// Whether an event was delivered.
    pub(super) has_events: bool,
    /// The call at hand posted receives, after which a RoCEv2 queue pair has nothing new to send. Its
    /// acknowledgements wait for the next call, so that they share a system call with the answer of a program
    /// that posts a receive first.
    pub(super) posted_receives: bool,
}

impl EngineState {
    pub(super) fn open(
        config: Config,
        ways: Features,
        board: Option<BoardNic>,
        outer: &OwnedFd,
    ) -> io::Result<EngineState> {
        let mut core = match ways.wire {
            Wire::Efe => LinkedNic::open_on_efe_ports(config, outer)?,
            Wire::Tcp | Wire::Roce => LinkedNic::open(Lower::Tcp { from: None }, config, outer)?,
        };
        core.follow_all();
        if ways.shared_memory {
            core.share_memory();
        }
        let roce = match ways.wire {
            Wire::Roce => Some(RoceLinks::open(outer, ways.shared_memory)?),
            Wire::Tcp | Wire::Efe => None,
        };
        let sockets = if ways.wire == Wire::Efe { SocketKind::Udp } else { SocketKind::Tcp };
        Ok(EngineState {
            core,
            board: board.map(BoardVerbs::new),
            cqs: HashMap::new(),
            srqs: HashMap::new(),
            xrc: Xrc::default(),
            qps: QueuePairs::default(),
            ports: Ports::default(),
            ends: Ends::default(),
            listeners: Listeners::default(),
            datagrams: Datagrams::open(outer)?,
            roce,
            socket_owners: SocketOwners::open(sockets)?,
            offers: ways.extensions,
            has_events: false,
            posted_receives: false,
        })
    }

    /// Delivers pending events. Returns whether they caused something to be sent.
    fn dispatch_events(&mut self, now: Instant) -> bool {
        // Notifications caused by datagrams have not passed through `core`.
        while let Some(cq) = self.next_cq_event() {
            if let Some(CqChannels { completions: Some(channel), cookie, .. }) = self.cqs.get(&cq) {
                channel.tell(*cookie);
                self.has_events = true;
            }
        }
        while let Some(event) = self.next_event() {
            self.tell(event, now);
        }
        self.hear_connections(now)
    }

    fn next_cq_event(&mut self) -> Option<u32> {
        match &mut self.board {
            Some(board) => board.nic.cq_events.pop_front(),
            None => self.core.cq_events.pop_front().or_else(|| self.core.nic.core.cq_event()),
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        match &mut self.board {
            Some(board) => board.nic.events.pop_front(),
            None => self.core.events.pop_front().or_else(|| self.core.nic.core.event()),
        }
    }

    /// Returns whether there may be events. Most calls of a program that polls find none.
    #[inline]
    fn may_have_events(&self) -> bool {
        self.board.is_some() || self.roce.is_some() || self.core.has_events()
    }

    /// Delivers events and sends the messages that they cause, which would otherwise wait until the next
    /// `drive` call.
    #[inline]
    fn go_on(&mut self, now: Instant) {
        if self.may_have_events() {
            self.deliver_events(now);
        }
    }

    fn deliver_events(&mut self, now: Instant) {
        while self.dispatch_events(now) {
            match &mut self.board {
                Some(board) => board.nic.flush(now),
                None => self.core.flush(now),
            }
        }
    }

    fn tell(&mut self, event: Event, now: Instant) {
        self.has_events = true;
        if let Event::QpFailed { qp, .. } | Event::PeerTerminated { qp, .. } = event {
            self.board_qp_failed(qp);
        }
        match event {
            Event::CqOverrun { cq } => {
                if let Some(CqChannels { async_events: events, cookie, .. }) = self.cqs.get(&cq) {
                    events.tell(AsyncEvent { cookie: *cookie, kind: AsyncEventKind::CqError });
                }
            }
            Event::SrqLimit { srq } => {
                if let Some((events, cookie)) = self.srqs.get(&srq) {
                    events.tell(AsyncEvent { cookie: *cookie, kind: AsyncEventKind::SrqLimit });
                }
            }
            // If a queue pair lost its peer, the connection manager and the completions report that.
            Event::QpFailed { reason: None, .. } | Event::PeerTerminated { .. } => {}
            Event::QpFailed { qp, reason: Some(reason) } => {
                let what = match reason {
                    Reason { layer: 0 | 1, kind: 1, .. } => AsyncEventKind::QpAccessError,
                    Reason::LOCAL_ERROR => AsyncEventKind::QpFatal,
                    _ => AsyncEventKind::QpRequestError,
                };
                self.qps.tell(qp, what);
            }
            Event::Abandoned { qp } => self.on_abandoned(qp, now),
            Event::LastReceive { qp } => self.qps.tell(qp, AsyncEventKind::QpLastReceive),
        }
    }

    /// Sends what queue pairs have that is no stream, and delivers events.
    fn send_packets(&mut self, now: Instant) {
        let posted_receives = std::mem::take(&mut self.posted_receives);
        match &mut self.roce {
            Some(_) if posted_receives => {}
            Some(roce) => roce.send(&mut self.core, &self.qps, &mut self.ports, now),
            None if self.core.nic.core.has_datagrams() => {
                self.datagrams.send(&mut self.core, &self.qps, &mut self.ports);
            }
            None => {}
        }
        self.go_on(now);
    }
}

impl Machine for EngineState {
    fn drive(&mut self, now: Instant) {
        if let Some(board) = &mut self.board {
            board.nic.drive(now);
            self.fire_timers(now);
            return self.go_on(now);
        }
        self.core.drive(now);
        match &mut self.roce {
            Some(roce) => roce.take(&mut self.core, &self.qps, &mut self.ports, now),
            None => self.datagrams.take(&mut self.core, &self.qps, &mut self.ports),
        }
        self.fire_timers(now);
        self.go_on(now);
    }

    fn settle(&mut self, now: Instant) {
        self.core.settle(now);
        self.send_packets(now);
    }

    fn flush(&mut self, now: Instant) {
        if let Some(board) = &mut self.board {
            board.nic.flush(now);
            return self.go_on(now);
        }
        self.core.flush(now);
        self.send_packets(now);
    }

    fn take_progress(&mut self) -> bool {
        let board = self.board.as_mut().is_some_and(|board| board.nic.take_progress());
        board | self.core.take_progress() | std::mem::take(&mut self.has_events)
    }

    fn deadline(&self) -> Instant {
        let roce = self.roce.as_ref().map_or(Instant::NEVER, RoceLinks::deadline);
        self.core.deadline().min(self.oob_deadline()).min(roce)
    }

    fn has_more(&self) -> bool {
        let roce_has_more = self.roce.as_ref().is_some_and(RoceLinks::has_more);
        let board_has_more = self.board.as_ref().is_some_and(|board| board.nic.has_more());
        board_has_more || self.core.has_more() || self.datagrams.has_more() || roce_has_more
    }

    fn arm(&mut self) {
        self.core.arm();
        if let Some(board) = &mut self.board {
            board.nic.arm();
        }
        if let Some(roce) = &mut self.roce {
            roce.memory.arm();
        }
    }

    fn disarm(&mut self) -> Option<u64> {
        let roce = self.roce.as_mut().and_then(|roce| roce.memory.disarm());
        let board = self.board.as_mut().and_then(|board| board.nic.disarm());
        self.core.disarm().into_iter().chain(roce).chain(board).min()
    }

    fn after_sleep(&mut self) {
        self.core.after_sleep();
        if let Some(board) = &mut self.board {
            board.nic.after_sleep();
        }
        if let Some(roce) = &mut self.roce {
            roce.after_sleep();
        }
    }
}
