//! Opcodes of the base transport header (IBTA volume 1 §9.2, table 38; §A17 for the CNP).
//!
//! The opcodes from 0xc0 on belong to manufacturers. One of them is sent between kiban's ends:
//! [`Opcode::SelectiveAck`].

use kiban_base::Malformed;

/// The transport service: the highest three bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Extended reliable connection.
    Xrc = 5,
}

/// The operation: the lowest five bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum Operation {
    SendFirst = 0,
    SendMiddle = 1,
    SendLast = 2,
    SendLastImmediate = 3,
    SendOnly = 4,
    SendOnlyImmediate = 5,
    WriteFirst = 6,
    WriteMiddle = 7,
    WriteLast = 8,
    WriteLastImmediate = 9,
    WriteOnly = 10,
    WriteOnlyImmediate = 11,
    ReadRequest = 12,
    ReadResponseFirst = 13,
    ReadResponseMiddle = 14,
    ReadResponseLast = 15,
    ReadResponseOnly = 16,
    Acknowledge = 17,
    AtomicAcknowledge = 18,
    CompareSwap = 19,
    FetchAdd = 20,
    SendLastInvalidate = 22,
    SendOnlyInvalidate = 23,
}

use Operation::*;

impl Operation {
    /// All operations, in the order of their numbers; 21 is reserved.
    const ALL: [Option<Operation>; 24] = [
        Some(SendFirst),
        Some(SendMiddle),
        Some(SendLast),
        Some(SendLastImmediate),
        Some(SendOnly),
        Some(SendOnlyImmediate),
        Some(WriteFirst),
        Some(WriteMiddle),
        Some(WriteLast),
        Some(WriteLastImmediate),
        Some(WriteOnly),
        Some(WriteOnlyImmediate),
        Some(ReadRequest),
        Some(ReadResponseFirst),
        Some(ReadResponseMiddle),
        Some(ReadResponseLast),
        Some(ReadResponseOnly),
        Some(Acknowledge),
        Some(AtomicAcknowledge),
        Some(CompareSwap),
        Some(FetchAdd),
        None,
        Some(SendLastInvalidate),
        Some(SendOnlyInvalidate),
    ];

    /// Returns whether a responder sends it.
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            ReadResponseFirst
                | ReadResponseMiddle
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
        )
    }

    /// Returns whether it begins a message: it is the first or the only packet.
    pub const fn is_first(self) -> bool {
        !matches!(
            self,
            SendMiddle
                | SendLast
                | SendLastImmediate
                | SendLastInvalidate
                | WriteMiddle
                | WriteLast
                | WriteLastImmediate
                | ReadResponseMiddle
                | ReadResponseLast
        )
    }

    /// Returns whether it ends a message: it is the last or the only packet.
    pub const fn is_last(self) -> bool {
        !matches!(
            self,
            SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadResponseFirst | ReadResponseMiddle
        )
    }

    /// Returns whether it may carry payload.
    pub const fn carries_payload(self) -> bool {
        !matches!(self, ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd)
    }
}

/// Which extended headers follow the BTH, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// XRCETH: the shared receive queue.
    pub xrc: bool,
    /// DETH: Q_Key and source queue pair.
    pub datagram: bool,
    /// RETH: where to write or read, and how many bytes.
    pub rdma: bool,
    /// AtomicETH.
    pub atomic: bool,
    /// AETH: acknowledgement.
    pub ack: bool,
    /// AtomicAckETH: the original value.
    pub atomic_ack: bool,
    /// Which packets have arrived.
    pub selective_ack: bool,
    /// ImmDt: immediate data.
    pub immediate: bool,
    /// IETH: the R_Key to invalidate.
    pub invalidate: bool,
}

/// The opcode of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// An operation of a transport service.
    Transport(Service, Operation),
    /// A congestion notification packet.
    Cnp,
    /// An acknowledgement of a reliable connection that says which packets have arrived.
    SelectiveAck,
}

impl Opcode {
    const CNP: u8 = 0x81;
    /// In the manufacturers' range, with the operation of an acknowledgement.
    const SELECTIVE_ACK: u8 = 0xc0 | Acknowledge as u8;

    /// Decodes the opcode.
    ///
    /// # Errors
    /// `Operation`: the opcode is reserved, or the service does not have the operation.
    pub fn read(octet: u8) -> Result<Opcode, Malformed> {
        match octet {
            Opcode::CNP => return Ok(Opcode::Cnp),
            Opcode::SELECTIVE_ACK => return Ok(Opcode::SelectiveAck),
            _ => {}
        }
        let operation = Operation::ALL.get(usize::from(octet & 0x1f)).copied().flatten();
        let (service, last) = match octet >> 5 {
            0 => (Service::Rc, SendOnlyInvalidate),
            1 => (Service::Uc, WriteOnlyImmediate),
            3 => (Service::Ud, SendOnlyImmediate),
            5 => (Service::Xrc, SendOnlyInvalidate),
            _ => return Err(Malformed::Operation),
        };
        match operation {
            Some(SendFirst | SendMiddle | SendLast | SendLastImmediate) if service == Service::Ud => {
                Err(Malformed::Operation)
            }
            Some(operation) if operation as u8 <= last as u8 => Ok(Opcode::Transport(service, operation)),
            _ => Err(Malformed::Operation),
        }
    }

    /// Returns the octet on the wire.
    pub const fn octet(self) -> u8 {
        match self {
            Opcode::Transport(service, operation) => (service as u8) << 5 | operation as u8,
            Opcode::Cnp => Opcode::CNP,
            Opcode::SelectiveAck => Opcode::SELECTIVE_ACK,
        }
    }

    /// Returns the extended headers that follow the BTH.
    pub fn headers(self) -> Headers {
        let (service, operation) = match self {
            Opcode::Transport(service, operation) => (service, operation),
            Opcode::Cnp => return Headers::default(),
            Opcode::SelectiveAck => return Headers { ack: true, selective_ack: true, ..Headers::default() },
        };
        Headers {
            xrc: matches!(service, Service::Xrc) && !operation.is_response(),
            datagram: matches!(service, Service::Ud),
            rdma: matches!(operation, WriteFirst | WriteOnly | WriteOnlyImmediate | ReadRequest),
            atomic: matches!(operation, CompareSwap | FetchAdd),
            ack: operation.is_response() && !matches!(operation, ReadResponseMiddle),
            atomic_ack: matches!(operation, AtomicAcknowledge),
            selective_ack: false,
            immediate: matches!(
                operation,
                SendLastImmediate | SendOnlyImmediate | WriteLastImmediate | WriteOnlyImmediate
            ),
            invalidate: matches!(operation, SendLastInvalidate | SendOnlyInvalidate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_defined_opcode_keeps_its_octet_and_the_others_are_refused() {
        let defined: Vec<u8> = (0..=255).filter(|octet| Opcode::read(*octet).is_ok()).collect();
        let expected = (0x00..=0x14)
            .chain([0x16, 0x17])
            .chain(0x20..=0x2b)
            .chain([0x64, 0x65, 0x81])
            .chain(0xa0..=0xb4)
            .chain([0xb6, 0xb7, 0xd1]);
        assert_eq!(defined, expected.collect::<Vec<u8>>());
        for octet in defined {
            assert_eq!(Opcode::read(octet).map(Opcode::octet), Ok(octet));
        }
    }
}
