//! Datagrams and pings, whole and in fragments, while the allocation of one page or block fails.

use kiban_base::Instant;
use kiban_base::ethernet::Mac;
use kiban_board::{
    BoardConfig, Completion, EthernetPortConfig, Host, IpPortConfig, PortConfig, Program, SocketId,
};
use kiban_sim::{Attachment, CableConfig, ImpairmentConfig, World, check};
use kiban_tcpip::ethernet::LinkConfig;
use kiban_tcpip::ip::Prefix;
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// The number of requests in each run.
const QUESTIONS: u16 = 3;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ping,
    Datagram,
}

fn address(side: usize, is_v6: bool) -> IpAddr {
    let last = 1 + side as u8;
    match is_v6 {
        false => IpAddr::from([10, 0, 0, last]),
        true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()]),
    }
}

fn port(side: usize, is_v6: bool, is_ethernet: bool) -> PortConfig {
    let address = address(side, is_v6);
    let prefix = Prefix::new(address, if is_v6 { 64 } else { 24 });
    if is_ethernet {
        let mut link = LinkConfig::new(Mac([2, 0, 0, 0, 0, side as u8]));
        link.addresses.push((address, prefix));
        return PortConfig::Ethernet(EthernetPortConfig::on(link));
    }
    PortConfig::Ip(IpPortConfig {
        address,
        prefix,
        mtu_bytes: 1500,
        packets_max: 256,
        cuts: false,
        merges: true,
        believe_sums: false,
    })
}

fn payload(question: u16, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + usize::from(question)) as u8).collect()
}

/// Retransmits a request once a second until it is answered, then sends the next one.
struct Asker {
    kind: Kind,
    to: SocketAddr,
    length: usize,
    socket: Option<SocketId>,
    ask_at: Instant,
    asked: u16,
    answered: u16,
}

impl Program for Asker {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        let local = SocketAddr::new(address(0, self.to.is_ipv6()), 1000);
        self.socket = Some(host.bind(local).expect("the port is free"));
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        match completion {
            Completion::EchoReply { source, identifier, sequence, bytes } => {
                assert_eq!((source, identifier, bytes), (self.to.ip(), 1, self.length));
                self.answered += u16::from(sequence == self.answered);
            }
            Completion::Datagram { socket } => {
                let mut buffer = [0; 1 << 16];
                while let Ok(Some((from, count))) = host.receive_from(socket, &mut buffer) {
                    assert_eq!(from, self.to);
                    let answers = |question| buffer[..count] == payload(question, self.length);
                    // The reply may be a duplicate of the previous one.
                    assert!(answers(self.answered) || answers(self.answered.wrapping_sub(1)));
                    self.answered += u16::from(answers(self.answered));
                }
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Instant {
        if self.is_done() { Instant::NEVER } else { self.ask_at }
    }

    fn on_timeout(&mut self, host: &mut Host<'_>, now: Instant) {
        let bytes = payload(self.answered, self.length);
        // A request that fails for lack of memory is repeated later.
        let _ = match self.kind {
            Kind::Ping => host.ping(self.to.ip(), 1, self.answered, &bytes),
            Kind::Datagram => host.send_to(self.socket.expect("bound"), self.to, &bytes),
        };
        self.asked += 1;
        self.ask_at = now + SECOND;
    }

    fn is_done(&self) -> bool {
        self.answered == QUESTIONS
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Sends every datagram back.
struct Answerer(SocketAddr);

impl Program for Answerer {
    fn start(&mut self, host: &mut Host<'_>, _: Instant) {
        host.bind(self.0).expect("the port is free");
    }

    fn on_completion(&mut self, completion: Completion, host: &mut Host<'_>, _: Instant) {
        let Completion::Datagram { socket } = completion else { return };
        let mut buffer = [0; 1 << 16];
        while let Ok(Some((from, count))) = host.receive_from(socket, &mut buffer) {
            let _ = host.send_to(socket, from, &buffer[..count]);
        }
    }

    fn is_done(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// One test case: the kind of request, its length, and the medium.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    is_v6: bool,
    is_ethernet: bool,
    length: usize,
    impairment: ImpairmentConfig,
}

impl Case {
    /// Runs the case with one memory allocation refused. Returns the number of requests sent, and whether
    /// the run reached that allocation.
    fn run(self, refusal: Option<crate::refusal::Refusal>) -> (u16, bool) {
        let Case { kind, is_v6, is_ethernet, length, impairment } = self;
        let mut world = World::new(1);
        let boards = [0, 1].map(|side| {
            let ports = vec![port(side, is_v6, is_ethernet)];
            world.add_board(&BoardConfig { ports, ..BoardConfig::default() })
        });
        let config =
            CableConfig { impairment, ..CableConfig::ethernet(1_000_000_000, Duration::from_millis(1)) };
        world
            .connect_packets(Attachment::Board(boards[0], 0), Attachment::Board(boards[1], 0), &config)
            .expect("both fit");
        if let Some(refusal) = refusal {
            refusal.arm(world.board_mut(boards[refusal.side]).memory_mut());
        }
        // IPv6 addresses are usable only after duplicate address detection (RFC 4862 §5.4).
        let ask_at = Instant::ZERO + 10 * SECOND;
        world.settle(ask_at);
        let to = SocketAddr::new(address(1, is_v6), 7);
        world.run_program(boards[1], Box::new(Answerer(to)));
        let asker = Asker { kind, to, length, socket: None, ask_at, asked: 0, answered: 0 };
        world.run_program(boards[0], Box::new(asker));
        assert!(world.run(Instant::ZERO + 600 * SECOND), "{self:?}, {refusal:?}: {world:?}");
        let asked = world.program::<Asker>(boards[0]).expect("it was passed in").asked;
        assert_eq!(check::check_idle(&mut world, &boards), [], "{self:?}, {refusal:?}");
        let has_happened = |refusal: crate::refusal::Refusal| {
            refusal.has_happened(world.board_mut(boards[refusal.side]).memory_mut())
        };
        (asked, refusal.is_some_and(has_happened))
    }
}

/// Packets overtake each other and are duplicated, but none is lost.
fn out_of_order() -> ImpairmentConfig {
    ImpairmentConfig {
        reorder: 0.5,
        hold_back: Duration::from_millis(1),
        duplicate: 0.2,
        ..ImpairmentConfig::NONE
    }
}

fn check_refusals(kind: Kind, lengths: &[usize], impairment: ImpairmentConfig) {
    for (is_v6, is_ethernet) in [(false, false), (true, false), (false, true), (true, true)] {
        for &length in lengths {
            let case = Case { kind, is_v6, is_ethernet, length, impairment };
            // Runs with many fragments take long, so test them on one medium only.
            if length > 20_000 && (is_ethernet || impairment != ImpairmentConfig::NONE) {
                continue;
            }
            let (usual, _) = case.run(None);
            crate::refusal::each(|refusal| {
                let (asked, has_happened) = case.run(Some(refusal));
                assert!(asked <= usual + 1, "{case:?}, {refusal:?}: {asked} questions, {usual} else");
                has_happened
            });
        }
    }
}

#[test]
fn an_allocation_failure_costs_at_most_one_datagram() {
    check_refusals(Kind::Datagram, &[0, 100, 1400], ImpairmentConfig::NONE);
}

#[test]
fn an_allocation_failure_costs_at_most_one_ping() {
    check_refusals(Kind::Ping, &[0, 100, 1400], ImpairmentConfig::NONE);
}

#[test]
fn an_allocation_failure_costs_at_most_one_fragmented_datagram() {
    for impairment in [ImpairmentConfig::NONE, out_of_order()] {
        check_refusals(Kind::Datagram, &[1500, 9000, 60_000], impairment);
    }
}

#[test]
fn an_allocation_failure_costs_at_most_one_fragmented_ping() {
    for impairment in [ImpairmentConfig::NONE, out_of_order()] {
        check_refusals(Kind::Ping, &[1500, 9000, 60_000], impairment);
    }
}
