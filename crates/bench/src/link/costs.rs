//! What one packet, or one cell, costs a board that is not divided: reading it from the link, and everything
//! else. These are inputs of the model of boards with many shards (`crate::shards`).
//!
//! Method    the board polls on a core of its own and receives one stream. Turns that found work are timed,
//!           and in them the calls that read from the link ([`Timed`]).
//! Counted   packets as they arrive, so a whole segment is one; time per packet.
//! Left out  the time for which the board finds no work, because its peer is the bottleneck.

use super::board::{Application, config};
use super::device::{BEHIND, Device, Direction, SINK, in_a_namespace, open};
use super::peer::{self, Wire};
use super::{cells, sixty};
use kiban_base::{Instant, Pdu};
use kiban_board::Board;
use kiban_link::{AnyLink, Driver, Link, LinkContext, LinkCounters, LinkTraits};
use kiban_os::Clock;
use kiban_os::clock::pin_thread;
use kiban_os::random;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The time in which units were read from a link, nanoseconds.
type Spent = Arc<AtomicU64>;

/// A link whose successful reads are timed.
struct Timed<U> {
    link: Box<dyn Link<U>>,
    clock: Clock,
    spent: Spent,
}

impl<U> Link<U> for Timed<U> {
    fn traits(&self) -> LinkTraits {
        self.link.traits()
    }

    fn receive(&mut self, lent: &mut LinkContext<'_>, into: &mut VecDeque<U>) -> io::Result<()> {
        let (from, before) = (self.clock.now(), into.len());
        let result = self.link.receive(lent, into);
        if into.len() > before {
            self.spent.fetch_add(self.clock.now().since(from).as_nanos() as u64, Ordering::Relaxed);
        }
        result
    }

    fn send(&mut self, units: &mut VecDeque<U>, lent: &mut LinkContext<'_>) -> io::Result<()> {
        self.link.send(units, lent)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.link.file()
    }

    fn deadline(&self) -> Instant {
        self.link.deadline()
    }

    fn counters(&self) -> LinkCounters {
        self.link.counters()
    }
}

/// Times the reads of a link.
fn timed(link: AnyLink, clock: Clock, spent: &Spent) -> AnyLink {
    fn wrap<U: 'static>(link: Box<dyn Link<U>>, clock: Clock, spent: &Spent) -> Box<dyn Link<U>> {
        Box::new(Timed { link, clock, spent: spent.clone() })
    }
    match link {
        AnyLink::Packets(link) => AnyLink::Packets(wrap::<Pdu>(link, clock, spent)),
        AnyLink::Frames(link) => AnyLink::Frames(wrap(link, clock, spent)),
        AnyLink::Cells(link) => AnyLink::Cells(wrap(link, clock, spent)),
    }
}

/// The link between the kernel and the board.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TUN, with whole segments.
    Segments,
    /// TUN, with packets of 1500 bytes.
    Packets,
    /// A packet socket on a veth, with packets of 1500 bytes.
    PacketSocket,
}

/// The costs of the packets of a stream that a board receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketCosts {
    /// Payload bytes of a packet, on average.
    pub(crate) payload_bytes: f64,
    /// Nanoseconds for reading a packet from the link.
    pub(crate) receive: f64,
    /// Nanoseconds for everything else, including acknowledgements.
    pub(crate) process: f64,
    /// Packets sent for each packet received.
    pub(crate) answers: f64,
}

/// Measures the costs of a packet over one connection from the kernel, which runs on the second CPU.
pub(crate) fn of_packets(kind: Kind, cpus: [usize; 2], length: Duration) -> PacketCosts {
    let clock = Clock::new();
    let send = |to: [u8; 4]| {
        pin_thread(cpus[1]).map_err(|error| error.to_string())?;
        Ok(peer::send(&peer::connect(SocketAddr::from((to, SINK))), clock, length))
    };
    if kind == Kind::PacketSocket {
        let over = AtomicBool::new(false);
        let wire = Wire { mtu_bytes: 1500, near_has_address: false };
        let near = || {
            pin_thread(cpus[0]).map_err(|error| error.to_string())?;
            let (board, link) = sixty::near_board();
            Ok(measure(board, link, clock, length, || over.load(Ordering::Acquire)))
        };
        let far = |listens: &dyn Fn()| {
            // Without this, the kernel would pass whole segments.
            peer::tell("ip", "link set lab1 gso_max_segs 1");
            listens();
            let sent = send(Wire::NEAR);
            over.store(true, Ordering::Release);
            sent
        };
        return peer::over_wire(wire, near, far).0;
    }
    let device = Device { mtu_bytes: 1500, whole: kind == Kind::Segments };
    let done = in_a_namespace(|| {
        let link = open(device).map_err(|error| error.to_string())?;
        pin_thread(cpus[0]).map_err(|error| error.to_string())?;
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| send(BEHIND));
            let key = random::key().map_err(|error| error.to_string())?;
            let (board, link) = (Board::new(&config(device), key), AnyLink::Packets(Box::new(link)));
            Ok(measure(board, link, clock, length, || kernel.is_finished()))
        })
    });
    done.expect("it worked before")
}

fn measure(
    board: Board,
    link: AnyLink,
    clock: Clock,
    length: Duration,
    over: impl Fn() -> bool,
) -> PacketCosts {
    let spent = Spent::default();
    let mut driver = Driver::new(board, clock).expect("files can be opened");
    driver.attach(0, timed(link, clock, &spent));
    let application = Application::new(Direction::Receives, clock, length);
    let application = driver.add(Box::new(application));
    let mut busy = Duration::ZERO;
    while !over() {
        let from = clock.now();
        if driver.turn() {
            busy += clock.now().since(from);
        }
    }
    let bytes = driver.program::<Application>(application).expect("it is there").taken.bytes as f64;
    let counters = driver.link_counters(0).expect("the link is there");
    let packets = counters.units_in as f64;
    let receive = spent.load(Ordering::Relaxed) as f64;
    PacketCosts {
        payload_bytes: bytes / packets,
        receive: receive / packets,
        process: (busy.as_nanos() as f64 - receive) / packets,
        answers: counters.units_out as f64 / packets,
    }
}

/// Measures the time to read a cell from a link of cells in UDP datagrams with several cells each.
pub(crate) fn of_cells(cpu: usize, length: Duration) -> f64 {
    let spent = Spent::default();
    let wrap = |link, clock| timed(link, clock, &spent);
    let cells = cells::run_with(true, 64, cpu, length, &wrap).arrived;
    spent.load(Ordering::Relaxed) as f64 / cells as f64
}
