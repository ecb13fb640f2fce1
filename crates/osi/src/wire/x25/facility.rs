//! Facilities (X.25 §7, Annex G; ISO 8208): a code, whose two high bits are the class, followed by one, two,
//! three or n octets.
//!
//! ```text
//! class A 00  one octet    01 fast select, reverse charging   02 throughput   03 closed user group
//!                          0B expedited   00 marker
//! class B 01  two          42 packet size   43 window   47 closed user group   49 transit delay
//! class C 10  three
//! class D 11  length, n    C9 called and CB calling address extension
//! ```
//!
//! Rules     an unknown facility is kept; its class gives its length. Facilities after the marker `00 0F` are
//!           meant for the DTEs. Markers and order are kept, so that a decoded field can be encoded
//!           unchanged.

use kiban_base::Malformed;

/// Maximum length of all facilities in bytes (§7.1).
pub const FACILITIES_BYTES_MAX: usize = 109;

const MARKER: u8 = 0x00;
const FAST_SELECT: u8 = 0x01;
const THROUGHPUT: u8 = 0x02;
const EXPEDITED: u8 = 0x0b;
const PACKET_SIZE: u8 = 0x42;
const WINDOW: u8 = 0x43;
const TRANSIT_DELAY: u8 = 0x49;
const CALLED_EXTENSION: u8 = 0xc9;
const CALLING_EXTENSION: u8 = 0xcb;

/// Fast select (§6.16).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FastSelect {
    /// Not requested.
    #[default]
    No,
    /// User data of up to 128 octets; the call may be accepted or cleared.
    Unrestricted,
    /// User data of up to 128 octets; the call can only be cleared.
    Restricted,
}

/// An address extension (§G.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extension<'a> {
    /// The kind of address: 0 for a complete NSAP address, 1 for a part of one, 2 for another address.
    pub usage: u8,
    /// The length of the address in half octets.
    pub half_octets: u8,
    /// The octets of the address, two digits in each.
    pub octets: &'a [u8],
}

/// One facility.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Facility<'a> {
    /// A marker: the following facilities belong to the networks (00, FF) or to the DTEs (0F).
    Marker(u8),
    /// Fast select and reverse charging, which share an octet; the other bits of the octet are kept.
    Charging {
        /// Fast select.
        fast_select: FastSelect,
        /// Whether reverse charging is requested.
        reverse: bool,
        /// Bits 2 to 6 of the octet, unshifted.
        other: u8,
    },
    /// The throughput class for each direction (Table 18).
    Throughput {
        /// For data sent by the called DTE.
        called: u8,
        /// For data sent by the calling DTE.
        calling: u8,
    },
    /// Packet size, as a power of two.
    PacketSize {
        /// For data sent by the called DTE.
        called: u8,
        /// For data sent by the calling DTE.
        calling: u8,
    },
    /// Window size.
    Window {
        /// For data sent by the called DTE.
        called: u8,
        /// For data sent by the calling DTE.
        calling: u8,
    },
    /// Transit delay, in milliseconds.
    TransitDelay(u16),
    /// Whether expedited data (interrupts) is used.
    Expedited(bool),
    /// Called address extension.
    CalledExtension(Extension<'a>),
    /// Calling address extension.
    CallingExtension(Extension<'a>),
    /// Any other facility: its code and its octets, without the length octet of class D.
    Other(u8, &'a [u8]),
}

impl<'a> Facility<'a> {
    /// Reads one facility; a facility with a known code but an invalid form is kept as [`Facility::Other`].
    ///
    /// # Errors
    /// `Truncated` for an empty slice; `FacilityLength` if the facility exceeds the slice.
    pub fn read(bytes: &'a [u8]) -> Result<(Facility<'a>, usize), Malformed> {
        let (code, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        let (front, length) = match code >> 6 {
            3 => (2, usize::from(*rest.first().ok_or(Malformed::FacilityLength)?)),
            class => (1, usize::from(class) + 1),
        };
        let value = bytes.get(front..front + length).ok_or(Malformed::FacilityLength)?;
        let other = Facility::Other(*code, value);
        let facility = match (*code, value) {
            (MARKER, [of]) => Facility::Marker(*of),
            (FAST_SELECT, [octet]) => Facility::Charging {
                fast_select: match octet >> 6 {
                    2 => FastSelect::Unrestricted,
                    3 => FastSelect::Restricted,
                    _ => FastSelect::No,
                },
                reverse: octet & 1 != 0,
                // 01 means the same as 00: fast select is not requested.
                other: if octet >> 6 == 1 { octet & 0x7e } else { octet & 0x3e },
            },
            (THROUGHPUT, [octet]) => Facility::Throughput { called: octet >> 4, calling: octet & 15 },
            (PACKET_SIZE, [called, calling]) => Facility::PacketSize { called: *called, calling: *calling },
            (WINDOW, [called, calling]) => Facility::Window { called: *called, calling: *calling },
            (TRANSIT_DELAY, [high, low]) => Facility::TransitDelay(u16::from_be_bytes([*high, *low])),
            (EXPEDITED, [octet @ (0 | 1)]) => Facility::Expedited(*octet == 1),
            (CALLED_EXTENSION, value) => Extension::of(value).map_or(other, Facility::CalledExtension),
            (CALLING_EXTENSION, value) => Extension::of(value).map_or(other, Facility::CallingExtension),
            _ => other,
        };
        Ok((facility, front + length))
    }

    /// Returns the number of bytes that [`Facility::write`] writes.
    pub fn length(&self) -> usize {
        match self {
            Facility::Marker(_)
            | Facility::Charging { .. }
            | Facility::Throughput { .. }
            | Facility::Expedited(_) => 2,
            Facility::PacketSize { .. } | Facility::Window { .. } | Facility::TransitDelay(_) => 3,
            Facility::CalledExtension(extension) | Facility::CallingExtension(extension) => {
                3 + extension.octets.len()
            }
            Facility::Other(code, value) => value.len() + if code >> 6 == 3 { 2 } else { 1 },
        }
    }

    /// Writes the facility; returns its length in bytes.
    ///
    /// # Panics
    /// If the target is too short.
    pub fn write(&self, bytes: &mut [u8]) -> usize {
        let extension = |code, extension: &Extension<'_>, bytes: &mut [u8]| {
            let front =
                [code, 1 + extension.octets.len() as u8, extension.usage << 6 | extension.half_octets];
            bytes[..3].copy_from_slice(&front);
            bytes[3..3 + extension.octets.len()].copy_from_slice(extension.octets);
        };
        match *self {
            Facility::Marker(of) => bytes[..2].copy_from_slice(&[MARKER, of]),
            Facility::Charging { fast_select, reverse, other } => {
                let fast = match fast_select {
                    FastSelect::No => 0,
                    FastSelect::Unrestricted => 0x80,
                    FastSelect::Restricted => 0xc0,
                };
                bytes[..2].copy_from_slice(&[FAST_SELECT, fast | other & 0x7e | u8::from(reverse)]);
            }
            Facility::Throughput { called, calling } => {
                bytes[..2].copy_from_slice(&[THROUGHPUT, called << 4 | calling & 15]);
            }
            Facility::PacketSize { called, calling } => {
                bytes[..3].copy_from_slice(&[PACKET_SIZE, called, calling]);
            }
            Facility::Window { called, calling } => bytes[..3].copy_from_slice(&[WINDOW, called, calling]),
            Facility::TransitDelay(delay) => {
                let [high, low] = delay.to_be_bytes();
                bytes[..3].copy_from_slice(&[TRANSIT_DELAY, high, low]);
            }
            Facility::Expedited(used) => bytes[..2].copy_from_slice(&[EXPEDITED, u8::from(used)]),
            Facility::CalledExtension(of) => extension(CALLED_EXTENSION, &of, bytes),
            Facility::CallingExtension(of) => extension(CALLING_EXTENSION, &of, bytes),
            Facility::Other(code, value) => {
                bytes[0] = code;
                let at = if code >> 6 == 3 {
                    bytes[1] = value.len() as u8;
                    2
                } else {
                    1
                };
                bytes[at..at + value.len()].copy_from_slice(value);
            }
        }
        self.length()
    }
}

impl<'a> Extension<'a> {
    /// Builds the extension of a complete NSAP address.
    pub fn nsap(octets: &'a [u8]) -> Extension<'a> {
        Extension { usage: 0, half_octets: (octets.len() * 2) as u8, octets }
    }

    fn of(value: &'a [u8]) -> Option<Extension<'a>> {
        let (first, octets) = value.split_first()?;
        let half_octets = first & 63;
        (usize::from(half_octets).div_ceil(2) == octets.len()).then_some(Extension {
            usage: first >> 6,
            half_octets,
            octets,
        })
    }
}

/// Iterates over the facilities of a field; the last item may be an error.
pub fn facilities(mut field: &[u8]) -> impl Iterator<Item = Result<Facility<'_>, Malformed>> {
    core::iter::from_fn(move || {
        if field.is_empty() {
            return None;
        }
        Some(match Facility::read(field) {
            Ok((facility, used)) => {
                field = &field[used..];
                Ok(facility)
            }
            Err(rule) => {
                field = &[];
                Err(rule)
            }
        })
    })
}
