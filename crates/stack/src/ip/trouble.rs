//! What can be wrong with a packet: the words in which IP complains, and ICMP reports.

/// What is wrong. Codes are those of the family: RFC 792 and RFC 1122 §3.2.2, or RFC 4443 §3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TroubleKind {
    /// The packet could not be delivered.
    Unreachable {
        /// Why.
        code: u8,
    },
    /// The packet was too long for the way.
    FragmentationNeeded {
        /// The longest packet that the way takes, bytes.
        mtu: u32,
    },
    /// It passed too many routers (0) or was not put together in time (1).
    TimeExceeded {
        /// Which of the two.
        code: u8,
    },
    /// A header of it is wrong.
    ParameterProblem {
        /// What about it.
        code: u8,
        /// The byte of the packet.
        pointer: u32,
    },
}
