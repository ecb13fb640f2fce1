//! What client and board say to each other in their rings.
//!
//! ```text
//! 0  what            4  slot (32)        12  port of the local end       16  address of the local end
//! 1  why, or option  8  families (4, 6,  14  port of the remote end      32  address of the remote end
//! 2  listener (16)      0: none)             in the machine's byte order         in the network's order
//! ```

use crate::Reason;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 48;

/// What a client asks. Slots and listeners are its own numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Opens a stream in a free slot: [`Told::Opened`] or [`Told::Ended`] says how it went.
    Connect {
        /// The slot.
        slot: u32,
        /// The board's address and port, if they are to be these; port 0: one is chosen.
        local: Option<SocketAddr>,
        /// To whom.
        remote: SocketAddr,
    },
    /// Listens: [`Told::Listening`] says how it went.
    Listen {
        /// A number of the client's that is free.
        listener: u16,
        /// Where; an unspecified address stands for all of the board's, `::` for those of both families. Port 0: one is chosen.
        local: SocketAddr,
    },
    /// Listens no more. Callers who wait are reset, slots that were offered are free.
    Unlisten {
        /// Which.
        listener: u16,
    },
    /// A free slot for the next caller.
    Offer {
        /// Of which listener.
        listener: u16,
        /// The slot.
        slot: u32,
    },
    /// Bytes have been put in, or taken out.
    Look {
        /// Of which slot.
        slot: u32,
    },
    /// Nothing is read any more; what has been put in still leaves. [`Told::Free`] comes then.
    Close {
        /// Which slot.
        slot: u32,
    },
    /// The peer is reset. [`Told::Free`] comes then.
    Abort {
        /// Which slot.
        slot: u32,
    },
    /// Whether short segments may wait for acknowledgements (RFC 9293 §3.7.4).
    Nagle {
        /// Which slot.
        slot: u32,
        /// Whether they may.
        is_on: bool,
    },
    /// What became of a stream that is over: [`Told::Ended`] says it. For who has no slots (`kiban run`).
    Fate {
        /// The board's end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
}

/// What a board tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It listens, or does not.
    Listening {
        /// Which listener.
        listener: u16,
        /// Where, or why not.
        result: Result<SocketAddr, Why>,
    },
    /// A stream is open.
    Opened {
        /// In which slot.
        slot: u32,
        /// The board's end.
        local: SocketAddr,
    },
    /// Somebody has connected.
    Accepted {
        /// To which listener.
        listener: u16,
        /// In the slot that was offered.
        slot: u32,
        /// The board's end.
        local: SocketAddr,
        /// Who.
        remote: SocketAddr,
    },
    /// Bytes have come, or there is room again.
    Look {
        /// In which slot.
        slot: u32,
    },
    /// The stream is over; what has come can still be read. The slot is to be closed.
    Ended {
        /// Which.
        slot: u32,
        /// Why.
        why: Why,
    },
    /// The slot is the client's again.
    Free {
        /// Which.
        slot: u32,
    },
}

/// Why something came to nothing, or to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    /// Both sides finished.
    Closed = 1,
    /// Nobody listens there.
    Refused = 2,
    /// The peer reset it.
    Reset = 3,
    /// The peer was silent for too long.
    TimedOut = 4,
    /// The board gave it up.
    Aborted = 5,
    /// There is no way to that address.
    NoRoute = 6,
    /// The address is not the board's, or no one's that could be meant.
    BadAddress = 7,
    /// Somebody else has it.
    InUse = 8,
    /// A bound of the board's is reached.
    TooMany = 9,
    /// Nobody answers on the way to that address.
    Unreachable = 10,
}

impl Why {
    const ALL: [Why; 10] = [
        Why::Closed,
        Why::Refused,
        Why::Reset,
        Why::TimedOut,
        Why::Aborted,
        Why::NoRoute,
        Why::BadAddress,
        Why::InUse,
        Why::TooMany,
        Why::Unreachable,
    ];

    fn of(code: u8) -> Option<Why> {
        Why::ALL.into_iter().find(|why| *why as u8 == code)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Closed => "both sides have finished",
            Why::Refused => "nobody listens there",
            Why::Reset => "the peer has reset the stream",
            Why::TimedOut => "the peer was silent for too long",
            Why::Aborted => "the board has given the stream up",
            Why::NoRoute => "the board has no route to that address: add one to its configuration",
            Why::BadAddress => "that is no address of the board's, or none that can be connected to",
            Why::InUse => "somebody else has that address and port on the board",
            Why::TooMany => "the board takes no more of these: close some, or raise its bounds",
            Why::Unreachable => {
                "no route to that host: nobody answers on the board's net for it, or for the next router"
            }
        })
    }
}

impl core::error::Error for Why {}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Why {
        match reason {
            Reason::Closed => Why::Closed,
            Reason::Refused => Why::Refused,
            Reason::Reset => Why::Reset,
            Reason::TimedOut => Why::TimedOut,
            Reason::Unreachable => Why::Unreachable,
            Reason::Aborted => Why::Aborted,
        }
    }
}

impl From<crate::Refused> for Why {
    fn from(refused: crate::Refused) -> Why {
        use crate::Refused;
        use kiban_stack::tcp::Refusal;
        match refused {
            Refused::NoRoute => Why::NoRoute,
            Refused::Tcp(Refusal::AddressInUse) => Why::InUse,
            Refused::Tcp(Refusal::BadAddress) => Why::BadAddress,
            _ => Why::TooMany,
        }
    }
}

/// The fields of an entry.
#[derive(Clone, Copy, Default)]
struct Fields {
    what: u8,
    code: u8,
    listener: u16,
    slot: u32,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl Fields {
    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (self.what, self.code);
        bytes[2..4].copy_from_slice(&self.listener.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_ne_bytes());
        for (end, address) in [self.local, self.remote].into_iter().enumerate() {
            let Some(address) = address else { continue };
            bytes[12 + 2 * end..14 + 2 * end].copy_from_slice(&address.port().to_ne_bytes());
            let at = 16 + 16 * end;
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes[8 + end] = 4;
                    bytes[at..at + 4].copy_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes[8 + end] = 6;
                    bytes[at..at + 16].copy_from_slice(&ip.octets());
                }
            }
        }
        bytes
    }

    fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Fields> {
        let address = |end: usize| {
            let port = u16::from_ne_bytes([bytes[12 + 2 * end], bytes[13 + 2 * end]]);
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[16 + 16 * end..32 + 16 * end]);
            let [a, b, c, d, ..] = octets;
            match bytes[8 + end] {
                0 => Some(None),
                4 => Some(Some(SocketAddr::from((Ipv4Addr::new(a, b, c, d), port)))),
                6 => Some(Some(SocketAddr::from((Ipv6Addr::from(octets), port)))),
                _ => None,
            }
        };
        Some(Fields {
            what: bytes[0],
            code: bytes[1],
            listener: u16::from_ne_bytes([bytes[2], bytes[3]]),
            slot: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            local: address(0)?,
            remote: address(1)?,
        })
    }
}

impl Ask {
    /// As an entry of a ring, or a packet.
    pub fn bytes(self) -> [u8; ENTRY_BYTES] {
        let none = Fields::default();
        match self {
            Ask::Connect { slot, local, remote } => {
                Fields { what: 1, slot, local, remote: Some(remote), ..none }
            }
            Ask::Listen { listener, local } => Fields { what: 2, listener, local: Some(local), ..none },
            Ask::Unlisten { listener } => Fields { what: 3, listener, ..none },
            Ask::Offer { listener, slot } => Fields { what: 4, listener, slot, ..none },
            Ask::Look { slot } => Fields { what: 5, slot, ..none },
            Ask::Close { slot } => Fields { what: 6, slot, ..none },
            Ask::Abort { slot } => Fields { what: 7, slot, ..none },
            Ask::Nagle { slot, is_on } => Fields { what: 8, slot, code: is_on.into(), ..none },
            Ask::Fate { local, remote } => {
                Fields { what: 9, local: Some(local), remote: Some(remote), ..none }
            }
        }
        .bytes()
    }

    /// Of an entry; none: it is not understood.
    pub fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Ask> {
        let Fields { what, code, listener, slot, local, remote } = Fields::read(bytes)?;
        Some(match what {
            1 => Ask::Connect { slot, local, remote: remote? },
            2 => Ask::Listen { listener, local: local? },
            3 => Ask::Unlisten { listener },
            4 => Ask::Offer { listener, slot },
            5 => Ask::Look { slot },
            6 => Ask::Close { slot },
            7 => Ask::Abort { slot },
            8 => Ask::Nagle { slot, is_on: code != 0 },
            9 => Ask::Fate { local: local?, remote: remote? },
            _ => return None,
        })
    }
}

impl Told {
    /// As an entry of a ring, or a packet.
    pub fn bytes(self) -> [u8; ENTRY_BYTES] {
        let none = Fields::default();
        match self {
            Told::Listening { listener, result } => {
                let code = result.err().map_or(0, |why| why as u8);
                Fields { what: 1, listener, code, local: result.ok(), ..none }
            }
            Told::Opened { slot, local } => Fields { what: 2, slot, local: Some(local), ..none },
            Told::Accepted { listener, slot, local, remote } => {
                Fields { what: 3, listener, slot, local: Some(local), remote: Some(remote), ..none }
            }
            Told::Look { slot } => Fields { what: 4, slot, ..none },
            Told::Ended { slot, why } => Fields { what: 5, slot, code: why as u8, ..none },
            Told::Free { slot } => Fields { what: 6, slot, ..none },
        }
        .bytes()
    }

    /// Of an entry; none: it is not understood.
    pub fn read(bytes: &[u8; ENTRY_BYTES]) -> Option<Told> {
        let Fields { what, code, listener, slot, local, remote } = Fields::read(bytes)?;
        Some(match what {
            1 if code == 0 => Told::Listening { listener, result: Ok(local?) },
            1 => Told::Listening { listener, result: Err(Why::of(code)?) },
            2 => Told::Opened { slot, local: local? },
            3 => Told::Accepted { listener, slot, local: local?, remote: remote? },
            4 => Told::Look { slot },
            5 => Told::Ended { slot, why: Why::of(code)? },
            6 => Told::Free { slot },
            _ => return None,
        })
    }
}
