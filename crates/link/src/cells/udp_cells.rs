//! Cells in UDP datagrams: 53 bytes each, with their HEC, as Dynamips and GNS3 carry ATM (their UDP network
//! I/O).
//!
//! ```text
//! one      | cell 53 |                       one datagram per cell
//! packed   | cell 53 | cell 53 | … |         a datagram up to the path's packet size
//! ```
//!
//! Purpose          carry the 353,208 cells per second of an OC-3c in each direction at low cost: a train of
//!                  datagrams is sent or received with one call.
//! Forms            the link accepts both forms, whichever it sends.
//! Order            as with UDP: between two hosts on one path, datagrams arrive in the order of sending.
//!                  AAL5's CRC detects lost cells.
//! HEC              the HEC passes through unchanged; the end of the circuit checks it.
//! Shards           a divided board has a socket for each shard, all bound to one address. The system gives
//!                  each train of datagrams to the shard of its first cell's circuit. The order of a
//!                  circuit's cells is kept as long as a train has no user cells of other shards. Once one
//!                  has, the socket of shard 0 receives everything, and the board hands the cells on.
//! Not implemented  idle cells, sequence numbers.

use super::datagram::{Datagrams, SendResult, TRAIN_BYTES_MAX, TRAIN_MAX};
use crate::{Link, LinkContext, LinkCounters, LinkTraits};
use kiban_atm::TimedCell;
use kiban_atm::wire::atm::{CELL_BYTES, Header, Interface, PTI_MANAGEMENT, VCI_USER_FIRST, header_bytes};
use kiban_os::udp::BpfInstruction;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Number of cells in a packed datagram that fits into a packet of 1500 bytes, over IPv4 or IPv6.
pub const PACKED_CELLS: usize = 27;
/// Cells of the longest datagram.
pub const PACKED_CELLS_MAX: usize = TRAIN_BYTES_MAX / CELL_BYTES;

/// A link of cells to a peer.
pub struct UdpCells {
    datagrams: Datagrams,
    name: String,
    /// Maximum number of cells per sent datagram.
    packed: usize,
    train: Vec<u8>,
    counters: LinkCounters,
    /// `Some` while the system distributes the datagrams over the shards of a board, as far as this socket
    /// knows.
    steered: Option<Steered>,
}

/// How the datagrams of one shard are recognised.
struct Steered {
    number: usize,
    shards: usize,
    /// The header word of the last cell that was for this shard.
    last: u32,
}

impl Steered {
    /// Returns whether a valid header belongs to a circuit of another shard. This does not matter for
    /// management cells and reserved circuits, whose order is not kept.
    #[inline]
    fn is_foreign(&mut self, cell: &[u8; CELL_BYTES]) -> bool {
        let [a, b, c, d, hec, ..] = *cell;
        let word = u32::from_be_bytes([a, b, c, d]);
        if word == self.last {
            return false;
        }
        let Header { vc, pti, .. } = Header::from_word(Interface::Uni, word);
        if vc.shard(self.shards) == self.number {
            self.last = word;
            return false;
        }
        vc.vci >= VCI_USER_FIRST && pti & PTI_MANAGEMENT == 0 && header_bytes(word)[4] == hec
    }
}

/// Returns a program that chooses the socket of a datagram's first cell: of the circuit's shard
/// ([`Vc::shard`](kiban_atm::wire::atm::Vc::shard)) for a user cell, and of shard 0 for a management cell.
fn steering_program(shards: usize) -> [BpfInstruction; 13] {
    use libc::{BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD};
    use libc::{BPF_MISC, BPF_MOD, BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X};
    let jump = |code: u32, k, jt, jf| BpfInstruction { code: code as u16, jt, jf, k };
    let plain = |code: u32, k| jump(code, k, 0, 0);
    [
        plain(BPF_LD | BPF_W | BPF_ABS, 0),
        jump(BPF_JMP | BPF_JSET | BPF_K, u32::from(PTI_MANAGEMENT) << 1, 10, 0),
        // The VPI of a UNI.
        plain(BPF_ALU | BPF_RSH | BPF_K, 20),
        plain(BPF_ALU | BPF_AND | BPF_K, 0xff),
        plain(BPF_MISC | BPF_TAX, 0),
        plain(BPF_LD | BPF_W | BPF_ABS, 0),
        // The VCI.
        plain(BPF_ALU | BPF_RSH | BPF_K, 4),
        plain(BPF_ALU | BPF_AND | BPF_K, 0xffff),
        jump(BPF_JMP | BPF_JGE | BPF_K, VCI_USER_FIRST.into(), 0, 3),
        plain(BPF_ALU | BPF_ADD | BPF_X, 0),
        plain(BPF_ALU | BPF_MOD | BPF_K, shards as u32),
        plain(BPF_RET | BPF_A, 0),
        ALL_TO_FIRST[0],
    ]
}

/// A program that chooses the socket of shard 0.
const ALL_TO_FIRST: [BpfInstruction; 1] =
    [BpfInstruction { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];

impl UdpCells {
    /// Opens a link between `local` and `peer` with up to `packed` cells per datagram: 1 for peers that
    /// support no more.
    ///
    /// # Errors
    /// The address is in use or does not belong to this host.
    pub fn open(local: SocketAddr, peer: SocketAddr, packed: usize) -> io::Result<UdpCells> {
        let mut links = UdpCells::open_group(local, peer, packed, 1)?;
        Ok(links.remove(0))
    }

    /// Opens a link with a socket for each of several shards.
    ///
    /// # Errors
    /// As for [`UdpCells::open`].
    pub fn open_group(
        local: SocketAddr,
        peer: SocketAddr,
        packed: usize,
        shards: usize,
    ) -> io::Result<Vec<UdpCells>> {
        let sockets = Datagrams::open_group(local, peer, false, shards)?;
        if shards > 1 {
            sockets[0].choose_socket(&steering_program(shards));
        }
        let link = |(number, datagrams)| UdpCells {
            datagrams,
            name: format!("udp-cells:{local}-{peer}"),
            packed: packed.clamp(1, PACKED_CELLS_MAX),
            train: Vec::new(),
            counters: LinkCounters::default(),
            steered: (shards > 1).then_some(Steered { number, shards, last: 0 }),
        };
        Ok(sockets.into_iter().enumerate().map(link).collect())
    }

    /// Returns the local address; if port 0 was requested, this includes the port that the system chose.
    pub fn local(&self) -> SocketAddr {
        self.datagrams.local()
    }
}

impl Link<TimedCell> for UdpCells {
    fn traits(&self) -> LinkTraits {
        LinkTraits { mtu_bytes: 0, whole_segments: false }
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<TimedCell>) -> io::Result<()> {
        let UdpCells { datagrams, name, counters, steered, .. } = self;
        let mut is_mixed = false;
        let take = |datagram: &[u8], counters: &mut LinkCounters, into: &mut VecDeque<TimedCell>| {
            let (cells, []) = datagram.as_chunks::<CELL_BYTES>() else {
                counters.malformed += 1;
                return;
            };
            counters.units_in += cells.len() as u64;
            counters.bytes_in += datagram.len() as u64;
            if let Some(steered) = steered {
                is_mixed |= cells.iter().any(|cell| steered.is_foreign(cell));
            }
            into.extend(cells.iter().map(|cell| TimedCell::from_bytes(lent.now, cell)));
        };
        let result = datagrams.each(into, counters, take).map_err(|error| with_name(name, error));
        if is_mixed {
            datagrams.choose_socket(&ALL_TO_FIRST);
            *steered = None;
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<TimedCell>, _: &mut LinkContext<'_>) -> io::Result<()> {
        let most = self.packed * (PACKED_CELLS_MAX / self.packed).min(TRAIN_MAX);
        while !units.is_empty() {
            let count = units.len().min(most);
            self.train.clear();
            units.range(..count).for_each(|cell| self.train.extend_from_slice(&cell.to_bytes()));
            let left = self.datagrams.send(&self.train, self.packed * CELL_BYTES);
            let (sent, is_full) = match left {
                SendResult::All => (count, false),
                SendResult::Some(datagrams) => ((datagrams * self.packed).min(count), true),
                SendResult::None => {
                    self.counters.send_errors += count as u64;
                    units.drain(..count);
                    continue;
                }
            };
            self.counters.units_out += sent as u64;
            self.counters.bytes_out += (sent * CELL_BYTES) as u64;
            units.drain(..sent);
            if is_full {
                break;
            }
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.datagrams.as_fd())
    }

    fn counters(&self) -> LinkCounters {
        self.counters
    }
}

/// Prefixes an error with the link's name.
pub(super) fn with_name(name: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

impl std::fmt::Debug for UdpCells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpCells({}, {} in a datagram)", self.name, self.packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiban_atm::wire::atm::{PTI_OAM_END_TO_END, Vc};
    use kiban_base::{Instant, Memory, PagePool, PduPool};
    use kiban_os::udp::UdpLink;

    const SHARDS: usize = 3;

    /// The links of several shards, and their peer.
    struct Group {
        links: Vec<UdpCells>,
        peer: UdpLink,
        memory: Memory,
    }

    impl Group {
        fn new() -> Group {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let peer = UdpLink::bind(any).expect("a port is free");
            let links = UdpCells::open_group(any, peer.local(), 1, SHARDS).expect("a port is free");
            let pages = || PagePool::new(1, 64);
            let memory = Memory { transmit: pages(), receive: pages(), pdus: PduPool::new(1) };
            Group { links, peer, memory }
        }

        /// Sends a datagram of cells with these headers.
        fn send(&self, headers: &[Header]) {
            let cell = |header: &Header| {
                TimedCell::new(Instant::ZERO, header.to_word(Interface::Uni), [0; 48]).to_bytes()
            };
            let datagram: Vec<u8> = headers.iter().flat_map(cell).collect();
            assert!(self.peer.send(&datagram, self.links[0].local()));
        }

        /// Returns the circuits of the cells that have arrived at each shard. On loopback, a datagram has
        /// arrived when send(2) returns.
        fn arrived(&mut self) -> Vec<Vec<Vc>> {
            let Group { links, memory, .. } = self;
            let take = |link: &mut UdpCells| {
                let mut cells = VecDeque::new();
                link.receive(&mut LinkContext { now: Instant::ZERO, memory }, &mut cells).expect("a socket");
                cells.iter().map(|cell| Header::from_word(Interface::Uni, cell.header).vc).collect()
            };
            links.iter_mut().map(take).collect()
        }
    }

    #[test]
    fn a_datagram_arrives_at_the_shard_of_its_first_cell() {
        let mut group = Group::new();
        let circuits = [(0, 3), (0, 5), (0, 31), (0, 32), (0, 33), (0, 34), (1, 34), (255, 65_535), (7, 4)];
        for vc in circuits.map(|(vpi, vci)| Vc::new(vpi, vci)) {
            for (gfc, pti) in [(0, 0), (0, 1), (9, 3), (0, PTI_OAM_END_TO_END), (15, 6)] {
                group.send(&[Header { gfc, pti, ..Header::user(vc, false) }]);
                let shard = if pti & PTI_MANAGEMENT == 0 { vc.shard(SHARDS) } else { 0 };
                let mut expected = vec![vec![]; SHARDS];
                expected[shard] = vec![vc];
                assert_eq!(group.arrived(), expected, "{vc}, payload type {pti}");
            }
        }
        assert_eq!([32, 33, 34, 35].map(|vci| Vc::new(0, vci).shard(SHARDS)), [2, 0, 1, 2]);
        // A datagram too short for a cell goes to shard 0.
        assert!(group.peer.send(&[1, 2, 3], group.links[0].local()));
        assert_eq!(group.arrived(), vec![vec![]; SHARDS]);
        assert_eq!(group.links[0].counters().malformed, 1);
    }

    #[test]
    fn once_a_peer_mixes_circuits_one_socket_receives_everything_in_order() {
        let [zero, one, two] = [33, 34, 35].map(|vci| Vc::new(0, vci));
        let user = |vc| Header::user(vc, false);
        let mut group = Group::new();
        // Management cells and reserved circuits may be in any datagram.
        let loopback = Header { pti: PTI_OAM_END_TO_END, ..user(two) };
        group.send(&[user(zero), loopback, user(Vc::new(0, 5))]);
        group.send(&[user(one)]);
        assert_eq!(group.arrived(), [vec![zero, two, Vc::new(0, 5)], vec![one], vec![]]);
        group.send(&[user(one), user(two), user(one)]);
        assert_eq!(group.arrived(), [vec![], vec![one, two, one], vec![]]);
        for vc in [two, one, zero, one, two] {
            group.send(&[user(vc)]);
        }
        assert_eq!(group.arrived(), [vec![two, one, zero, one, two], vec![], vec![]]);
    }
}
