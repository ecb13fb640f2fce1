//! The wire format of rsockets (docs/rsockets.md; facts from rdma-core's `librdmacm/rsocket.c`).
//!
//! ```text
//! private data of request and reply, 40 bytes, in network byte order:
//!      0  version            1
//!      1  flags              1: the sender is big-endian; 2: it supports I/O maps
//!      2  credits            16 bits: the number of messages that it can receive
//!      4  reserved           three bytes of zero
//!      7  I/O map            number of entries of its map, scaled (see [`scaled`])
//!      8  SGL                address (64), key (32), entries (32): where the peer announces receive buffers
//!     24  first buffer       address (64), key (32), bytes (32): where data goes first
//!
//! a message: a Send of four bytes in the sender's byte order, or over RoCEv2 the immediate data of the Write
//! that precedes it, which is empty if there is none; the upper three bits are its type
//!      0  data               number of bytes of the Write before it
//!      4  credits            messages received plus credits, in total (16 bits, wrapping); an entry of
//!                            the SGL may have been written before it
//!      6  I/O map            index of the entry that has been written
//!      7  control            0 disconnect, 1 keepalive, 2 shutdown: no more data follows
//!
//! an entry of the SGL: address (64), key (32), bytes (32); of an I/O map: offset (64), then the same.
//! Both are written in the byte order of the receiver.
//! ```

/// Length of the private data of a connection setup.
pub(super) const CONNECT_BYTES: usize = 40;
/// Length of a message.
pub(super) const MESSAGE_BYTES: usize = 4;
/// Length of an entry of the SGL.
pub(super) const ENTRY_BYTES: usize = 16;
/// Length of an entry of an I/O map.
pub(super) const IOMAP_BYTES: usize = 24;
/// Number of entries of our SGL.
pub(super) const ENTRIES: usize = 2;

const VERSION: u8 = 1;
const FLAG_NET: u8 = 1;
const FLAG_IOMAP: u8 = 2;

/// Memory on one side to which the other side writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

/// An entry of an I/O map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct MapEntry {
    pub(super) offset: u64,
    pub(super) entry: Entry,
}

/// The byte order of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The byte order of this machine.
    pub(super) const OURS: ByteOrder =
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    fn word(self, value: u32) -> [u8; 4] {
        if self == ByteOrder::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn long(self, value: u64) -> [u8; 8] {
        if self == ByteOrder::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn read_word(self, bytes: [u8; 4]) -> u32 {
        if self == ByteOrder::Big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn read_long(self, bytes: [u8; 8]) -> u64 {
        if self == ByteOrder::Big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }
}

/// Returns `N` bytes from `at` on.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

impl Entry {
    pub(super) fn bytes(self, order: ByteOrder) -> [u8; ENTRY_BYTES] {
        let mut made = [0; ENTRY_BYTES];
        made[..8].copy_from_slice(&order.long(self.address));
        made[8..12].copy_from_slice(&order.word(self.key));
        made[12..].copy_from_slice(&order.word(self.length));
        made
    }

    pub(super) fn read(bytes: &[u8; ENTRY_BYTES], order: ByteOrder) -> Entry {
        Entry {
            address: order.read_long(part(bytes, 0)),
            key: order.read_word(part(bytes, 8)),
            length: order.read_word(part(bytes, 12)),
        }
    }
}

impl MapEntry {
    pub(super) fn bytes(self, order: ByteOrder) -> [u8; IOMAP_BYTES] {
        let mut made = [0; IOMAP_BYTES];
        made[..8].copy_from_slice(&order.long(self.offset));
        made[8..].copy_from_slice(&self.entry.bytes(order));
        made
    }

    pub(super) fn read(bytes: &[u8; IOMAP_BYTES], order: ByteOrder) -> MapEntry {
        MapEntry { offset: order.read_long(part(bytes, 0)), entry: Entry::read(&part(bytes, 8), order) }
    }
}

/// The private data of a connect or accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Connect {
    pub(super) order: ByteOrder,
    pub(super) credits: u16,
    /// Number of entries in the sender's I/O map, or 0 if it does not support I/O maps.
    pub(super) iomap: u16,
    pub(super) sgl: Entry,
    pub(super) buffer: Entry,
}

impl Connect {
    pub(super) fn bytes(&self) -> [u8; CONNECT_BYTES] {
        let mut made = [0; CONNECT_BYTES];
        made[0] = VERSION;
        made[1] = FLAG_IOMAP | if self.order == ByteOrder::Big { FLAG_NET } else { 0 };
        made[2..4].copy_from_slice(&self.credits.to_be_bytes());
        made[7] = scaled(self.iomap);
        made[8..24].copy_from_slice(&self.sgl.bytes(ByteOrder::Big));
        made[24..].copy_from_slice(&self.buffer.bytes(ByteOrder::Big));
        made
    }

    /// Parses private data and ignores padding. Returns `None` if it is too short or has an unknown version.
    pub(super) fn read(bytes: &[u8]) -> Option<Connect> {
        if bytes.len() < CONNECT_BYTES || bytes[0] != VERSION {
            return None;
        }
        Some(Connect {
            order: if bytes[1] & FLAG_NET != 0 { ByteOrder::Big } else { ByteOrder::Little },
            credits: u16::from_be_bytes(part(bytes, 2)),
            iomap: if bytes[1] & FLAG_IOMAP != 0 { unscaled(bytes[7]) } else { 0 },
            sgl: Entry::read(&part(bytes, 8), ByteOrder::Big),
            buffer: Entry::read(&part(bytes, 24), ByteOrder::Big),
        })
    }
}

/// Encodes a number: up to 128 unchanged, otherwise divided by 256 (rounded down) with the top bit set.
pub(super) fn scaled(value: u16) -> u8 {
    match u8::try_from(value) {
        Ok(small) if small <= 0x80 => small,
        _ => 0x80 | (value >> 8).min(0x7f) as u8,
    }
}

/// Inverts [`scaled`].
pub(super) fn unscaled(value: u8) -> u16 {
    if value <= 0x80 { u16::from(value) } else { u16::from(value & 0x7f) << 8 }
}

/// The contents of a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Control {
    Disconnect,
    Keepalive,
    Shutdown,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    Data(u32),
    Credits(u16),
    Iomap(u16),
    Control(Control),
    /// A message of an unknown type.
    Unknown,
}

impl Message {
    pub(super) fn bytes(self, order: ByteOrder) -> [u8; MESSAGE_BYTES] {
        order.word(match self {
            Message::Data(bytes) => bytes & DATA,
            Message::Credits(credits) => 4 << 29 | u32::from(credits),
            Message::Iomap(index) => 6 << 29 | u32::from(index),
            Message::Control(control) => {
                7 << 29
                    | match control {
                        Control::Disconnect => 0,
                        Control::Keepalive => 1,
                        Control::Shutdown => 2,
                    }
            }
            Message::Unknown => 5 << 29,
        })
    }

    /// Returns the message as the immediate data of a Write, which are in the upper half.
    pub(super) fn immediate(self) -> u64 {
        u64::from(u32::from_be_bytes(self.bytes(ByteOrder::Big))) << 32
    }

    /// Reads a message that came as the immediate data of a Write.
    pub(super) fn of_immediate(data: u64) -> Message {
        Message::read(((data >> 32) as u32).to_be_bytes(), ByteOrder::Big)
    }

    pub(super) fn read(bytes: [u8; MESSAGE_BYTES], order: ByteOrder) -> Message {
        let word = order.read_word(bytes);
        let data = word & DATA;
        match (word >> 29, data) {
            (0, _) => Message::Data(data),
            // The sum that the sender computes may exceed 16 bits.
            (4, _) => Message::Credits(data as u16),
            (6, _) => Message::Iomap(data as u16),
            (7, 0) => Message::Control(Control::Disconnect),
            (7, 1) => Message::Control(Control::Keepalive),
            (7, 2) => Message::Control(Control::Shutdown),
            _ => Message::Unknown,
        }
    }
}

/// The bits of a message below its type.
const DATA: u32 = (1 << 29) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// rdma-core's struct, field by field.
    const REQUEST: [u8; CONNECT_BYTES] = [
        1, 2, 0x01, 0x80, 0, 0, 0, 5, // version, flags, credits, reserved, I/O map
        0, 0, 0x7f, 0xee, 1, 2, 3, 4, 0, 0, 0x11, 0x22, 0, 0, 0, 2, // SGL
        0, 0, 0x7f, 0xff, 5, 6, 7, 8, 0, 0, 0x33, 0x44, 0, 1, 0, 0, // first buffer
    ];

    #[test]
    fn the_connect_header_equals_that_of_rdma_core() {
        let request = Connect {
            order: ByteOrder::Little,
            credits: 384,
            iomap: 5,
            sgl: Entry { address: 0x7fee_0102_0304, key: 0x1122, length: 2 },
            buffer: Entry { address: 0x7fff_0506_0708, key: 0x3344, length: 65536 },
        };
        assert_eq!(request.bytes(), REQUEST);
        assert_eq!(Connect::read(&REQUEST), Some(request));
        let mut other = REQUEST;
        other[1] = 1;
        let read = Connect::read(&other).expect("of a big-endian end that has no map");
        assert_eq!((read.order, read.iomap), (ByteOrder::Big, 0));
        other[0] = 2;
        assert_eq!(Connect::read(&other), None);
        assert_eq!(Connect::read(&REQUEST[..39]), None);
    }

    #[test]
    fn messages_round_trip_and_unknown_ones_are_recognised() {
        let rows = [
            (Message::Data(65536), 65536),
            (Message::Credits(0xfffe), 0x8000_fffe),
            (Message::Iomap(3), 0xc000_0003),
            (Message::Control(Control::Disconnect), 0xe000_0000),
            (Message::Control(Control::Keepalive), 0xe000_0001),
            (Message::Control(Control::Shutdown), 0xe000_0002),
        ];
        for (message, word) in rows {
            assert_eq!(message.bytes(ByteOrder::Little), u32::to_le_bytes(word), "{message:?}");
            assert_eq!(message.bytes(ByteOrder::Big), u32::to_be_bytes(word), "{message:?}");
            assert_eq!(Message::read(u32::to_le_bytes(word), ByteOrder::Little), message);
            assert_eq!(Message::read(u32::to_be_bytes(word), ByteOrder::Big), message);
            assert_eq!(message.immediate(), u64::from(word) << 32);
            // The lower half is the length of the Write.
            assert_eq!(Message::of_immediate(u64::from(word) << 32 | 77), message);
        }
        // Credits wrap at 16 bits, even if the sender's sum was longer.
        assert_eq!(Message::read(u32::to_le_bytes(0x8001_0005), ByteOrder::Little), Message::Credits(5));
        for word in [1u32 << 29, 2 << 29, 3 << 29, 5 << 29, 0xe000_0003] {
            assert_eq!(Message::read(word.to_le_bytes(), ByteOrder::Little), Message::Unknown);
        }
    }

    #[test]
    fn entries_are_written_in_the_byte_order_of_the_reader() {
        let entry = Entry { address: 0x0102_0304_0506_0708, key: 9, length: 10 };
        assert_eq!(entry.bytes(ByteOrder::Big), [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 10]);
        let mapped = MapEntry { offset: 77, entry };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(Entry::read(&entry.bytes(order), order), entry);
            assert_eq!(MapEntry::read(&mapped.bytes(order), order), mapped);
        }
    }

    #[test]
    fn iomap_sizes_are_scaled_as_by_rdma_core() {
        for (value, sent, meant) in [
            (0, 0, 0),
            (127, 127, 127),
            (128, 128, 128),
            (200, 128, 128),
            (256, 129, 256),
            (1000, 131, 768),
            (0xffff, 255, 127 << 8),
        ] {
            assert_eq!((scaled(value), unscaled(sent)), (sent, meant), "{value}");
        }
    }
}
