//! The host interface of an OSI board (HIF in paper \[5\]): FTAM's service primitives as messages between the
//! host, where the user of the file service runs, and the board, which has all seven layers.
//!
//! Purpose   lets a program in another process use the board's file service. The format is kiban's own, and
//!           both ends must have the same version. Neither end trusts the other.
//!
//! ```text
//!   0  kind 8
//!   1  length 32     of the body
//!   5  body          primitives with an FPDU: the FPDU; F-DATA: the data element; both in BER, as on the line
//! ```
//!
//! Limits    a body has at most [`BODY_BYTES_MAX`]; the caller of [`ToBoard::read`] sets a lower limit.
//! Copies    encoding and decoding share the contents of an F-DATA with the rope instead of copying them.

use super::ber::{Asn1, Oid};
use super::ftam::{DataElement, Pdu};
use crate::ftam::below::Context;
use crate::ftam::{Indication, Initialize, Request, Role};
use crate::transport::{DisconnectReason, Disconnected};
use crate::{Selector, Selectors};
use alloc::boxed::Box;
use alloc::vec::Vec;
use kiban_base::{Malformed, Rope};

/// Length of a message's header in bytes.
pub const HEADER_BYTES: usize = 5;
/// Maximum length of a message's body: the longest data element that a stack accepts (16 MiB), with its
/// header.
pub const BODY_BYTES_MAX: usize = (16 << 20) + (1 << 16);
/// Maximum number of presentation contexts and abstract syntaxes in a message.
pub const SYNTAXES_MAX: usize = 64;

/// The parameters of a new association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The user's role.
    pub role: Role,
    /// Maximum TPDU size to propose or accept, in bytes.
    pub tpdu_bytes_max: u32,
    /// Maximum length of a received TSDU in bytes.
    pub tsdu_bytes_max: u32,
    /// The called transport selector.
    pub called: Selector,
    /// The calling transport selector.
    pub calling: Selector,
}

/// A message from the host to the board.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToBoard {
    /// The first message.
    Open(Open),
    /// A request or response of the file service.
    Request(Request),
    /// The new maximum length of a received TSDU, in bytes.
    TsduBytesMax(u32),
}

/// A message from the board to the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToHost {
    /// The presentation contexts, and whether the session layer provides synchronisation. Precedes the
    /// F-INITIALIZE indication or confirm.
    Negotiated {
        /// The presentation contexts of the association.
        contexts: Vec<Context>,
        /// Whether there are checkpoints.
        synchronise: bool,
    },
    /// The transport connection was refused or has ended.
    Disconnected(Disconnected),
    /// An indication or confirm of the file service.
    Indication(Indication),
}

macro_rules! kinds {
    ($($name:ident $number:literal),* $(,)?) => { $(const $name: u8 = $number;)* };
}

kinds! {
    OPEN 0, TSDU_BYTES_MAX 1, NEGOTIATED 2, DISCONNECTED 3,
    INITIALIZE 4, PDU 5, DATA 6, CHECK 7, CHECK_RESPONSE 8,
}

impl ToBoard {
    /// Encodes the message.
    pub fn into_rope(self) -> Rope {
        let mut body = Vec::new();
        match self {
            ToBoard::Open(open) => {
                body.push(u8::from(open.role == Role::Responder));
                body.extend(open.tpdu_bytes_max.to_be_bytes());
                body.extend(open.tsdu_bytes_max.to_be_bytes());
                put_octets(&mut body, open.called.bytes());
                put_octets(&mut body, open.calling.bytes());
                message(OPEN, body.into())
            }
            ToBoard::TsduBytesMax(bytes) => message(TSDU_BYTES_MAX, Rope::copied(&bytes.to_be_bytes())),
            ToBoard::Request(Request::Initialize(initialize)) => {
                message(INITIALIZE, initialize_body(*initialize))
            }
            ToBoard::Request(Request::Pdu(pdu)) => message(PDU, pdu.to_rope()),
            ToBoard::Request(Request::Data(element)) => message(DATA, element.into_rope()),
            ToBoard::Request(Request::Check) => message(CHECK, Rope::copied(&0i64.to_be_bytes())),
            ToBoard::Request(Request::CheckResponse { checkpoint }) => {
                message(CHECK_RESPONSE, Rope::copied(&checkpoint.to_be_bytes()))
            }
        }
    }

    /// Splits the first message off the front of `received`, or returns `None` if it is incomplete.
    ///
    /// # Errors
    /// The rule that the message breaks; `TotalLength` if its body has more than `body_bytes_max`.
    pub fn read(received: &mut Rope, body_bytes_max: usize) -> Result<Option<ToBoard>, Malformed> {
        let Some((kind, body)) = split(received, body_bytes_max)? else { return Ok(None) };
        Ok(Some(match kind {
            OPEN => {
                let octets = body.into_bytes();
                let mut rest = &octets[..];
                let role = if flag(&mut rest)? { Role::Responder } else { Role::Initiator };
                let (tpdu_bytes_max, tsdu_bytes_max) = (word(&mut rest)?, word(&mut rest)?);
                let (called, calling) = (selector(&mut rest)?, selector(&mut rest)?);
                whole(rest)?;
                ToBoard::Open(Open { role, tpdu_bytes_max, tsdu_bytes_max, called, calling })
            }
            TSDU_BYTES_MAX => {
                let octets = body.into_bytes();
                let mut rest = &octets[..];
                let bytes = word(&mut rest)?;
                whole(rest)?;
                ToBoard::TsduBytesMax(bytes)
            }
            INITIALIZE => ToBoard::Request(Request::Initialize(read_initialize(body)?)),
            PDU => ToBoard::Request(Request::Pdu(read_pdu(&body.into_bytes())?)),
            DATA => ToBoard::Request(Request::Data(read_element(body)?)),
            CHECK => {
                read_checkpoint(body)?;
                ToBoard::Request(Request::Check)
            }
            CHECK_RESPONSE => ToBoard::Request(Request::CheckResponse { checkpoint: read_checkpoint(body)? }),
            _ => return Err(Malformed::Operation),
        }))
    }
}

impl ToHost {
    /// Encodes the message.
    pub fn into_rope(self) -> Rope {
        let mut body = Vec::new();
        match self {
            ToHost::Negotiated { contexts, synchronise } => {
                body.push(u8::from(synchronise));
                for Context { id, abstract_syntax } in contexts {
                    body.extend(id.to_be_bytes());
                    put_octets(&mut body, abstract_syntax.contents());
                }
                message(NEGOTIATED, body.into())
            }
            ToHost::Disconnected(Disconnected { reason, additional }) => {
                body.extend(reason_code(reason));
                body.extend(additional);
                message(DISCONNECTED, body.into())
            }
            ToHost::Indication(Indication::Initialize(initialize)) => {
                message(INITIALIZE, initialize_body(*initialize))
            }
            ToHost::Indication(Indication::Pdu(pdu)) => message(PDU, pdu.to_rope()),
            ToHost::Indication(Indication::Data(element)) => message(DATA, element.into_rope()),
            ToHost::Indication(Indication::Check { checkpoint }) => {
                message(CHECK, Rope::copied(&checkpoint.to_be_bytes()))
            }
            ToHost::Indication(Indication::CheckConfirm { checkpoint }) => {
                message(CHECK_RESPONSE, Rope::copied(&checkpoint.to_be_bytes()))
            }
        }
    }

    /// Splits the first message off the front of `received`, or returns `None` if it is incomplete.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn read(received: &mut Rope) -> Result<Option<ToHost>, Malformed> {
        let Some((kind, body)) = split(received, BODY_BYTES_MAX)? else { return Ok(None) };
        Ok(Some(match kind {
            NEGOTIATED => {
                let octets = body.into_bytes();
                let mut rest = &octets[..];
                let (synchronise, mut contexts) = (flag(&mut rest)?, Vec::new());
                while !rest.is_empty() {
                    if contexts.len() == SYNTAXES_MAX {
                        return Err(Malformed::TooMany);
                    }
                    let id = i64::from_be_bytes(take(&mut rest)?);
                    contexts.push(Context { id, abstract_syntax: oid(&mut rest)? });
                }
                ToHost::Negotiated { contexts, synchronise }
            }
            DISCONNECTED => {
                let octets = body.into_bytes();
                let mut rest = &octets[..];
                let [local, code] = take(&mut rest)?;
                let reason = read_reason(local, code)?;
                ToHost::Disconnected(Disconnected { reason, additional: rest.to_vec() })
            }
            INITIALIZE => ToHost::Indication(Indication::Initialize(read_initialize(body)?)),
            PDU => ToHost::Indication(Indication::Pdu(read_pdu(&body.into_bytes())?)),
            DATA => ToHost::Indication(Indication::Data(read_element(body)?)),
            CHECK => ToHost::Indication(Indication::Check { checkpoint: read_checkpoint(body)? }),
            CHECK_RESPONSE => {
                ToHost::Indication(Indication::CheckConfirm { checkpoint: read_checkpoint(body)? })
            }
            _ => return Err(Malformed::Operation),
        }))
    }
}

fn message(kind: u8, mut body: Rope) -> Rope {
    let length = u32::try_from(body.len()).expect("the layers limit the length of a primitive");
    let mut header = [kind; HEADER_BYTES];
    header[1..].copy_from_slice(&length.to_be_bytes());
    body.prepend(&header);
    body
}

fn split(received: &mut Rope, body_bytes_max: usize) -> Result<Option<(u8, Rope)>, Malformed> {
    let mut header = [0; HEADER_BYTES];
    if received.copy_to(0, &mut header) < HEADER_BYTES {
        return Ok(None);
    }
    let [kind, length @ ..] = header;
    let length = u32::from_be_bytes(length) as usize;
    if length > body_bytes_max {
        return Err(Malformed::TotalLength);
    }
    if received.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    received.skip(HEADER_BYTES);
    Ok(Some((kind, received.split_to(length))))
}

fn initialize_body(initialize: Initialize) -> Rope {
    let Initialize { calling, called, abstract_syntaxes, request } = initialize;
    let mut body = Vec::new();
    for selectors in [calling, called] {
        for selector in [selectors.presentation, selectors.session, selectors.transport] {
            put_octets(&mut body, selector.bytes());
        }
    }
    body.extend((abstract_syntaxes.len() as u16).to_be_bytes());
    abstract_syntaxes.iter().for_each(|oid| put_octets(&mut body, oid.contents()));
    body.extend(Pdu::InitializeRequest(Box::new(request)).to_vec());
    body.into()
}

fn read_initialize(body: Rope) -> Result<Box<Initialize>, Malformed> {
    let octets = body.into_bytes();
    let mut rest = &octets[..];
    let mut selectors = || {
        let (presentation, session) = (selector(&mut rest)?, selector(&mut rest)?);
        Ok(Selectors { presentation, session, transport: selector(&mut rest)? })
    };
    let (calling, called) = (selectors()?, selectors()?);
    let count = usize::from(u16::from_be_bytes(take(&mut rest)?));
    if count > SYNTAXES_MAX {
        return Err(Malformed::TooMany);
    }
    let abstract_syntaxes = (0..count).map(|_| oid(&mut rest)).collect::<Result<_, _>>()?;
    let Pdu::InitializeRequest(request) = read_pdu(rest)? else { return Err(Malformed::Alternative) };
    Ok(Box::new(Initialize { calling, called, abstract_syntaxes, request: *request }))
}

fn read_pdu(octets: &[u8]) -> Result<Pdu, Malformed> {
    let (pdu, count) = Pdu::read(octets)?;
    whole(&octets[count..])?;
    Ok(pdu)
}

fn read_element(mut body: Rope) -> Result<DataElement, Malformed> {
    let element = DataElement::read(&mut body)?;
    if body.is_empty() { Ok(element) } else { Err(Malformed::TotalLength) }
}

fn read_checkpoint(body: Rope) -> Result<i64, Malformed> {
    let octets = body.into_bytes();
    let mut rest = &octets[..];
    let checkpoint = i64::from_be_bytes(take(&mut rest)?);
    whole(rest)?;
    Ok(checkpoint)
}

/// Local reasons, which no TPDU carries, have codes of their own.
fn reason_code(reason: DisconnectReason) -> [u8; 2] {
    match reason {
        DisconnectReason::Network => [1, 0],
        DisconnectReason::Timeout => [1, 1],
        DisconnectReason::Oversized => [1, 2],
        reason => [0, reason.code()],
    }
}

fn read_reason(local: u8, code: u8) -> Result<DisconnectReason, Malformed> {
    Ok(match (local, code) {
        (0, code) => DisconnectReason::of_code(code),
        (1, 0) => DisconnectReason::Network,
        (1, 1) => DisconnectReason::Timeout,
        (1, 2) => DisconnectReason::Oversized,
        _ => return Err(Malformed::ParameterValue),
    })
}

/// Appends octets, preceded by their length, and truncates them beyond 65535. (The protocols allow no
/// selector or identifier of that length.)
fn put_octets(body: &mut Vec<u8>, octets: &[u8]) {
    let octets = &octets[..octets.len().min(usize::from(u16::MAX))];
    body.extend((octets.len() as u16).to_be_bytes());
    body.extend(octets);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, after) = rest.split_first_chunk().ok_or(Malformed::Truncated)?;
    *rest = after;
    Ok(*taken)
}

fn octets<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::from(u16::from_be_bytes(take(rest)?));
    let (taken, after) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *rest = after;
    Ok(taken)
}

fn selector(rest: &mut &[u8]) -> Result<Selector, Malformed> {
    octets(rest).map(Selector::from)
}

fn oid(rest: &mut &[u8]) -> Result<Oid, Malformed> {
    Oid::from_contents(octets(rest)?)
}

fn word(rest: &mut &[u8]) -> Result<u32, Malformed> {
    take(rest).map(u32::from_be_bytes)
}

fn flag(rest: &mut &[u8]) -> Result<bool, Malformed> {
    match take(rest)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Malformed::ParameterValue),
    }
}

fn whole(rest: &[u8]) -> Result<(), Malformed> {
    if rest.is_empty() { Ok(()) } else { Err(Malformed::TotalLength) }
}
