//! The contents of call packets (addresses, facilities, user data), and the negotiation of sizes (X.25 §6.12,
//! ISO 8208 §15).
//!
//! Negotiation  the answer to a proposal is the same value, or one closer to the default (packets of 128
//!              octets, windows of 2). An answer without a value accepts the proposal; a call without a value
//!              proposes the default.

use crate::wire::x25::{self, AddressBlock, Extension, Facility, FastSelect, facilities};
use alloc::vec::Vec;
use kiban_base::Malformed;

/// Default packet size: octets of user data.
pub const PACKET_BYTES_DEFAULT: u16 = 128;
/// Default window in packets.
pub const WINDOW_DEFAULT: u8 = 2;

/// A value for each direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Both<T> {
    /// For data sent by the called DTE.
    pub called: T,
    /// For data sent by the calling DTE.
    pub calling: T,
}

impl<T: Copy> Both<T> {
    /// Returns the same value for both directions.
    pub fn same(size: T) -> Both<T> {
        Both { called: size, calling: size }
    }

    pub(super) fn map<U>(self, size: impl Fn(T) -> U) -> Both<U> {
        Both { called: size(self.called), calling: size(self.calling) }
    }
}

/// Facilities of a call; absent ones are not encoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facilities {
    /// Packet size in octets: 16 to 4096, a power of two.
    pub packet_bytes: Option<Both<u16>>,
    /// Window in packets: 1 to 7, or 1 to 127 with modulo 128.
    pub window: Option<Both<u8>>,
    /// Throughput class, as the standard codes it.
    pub throughput: Option<Both<u8>>,
    /// Fast select.
    pub fast_select: FastSelect,
    /// Whether reverse charging is requested.
    pub reverse_charging: bool,
    /// Transit delay in milliseconds.
    pub transit_delay: Option<u16>,
    /// Whether expedited data is used.
    pub expedited: Option<bool>,
    /// The called address extension: an NSAP address.
    pub called_extension: Option<Vec<u8>>,
    /// The calling address extension: an NSAP address.
    pub calling_extension: Option<Vec<u8>>,
    /// All other facilities of the network (closed user groups and so on), in encoded form. They come before
    /// the first marker.
    pub others: Vec<u8>,
    /// All other facilities after the marker `00 0F` for DTE facilities, in encoded form.
    pub dte_others: Vec<u8>,
}

impl Facilities {
    /// Decodes a facility field; unknown facilities are kept.
    ///
    /// # Errors
    /// `FacilityLength` if a facility exceeds the field.
    pub fn read(field: &[u8]) -> Result<Facilities, Malformed> {
        let mut read = Facilities::default();
        let mut marker = None;
        for facility in facilities(field) {
            let facility = facility?;
            match facility {
                Facility::PacketSize { called, calling } => {
                    // An invalid code becomes 0, which the check of the sizes rejects.
                    let bytes = |code| if (4..=12).contains(&code) { 1u16 << code } else { 0 };
                    read.packet_bytes = Some(Both { called, calling }.map(bytes));
                }
                Facility::Window { called, calling } => read.window = Some(Both { called, calling }),
                Facility::Throughput { called, calling } => read.throughput = Some(Both { called, calling }),
                Facility::Charging { fast_select, reverse, .. } => {
                    (read.fast_select, read.reverse_charging) = (fast_select, reverse);
                }
                Facility::TransitDelay(delay) => read.transit_delay = Some(delay),
                Facility::Expedited(used) => read.expedited = Some(used),
                Facility::CalledExtension(Extension { octets, .. }) => {
                    read.called_extension = Some(octets.into())
                }
                Facility::CallingExtension(Extension { octets, .. }) => {
                    read.calling_extension = Some(octets.into())
                }
                Facility::Marker(of) => marker = Some(of),
                Facility::Other(..) => match marker {
                    None => put(&mut read.others, facility),
                    Some(0x0f) => put(&mut read.dte_others, facility),
                    // Facilities after any other marker are for use between networks, and are not kept.
                    Some(_) => {}
                },
            }
        }
        Ok(read)
    }

    /// Encodes the facility field.
    pub fn field(&self) -> Vec<u8> {
        let mut field = Vec::new();
        if let Some(Both { called, calling }) = self.packet_bytes {
            let code = |bytes: u16| bytes.max(1).ilog2() as u8;
            put(&mut field, Facility::PacketSize { called: code(called), calling: code(calling) });
        }
        if let Some(Both { called, calling }) = self.window {
            put(&mut field, Facility::Window { called, calling });
        }
        if self.fast_select != FastSelect::No || self.reverse_charging {
            let (fast_select, reverse) = (self.fast_select, self.reverse_charging);
            put(&mut field, Facility::Charging { fast_select, reverse, other: 0 });
        }
        if let Some(Both { called, calling }) = self.throughput {
            put(&mut field, Facility::Throughput { called, calling });
        }
        if let Some(delay) = self.transit_delay {
            put(&mut field, Facility::TransitDelay(delay));
        }
        field.extend_from_slice(&self.others);
        let mut between = Vec::new();
        if let Some(used) = self.expedited {
            put(&mut between, Facility::Expedited(used));
        }
        if let Some(octets) = &self.calling_extension {
            put(&mut between, Facility::CallingExtension(Extension::nsap(octets)));
        }
        if let Some(octets) = &self.called_extension {
            put(&mut between, Facility::CalledExtension(Extension::nsap(octets)));
        }
        between.extend_from_slice(&self.dte_others);
        if !between.is_empty() {
            put(&mut field, Facility::Marker(0x0f));
            field.extend_from_slice(&between);
        }
        field
    }
}

fn put(field: &mut Vec<u8>, facility: Facility<'_>) {
    let at = field.len();
    field.resize(at + facility.length(), 0);
    facility.write(&mut field[at..]);
}

/// The contents of a call request, incoming call, call accepted or call connected packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Called and calling address.
    pub addresses: AddressBlock,
    /// The facilities.
    pub facilities: Facilities,
    /// User data: up to 16 octets, or 128 with fast select; in an answer only with fast select.
    pub user_data: Vec<u8>,
}

impl Call {
    pub(super) fn read(bytes: &[u8], extended: bool) -> Result<Call, Malformed> {
        let (call, _) = x25::Call::read(bytes, extended)?;
        Ok(Call {
            addresses: call.addresses,
            facilities: Facilities::read(call.facilities)?,
            user_data: call.user_data.into(),
        })
    }

    /// Encodes everything after the packet header; `None` if the facilities do not fit.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        let field = self.facilities.field();
        let extension = |octets: &Option<Vec<u8>>| octets.as_ref().is_none_or(|octets| octets.len() <= 20);
        let fits = field.len() <= x25::FACILITIES_BYTES_MAX
            && extension(&self.facilities.called_extension)
            && extension(&self.facilities.calling_extension);
        if !fits {
            return None;
        }
        let call = x25::Call { addresses: self.addresses, facilities: &field, user_data: &self.user_data };
        let mut bytes = alloc::vec![0; call.length()];
        call.write(&mut bytes);
        Some(bytes)
    }
}

/// The sizes in use, from this end's point of view.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sizes {
    /// Maximum octets in a packet sent.
    pub packet_bytes_out: u16,
    /// Maximum octets in a packet received.
    pub packet_bytes_in: u16,
    /// Send window in packets.
    pub window_out: u8,
    /// Receive window in packets.
    pub window_in: u8,
}

impl Sizes {
    /// Returns the same sizes for both directions.
    pub fn same(packet_bytes: u16, window: u8) -> Sizes {
        Sizes {
            packet_bytes_out: packet_bytes,
            packet_bytes_in: packet_bytes,
            window_out: window,
            window_in: window,
        }
    }

    pub(super) fn of(packet_bytes: Both<u16>, window: Both<u8>, calls: bool) -> Sizes {
        let pick = |calling, called| if calls { (calling, called) } else { (called, calling) };
        let (packet_bytes_out, packet_bytes_in) = pick(packet_bytes.calling, packet_bytes.called);
        let (out, into) =
            if calls { (window.calling, window.called) } else { (window.called, window.calling) };
        Sizes { packet_bytes_out, packet_bytes_in, window_out: out, window_in: into }
    }
}

/// Returns whether a call may propose the sizes in these facilities.
pub(super) fn is_allowed(facilities: &Facilities, window_max: u8) -> bool {
    let packet = |bytes: u16| bytes.is_power_of_two() && (16..=4096).contains(&bytes);
    let window = |packets: u8| (1..=window_max).contains(&packets);
    facilities.packet_bytes.is_none_or(|both| packet(both.called) && packet(both.calling))
        && facilities.window.is_none_or(|both| window(both.called) && window(both.calling))
}

/// Returns whether `answer` lies between `proposed` and the default, inclusive.
pub(super) fn is_between<T: Ord + Copy>(answer: Both<T>, proposed: Both<T>, default: T) -> bool {
    let between = |answer: T, proposed: T| proposed.min(default) <= answer && answer <= proposed.max(default);
    between(answer.called, proposed.called) && between(answer.calling, proposed.calling)
}

/// Returns the answer to a proposal: a value above this end's maximum is reduced to that maximum, or to the
/// default if the default is greater.
pub(super) fn nearer<T: Ord + Copy>(proposed: Both<T>, max: T, default: T) -> Both<T> {
    proposed.map(|proposed| if proposed > max { max.max(default.min(proposed)) } else { proposed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_moves_only_towards_the_default() {
        for (proposed, max, expected) in
            [(1024, 4096, 1024), (1024, 256, 256), (64, 256, 64), (1024, 64, 128), (64, 16, 64)]
        {
            assert_eq!(nearer(Both::same(proposed), max, PACKET_BYTES_DEFAULT), Both::same(expected));
            assert!(is_between(Both::same(expected), Both::same(proposed), PACKET_BYTES_DEFAULT));
        }
        for (answer, proposed, fits) in
            [(256, 1024, true), (64, 1024, false), (2048, 1024, false), (128, 64, true)]
        {
            assert_eq!(is_between(Both::same(answer), Both::same(proposed), PACKET_BYTES_DEFAULT), fits);
        }
    }

    #[test]
    fn facilities_survive_a_round_trip() {
        let facilities = Facilities {
            packet_bytes: Some(Both { called: 128, calling: 4096 }),
            window: Some(Both { called: 2, calling: 127 }),
            throughput: Some(Both { called: 10, calling: 11 }),
            fast_select: FastSelect::Restricted,
            reverse_charging: true,
            transit_delay: Some(300),
            expedited: Some(true),
            called_extension: Some(alloc::vec![0x47, 0, 5]),
            calling_extension: Some(alloc::vec![0x49, 1]),
            others: alloc::vec![0x03, 0x12, 0x47, 1, 2],
            dte_others: alloc::vec![0xd2, 1, 9],
        };
        assert_eq!(Facilities::read(&facilities.field()), Ok(facilities));
    }
}
