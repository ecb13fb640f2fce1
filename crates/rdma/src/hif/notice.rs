//! Notices of the NIC: replies to requests, and events.

use super::ENTRY_BYTES;
use super::codec::{Reader, Writer};
use crate::nic::ConnectError;
use crate::rnic::{Event, QpState, RequestError};
use crate::wire::rdmap::Reason;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Maximum length of a message in a notice, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The number of what was created, or zero.
    Number(u32),
    /// A queue pair's state and the traits of its connection.
    Qp {
        /// The state.
        state: QpState,
        /// IRD.
        ird: u16,
        /// ORD.
        ord: u16,
        /// Whether both ends support RFC 7306.
        extensions: bool,
    },
    /// An address of the board.
    Address(IpAddr),
    /// A listener.
    Listening {
        /// Its number.
        listener: u32,
        /// Its address.
        local: SocketAddr,
    },
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The NIC refused it.
    Request(RequestError),
    /// The board refused it, for the reason in the text.
    Other(String),
}

/// A notice to a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The reply to a request.
    Reply {
        /// The request's number.
        number: u32,
        /// The answer, or why the request was refused.
        result: Result<Answer, Refusal>,
    },
    /// A peer requests a connection.
    ConnectRequest {
        /// The end.
        end: u32,
        /// The listener's number.
        listener: u32,
        /// What the peer wants (`Request::depths` of [`crate::nic`]).
        depths: (u16, u16),
        /// Whether the peer supports RFC 7306.
        extensions: bool,
        /// Our address and the peer's.
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// A connection is established.
    Connected {
        /// The end.
        end: u32,
        /// IRD and ORD.
        depths: (u16, u16),
        /// Our address and the peer's.
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// A connection could not be established.
    Failed {
        /// The end.
        end: u32,
        /// Why. A broken rule of MPA is reported as [`ConnectError::Lost`].
        error: ConnectError,
    },
    /// A connection request is no longer valid.
    Withdrawn {
        /// The end.
        end: u32,
    },
    /// A connection has ended.
    Gone {
        /// The end.
        end: u32,
    },
    /// An asynchronous event.
    Event(Event),
}

const STATES: [QpState; 5] =
    [QpState::Idle, QpState::Rts, QpState::Closing, QpState::Terminate, QpState::Error];

const ERRORS: [RequestError; 17] = [
    RequestError::UnknownPd,
    RequestError::UnknownStag,
    RequestError::UnknownCq,
    RequestError::UnknownQp,
    RequestError::UnknownSrq,
    RequestError::UnknownXrcDomain,
    RequestError::OtherPd,
    RequestError::InUse,
    RequestError::TooMany,
    RequestError::Full,
    RequestError::BadAddress,
    RequestError::BadAccess,
    RequestError::TooManyElements,
    RequestError::TooMuchInline,
    RequestError::NotAgreed,
    RequestError::OtherKind,
    RequestError::BadNumber,
];

fn state_code(state: QpState) -> u8 {
    STATES.iter().position(|one| *one == state).expect("the list is complete") as u8
}

fn state_from(entry: &mut Reader<'_>) -> Option<QpState> {
    STATES.get(usize::from(entry.u8()?)).copied()
}

fn write_event(out: &mut Writer, event: &Event) {
    let (kind, number, reason) = match event {
        Event::QpFailed { qp, reason: None } => (1, qp, None),
        Event::QpFailed { qp, reason: Some(reason) } => (2, qp, Some(reason)),
        Event::Abandoned { qp } => (3, qp, None),
        Event::PeerTerminated { qp, reason } => (4, qp, Some(reason)),
        Event::CqOverrun { cq } => (5, cq, None),
        Event::SrqLimit { srq } => (6, srq, None),
        Event::LastReceive { qp } => (7, qp, None),
    };
    out.u8(kind).u32(*number);
    if let Some(reason) = reason {
        out.u8(reason.layer).u8(reason.kind).u8(reason.code);
    }
}

fn read_event(entry: &mut Reader<'_>) -> Option<Event> {
    let (kind, number) = (entry.u8()?, entry.u32()?);
    let mut reason = || Some(Reason { layer: entry.u8()?, kind: entry.u8()?, code: entry.u8()? });
    Some(match kind {
        1 => Event::QpFailed { qp: number, reason: None },
        2 => Event::QpFailed { qp: number, reason: Some(reason()?) },
        3 => Event::Abandoned { qp: number },
        4 => Event::PeerTerminated { qp: number, reason: reason()? },
        5 => Event::CqOverrun { cq: number },
        6 => Event::SrqLimit { srq: number },
        7 => Event::LastReceive { qp: number },
        _ => return None,
    })
}

impl Notice {
    /// Encodes the notice.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Notice::Reply { number, result } => {
                out.u8(1).u32(*number);
                match result {
                    Ok(Answer::Number(number)) => out.u8(1).u32(*number),
                    Ok(Answer::Qp { state, ird, ord, extensions }) => {
                        out.u8(2).u8(state_code(*state)).u16(*ird).u16(*ord).u8((*extensions).into())
                    }
                    Ok(Answer::Listening { listener, local }) => {
                        out.u8(3).u32(*listener).address(Some(*local))
                    }
                    Ok(Answer::Address(address)) => out.u8(7).address(Some(SocketAddr::new(*address, 0))),
                    Err(Refusal::Request(RequestError::BadState(state))) => out.u8(4).u8(state_code(*state)),
                    Err(Refusal::Request(error)) => {
                        let code = ERRORS.iter().position(|one| one == error).unwrap_or(ERRORS.len());
                        out.u8(5).u8(code as u8)
                    }
                    Err(Refusal::Other(text)) => {
                        out.u8(6).bytes(&text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)])
                    }
                };
            }
            Notice::ConnectRequest { end, listener, depths, extensions, addresses, private_data } => {
                out.u8(2).u32(*end).u32(*listener).u16(depths.0).u16(depths.1).u8((*extensions).into());
                out.address(addresses.0).address(addresses.1).bytes(private_data);
            }
            Notice::Connected { end, depths, addresses, private_data } => {
                out.u8(3).u32(*end).u16(depths.0).u16(depths.1);
                out.address(addresses.0).address(addresses.1).bytes(private_data);
            }
            Notice::Failed { end, error } => {
                out.u8(4).u32(*end);
                match error {
                    ConnectError::Rejected(private_data) => out.u8(1).bytes(private_data),
                    ConnectError::Unreachable => out.u8(2),
                    ConnectError::Timeout => out.u8(3),
                    ConnectError::PortUnreachable => out.u8(4),
                    _ => out.u8(5),
                };
            }
            Notice::Withdrawn { end } => {
                out.u8(5).u32(*end);
            }
            Notice::Gone { end } => {
                out.u8(6).u32(*end);
            }
            Notice::Event(event) => write_event(out.u8(7), event),
        }
        debug_assert!(out.0.len() <= ENTRY_BYTES, "private data has at most 508 bytes");
        out.0
    }

    /// Decodes a notice, or returns `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Notice> {
        let entry = &mut Reader(bytes);
        Some(match entry.u8()? {
            1 => {
                let number = entry.u32()?;
                let result = match entry.u8()? {
                    1 => Ok(Answer::Number(entry.u32()?)),
                    2 => Ok(Answer::Qp {
                        state: state_from(entry)?,
                        ird: entry.u16()?,
                        ord: entry.u16()?,
                        extensions: entry.flag()?,
                    }),
                    3 => Ok(Answer::Listening { listener: entry.u32()?, local: entry.address()?? }),
                    4 => Err(Refusal::Request(RequestError::BadState(state_from(entry)?))),
                    5 => Err(Refusal::Request(*ERRORS.get(usize::from(entry.u8()?))?)),
                    6 => Err(Refusal::Other(String::from_utf8_lossy(entry.bytes()?).into_owned())),
                    7 => Ok(Answer::Address(entry.address()??.ip())),
                    _ => return None,
                };
                Notice::Reply { number, result }
            }
            2 => Notice::ConnectRequest {
                end: entry.u32()?,
                listener: entry.u32()?,
                depths: (entry.u16()?, entry.u16()?),
                extensions: entry.flag()?,
                addresses: (entry.address()?, entry.address()?),
                private_data: entry.bytes()?.to_vec(),
            },
            3 => Notice::Connected {
                end: entry.u32()?,
                depths: (entry.u16()?, entry.u16()?),
                addresses: (entry.address()?, entry.address()?),
                private_data: entry.bytes()?.to_vec(),
            },
            4 => Notice::Failed {
                end: entry.u32()?,
                error: match entry.u8()? {
                    1 => ConnectError::Rejected(entry.bytes()?.to_vec()),
                    2 => ConnectError::Unreachable,
                    3 => ConnectError::Timeout,
                    4 => ConnectError::PortUnreachable,
                    5 => ConnectError::Lost,
                    _ => return None,
                },
            },
            5 => Notice::Withdrawn { end: entry.u32()? },
            6 => Notice::Gone { end: entry.u32()? },
            7 => Notice::Event(read_event(entry)?),
            _ => return None,
        })
    }
}
