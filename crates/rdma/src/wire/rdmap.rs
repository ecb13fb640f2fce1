//! RDMAP: the messages carried by DDP (RFC 5040 §4, RFC 7306), and three kiban-specific messages.
//!
//! ```text
//! DDP's ULP octet     version 2 | reserved 2 | opcode 4
//!
//! read request (28)   sink STag 32 | sink offset 64 | length 32 | source STag 32 | source offset 64
//! atomic request (52) reserved 28, operation 4 | identifier 32 | STag 32 | offset 64
//!                     | add or swap 64 | its mask 64 | compare 64 | its mask 64
//! atomic response (12) identifier 32 | original value 64
//! immediate data (8)  opaque 64
//! terminate           layer 4 | type 4 | code 8 | M 1 D 1 R 1 | reserved 13
//!                     [ segment length 16 | DDP header ] [ read request ]
//! ```
//!
//! DDP's ULP word      Send with Invalidate: STag 32; Send with Immediate: data 32
//!
//! kiban's own  the standards define neither a Send with Immediate nor an acknowledgement that a Write or a
//!              Send has arrived. Acknowledge is a tagged message without payload. Its offset is the number
//!              of Writes, Sends and immediate data messages that have arrived; its tag is 0, or 1 if the
//!              sender is about to leave ([`acknowledge`]). The standards do not assign opcodes 12 to 14,
//!              which are used only between ends that both know that their peer is a kiban NIC.
//! Terminate    on little-endian machines, Linux's soft-iWARP swaps the first two nibbles and puts M, D and
//!              R into the low bits of the third octet. Both forms are accepted on receipt; the RFC's form
//!              is sent.

use crate::wire::ddp::{self, TAGGED_BYTES, UNTAGGED_BYTES};
use arrayvec::ArrayVec;
use core::fmt;
use kiban_base::Malformed;

const VERSION: u8 = 1;

/// Steering tags of an Acknowledge.
pub mod acknowledge {
    /// The sender stays.
    pub const STAYS: u32 = 0;
    /// The sender is about to end its stream.
    pub const LEAVING: u32 = 1;
}

/// The opcode of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read request.
    ReadRequest = 1,
    /// RDMA Read response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate data (RFC 7306).
    Immediate = 8,
    /// Immediate data with Solicited Event (RFC 7306).
    ImmediateSolicited = 9,
    /// Atomic request (RFC 7306).
    AtomicRequest = 10,
    /// Atomic response (RFC 7306).
    AtomicResponse = 11,
    /// Send with Immediate (kiban's own).
    SendImmediate = 12,
    /// Send with Solicited Event and Immediate (kiban's own).
    SendSolicitedImmediate = 13,
    /// Acknowledge (kiban's own).
    Acknowledge = 14,
}

impl Opcode {
    const ALL: [Opcode; 15] = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
        Opcode::Immediate,
        Opcode::ImmediateSolicited,
        Opcode::AtomicRequest,
        Opcode::AtomicResponse,
        Opcode::SendImmediate,
        Opcode::SendSolicitedImmediate,
        Opcode::Acknowledge,
    ];

    /// Reads DDP's ULP octet.
    ///
    /// # Errors
    /// [`Malformed::Version`] and [`Malformed::Operation`], for which Terminate has separate codes.
    #[inline]
    pub fn read(octet: u8) -> Result<Opcode, Malformed> {
        if octet >> 6 != VERSION {
            return Err(Malformed::Version);
        }
        Opcode::ALL.get(usize::from(octet & 0x0f)).copied().ok_or(Malformed::Operation)
    }

    /// Returns DDP's ULP octet.
    #[inline]
    pub const fn octet(self) -> u8 {
        VERSION << 6 | self as u8
    }

    /// Returns whether the opcode is defined by RFC 7306, which older peers do not support.
    pub const fn is_extension(self) -> bool {
        matches!(
            self,
            Opcode::Immediate | Opcode::ImmediateSolicited | Opcode::AtomicRequest | Opcode::AtomicResponse
        )
    }

    /// Returns whether the opcode is kiban's own, which other peers do not support.
    pub const fn is_kiban_extension(self) -> bool {
        self.carries_immediate() || matches!(self, Opcode::Acknowledge)
    }

    /// Returns whether the message is a Send with immediate data in DDP's ULP word.
    pub const fn carries_immediate(self) -> bool {
        matches!(self, Opcode::SendImmediate | Opcode::SendSolicitedImmediate)
    }

    /// Returns whether the message's segments are tagged: they name their destination.
    pub const fn is_tagged(self) -> bool {
        matches!(self, Opcode::Write | Opcode::ReadResponse | Opcode::Acknowledge)
    }

    /// Returns whether the message is a Send of any kind.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Opcode::Send
                | Opcode::SendInvalidate
                | Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate
                | Opcode::SendImmediate
                | Opcode::SendSolicitedImmediate
        )
    }

    /// Returns the maximum payload, in bytes, of a message that must fit in one segment, or `None` for other
    /// messages.
    pub const fn payload_bytes_max(self) -> usize {
        match self {
            Opcode::ReadRequest => READ_REQUEST_BYTES,
            // Peers may attach more bytes than this crate reads.
            Opcode::Terminate => 2 * TERMINATE_BYTES_MAX,
            Opcode::Immediate | Opcode::ImmediateSolicited => IMMEDIATE_BYTES,
            Opcode::AtomicRequest => ATOMIC_REQUEST_BYTES,
            Opcode::AtomicResponse => ATOMIC_RESPONSE_BYTES,
            Opcode::Acknowledge => 0,
            _ => usize::MAX,
        }
    }

    /// Returns whether the message requests a solicited event.
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate
                | Opcode::ImmediateSolicited
                | Opcode::SendSolicitedImmediate
        )
    }

    /// Returns whether the message invalidates one of the receiver's steering tags.
    pub const fn invalidates(self) -> bool {
        matches!(self, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate)
    }
}

/// Length of a read request in bytes.
pub const READ_REQUEST_BYTES: usize = 28;
/// Length of an atomic request in bytes.
pub const ATOMIC_REQUEST_BYTES: usize = 52;
/// Length of an atomic response in bytes.
pub const ATOMIC_RESPONSE_BYTES: usize = 12;
/// Length of immediate data in bytes.
pub const IMMEDIATE_BYTES: usize = 8;

/// A position in registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaggedAddress {
    /// The steering tag.
    pub stag: u32,
    /// The tagged offset.
    pub offset: u64,
}

/// A request for bytes (RFC 5040 §4.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadRequest {
    /// Destination: the requester's memory.
    pub sink: TaggedAddress,
    /// Number of bytes.
    pub length: u32,
    /// Source: the responder's memory.
    pub source: TaggedAddress,
}

impl ReadRequest {
    /// Reads the payload of a request.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<ReadRequest, Malformed> {
        let mut words = Words(bytes);
        let sink = words.place()?;
        let length = words.u32()?;
        Ok(ReadRequest { sink, length, source: words.place()? })
    }

    /// Returns the encoded payload.
    pub fn bytes(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut bytes = [0; READ_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&self.sink.stag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink.offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source.stag.to_be_bytes());
        bytes[20..].copy_from_slice(&self.source.offset.to_be_bytes());
        bytes
    }
}

/// An atomic operation on eight bytes (RFC 7306 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Adds. The mask divides the value into fields: each set bit marks the most significant bit of a field,
    /// and carries do not leave their field (§5.1.1). A zero mask means one field of 64 bits.
    FetchAdd {
        /// The addend.
        add: u64,
        /// Marks the most significant bit of each field.
        mask: u64,
    },
    /// Compares under a mask and, if equal, swaps under a mask (§5.1.2).
    CompareSwap {
        /// The new value.
        swap: u64,
        /// The bits of the new value that are stored.
        swap_mask: u64,
        /// The expected value.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
    },
}

impl Atomic {
    /// Returns the new value of the eight bytes.
    pub fn apply(self, value: u64) -> u64 {
        match self {
            Atomic::FetchAdd { add, mask: 0 } => value.wrapping_add(add),
            Atomic::FetchAdd { add, mask } => {
                let (mut result, mut carry) = (0u64, 0u64);
                for bit in 0..64 {
                    let sum = (value >> bit & 1) + (add >> bit & 1) + carry;
                    result |= (sum & 1) << bit;
                    carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
                }
                result
            }
            Atomic::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                let equal = (value ^ compare) & compare_mask == 0;
                if equal { value & !swap_mask | swap & swap_mask } else { value }
            }
        }
    }
}

/// A request for an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicRequest {
    /// Identifier returned in the response.
    pub identifier: u32,
    /// Address of the eight bytes.
    pub target: TaggedAddress,
    /// The operation.
    pub atomic: Atomic,
}

impl AtomicRequest {
    /// Reads the payload of a request.
    ///
    /// # Errors
    /// `Truncated`; `Operation` unless it is FetchAdd or CompareSwap.
    pub fn read(bytes: &[u8]) -> Result<AtomicRequest, Malformed> {
        let mut words = Words(bytes);
        let operation = words.u32()? & 0x0f;
        let identifier = words.u32()?;
        let target = words.place()?;
        let [data, mask, compare, compare_mask] = [words.u64()?, words.u64()?, words.u64()?, words.u64()?];
        let atomic = match operation {
            0 => Atomic::FetchAdd { add: data, mask },
            2 => Atomic::CompareSwap { swap: data, swap_mask: mask, compare, compare_mask },
            _ => return Err(Malformed::Operation),
        };
        Ok(AtomicRequest { identifier, target, atomic })
    }

    /// Returns the encoded payload.
    pub fn bytes(&self) -> [u8; ATOMIC_REQUEST_BYTES] {
        let (operation, words) = match self.atomic {
            Atomic::FetchAdd { add, mask } => (0u32, [add, mask, 0, 0]),
            Atomic::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                (2, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut bytes = [0; ATOMIC_REQUEST_BYTES];
        bytes[..4].copy_from_slice(&operation.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.target.stag.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.target.offset.to_be_bytes());
        for (at, word) in words.into_iter().enumerate() {
            bytes[20 + at * 8..28 + at * 8].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The response to an atomic request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicResponse {
    /// Identifier of the request.
    pub identifier: u32,
    /// The value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Reads the payload of a response.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn read(bytes: &[u8]) -> Result<AtomicResponse, Malformed> {
        let mut words = Words(bytes);
        Ok(AtomicResponse { identifier: words.u32()?, original: words.u64()? })
    }

    /// Returns the encoded payload.
    pub fn bytes(&self) -> [u8; ATOMIC_RESPONSE_BYTES] {
        let mut bytes = [0; ATOMIC_RESPONSE_BYTES];
        bytes[..4].copy_from_slice(&self.identifier.to_be_bytes());
        bytes[4..].copy_from_slice(&self.original.to_be_bytes());
        bytes
    }
}

/// Reads big-endian words from the front of a slice.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn place(&mut self) -> Result<TaggedAddress, Malformed> {
        Ok(TaggedAddress { stag: self.u32()?, offset: self.u64()? })
    }
}

/// The reason for a Terminate (RFC 5040 §4.8, RFC 5041 §7, RFC 5044 §8, RFC 6581 §8, RFC 7306 §6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reason {
    /// 0 RDMAP, 1 DDP, 2 MPA (the lower layer).
    pub layer: u8,
    /// The error type within the layer.
    pub kind: u8,
    /// The error code.
    pub code: u8,
}

macro_rules! reasons {
    ($($name:ident, $layer:literal, $kind:literal, $code:literal, $text:literal;)*) => {
        impl Reason {
            $(#[doc = $text] pub const $name: Reason = Reason { layer: $layer, kind: $kind, code: $code };)*

            /// All reasons defined by the standards, with their texts.
            pub const ALL: &[(Reason, &str)] = &[$((Reason::$name, $text)),*];
        }
    };
}

reasons! {
    LOCAL_CATASTROPHIC, 0, 0, 0x00, "RDMAP: local catastrophic error";
    LOCAL_ERROR, 0, 0, 0xff, "RDMAP: local error at the sender";
    REMOTE_STAG, 0, 1, 0x00, "RDMAP: the STag is not valid";
    REMOTE_BOUNDS, 0, 1, 0x01, "RDMAP: base or bounds violated";
    REMOTE_ACCESS, 0, 1, 0x02, "RDMAP: access rights violated";
    REMOTE_STREAM, 0, 1, 0x03, "RDMAP: the STag is not associated with the stream";
    REMOTE_WRAP, 0, 1, 0x04, "RDMAP: the tagged offset wraps";
    REMOTE_NOT_INVALIDATED, 0, 1, 0x09, "RDMAP: the STag cannot be invalidated";
    REMOTE_UNSPECIFIED, 0, 1, 0xff, "RDMAP: remote protection error";
    OPERATION_VERSION, 0, 2, 0x05, "RDMAP: invalid RDMAP version";
    OPERATION_OPCODE, 0, 2, 0x06, "RDMAP: unexpected opcode";
    OPERATION_STREAM, 0, 2, 0x07, "RDMAP: catastrophic error, localized to the stream";
    OPERATION_GLOBAL, 0, 2, 0x08, "RDMAP: catastrophic error, global";
    OPERATION_NOT_INVALIDATED, 0, 2, 0x09, "RDMAP: the STag cannot be invalidated";
    OPERATION_UNSPECIFIED, 0, 2, 0xff, "RDMAP: remote operation error";
    DDP_CATASTROPHIC, 1, 0, 0x00, "DDP: local catastrophic error";
    TAGGED_STAG, 1, 1, 0x00, "DDP: the STag is not valid";
    TAGGED_BOUNDS, 1, 1, 0x01, "DDP: base or bounds violated";
    TAGGED_STREAM, 1, 1, 0x02, "DDP: the STag is not associated with the stream";
    TAGGED_WRAP, 1, 1, 0x03, "DDP: the tagged offset wraps";
    TAGGED_VERSION, 1, 1, 0x04, "DDP: invalid DDP version (tagged)";
    UNTAGGED_QUEUE, 1, 2, 0x01, "DDP: invalid queue number";
    UNTAGGED_NO_BUFFER, 1, 2, 0x02, "DDP: no buffer available for the message";
    UNTAGGED_SEQUENCE, 1, 2, 0x03, "DDP: message sequence number out of range";
    UNTAGGED_OFFSET, 1, 2, 0x04, "DDP: invalid message offset";
    UNTAGGED_TOO_LONG, 1, 2, 0x05, "DDP: the message is too long for the buffer";
    UNTAGGED_VERSION, 1, 2, 0x06, "DDP: invalid DDP version (untagged)";
    MPA_LOST, 2, 0, 0x01, "MPA: the connection is lost";
    MPA_CRC, 2, 0, 0x02, "MPA: CRC error";
    MPA_LENGTH, 2, 0, 0x03, "MPA: marker and length do not match";
    MPA_SETUP, 2, 0, 0x04, "MPA: invalid request or reply";
    MPA_CATASTROPHIC, 2, 0, 0x05, "MPA: local catastrophic error";
    MPA_IRD, 2, 0, 0x06, "MPA: insufficient IRD resources";
    MPA_RTR, 2, 0, 0x07, "MPA: no matching RTR option";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Reason::ALL.iter().find(|(reason, _)| reason == self) {
            Some((_, text)) => f.write_str(text),
            None => write!(f, "layer {}, type {}, code {:#04x}", self.layer, self.kind, self.code),
        }
    }
}

/// Maximum length of a Terminate in bytes.
pub const TERMINATE_BYTES_MAX: usize = 4 + 2 + UNTAGGED_BYTES + READ_REQUEST_BYTES;

/// The last message on a stream: the reason, and the header of the segment at fault (RFC 5040 §4.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// The reason.
    pub reason: Reason,
    /// The length and the DDP header of the segment at fault, if there was one.
    pub segment: Option<(u16, ArrayVec<u8, UNTAGGED_BYTES>)>,
    /// The read request at fault, if it was one.
    pub read_request: Option<ReadRequest>,
}

const ATTACHED_LENGTH: u8 = 0x80;
const ATTACHED_DDP: u8 = 0x40;
const ATTACHED_RDMAP: u8 = 0x20;

impl Terminate {
    /// Reads the payload of a Terminate, in the RFC's form or in soft-iWARP's. Attached headers may be
    /// truncated.
    ///
    /// # Errors
    /// `Truncated` for fewer than four bytes.
    pub fn read(bytes: &[u8]) -> Result<Terminate, Malformed> {
        let [first, code, flags, _, rest @ ..] = bytes else { return Err(Malformed::Truncated) };
        let form = |first: u8| Reason { layer: first >> 4, kind: first & 0x0f, code: *code };
        let (as_rfc, as_siw) = (form(*first), form(first.rotate_left(4)));
        let known = |reason: Reason| Reason::ALL.iter().any(|(its, _)| *its == reason);
        let is_siw = flags & 0x07 != 0 || flags & 0xe0 == 0 && !known(as_rfc) && known(as_siw);
        let (reason, flags) =
            if is_siw { (as_siw, flags.reverse_bits() & 0xe0) } else { (as_rfc, flags & 0xe0) };
        let mut terminate = Terminate { reason, segment: None, read_request: None };
        let mut rest = rest;
        if flags & ATTACHED_LENGTH == 0 {
            return Ok(terminate);
        }
        let Some((length, after)) = rest.split_first_chunk() else { return Ok(terminate) };
        rest = after;
        let mut header = ArrayVec::new();
        if flags & ATTACHED_DDP != 0
            && let Some(first) = rest.first()
        {
            let (its, after) = rest.split_at(ddp::header_bytes(*first).min(rest.len()));
            header.extend(its.iter().copied());
            rest = after;
        }
        terminate.segment = Some((u16::from_be_bytes(*length), header));
        if flags & ATTACHED_RDMAP != 0 {
            terminate.read_request = ReadRequest::read(rest).ok();
        }
        Ok(terminate)
    }

    /// Returns the payload, encoded in the RFC's form.
    pub fn bytes(&self) -> ArrayVec<u8, TERMINATE_BYTES_MAX> {
        let Reason { layer, kind, code } = self.reason;
        let mut bytes = ArrayVec::from_iter([layer << 4 | kind & 0x0f, code, 0, 0]);
        if let Some((length, header)) = &self.segment {
            bytes[2] |= ATTACHED_LENGTH;
            bytes.extend(length.to_be_bytes());
            if matches!(header.len(), TAGGED_BYTES | UNTAGGED_BYTES) {
                bytes[2] |= ATTACHED_DDP;
                bytes.extend(header.iter().copied());
            }
        }
        if let (Some(request), Some(_)) = (self.read_request, &self.segment) {
            bytes[2] |= ATTACHED_RDMAP;
            bytes.extend(request.bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn an_octet_names_version_and_opcode() {
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::read(opcode.octet()), Ok(opcode));
            assert_eq!(Opcode::read(opcode.octet() ^ 0xc0), Err(Malformed::Version));
        }
        assert_eq!(Opcode::Send.octet(), 0x43);
        assert_eq!(Opcode::SendImmediate.octet(), 0x4c);
        assert_eq!(Opcode::Acknowledge.octet(), 0x4e);
        assert_eq!(Opcode::read(0x4f), Err(Malformed::Operation));
    }

    #[test]
    fn every_opcode_has_one_class() {
        // RFC 5040 §4.3 assigns 0 to 7 and RFC 7306 §4.1 assigns 8 to 11; the rest are unassigned.
        let list = |of: fn(Opcode) -> bool| -> Vec<u8> {
            Opcode::ALL.into_iter().filter(|&opcode| of(opcode)).map(|opcode| opcode as u8).collect()
        };
        assert_eq!(list(Opcode::is_extension), [8, 9, 10, 11]);
        assert_eq!(list(Opcode::is_kiban_extension), [12, 13, 14]);
        assert_eq!(list(Opcode::is_send), [3, 4, 5, 6, 12, 13]);
        assert_eq!(list(Opcode::is_solicited), [5, 6, 9, 13]);
        assert_eq!(list(Opcode::invalidates), [4, 6]);
        assert_eq!(list(Opcode::carries_immediate), [12, 13]);
        assert_eq!(list(Opcode::is_tagged), [0, 2, 14]);
    }

    #[test]
    fn requests_round_trip() {
        let place = |stag, offset| TaggedAddress { stag, offset };
        let read = ReadRequest { sink: place(1, 2), length: 3, source: place(4, u64::MAX) };
        assert_eq!(ReadRequest::read(&read.bytes()), Ok(read));
        assert_eq!(ReadRequest::read(&read.bytes()[1..]), Err(Malformed::Truncated));
        for atomic in [
            Atomic::FetchAdd { add: 7, mask: 1 << 31 },
            Atomic::CompareSwap { swap: 1, swap_mask: 2, compare: 3, compare_mask: 4 },
        ] {
            let request = AtomicRequest { identifier: 9, target: place(5, 6), atomic };
            assert_eq!(AtomicRequest::read(&request.bytes()), Ok(request));
        }
        let mut swap = AtomicRequest {
            identifier: 9,
            target: place(5, 6),
            atomic: Atomic::FetchAdd { add: 1, mask: 0 },
        }
        .bytes();
        swap[3] = 1;
        assert_eq!(AtomicRequest::read(&swap), Err(Malformed::Operation));
        let response = AtomicResponse { identifier: 1, original: 2 };
        assert_eq!(AtomicResponse::read(&response.bytes()), Ok(response));
    }

    #[test]
    fn atomics_respect_their_masks() {
        let add = |value, add, mask| Atomic::FetchAdd { add, mask }.apply(value);
        assert_eq!(add(u64::MAX, 2, 0), 1);
        // The mask makes two fields of 32 bits; nothing is carried from one into the other.
        assert_eq!(add(0x0000_0001_ffff_ffff, 0x0000_0001_0000_0001, 1 << 31), 0x0000_0002_0000_0000);
        let swap = |value, swap, swap_mask, compare, compare_mask| {
            Atomic::CompareSwap { swap, swap_mask, compare, compare_mask }.apply(value)
        };
        assert_eq!(swap(5, 9, u64::MAX, 5, u64::MAX), 9);
        assert_eq!(swap(6, 9, u64::MAX, 5, u64::MAX), 6);
        assert_eq!(swap(0xab, 0xff, 0x0f, 0xa0, 0xf0), 0xaf);
    }

    #[test]
    fn both_forms_of_a_terminate_give_the_same_reason() {
        let send = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
        let attached = [&[0u8, 100][..], &send[..]].concat();
        let rfc = [&[0x12, 0x03, 0xc0, 0x00][..], &attached[..]].concat();
        let siw = [&[0x21, 0x03, 0x03, 0x00][..], &attached[..]].concat();
        let expected = Terminate {
            reason: Reason::UNTAGGED_SEQUENCE,
            segment: Some((100, send.into_iter().collect())),
            read_request: None,
        };
        assert_eq!(Terminate::read(&rfc), Ok(expected.clone()));
        assert_eq!(Terminate::read(&siw), Ok(expected.clone()));
        assert_eq!(expected.bytes()[..], rfc[..]);
    }

    #[test]
    fn terminates_without_headers_are_distinguished_by_valid_codes() {
        let rows = [
            ([0x02, 0x06], Reason::OPERATION_OPCODE),
            ([0x20, 0x02], Reason::MPA_CRC),
            ([0x02, 0x02], Reason::MPA_CRC),
            ([0x12, 0x06], Reason::UNTAGGED_VERSION),
            ([0x21, 0x06], Reason::UNTAGGED_VERSION),
            ([0x11, 0x00], Reason::TAGGED_STAG),
        ];
        for ([first, code], reason) in rows {
            let read = Terminate::read(&[first, code, 0, 0]).map(|terminate| terminate.reason);
            assert_eq!(read, Ok(reason), "{first:02x} {code:02x}");
        }
    }

    #[test]
    fn a_rejected_read_request_is_included_in_the_terminate() {
        let request = ReadRequest { length: 64, ..ReadRequest::default() };
        let header = [0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let terminate = Terminate {
            reason: Reason::REMOTE_STAG,
            segment: Some((46, header.into_iter().collect())),
            read_request: Some(request),
        };
        let bytes = terminate.bytes();
        assert_eq!((bytes[0], bytes[2], bytes.len()), (0x01, 0xe0, TERMINATE_BYTES_MAX));
        assert_eq!(Terminate::read(&bytes), Ok(terminate));
        for cut in 4..bytes.len() {
            assert_eq!(Terminate::read(&bytes[..cut]).map(|read| read.reason), Ok(Reason::REMOTE_STAG));
        }
    }
}
