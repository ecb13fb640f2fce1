//! Requests of a program.

use super::codec::{Reader, Writer};
use super::{ENTRY_BYTES, work};
use crate::rnic::{Access, QpAttributes, ReceiveWork, SendWork};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Transport {
    /// iWARP: MPA on the board's TCP.
    Tcp,
    /// RoCEv2 over the board's UDP.
    Roce,
    /// EFE over the board's UDP.
    Efe,
}

/// Maximum number of pieces of a registration.
pub const PIECES_MAX: usize = 40;

/// A piece of shared memory that is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The program's number for the shared memory.
    pub memory: u32,
    /// Its first byte, counted from [`super::MEMORY_AT`].
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A request of a program. The NIC replies to each ([`super::Notice::Reply`]), except to the last five.
#[derive(Clone, Debug)]
pub enum Request {
    /// Creates a protection domain.
    CreatePd,
    /// Destroys a protection domain.
    DestroyPd {
        /// The domain.
        pd: u32,
    },
    /// Registers pieces of shared memory as one range.
    Register {
        /// The protection domain.
        pd: u32,
        /// The pieces, at most [`PIECES_MAX`].
        pieces: Vec<Piece>,
        /// The address of the first byte.
        address: u64,
        /// The access rights.
        access: Access,
    },
    /// Deregisters memory or a window. The NIC then no longer shares the memory.
    Deregister {
        /// The steering tag.
        stag: u32,
        /// Whether to unbind the windows that are bound to the memory first.
        unbinds: bool,
    },
    /// Allocates a memory window.
    AllocateWindow {
        /// The protection domain.
        pd: u32,
        /// Whether it is of type 2.
        type_2: bool,
    },
    /// Creates a completion queue.
    CreateCq {
        /// The program's number for the shared memory of its ring ([`super::CompletionRing`]).
        memory: u32,
        /// Its capacity in completions.
        entries: u32,
    },
    /// Changes the capacity of a completion queue; its ring stays the same.
    ResizeCq {
        /// The queue.
        cq: u32,
        /// The new capacity in completions.
        entries: u32,
    },
    /// Destroys a completion queue.
    DestroyCq {
        /// The queue.
        cq: u32,
    },
    /// Creates a shared receive queue.
    CreateSrq {
        /// The protection domain.
        pd: u32,
        /// Its capacity in receives.
        work_max: u32,
    },
    /// Sets the limit of a shared receive queue.
    SetSrqLimit {
        /// The queue.
        srq: u32,
        /// The limit.
        limit: u32,
    },
    /// Destroys a shared receive queue.
    DestroySrq {
        /// The queue.
        srq: u32,
    },
    /// Creates a queue pair.
    CreateQp {
        /// Its attributes.
        attributes: QpAttributes,
    },
    /// Queries the state of a queue pair.
    QueryQp {
        /// The queue pair.
        qp: u32,
    },
    /// Destroys a queue pair, and aborts its connection.
    DestroyQp {
        /// The queue pair.
        qp: u32,
    },
    /// Aborts a queue pair's connection.
    AbortQp {
        /// The queue pair.
        qp: u32,
    },
    /// Resets a queue pair.
    ResetQp {
        /// The queue pair.
        qp: u32,
    },
    /// Begins an orderly close of a connection.
    Disconnect {
        /// The end.
        end: u32,
    },
    /// Listens for connections.
    Listen {
        /// The transport.
        transport: Transport,
        /// The address; port 0 lets the board choose.
        local: SocketAddr,
    },
    /// Stops listening.
    Unlisten {
        /// The transport.
        transport: Transport,
        /// The listener's number.
        listener: u32,
    },
    /// Begins to connect. The reply is the number of the connection's end.
    Connect {
        /// The transport.
        transport: Transport,
        /// The peer.
        remote: SocketAddr,
        /// The queue pair.
        qp: u32,
        /// IRD and ORD.
        depths: (u16, u16),
        /// Private data for the peer.
        private_data: Vec<u8>,
    },
    /// Accepts a connection request.
    Accept {
        /// The request's end.
        end: u32,
        /// The queue pair.
        qp: u32,
        /// IRD and ORD.
        depths: (u16, u16),
        /// Private data for the peer.
        private_data: Vec<u8>,
    },
    /// Rejects a connection request.
    Reject {
        /// The request's end.
        end: u32,
        /// Private data for the peer.
        private_data: Vec<u8>,
    },
    /// Releases an end: its connection is aborted unless it is being closed.
    Release {
        /// The end.
        end: u32,
    },
    /// Queries an address of the board, counted from zero. The answer is a number if there is none.
    QueryAddress {
        /// The number of the address.
        index: u32,
    },
    /// Makes a queue pair ready for a connection that programs agree on out of band: its messages complete
    /// when the peer, a kiban NIC, has acknowledged them, and it outlives an orderly close by the peer.
    Prepare {
        /// The queue pair.
        qp: u32,
        /// Whether messages are acknowledged.
        acknowledges: bool,
        /// If sends may be posted before the connection is established: IRD and ORD.
        depths: Option<(u16, u16)>,
    },
    /// Gives up a queue pair whose expected connection will not be established: its work ends as lost.
    GiveUp {
        /// The queue pair.
        qp: u32,
    },
    /// Restricts peers' access to memory through a queue pair.
    SetRemoteAccess {
        /// The queue pair.
        qp: u32,
        /// The access that peers have.
        access: Access,
    },
    /// Posts a work request on a send queue.
    PostSend {
        /// The queue pair.
        qp: u32,
        /// The work request.
        work: SendWork,
    },
    /// Posts a receive.
    PostReceive {
        /// The queue pair.
        qp: u32,
        /// The receive.
        work: ReceiveWork,
    },
    /// Posts a receive on a shared receive queue.
    PostSrqReceive {
        /// The shared receive queue.
        srq: u32,
        /// The receive.
        work: ReceiveWork,
    },
    /// There is room in the ring of a completion queue.
    Room {
        /// The queue.
        cq: u32,
    },
    /// Ends the use of shared memory for new registrations. It stays shared until its last registration ends.
    Unshare {
        /// The program's number for the memory.
        memory: u32,
    },
}

impl Transport {
    fn read(entry: &mut Reader<'_>) -> Option<Transport> {
        match entry.u8()? {
            0 => Some(Transport::Tcp),
            1 => Some(Transport::Roce),
            2 => Some(Transport::Efe),
            _ => None,
        }
    }
}

impl Request {
    /// Encodes the request with a number that its reply repeats. Returns `None` if it does not fit into an
    /// entry, or the interface does not have the operation of its work request.
    pub fn to_bytes(&self, number: u32) -> Option<Vec<u8>> {
        let mut out = Writer::default();
        out.u32(number);
        match self {
            Request::CreatePd => out.u8(1),
            Request::DestroyPd { pd } => out.u8(2).u32(*pd),
            Request::Register { pd, pieces, address, access } => {
                if pieces.len() > PIECES_MAX {
                    return None;
                }
                out.u8(3).u32(*pd).u64(*address).access(*access).u8(pieces.len() as u8);
                for Piece { memory, offset, length } in pieces {
                    out.u32(*memory).u64(*offset).u64(*length);
                }
                &mut out
            }
            Request::Deregister { stag, unbinds } => out.u8(4).u32(*stag).u8((*unbinds).into()),
            Request::AllocateWindow { pd, type_2 } => out.u8(5).u32(*pd).u8((*type_2).into()),
            Request::CreateCq { memory, entries } => out.u8(6).u32(*memory).u32(*entries),
            Request::ResizeCq { cq, entries } => out.u8(7).u32(*cq).u32(*entries),
            Request::DestroyCq { cq } => out.u8(8).u32(*cq),
            Request::CreateSrq { pd, work_max } => out.u8(9).u32(*pd).u32(*work_max),
            Request::SetSrqLimit { srq, limit } => out.u8(10).u32(*srq).u32(*limit),
            Request::DestroySrq { srq } => out.u8(11).u32(*srq),
            Request::CreateQp { attributes: its } => {
                out.u8(12).u32(its.pd).u32(its.send_cq).u32(its.receive_cq).option(its.srq.map(u64::from));
                let sizes = [
                    its.send_work_max,
                    its.receive_work_max,
                    its.send_sges_max,
                    its.receive_sges_max,
                    its.inline_bytes_max,
                ];
                for size in sizes {
                    out.u32(size.try_into().unwrap_or(u32::MAX));
                }
                out.flags(&[its.signal_all, its.waits_for_receives])
            }
            Request::QueryQp { qp } => out.u8(13).u32(*qp),
            Request::DestroyQp { qp } => out.u8(14).u32(*qp),
            Request::AbortQp { qp } => out.u8(15).u32(*qp),
            Request::ResetQp { qp } => out.u8(16).u32(*qp),
            Request::Disconnect { end } => out.u8(17).u32(*end),
            Request::Listen { transport, local } => out.u8(18).u8(*transport as u8).address(Some(*local)),
            Request::Unlisten { transport, listener } => out.u8(19).u8(*transport as u8).u32(*listener),
            Request::Connect { transport, remote, qp, depths, private_data } => out
                .u8(20)
                .u8(*transport as u8)
                .address(Some(*remote))
                .u32(*qp)
                .u16(depths.0)
                .u16(depths.1)
                .bytes(private_data),
            Request::Accept { end, qp, depths, private_data } => {
                out.u8(21).u32(*end).u32(*qp).u16(depths.0).u16(depths.1).bytes(private_data)
            }
            Request::Reject { end, private_data } => out.u8(22).u32(*end).bytes(private_data),
            Request::Release { end } => out.u8(23).u32(*end),
            Request::PostSend { qp, work } => {
                if !work::fits(work) {
                    return None;
                }
                out.u8(24).u32(*qp);
                work::write(work, &mut out);
                &mut out
            }
            Request::PostReceive { qp, work } => out.u8(25).u32(*qp).u64(work.id).sges(&work.sges),
            Request::PostSrqReceive { srq, work } => out.u8(26).u32(*srq).u64(work.id).sges(&work.sges),
            Request::Room { cq } => out.u8(27).u32(*cq),
            Request::Unshare { memory } => out.u8(28).u32(*memory),
            Request::QueryAddress { index } => out.u8(29).u32(*index),
            Request::Prepare { qp, acknowledges, depths } => {
                let (ird, ord) = depths.unwrap_or_default();
                out.u8(30).u32(*qp).flags(&[*acknowledges, depths.is_some()]).u16(ird).u16(ord)
            }
            Request::GiveUp { qp } => out.u8(31).u32(*qp),
            Request::SetRemoteAccess { qp, access } => out.u8(32).u32(*qp).access(*access),
        };
        (out.0.len() <= ENTRY_BYTES).then_some(out.0)
    }

    /// Decodes a request and its number; returns `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<(u32, Request)> {
        let entry = &mut Reader(bytes);
        let number = entry.u32()?;
        let request = match entry.u8()? {
            1 => Request::CreatePd,
            2 => Request::DestroyPd { pd: entry.u32()? },
            3 => Request::Register {
                pd: entry.u32()?,
                address: entry.u64()?,
                access: entry.access()?,
                pieces: pieces(entry)?,
            },
            4 => Request::Deregister { stag: entry.u32()?, unbinds: entry.flag()? },
            5 => Request::AllocateWindow { pd: entry.u32()?, type_2: entry.flag()? },
            6 => Request::CreateCq { memory: entry.u32()?, entries: entry.u32()? },
            7 => Request::ResizeCq { cq: entry.u32()?, entries: entry.u32()? },
            8 => Request::DestroyCq { cq: entry.u32()? },
            9 => Request::CreateSrq { pd: entry.u32()?, work_max: entry.u32()? },
            10 => Request::SetSrqLimit { srq: entry.u32()?, limit: entry.u32()? },
            11 => Request::DestroySrq { srq: entry.u32()? },
            12 => Request::CreateQp { attributes: attributes(entry)? },
            13 => Request::QueryQp { qp: entry.u32()? },
            14 => Request::DestroyQp { qp: entry.u32()? },
            15 => Request::AbortQp { qp: entry.u32()? },
            16 => Request::ResetQp { qp: entry.u32()? },
            17 => Request::Disconnect { end: entry.u32()? },
            18 => Request::Listen { transport: Transport::read(entry)?, local: entry.address()?? },
            19 => Request::Unlisten { transport: Transport::read(entry)?, listener: entry.u32()? },
            20 => Request::Connect {
                transport: Transport::read(entry)?,
                remote: entry.address()??,
                qp: entry.u32()?,
                depths: (entry.u16()?, entry.u16()?),
                private_data: entry.bytes()?.to_vec(),
            },
            21 => Request::Accept {
                end: entry.u32()?,
                qp: entry.u32()?,
                depths: (entry.u16()?, entry.u16()?),
                private_data: entry.bytes()?.to_vec(),
            },
            22 => Request::Reject { end: entry.u32()?, private_data: entry.bytes()?.to_vec() },
            23 => Request::Release { end: entry.u32()? },
            24 => Request::PostSend { qp: entry.u32()?, work: work::read(entry)? },
            25 => Request::PostReceive { qp: entry.u32()?, work: receive(entry)? },
            26 => Request::PostSrqReceive { srq: entry.u32()?, work: receive(entry)? },
            27 => Request::Room { cq: entry.u32()? },
            28 => Request::Unshare { memory: entry.u32()? },
            29 => Request::QueryAddress { index: entry.u32()? },
            30 => {
                let (qp, [acknowledges, expects]) = (entry.u32()?, entry.flags()?);
                let depths = (entry.u16()?, entry.u16()?);
                Request::Prepare { qp, acknowledges, depths: expects.then_some(depths) }
            }
            31 => Request::GiveUp { qp: entry.u32()? },
            32 => Request::SetRemoteAccess { qp: entry.u32()?, access: entry.access()? },
            _ => return None,
        };
        Some((number, request))
    }
}

fn pieces(entry: &mut Reader<'_>) -> Option<Vec<Piece>> {
    let count = usize::from(entry.u8()?);
    if count > PIECES_MAX {
        return None;
    }
    let piece = |_| Some(Piece { memory: entry.u32()?, offset: entry.u64()?, length: entry.u64()? });
    (0..count).map(piece).collect()
}

fn receive(entry: &mut Reader<'_>) -> Option<ReceiveWork> {
    Some(ReceiveWork { id: entry.u64()?, sges: entry.sges()? })
}

fn attributes(entry: &mut Reader<'_>) -> Option<QpAttributes> {
    let (pd, send_cq, receive_cq) = (entry.u32()?, entry.u32()?, entry.u32()?);
    let srq = entry.option()?.map(|srq| srq as u32);
    let mut size = || entry.u32().map(|size| size as usize);
    let (send_work_max, receive_work_max) = (size()?, size()?);
    let (send_sges_max, receive_sges_max, inline_bytes_max) = (size()?, size()?, size()?);
    let [signal_all, waits_for_receives] = entry.flags()?;
    Some(QpAttributes {
        pd,
        send_cq,
        receive_cq,
        srq,
        send_work_max,
        receive_work_max,
        send_sges_max,
        receive_sges_max,
        inline_bytes_max,
        signal_all,
        waits_for_receives,
    })
}
