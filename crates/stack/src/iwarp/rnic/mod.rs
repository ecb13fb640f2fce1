//! The RNIC core: an RDMA NIC as a value, in the blocks of paper \[3\].
//!
//! Goal      programs read and write each other's memory; no byte moves that its owner has not allowed.
//! Host      the methods of [`Rnic`] are its registers and doorbells: protection domains, memory, queues, work. What a host
//!           names, it names by numbers that the core gave and checks (the address decoder).
//! Down      [`Rnic::next_in_line`] names a queue pair with something to send, [`Rnic::next_segment`] makes its next DDP
//!           segment; the lower layer says when it has let go of it ([`Rnic::confirm`]).
//! Up        [`Rnic::judge`] looks at the front of a segment and says where its payload goes; the lower layer hands the bytes
//!           over ([`Rnic::place`]) or puts them there itself ([`Rnic::landing`]), then [`Rnic::finish`].
//! Streams   a queue pair has one reliable, ordered stream of segments below it: MPA on TCP, or EFE. Setting it up is not
//!           the core's affair ([`Rnic::connect`] is told what came of it).
//! Limits    every table and queue has a bound in [`Config`].
//! Datagrams queue pairs of their own kind have no stream: [`Rnic::next_datagram`] makes the next that leaves, header and
//!           all, and [`Rnic::datagram`] takes one that came. Between kiban's ends only; no standard of iWARP has them.
//! Left out  PCI Express: the host's memory is reached by copies. No multicast.
//!
//! ```text
//! paper [3]                                     here
//! RNIC REGs, QP REGs, address decoder           the methods of Rnic; numbers by kiban_ground::Slab
//! SMT, STag management table                    host/smt.rs
//! CMT, completion management table              host/cmt.rs
//! PBLMT, physical buffer lists                  host/pblmt.rs
//! DMAC, DMA READ/WRITE DATA FIFO                host/dmac.rs: gather, scatter, landing
//! QP function: SQ, RQ, ORRQ, IRRQ, states       control/{send_queue, receive_queue, reads, qp}.rs
//! Completion manager                            control/completion.rs
//! Send module: acceptor, resolver, generator    executor/send.rs
//! (none: datagrams)                             control/datagram.rs, executor/datagram.rs
//! Receive module: receiver, resolver            executor/receive.rs
//! TO LLP FIFO, FROM LLP FIFO                    ToLlp, and judge/place/finish
//! PCI Express interface                         left out
//! EFE                                           stack/efe
//! clocks of table 2                             clocks.rs
//! ```
//!
//! \[3\]: Uchiyama and others, *Implementation of the RDMA communication mechanism on ExpEther*, 2008.

pub mod clocks;
mod config;
mod control;
mod executor;
mod host;
mod work;

pub use config::Config;
pub use control::datagram::DatagramState;
pub use control::qp::{QpAttributes, QpState, StreamTraits, StreamWish};
pub use executor::datagram::GRH_BYTES;
pub use executor::receive::{Judged, Placement, Taken};
pub use executor::send::ToLlp;
pub use host::cmt::Notify;
pub use host::dmac::{Payload, Piece};
pub use work::{
    Access, Binding, Completion, Data, Kind, Operation, Place, ReceiveWork, SendWork, Sge, Sges, Status,
};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use clocks::Ledger;
use control::qp::{Post, Qp};
use control::receive_queue::SharedReceiveQueue;
use core::fmt;
use executor::receive::{self, Tables};
use executor::{datagram, send};
use host::cmt::CompletionQueue;
use host::smt::StagTable;
use kiban_ground::{Region, RngKey, SecureRng, SharedBytes, Slab};
use kiban_wire::datagram::{Header as DatagramHeader, QP_MAX};
use kiban_wire::rdmap::{Reason, Terminate};

/// Places that a payload lands in at once, at most.
pub type Places = ArrayVec<Region, { host::dmac::PIECES_MAX }>;

kiban_ground::counters! {
    /// What happened in an RDMA NIC.
    pub struct RnicCounters {
        /// Segments that left.
        segments_out,
        /// Segments that were taken.
        segments_in,
        /// Payload bytes that left.
        payload_out_bytes,
        /// Payload bytes copied into the host's memory.
        placed_bytes,
        /// Payload bytes that the lower layer put into the host's memory itself.
        landed_bytes,
        /// Untagged messages received whole.
        messages_in,
        /// Writes of peers that are in place.
        writes_in,
        /// Reads that peers asked for.
        reads_in,
        /// Atomic operations that peers asked for.
        atomics_in,
        /// Completions made.
        completions,
        /// Completions that found their queue full.
        completions_lost,
        /// Events that found their queue full.
        events_lost,
        /// Work of ours that was wrong.
        local_errors,
        /// Reads of peers that ended because the memory was taken back.
        reads_withdrawn,
        /// Terminates sent.
        terminates_out,
        /// Terminates received.
        terminates_in,
        /// Segments for a tag that names nothing.
        bad_stag,
        /// Segments for memory of another protection domain, or another queue pair's window.
        bad_stream,
        /// Segments for memory that does not allow it.
        bad_access,
        /// Segments for memory that is not all within.
        bad_bounds,
        /// Segments whose addresses wrap.
        bad_wrap,
        /// Sends with Invalidate of a tag that cannot be.
        bad_invalidate,
        /// Segments of a version that is not known.
        bad_version,
        /// Segments with an opcode that is not known, or that nobody waits for.
        bad_opcode,
        /// Segments for a queue that there is not.
        bad_queue,
        /// Segments with a message number out of order.
        bad_sequence,
        /// Segments with an offset out of order.
        bad_offset,
        /// Messages for which no receive is posted, and more reads than agreed.
        no_buffer,
        /// Messages longer than their receive.
        too_long,
        /// Segments with a length that cannot be, or a payload that says nothing.
        bad_length,
        /// Frames with a bad CRC.
        bad_crc,
        /// Datagrams that left.
        datagrams_out,
        /// Datagrams that found their receive.
        datagrams_in,
        /// Datagrams for a queue pair that there is not, that is for streams, or that does not receive now.
        datagrams_unready,
        /// Datagrams without the key of their queue pair.
        bad_qkey,
        /// Datagrams for which no receive was posted.
        datagrams_without_receive,
        /// Datagrams longer than the next receive.
        datagrams_too_long,
    }
}

/// Something that a host is told beside its completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A queue pair failed on our side; the reason is what the peer was told, if it was.
    QpFailed {
        /// Which.
        qp: u32,
        /// Why.
        reason: Option<Reason>,
    },
    /// A queue pair that stays has work, and a peer that went in order will not take it: as long as a peer of InfiniBand that
    /// does not answer is asked again it is neither done nor lost. Then whoever hears this gives up ([`Rnic::give_up`]).
    Abandoned {
        /// Which.
        qp: u32,
    },
    /// The peer said that it ends the stream, and why.
    PeerTerminated {
        /// Which.
        qp: u32,
        /// Why.
        reason: Reason,
    },
    /// A completion queue was too small: completions are lost, and it is in error.
    CqOverrun {
        /// Which.
        cq: u32,
    },
    /// A shared receive queue holds fewer than its limit.
    SrqLimit {
        /// Which.
        srq: u32,
    },
    /// A queue pair takes no more from its shared receive queue.
    LastReceive {
        /// Which.
        qp: u32,
    },
}

/// Why the NIC did not do what the host asked. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such protection domain.
    UnknownPd,
    /// No such steering tag.
    UnknownStag,
    /// No such completion queue.
    UnknownCq,
    /// No such queue pair.
    UnknownQp,
    /// No such shared receive queue.
    UnknownSrq,
    /// The shared receive queue belongs to another protection domain.
    OtherPd,
    /// Others use it.
    InUse,
    /// A bound of [`Config`] or of the queue is reached.
    TooMany,
    /// The queue has no room: wait for completions.
    Full,
    /// The addresses wrap.
    BadAddress,
    /// Rights that do not go together.
    BadAccess,
    /// The state does not allow it.
    BadState(QpState),
    /// More elements than the queue takes.
    TooManyElements,
    /// More inline data than the queue takes, or for an operation that has none.
    TooMuchInline,
    /// The peer takes no reads, or does not know this operation.
    NotAgreed,
    /// The queue pair is for datagrams and this for streams, or the other way round.
    OtherKind,
    /// A queue pair of datagrams whose number, or name, has more than 24 bits.
    BadNumber,
}

/// A datagram that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The queue pair that it is from: its number, not its name.
    pub from: u32,
    /// The address that it is for.
    pub gid: [u8; 16],
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownPd => "no such protection domain: it was never made, or is gone",
            Refusal::UnknownStag => "no such memory: its key was never given, or is deregistered",
            Refusal::UnknownCq => "no such completion queue: it was never made, or is gone",
            Refusal::UnknownQp => "no such queue pair: it was never made, or is gone",
            Refusal::UnknownSrq => "no such shared receive queue: it was never made, or is gone",
            Refusal::OtherPd => {
                "the shared receive queue belongs to another protection domain: make both in the same"
            }
            Refusal::InUse => "others still use it: release them first",
            Refusal::TooMany => {
                "the NIC has no more of these: release some, or raise the bound in its settings"
            }
            Refusal::Full => "the queue is full: wait for completions, or make it larger",
            Refusal::BadAddress => "the address range wraps",
            Refusal::BadAccess => "memory that peers may write to must allow local writes as well",
            Refusal::BadState(QpState::Idle) => "the queue pair does not send: connect it first; one for datagrams, let it send",
            Refusal::BadState(QpState::Rts) => "the queue pair is connected: disconnect it first",
            Refusal::BadState(_) => "the queue pair is over: make a new one",
            Refusal::TooManyElements => "more elements than the queue was made for",
            Refusal::TooMuchInline => "more inline data than the queue was made for",
            Refusal::NotAgreed => {
                "not agreed with the peer: reads need IRD and ORD of at least 1, atomics and immediate data need \
                 extensions at both ends, a Send with immediate data needs a peer that is kiban's"
            }
            Refusal::OtherKind => "datagrams and streams have queue pairs of their own kind: take the other",
            Refusal::BadNumber => "queue pairs of datagrams have numbers of 24 bits: name it so",
        })
    }
}

impl core::error::Error for Refusal {}

/// Where blocks leave what is for others: completions, events, queue pairs that want to send.
#[derive(Debug)]
struct Desk {
    cqs: Slab<CompletionQueue>,
    /// Completion queues whose host wants to be told.
    cq_events: VecDeque<u32>,
    /// Completion queues that have just overrun.
    overrun: Vec<u32>,
    events: VecDeque<Event>,
    events_max: usize,
    /// The work acceptor's line.
    line: VecDeque<u32>,
    /// That of queue pairs for datagrams.
    datagram_line: VecDeque<u32>,
    /// Queue pairs whose streams waited for a receive, and need not any more.
    resumed: Vec<u32>,
    counters: RnicCounters,
    clocks: Ledger,
}

impl Desk {
    fn event(&mut self, event: Event) {
        if self.events.len() < self.events_max {
            self.events.push_back(event);
        } else {
            self.counters.events_lost += 1;
        }
    }

    /// A queue pair is as new, or gone.
    fn leave_line(&mut self, qp: u32) {
        self.line.retain(|&waits| waits != qp);
        self.datagram_line.retain(|&waits| waits != qp);
    }

    fn count_fault(&mut self, reason: Reason) {
        let counters = &mut self.counters;
        let counter = match reason {
            Reason::TAGGED_STAG | Reason::REMOTE_STAG => &mut counters.bad_stag,
            Reason::TAGGED_STREAM | Reason::REMOTE_STREAM => &mut counters.bad_stream,
            Reason::REMOTE_ACCESS => &mut counters.bad_access,
            Reason::TAGGED_BOUNDS | Reason::REMOTE_BOUNDS => &mut counters.bad_bounds,
            Reason::TAGGED_WRAP | Reason::REMOTE_WRAP => &mut counters.bad_wrap,
            Reason::REMOTE_NOT_INVALIDATED => &mut counters.bad_invalidate,
            Reason::TAGGED_VERSION | Reason::UNTAGGED_VERSION | Reason::OPERATION_VERSION => {
                &mut counters.bad_version
            }
            Reason::OPERATION_OPCODE => &mut counters.bad_opcode,
            Reason::UNTAGGED_QUEUE => &mut counters.bad_queue,
            Reason::UNTAGGED_SEQUENCE => &mut counters.bad_sequence,
            Reason::UNTAGGED_OFFSET => &mut counters.bad_offset,
            Reason::UNTAGGED_NO_BUFFER => &mut counters.no_buffer,
            Reason::UNTAGGED_TOO_LONG => &mut counters.too_long,
            Reason::MPA_CRC => &mut counters.bad_crc,
            _ => &mut counters.bad_length,
        };
        *counter += 1;
    }
}

/// An RDMA NIC.
#[derive(Debug)]
pub struct Rnic {
    config: Config,
    smt: StagTable,
    qps: Slab<Qp>,
    srqs: Slab<SharedReceiveQueue>,
    desk: Desk,
    /// Room of streams that have nothing under way, for the next that has: frames that leave, a frame that comes.
    pub(in crate::iwarp) spare: [Vec<u8>; 2],
}

impl Rnic {
    /// A NIC, whose keys come from a generator under `key`.
    pub fn new(config: Config, key: RngKey) -> Rnic {
        let mut rng = SecureRng::new(key);
        Rnic {
            smt: StagTable::new(config.stags_max, config.blocks_max, config.pds_max, &mut rng),
            qps: Slab::new(config.qps_max, rng.draw_u32()),
            srqs: Slab::new(config.srqs_max, rng.draw_u32()),
            desk: Desk {
                cqs: Slab::new(config.cqs_max, rng.draw_u32()),
                cq_events: VecDeque::new(),
                overrun: Vec::new(),
                events: VecDeque::new(),
                events_max: config.events_max,
                line: VecDeque::new(),
                datagram_line: VecDeque::new(),
                resumed: Vec::new(),
                counters: RnicCounters::default(),
                clocks: Ledger::default(),
            },
            spare: [Vec::new(), Vec::new()],
            config,
        }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What has been counted.
    pub fn counters(&self) -> &RnicCounters {
        &self.desk.counters
    }

    /// What the blocks did, for a model of their clocks.
    pub fn clocks(&mut self) -> &mut Ledger {
        &mut self.desk.clocks
    }

    /// Queue pairs and steering tags that there are now.
    pub fn in_use(&self) -> (usize, usize) {
        (self.qps.len(), self.smt.len())
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        self.desk.events.pop_front()
    }

    // ---- memory

    /// A new protection domain.
    pub fn create_pd(&mut self) -> Result<u32, Refusal> {
        self.smt.create_pd()
    }

    /// Gives a domain back that nothing belongs to.
    pub fn destroy_pd(&mut self, pd: u32) -> Result<(), Refusal> {
        self.smt.destroy_pd(pd)
    }

    /// Registers memory under the address by which it is called: its steering tag, for the owner and for peers.
    pub fn register(&mut self, pd: u32, region: Region, access: Access) -> Result<u32, Refusal> {
        let address = region.address();
        self.register_blocks(pd, address, alloc::vec![region], access)
    }

    /// Registers several runs of memory as one.
    pub fn register_blocks(
        &mut self,
        pd: u32,
        address: u64,
        blocks: Vec<Region>,
        access: Access,
    ) -> Result<u32, Refusal> {
        self.smt.register(pd, address, blocks, access)
    }

    /// A steering tag without memory, for [`Operation::Register`].
    pub fn allocate(&mut self, pd: u32, blocks_max: usize) -> Result<u32, Refusal> {
        self.smt.allocate(pd, blocks_max)
    }

    /// A memory window, for [`Operation::Bind`]; type 2 belongs to the queue pair that binds it.
    pub fn allocate_window(&mut self, pd: u32, type_2: bool) -> Result<u32, Refusal> {
        self.smt.allocate_window(pd, type_2)
    }

    /// Forgets memory or a window at once: from now on no byte of it is touched through this tag. What lower layers still
    /// hold of it (segments that have not left) is theirs to let go. The memory, for its owner.
    pub fn deregister(&mut self, stag: u32) -> Result<Vec<Region>, Refusal> {
        self.smt.remove(stag)
    }

    /// Two tags of memory change places: each names from now on what the other named. No window may be bound to either.
    pub fn exchange(&mut self, one: u32, other: u32) -> Result<(), Refusal> {
        self.smt.exchange(one, other)
    }

    /// The tag as it is now, of a tag whose key a work request may have changed.
    pub fn whole_tag(&self, stag: u32) -> Option<u32> {
        self.smt.whole(stag)
    }

    /// The same though windows are bound to it: they show nothing any more.
    pub fn withdraw(&mut self, stag: u32) -> Result<Vec<Region>, Refusal> {
        self.smt.unbind_windows(stag);
        self.smt.remove(stag)
    }

    /// Memory that was invalidated since the last call: lower layers have to let go of it before the host hears of it.
    #[inline]
    pub fn withdrawn(&mut self) -> Option<Region> {
        self.smt.withdrawn.pop()
    }

    // ---- completion queues

    /// A completion queue for `entries` completions.
    pub fn create_cq(&mut self, entries: usize) -> Result<u32, Refusal> {
        if entries > self.config.cq_entries_max {
            return Err(Refusal::TooMany);
        }
        self.desk.cqs.insert(CompletionQueue::new(entries)).ok_or(Refusal::TooMany)
    }

    /// Changes the room of a completion queue; not below what waits in it.
    pub fn resize_cq(&mut self, cq: u32, entries: usize) -> Result<(), Refusal> {
        if entries > self.config.cq_entries_max {
            return Err(Refusal::TooMany);
        }
        let queue = self.desk.cqs.get_mut(cq).ok_or(Refusal::UnknownCq)?;
        if entries < queue.entries.len() {
            return Err(Refusal::InUse);
        }
        queue.most = entries;
        Ok(())
    }

    /// Gives a completion queue back that no queue pair uses.
    pub fn destroy_cq(&mut self, cq: u32) -> Result<(), Refusal> {
        match self.desk.cqs.get(cq) {
            None => Err(Refusal::UnknownCq),
            Some(queue) if queue.users > 0 => Err(Refusal::InUse),
            Some(_) => {
                self.desk.cqs.remove(cq);
                self.desk.cq_events.retain(|&told| told != cq);
                Ok(())
            }
        }
    }

    /// The next completion.
    #[inline]
    pub fn poll(&mut self, cq: u32) -> Result<Option<Completion>, Refusal> {
        Ok(self.desk.cqs.get_mut(cq).ok_or(Refusal::UnknownCq)?.entries.pop_front())
    }

    /// Asks to be told once of the next completion (of this kind) that comes from now on, by [`Rnic::cq_event`].
    pub fn arm(&mut self, cq: u32, notify: Notify) -> Result<(), Refusal> {
        self.desk.cqs.get_mut(cq).ok_or(Refusal::UnknownCq).map(|queue| queue.arm(notify))
    }

    /// The next completion queue whose host is to be told.
    #[inline]
    pub fn cq_event(&mut self) -> Option<u32> {
        self.desk.cq_events.pop_front()
    }

    // ---- queues for receives

    /// A shared receive queue; with a limit, the host is told once when fewer receives are left.
    pub fn create_srq(&mut self, pd: u32, work_max: usize, limit: usize) -> Result<u32, Refusal> {
        if work_max > self.config.work_max {
            return Err(Refusal::TooMany);
        }
        self.smt.hold_pd(pd)?;
        let srq = SharedReceiveQueue {
            pd,
            wqes: VecDeque::new(),
            most: work_max,
            users: 0,
            limit,
            waiters: Vec::new(),
        };
        self.srqs.insert(srq).ok_or_else(|| {
            self.smt.release_pd(pd);
            Refusal::TooMany
        })
    }

    /// Sets the limit of a shared receive queue.
    pub fn set_srq_limit(&mut self, srq: u32, limit: usize) -> Result<(), Refusal> {
        self.srqs.get_mut(srq).ok_or(Refusal::UnknownSrq).map(|srq| srq.limit = limit)
    }

    /// The room of a shared receive queue, and its limit.
    pub fn query_srq(&self, srq: u32) -> Result<(usize, usize), Refusal> {
        self.srqs.get(srq).ok_or(Refusal::UnknownSrq).map(|srq| (srq.most, srq.limit))
    }

    /// Gives a shared receive queue back that no queue pair uses.
    pub fn destroy_srq(&mut self, srq: u32) -> Result<(), Refusal> {
        match self.srqs.get(srq) {
            None => Err(Refusal::UnknownSrq),
            Some(queue) if queue.users > 0 => Err(Refusal::InUse),
            Some(queue) => {
                let pd = queue.pd;
                self.srqs.remove(srq);
                self.smt.release_pd(pd);
                Ok(())
            }
        }
    }

    /// Posts a receive that any of the queue's users may take.
    pub fn post_srq_receive(&mut self, srq: u32, work: ReceiveWork) -> Result<(), Refusal> {
        let queue = self.srqs.get_mut(srq).ok_or(Refusal::UnknownSrq)?;
        if queue.wqes.len() >= queue.most {
            return Err(Refusal::Full);
        }
        if work.sges.len() > self.config.sges_max {
            return Err(Refusal::TooManyElements);
        }
        queue.wqes.push_back(work);
        self.desk.resumed.append(&mut queue.waiters);
        Ok(())
    }

    // ---- queue pairs

    /// A queue pair.
    pub fn create_qp(&mut self, attributes: QpAttributes) -> Result<u32, Refusal> {
        let QpAttributes { pd, send_cq, receive_cq, srq, .. } = attributes;
        let Config { work_max, sges_max, inline_bytes_max, .. } = self.config;
        let work = attributes.send_work_max.max(attributes.receive_work_max);
        let sges = attributes.send_sges_max.max(attributes.receive_sges_max);
        if work > work_max || sges > sges_max || attributes.inline_bytes_max > inline_bytes_max {
            return Err(Refusal::TooMany);
        }
        if self.desk.cqs.get(send_cq).is_none() || self.desk.cqs.get(receive_cq).is_none() {
            return Err(Refusal::UnknownCq);
        }
        match srq.map(|srq| self.srqs.get(srq)) {
            Some(None) => return Err(Refusal::UnknownSrq),
            // Its receives name memory of its own domain.
            Some(Some(srq)) if srq.pd != pd => return Err(Refusal::OtherPd),
            _ => {}
        }
        self.smt.hold_pd(pd)?;
        let Some(number) = self.qps.insert(Qp::new(0, attributes)) else {
            self.smt.release_pd(pd);
            return Err(Refusal::TooMany);
        };
        if let Some(qp) = self.qps.get_mut(number) {
            (qp.number, qp.name) = (number, number);
        }
        for cq in [send_cq, receive_cq] {
            if let Some(cq) = self.desk.cqs.get_mut(cq) {
                cq.users += 1;
            }
        }
        if let Some(srq) = srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.users += 1;
        }
        Ok(number)
    }

    /// A queue pair for datagrams: it neither receives nor sends until [`Rnic::set_datagram_state`]. Messages never wait for
    /// receives.
    pub fn create_datagram_qp(&mut self, attributes: QpAttributes) -> Result<u32, Refusal> {
        let number = self.create_qp(attributes)?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.datagram = Some(DatagramState::default());
        }
        Ok(number)
    }

    /// What a queue pair for datagrams may do from now on; what had stopped its sends is forgiven. Its name must have 24
    /// bits ([`Rnic::set_name`]) before it may do anything. Work that is posted stays, and leaves when it may.
    pub fn set_datagram_state(
        &mut self,
        qp: u32,
        receives: bool,
        sends: bool,
        qkey: u32,
    ) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match (&mut qp.datagram, qp.state) {
            (None, _) => Err(Refusal::OtherKind),
            (Some(_), QpState::Idle) if (receives || sends) && qp.name > QP_MAX => Err(Refusal::BadNumber),
            (Some(state), QpState::Idle) => {
                *state = DatagramState { receives, sends, stopped: false, qkey };
                qp.want_service(desk);
                Ok(())
            }
            (Some(_), state) => Err(Refusal::BadState(state)),
        }
    }

    /// What a queue pair for datagrams may do.
    pub fn datagram_state(&self, qp: u32) -> Result<DatagramState, Refusal> {
        self.qps.get(qp).ok_or(Refusal::UnknownQp)?.datagram.ok_or(Refusal::OtherKind)
    }

    /// Gives a queue pair back. Its work is forgotten without completions; completions that are there stay. Its stream, if
    /// it has one, is the caller's to end.
    pub fn destroy_qp(&mut self, qp: u32) -> Result<(), Refusal> {
        let gone = self.qps.remove(qp).ok_or(Refusal::UnknownQp)?;
        gone.release(&mut self.smt, &mut self.srqs, &mut self.desk);
        if let Some(srq) = gone.attributes.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            srq.waiters.retain(|&waits| waits != qp);
        }
        self.desk.leave_line(qp);
        Ok(())
    }

    fn qp(&mut self, qp: u32) -> Result<(&mut Qp, &mut Desk), Refusal> {
        Ok((self.qps.get_mut(qp).ok_or(Refusal::UnknownQp)?, &mut self.desk))
    }

    /// What a queue pair was made with, where it stands, and what it agreed on.
    pub fn query_qp(&self, qp: u32) -> Result<(QpAttributes, QpState, StreamTraits), Refusal> {
        self.qps.get(qp).ok_or(Refusal::UnknownQp).map(|qp| (qp.attributes, qp.state, qp.traits))
    }

    /// Completions of a queue pair say `name` from now on, for a host that has numbers of its own; also after a reset. Events
    /// say its number. Datagrams are from, and for, the name.
    pub fn set_name(&mut self, qp: u32, name: u32) -> Result<(), Refusal> {
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() && name > QP_MAX {
            return Err(Refusal::BadNumber);
        }
        qp.name = name;
        Ok(())
    }

    /// A stream is there for a queue pair: it is ready to send.
    pub fn connect(&mut self, qp: u32, traits: StreamTraits) -> Result<(), Refusal> {
        let traits = self.bounded(traits);
        let (qp, desk) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(Refusal::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(Refusal::BadState(qp.state));
        }
        qp.state = QpState::Rts;
        qp.traits = StreamTraits { kiban: traits.kiban || qp.is_among_own, ..traits };
        qp.is_expecting = false;
        qp.want_service(desk);
        Ok(())
    }

    fn bounded(&self, traits: StreamTraits) -> StreamTraits {
        let Config { ird_max, ord_max, .. } = self.config;
        StreamTraits { ird: traits.ird.min(ird_max), ord: traits.ord.min(ord_max), ..traits }
    }

    /// The peer of a queue pair is kiban's, as the caller knows from elsewhere: messages of kiban's own may be sent and are
    /// taken, until the queue pair is reset. Both ends have to know it before the first of them comes, so best before they
    /// are connected.
    pub fn agree_on_own(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, _) = self.qp(qp)?;
        qp.is_among_own = true;
        qp.traits.kiban = true;
        Ok(())
    }

    /// A stream is on the way for a queue pair: from now on sends may be posted, judged by these traits, and wait for it.
    /// [`Rnic::connect`] sends them; what its traits do not allow then ends as [`Status::LocalOperation`] in its turn, and
    /// the queue pair with it. [`Rnic::give_up`] and [`Rnic::reset`] end the waiting.
    pub fn expect(&mut self, qp: u32, traits: StreamTraits) -> Result<(), Refusal> {
        let traits = self.bounded(traits);
        let (qp, _) = self.qp(qp)?;
        if qp.datagram.is_some() {
            return Err(Refusal::OtherKind);
        }
        if qp.state != QpState::Idle {
            return Err(Refusal::BadState(qp.state));
        }
        qp.traits = StreamTraits { kiban: traits.kiban || qp.is_among_own, ..traits };
        qp.is_expecting = true;
        Ok(())
    }

    /// The stream that a queue pair expects will never come: its oldest work ends as lost, all other as flushed.
    pub fn give_up(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if !qp.is_expecting && !qp.is_alone {
            return Err(Refusal::BadState(qp.state));
        }
        qp.give_up(desk);
        if qp.attributes.srq.is_some() {
            desk.event(Event::LastReceive { qp: qp.number });
        }
        self.fail_overrun();
        Ok(())
    }

    /// From now on a peer that ends its stream in order is not the end of a queue pair that owes it nothing, as no peer is in
    /// InfiniBand: receives stay posted, and the next send ends as lost.
    pub fn stay(&mut self, qp: u32) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.stays = true)
    }

    /// Says to a peer that is told of arrivals that this end leaves: before its stream ends, or the peer takes it for killed.
    pub fn part(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.acknowledges && qp.is_up() {
            qp.parts = true;
            qp.want_service(desk);
        }
        Ok(())
    }

    /// From now on a Write, a Send or immediate data of a queue pair is done when the peer says that it has arrived, as in
    /// InfiniBand; and it says so of the peer's. Both ends have to want it, and be kiban's, before the first message.
    pub fn acknowledge(&mut self, qp: u32) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.acknowledges = true)
    }

    /// Whether it was wanted.
    pub fn acknowledges(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.acknowledges)
    }

    /// What peers may do with memory through a queue pair, beside what its tags allow; all, unless this says otherwise.
    pub fn set_remote_access(&mut self, qp: u32, access: Access) -> Result<(), Refusal> {
        self.qp(qp).map(|(qp, _)| qp.allows = access)
    }

    /// Completions of a queue pair that nobody has taken are forgotten.
    pub fn forget_completions(&mut self, qp: u32) {
        let Ok((qp, desk)) = self.qp(qp) else { return };
        for cq in [qp.attributes.send_cq, qp.attributes.receive_cq] {
            if let Some(cq) = desk.cqs.get_mut(cq) {
                cq.entries.retain(|completion| completion.qp != qp.name);
            }
        }
    }

    /// How many sends may be posted now.
    pub fn room_for_sends(&self, qp: u32) -> usize {
        self.qps.get(qp).map_or(0, |qp| qp.sq.room())
    }

    /// Whether sends are posted that are not done.
    pub fn has_sends(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| !qp.sq.is_empty())
    }

    /// Whether a queue pair stays though its peer has gone in order.
    pub fn is_alone(&self, qp: u32) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.is_alone)
    }

    /// The peer is ready: it may be spoken to (a responder waits for the initiator's first words).
    pub fn may_send(&mut self, qp: u32) {
        if let Ok((qp, desk)) = self.qp(qp) {
            qp.traits.may_send = true;
            qp.want_service(desk);
        }
    }

    /// No more is posted: what is there still goes, then the stream ends in order.
    pub fn disconnect(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.state = QpState::Closing;
                qp.sq.close();
                qp.sweep(desk);
                self.fail_overrun();
                Ok(())
            }
            QpState::Closing => Ok(()),
            state => Err(Refusal::BadState(state)),
        }
    }

    /// Everything ends now, as after an error: work is flushed, the stream is cut.
    pub fn abort(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        qp.state = QpState::Error;
        qp.is_expecting = false;
        qp.terminate = None;
        qp.wish = StreamWish::Abort;
        qp.flush(desk);
        qp.want_service(desk);
        self.fail_overrun();
        Ok(())
    }

    /// A queue pair that is over, or was never connected, is as new again. Receives are forgotten.
    pub fn reset(&mut self, qp: u32) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if !matches!(qp.state, QpState::Idle | QpState::Error) {
            return Err(Refusal::BadState(qp.state));
        }
        let datagram = qp.datagram.map(|_| DatagramState::default());
        *qp = Qp { name: qp.name, datagram, ..Qp::new(qp.number, qp.attributes) };
        let number = qp.number;
        desk.leave_line(number);
        self.smt.release_windows(number);
        Ok(())
    }

    /// Posts work on a send queue. In a queue pair that is closing or over it ends as flushed; where a stream is on the way,
    /// it waits for it.
    #[inline]
    pub fn post_send(&mut self, qp: u32, work: SendWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.sq.is_full() {
            return Err(Refusal::Full);
        }
        match &work.data {
            Data::Elements(sges) if sges.len() > qp.attributes.send_sges_max => {
                return Err(Refusal::TooManyElements);
            }
            Data::Inline(bytes)
                if bytes.len() > qp.attributes.inline_bytes_max || !work.operation.takes_inline() =>
            {
                return Err(Refusal::TooMuchInline);
            }
            _ => {}
        }
        match qp.judge_post(&work.operation)? {
            Post::Waits => qp.sq.push(work),
            Post::Goes => {
                let is_first = qp.sq.is_empty();
                qp.sq.push(work);
                if !qp.is_alone {
                    qp.want_service(desk);
                } else if is_first {
                    desk.event(Event::Abandoned { qp: qp.number });
                }
            }
            Post::Late => {
                qp.sq.push(work);
                qp.sweep(desk);
                self.fail_overrun();
            }
            Post::Flushed => {
                let told = control::completion::of_send(qp.name, &work, Status::Flushed, 0);
                desk.complete(qp.attributes.send_cq, told, false);
                self.fail_overrun();
            }
        }
        Ok(())
    }

    /// Posts the NIC's own first work, before any of the host's.
    pub(super) fn post_quietly(&mut self, qp: u32, work: SendWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        match qp.state {
            QpState::Rts => {
                qp.sq.push_quietly(work);
                qp.want_service(desk);
                Ok(())
            }
            state => Err(Refusal::BadState(state)),
        }
    }

    /// Posts a receive. In a queue pair that is over it ends as flushed.
    #[inline]
    pub fn post_receive(&mut self, qp: u32, work: ReceiveWork) -> Result<(), Refusal> {
        let (qp, desk) = self.qp(qp)?;
        if qp.attributes.srq.is_some() || qp.rq.wqes.len() >= qp.rq.most {
            return Err(Refusal::Full);
        }
        if work.sges.len() > qp.attributes.receive_sges_max {
            return Err(Refusal::TooManyElements);
        }
        if matches!(qp.state, QpState::Terminate | QpState::Error) {
            let told = control::completion::of_receive(qp.name, work.id, Status::Flushed, Kind::Receive, 0);
            desk.complete(qp.attributes.receive_cq, told, true);
            self.fail_overrun();
            return Ok(());
        }
        qp.rq.wqes.push_back(work);
        if core::mem::take(&mut qp.rq.is_dry) {
            desk.resumed.push(qp.number);
        }
        Ok(())
    }

    // ---- datagrams

    /// The oldest datagram of the first queue pair in line that has one, header and payload, in place of what `room` held;
    /// its work is done. One at a time of each in turn.
    pub fn next_datagram(&mut self, room: &mut Vec<u8>) -> Option<Outgoing> {
        let mut outgoing = None;
        while outgoing.is_none()
            && let Some(from) = self.desk.datagram_line.pop_front()
        {
            let Some(qp) = self.qps.get_mut(from) else { continue };
            qp.in_line = false;
            outgoing =
                datagram::gather(qp, &self.smt, &mut self.desk, room).map(|gid| Outgoing { from, gid });
            if outgoing.is_some() && !qp.sq.is_empty() {
                qp.want_service(&mut self.desk);
            }
        }
        self.fail_overrun();
        outgoing
    }

    /// A datagram came for a queue pair, whose name its header says. What cannot be taken is dropped and counted. In front of
    /// its payload the receive gets 40 bytes, which the caller makes.
    pub fn datagram(&mut self, qp: u32, grh: &[u8; GRH_BYTES], header: &DatagramHeader, payload: &[u8]) {
        let Rnic { qps, smt, srqs, desk, .. } = self;
        match qps.get_mut(qp) {
            Some(qp) => datagram::take(qp, &mut Tables { smt, srqs, desk }, grh, header, payload),
            None => desk.counters.datagrams_unready += 1,
        }
        self.fail_overrun();
    }

    // ---- the stream's edge

    /// The first queue pair in the work acceptor's line, which leaves it: ask it for segments until it has none, or put it
    /// back ([`Rnic::back_in_line`]) when its stream has room again.
    #[inline]
    pub fn next_in_line(&mut self) -> Option<u32> {
        let number = self.desk.line.pop_front()?;
        if let Some(qp) = self.qps.get_mut(number) {
            qp.in_line = false;
        }
        Some(number)
    }

    /// A queue pair stands in line again.
    pub fn back_in_line(&mut self, qp: u32) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.want_service(&mut self.desk);
        }
    }

    /// Makes a queue pair's next segment: whether there was one.
    #[inline]
    pub fn next_segment(&mut self, qp: u32, llp: &mut impl ToLlp) -> bool {
        let Some(qp) = self.qps.get_mut(qp) else { return false };
        let made = send::next_segment(qp, &mut self.smt, &mut self.desk, &self.config, llp);
        self.fail_overrun();
        made
    }

    /// Segments that a queue pair has made so far.
    pub fn segments_made(&self, qp: u32) -> u64 {
        self.qps.get(qp).map_or(0, |qp| qp.segments_out)
    }

    /// The lower layer holds nothing more of the first `segments` of a queue pair's segments: work that ends there is done.
    #[inline]
    pub fn confirm(&mut self, qp: u32, segments: u64) {
        if let Some(qp) = self.qps.get_mut(qp) {
            qp.confirmed = qp.confirmed.max(segments.min(qp.segments_out));
            qp.sweep(&mut self.desk);
        }
        self.fail_overrun();
    }

    /// What a queue pair's stream is to do when its segments have left.
    #[inline]
    pub fn stream_wish(&self, qp: u32) -> StreamWish {
        self.qps.get(qp).map_or(StreamWish::Abort, |qp| qp.wish)
    }

    /// The stream of a queue pair has ended: in order, or not.
    pub fn stream_gone(&mut self, qp: u32, in_order: bool) {
        if let Ok((qp, desk)) = self.qp(qp) {
            qp.stream_gone(in_order, desk);
            if qp.attributes.srq.is_some() {
                desk.event(Event::LastReceive { qp: qp.number });
            }
        }
        self.fail_overrun();
    }

    /// The stream has a fault of its own (a bad CRC): the peer is told, and everything ends.
    pub fn stream_fault(&mut self, qp: u32, reason: Reason) {
        if let Ok((qp, desk)) = self.qp(qp) {
            desk.count_fault(reason);
            qp.fail(Some(Terminate { reason, segment: None, read_request: None }), None, desk);
        }
        self.fail_overrun();
    }

    /// The next queue pair whose stream stood because no receive was posted, and need not any more.
    pub fn resumed(&mut self) -> Option<u32> {
        self.desk.resumed.pop()
    }

    /// Judges a segment of `length` bytes, of which `front` is here. After an error the queue pair has failed, and the
    /// stream takes nothing more.
    #[inline]
    pub fn judge(&mut self, qp: u32, front: &[u8], length: usize) -> Result<Judged, Reason> {
        let judged = self.with(qp, |qp, tables| {
            if !qp.is_up() {
                return Err(Reason::LOCAL_ERROR);
            }
            receive::judge(qp, tables, front, length)
        });
        self.fail_overrun();
        judged
    }

    /// Copies the next bytes of a payload to where they belong.
    #[inline]
    pub fn place(
        &mut self,
        qp: u32,
        placement: &mut Placement,
        bytes: SharedBytes<'_>,
    ) -> Result<(), Reason> {
        let placed = self.with(qp, |qp, mut tables| receive::place(qp, &mut tables, placement, bytes));
        if placed.is_err() {
            self.fail_overrun();
        }
        placed
    }

    /// Where the next bytes of a payload go, for a lower layer that puts them there at once ([`Rnic::landed`]). It must ask
    /// again after every other call.
    #[inline]
    pub fn landing(&mut self, qp: u32, placement: &Placement, places: &mut Places) -> Result<(), Reason> {
        places.clear();
        let found = self.with(qp, |qp, mut tables| receive::landing(qp, &mut tables, placement, places));
        if found.is_err() {
            self.fail_overrun();
        }
        found
    }

    /// So many bytes were put where [`Rnic::landing`] said.
    #[inline]
    pub fn landed(&mut self, qp: u32, placement: &mut Placement, bytes: usize) {
        if let Ok((qp, desk)) = self.qp(qp) {
            receive::landed(qp, desk, placement, bytes);
        }
    }

    /// All payload of a segment is in place.
    #[inline]
    pub fn finish(&mut self, qp: u32, placement: &Placement) -> Result<(), Reason> {
        let finished = self.with(qp, |qp, mut tables| receive::finish(qp, &mut tables, placement));
        self.fail_overrun();
        finished
    }

    /// Takes a segment that is whole: judged, placed and finished.
    pub fn take(&mut self, qp: u32, segment: &[u8]) -> Taken {
        match self.judge(qp, segment, segment.len()) {
            Ok(Judged::Place(mut placement)) => {
                let payload = SharedBytes::from(&segment[placement.header_bytes()..]);
                let placed = self.place(qp, &mut placement, payload);
                match placed.and_then(|()| self.finish(qp, &placement)) {
                    Ok(()) => Taken::Whole,
                    Err(_) => Taken::Fault,
                }
            }
            // A segment that is whole wants nothing more.
            Ok(Judged::Done | Judged::Wants(_)) => Taken::Whole,
            Ok(Judged::Dry) => Taken::Dry,
            Err(_) => Taken::Fault,
        }
    }

    #[inline]
    fn with<T>(
        &mut self,
        qp: u32,
        work: impl FnOnce(&mut Qp, Tables<'_>) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let qp = self.qps.get_mut(qp).ok_or(Reason::LOCAL_ERROR)?;
        work(qp, Tables { smt: &mut self.smt, srqs: &mut self.srqs, desk: &mut self.desk })
    }

    /// Queue pairs whose completion queue has lost something fail.
    fn fail_overrun(&mut self) {
        while let Some(cq) = self.desk.overrun.pop() {
            for (_, qp) in self.qps.iter_mut() {
                if qp.attributes.send_cq == cq || qp.attributes.receive_cq == cq {
                    let last = Terminate { reason: Reason::LOCAL_ERROR, segment: None, read_request: None };
                    qp.fail(Some(last), None, &mut self.desk);
                }
            }
        }
    }
}
