//! LLC/SNAP encapsulation over AAL5, which identifies the protocol in every frame (RFC 2684 §5, RFC 2225 §6).
//!
//! Purpose          carry many protocols on one circuit, distinguished by the first eight bytes.
//!
//! ```text
//! routed     AA AA 03 | 00 00 00 | EtherType 2 | packet                        RFC 2684 §5.1
//! bridged    AA AA 03 | 00 80 C2 | 00 07 | 00 00 | Ethernet frame without FCS  RFC 2684 §5.2
//!            AA AA 03 | 00 80 C2 | 00 01 | 00 00 | Ethernet frame with FCS
//! ```
//!
//! VC-mux           RFC 2684 §6 defines no header: the circuit carries one protocol that both ends know, so
//!                  this file has no format for it (bridged frames keep two pad bytes in front). On an LLC
//!                  circuit, Linux `clip` treats a frame without the LLC bytes as a bare IPv4 packet; this
//!                  implementation does not guess.
//! Not implemented  ISO routed protocols (FE FE 03), other bridged media (00 02 to 00 0E).

use kiban_base::Malformed;

/// Length of a routed packet's header in bytes.
pub const ROUTED_BYTES: usize = 8;
/// Length of a bridged Ethernet frame's header in bytes.
pub const BRIDGED_BYTES: usize = 10;

const LLC: [u8; 3] = [0xaa, 0xaa, 0x03];
const ORGANISATION_ETHERNET: [u8; 3] = [0x00, 0x00, 0x00];
const ORGANISATION_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const BRIDGED_WITH_FCS: [u8; 2] = [0x00, 0x01];
const BRIDGED_WITHOUT_FCS: [u8; 2] = [0x00, 0x07];

/// An LLC/SNAP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A packet of the protocol with this EtherType follows.
    Routed {
        /// See [`kiban_base::numbers::ether_type`].
        ether_type: u16,
    },
    /// An Ethernet frame follows.
    Bridged {
        /// Whether the frame still ends with its four FCS bytes.
        with_fcs: bool,
    },
}

impl Header {
    /// Reads the header at the front of a frame's payload and returns it with its length.
    ///
    /// # Errors
    /// `Truncated`; `Encapsulation` for any header not in the table above.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let Some((&[d, s, control, o0, o1, o2, p0, p1], rest)) = bytes.split_first_chunk::<ROUTED_BYTES>()
        else {
            return Err(Malformed::Truncated);
        };
        if [d, s, control] != LLC {
            return Err(Malformed::Encapsulation);
        }
        match [o0, o1, o2] {
            ORGANISATION_ETHERNET => {
                Ok((Header::Routed { ether_type: u16::from_be_bytes([p0, p1]) }, ROUTED_BYTES))
            }
            ORGANISATION_802_1 => {
                let with_fcs = match [p0, p1] {
                    BRIDGED_WITH_FCS => true,
                    BRIDGED_WITHOUT_FCS => false,
                    _ => return Err(Malformed::Encapsulation),
                };
                // RFC 2684 §5.2: two pad bytes align the frame's payload to four bytes; their value is
                // arbitrary.
                if rest.len() < 2 {
                    Err(Malformed::Truncated)
                } else {
                    Ok((Header::Bridged { with_fcs }, BRIDGED_BYTES))
                }
            }
            _ => Err(Malformed::Encapsulation),
        }
    }

    /// Returns the length of this header in bytes: 8 routed, 10 bridged.
    #[inline]
    pub const fn length(&self) -> usize {
        match self {
            Header::Routed { .. } => ROUTED_BYTES,
            Header::Bridged { .. } => BRIDGED_BYTES,
        }
    }

    /// Writes the header at the front of `target` and returns its length.
    ///
    /// # Panics
    /// If `target` is shorter than [`Header::length`].
    #[inline]
    pub fn write(&self, target: &mut [u8]) -> usize {
        let [d, s, control] = LLC;
        let ([o0, o1, o2], [p0, p1]) = match self {
            Header::Routed { ether_type } => (ORGANISATION_ETHERNET, ether_type.to_be_bytes()),
            Header::Bridged { with_fcs: true } => (ORGANISATION_802_1, BRIDGED_WITH_FCS),
            Header::Bridged { with_fcs: false } => (ORGANISATION_802_1, BRIDGED_WITHOUT_FCS),
        };
        let bytes = &mut target[..self.length()];
        bytes[..ROUTED_BYTES].copy_from_slice(&[d, s, control, o0, o1, o2, p0, p1]);
        bytes[ROUTED_BYTES..].fill(0);
        bytes.len()
    }
}
