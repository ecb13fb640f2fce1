//! Out-of-band setup: the private data in the MPA request and reply with which two queue pairs connect,
//! using numbers that their programs have exchanged on their own (docs/out-of-band.md). The format is
//! kiban's own.
//!
//! ```text
//!  0  "kbn" 24 | version 8
//!  4  destination queue pair 32   the receiver's (24 bits used)
//!  8  source queue pair 32        the sender's (24 bits used)
//! 12  expects 32                  first packet sequence number (PSN) that the sender expects (24 bits)
//! 16  begins 32                   the sender's initial PSN; all ones: it does not send yet
//! 20  word 32                     in replies: 0 accepted, otherwise a [`SetupRefusal`]
//! ```
//!
//! Order     network byte order.

use kiban_base::Malformed;

/// Length of a setup in bytes.
pub const OOB_SETUP_BYTES: usize = 24;

const MAGIC: [u8; 4] = *b"kbn\x01";
const NUMBER_MAX: u32 = (1 << 24) - 1;
const UNKNOWN: u32 = u32::MAX;

/// The setup data that one end sends to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OobSetup {
    /// The receiver's queue pair.
    pub destination: u32,
    /// The sender's queue pair.
    pub source: u32,
    /// The first PSN that the sender expects.
    pub expects: u32,
    /// The sender's initial PSN, if the sender is already in a state in which it sends.
    pub begins: Option<u32>,
    /// The reason if a reply refuses. In a request, the reason why the sender will refuse the peer.
    pub refusal: Option<SetupRefusal>,
}

/// The reason for refusing a setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum SetupRefusal {
    /// There is no such queue pair.
    Unknown = 1,
    /// The queue pair exists, but is set up for another peer.
    Other = 2,
    /// The queue pair is set up for this peer, which belongs to another user of the same host.
    User = 3,
}

impl OobSetup {
    /// Reads a setup.
    ///
    /// # Errors
    /// The length, the magic, or a number is wrong.
    pub fn read(bytes: &[u8]) -> Result<OobSetup, Malformed> {
        let bytes: &[u8; OOB_SETUP_BYTES] = bytes.try_into().map_err(|_| Malformed::TotalLength)?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC {
            return Err(Malformed::Magic);
        }
        let number =
            |at: usize| Some(word(at)).filter(|&number| number <= NUMBER_MAX).ok_or(Malformed::Operation);
        Ok(OobSetup {
            destination: number(4)?,
            source: number(8)?,
            expects: number(12)?,
            begins: if word(16) == UNKNOWN { None } else { Some(number(16)?) },
            refusal: match word(20) {
                0 => None,
                1 => Some(SetupRefusal::Unknown),
                2 => Some(SetupRefusal::Other),
                3 => Some(SetupRefusal::User),
                _ => return Err(Malformed::Operation),
            },
        })
    }

    /// Returns the encoded setup.
    pub fn bytes(&self) -> [u8; OOB_SETUP_BYTES] {
        let words = [
            self.destination,
            self.source,
            self.expects,
            self.begins.unwrap_or(UNKNOWN),
            self.refusal.map_or(0, |refusal| refusal as u32),
        ];
        let mut bytes = [0; OOB_SETUP_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        for (room, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            room.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEETING: OobSetup = OobSetup {
        destination: 0x80_0001,
        source: 0x80_0102,
        expects: 3,
        begins: Some(NUMBER_MAX),
        refusal: None,
    };

    #[test]
    fn the_bytes_match_the_documentation() {
        let bytes = *b"kbn\x01\0\x80\0\x01\0\x80\x01\x02\0\0\0\x03\0\xff\xff\xff\0\0\0\0";
        assert_eq!(MEETING.bytes(), bytes);
        assert_eq!(OobSetup::read(&bytes), Ok(MEETING));
        for refusal in [SetupRefusal::Unknown, SetupRefusal::Other, SetupRefusal::User] {
            let refusal = OobSetup { begins: None, refusal: Some(refusal), ..MEETING };
            assert_eq!(OobSetup::read(&refusal.bytes()), Ok(refusal));
        }
    }

    #[test]
    fn invalid_setups_are_rejected() {
        let bytes = MEETING.bytes();
        assert_eq!(OobSetup::read(&bytes[..23]), Err(Malformed::TotalLength));
        for at in [0, 3, 4, 8, 12, 20] {
            let mut wrong = bytes;
            wrong[at] ^= 0x40;
            assert!(OobSetup::read(&wrong).is_err(), "octet {at}");
        }
    }
}
