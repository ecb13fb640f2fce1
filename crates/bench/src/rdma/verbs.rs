//! The NIC's side of the comparisons: Writes in one direction, Sends back and forth, short Writes in batches.

use super::measured::Measured;
use super::peer::{Peer, answer, own_address};
use super::setting::{BATCH_BYTES, PATIENCE, RING_BYTES, WARM};
use kiban_base::Wait;
use kiban_lab::Trial;
use kiban_rdma_runtime::{
    Access, Address, Connect, Connection, Context, Cq, CrcUse, Lower, Mr, Qp, QpOptions, Remote, Status, Wr,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The maximum number of blocks in flight; a ring with fewer blocks lowers it.
const WINDOW: usize = 16;
/// The number of receives posted at the peer. Each has one mebibyte of the ring as its buffer.
const RECEIVES: usize = 4;
/// The number of short Writes per call, and the maximum number in flight.
const GATHERED: usize = 64;
const GATHERED_WINDOW: usize = 512;

/// One end: receives and sends have separate completion queues.
struct End {
    context: Context,
    received: Cq,
    sent: Cq,
    qp: Qp,
    mr: Mr,
}

impl End {
    /// Opens an end at an address, which only EFE uses.
    fn open(over: Over, at: IpAddr, wait: Wait) -> End {
        let lower = match over {
            Over::Tcp => Lower::Tcp { from: None },
            Over::Efe => Lower::EfeUdp { at: SocketAddr::new(at, 0) },
        };
        let context = Context::open(&lower).expect("sockets");
        context.set_wait(wait);
        let pd = context.alloc_pd().expect("room");
        let (received, sent) = (context.create_cq(64).expect("room"), context.create_cq(1024).expect("room"));
        let options = QpOptions { max_send_wr: 1024, ..QpOptions::default() };
        let qp = pd.create_qp(&sent, &received, options).expect("room");
        let mr = pd.reg_mr(RING_BYTES, Access::ALL).expect("room");
        mr.write(0, &crate::noise::noise(2, RING_BYTES));
        End { context, received, sent, qp, mr }
    }

    /// Waits for a send to complete.
    fn sent_one(&self) -> u64 {
        let done = self.sent.wait(PATIENCE).expect("a completion");
        assert_eq!(done.status, Status::Success);
        done.id
    }
}

fn options(crc: bool) -> Connect {
    let crc = if crc { CrcUse::Wanted } else { CrcUse::Off };
    Connect { crc, ..Connect::default() }
}

/// Serves one connection: provides memory for Writes, and returns every message that arrives by Send.
pub(super) fn serve(crc: bool, wait: Wait, over: Over) {
    let end = End::open(over, own_address(), wait);
    let block = |number: u64, length: usize| end.mr.slice(number as usize * (RING_BYTES / RECEIVES), length);
    let receive = |number: u64| {
        end.qp.post_recv(number, &[block(number, RING_BYTES / RECEIVES)]).expect("room");
    };
    (0..RECEIVES as u64).for_each(receive);
    let at = SocketAddr::new(own_address(), 0);
    let listener = end.context.listen(at.into(), &options(crc)).expect("an address");
    answer(listener.address());
    let request = listener.request(PATIENCE).expect("the benchmark connects");
    let place = [u64::from(end.mr.rkey()).to_be_bytes(), end.mr.address().to_be_bytes()].concat();
    let options = Connect { private_data: place, ..options(crc) };
    let _connection = request.accept(&end.qp, &options).expect("it waits");
    loop {
        let done = end.received.wait(PATIENCE).expect("a message arrives");
        if done.status != Status::Success {
            return;
        }
        end.qp.post_send(Wr::send(0, block(done.id, done.bytes as usize))).expect("connected");
        receive(done.id);
        while end.sent_one() != 0 {}
    }
}

/// Makes the peer process listen, and connects to it.
fn connect(peer: &mut Peer, over: Over, crc: bool, wait: (&str, Wait)) -> (End, Remote, Connection) {
    let crc_word = if crc { "crc" } else { "plain" };
    let to: SocketAddr =
        peer.ask(&format!("verbs {crc_word} {} {}", wait.0, over.word())).parse().expect("an address");
    let end = End::open(over, beside(to.ip()), wait.1);
    let to = Address::Ip(to);
    let connection = end.qp.connect(to, &options(crc), PATIENCE).expect("the peer accepts");
    let said = connection.private_data();
    let word = |at: usize| u64::from_be_bytes(said[at..at + 8].try_into().expect("two words"));
    let remote = Remote { rkey: word(0) as u32, address: word(8) };
    (end, remote, connection)
}

/// Returns the address after this one: an EFE endpoint needs an address of its own.
fn beside(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().wrapping_add(1)).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The lower layer of a NIC.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// iWARP over TCP sockets.
    Tcp,
    /// EFE over UDP sockets.
    Efe,
}

impl Over {
    /// Returns the word for it in a command.
    fn word(self) -> &'static str {
        match self {
            Over::Tcp => "tcp",
            Over::Efe => "efe",
        }
    }

    /// Returns the lower layer that a command names.
    pub(super) fn of(word: &str) -> Over {
        [Over::Tcp, Over::Efe].into_iter().find(|over| over.word() == word).expect("a lower layer")
    }
}

/// The state of a stream of RDMA Writes.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) over: Over,
    pub(crate) block_bytes: usize,
    pub(crate) crc: bool,
    pub(crate) wait: (&'static str, Wait),
}

/// Streams blocks in one direction. The result's unit of work is a byte.
pub(crate) fn stream(trial: &mut Trial, peer: &mut Peer, stream: Stream) -> Measured {
    let Stream { over, block_bytes, crc, wait } = stream;
    let (end, remote, connection) = connect(peer, over, crc, wait);
    let blocks = RING_BYTES / block_bytes;
    // Several short blocks are posted together, but a long block is posted alone.
    let (window, gather) = if block_bytes < 32 << 10 { (64, 16) } else { (WINDOW.min(blocks), 1) };
    let send = |nanos: u64| {
        let (clock, mut sent, mut under_way) = (trial.clock(), 0, 0);
        let start = clock.now().as_nanos();
        while sent == 0 || clock.now().as_nanos() - start < nanos {
            for number in (0..BATCH_BYTES / block_bytes).step_by(gather) {
                while under_way + gather > window {
                    end.sent_one();
                    under_way -= 1;
                }
                let write = |number: usize| {
                    let at = number % blocks * block_bytes;
                    let to = Remote { address: remote.address + at as u64, ..remote };
                    Wr::write(1, end.mr.slice(at, block_bytes), to)
                };
                let posted = match gather {
                    1 => end.qp.post_send(write(number)).map(|()| 1),
                    _ => end.qp.post_send_all((number..number + gather).map(write)),
                };
                assert_eq!(posted.expect("connected"), gather);
                under_way += gather;
            }
            sent += 1;
        }
        all_taken(&end, remote);
        (sent * BATCH_BYTES) as f64
    };
    send(WARM.as_nanos() as u64);
    let measured = Measured::of(trial, peer, || send(trial.span_nanos()));
    connection.disconnect();
    connection.wait_disconnected(PATIENCE).expect("the peer ends too");
    measured
}

/// Waits until the peer has placed all Writes, by sending a Read, which the peer answers only after all
/// Writes before it.
fn all_taken(end: &End, remote: Remote) {
    end.qp.post_send(Wr::read(2, end.mr.slice(0, 8), remote)).expect("connected");
    while end.sent_one() != 2 {}
}

/// Sends messages back and forth; returns half a round trip in microseconds.
pub(super) fn ping_pong(trial: &mut Trial, peer: &mut Peer, bytes: usize, wait: (&str, Wait)) -> f64 {
    let (end, _, connection) = connect(peer, Over::Tcp, false, wait);
    let (here, there) = (end.mr.slice(0, bytes), end.mr.slice(RING_BYTES / 2, bytes));
    let turns = |count: usize| {
        for _ in 0..count {
            end.qp.post_recv(1, &[there]).expect("room");
            end.qp.post_send(Wr::send(0, here)).expect("connected");
            let done = end.received.wait(PATIENCE).expect("the peer answers");
            assert_eq!(done.bytes as usize, bytes);
            end.sent_one();
        }
        count as f64
    };
    turns(200);
    let span = trial.measure(|| turns(if bytes > 1000 { 10 } else { 100 }));
    connection.disconnect();
    connection.wait_disconnected(PATIENCE).expect("the peer ends too");
    span.nanos_each() / 2e3
}

/// Posts short Writes, many per call; returns how many complete per second.
pub(super) fn gathered(trial: &mut Trial, peer: &mut Peer, wait: (&str, Wait)) -> f64 {
    let (end, remote, connection) = connect(peer, Over::Tcp, false, wait);
    let write = |number: usize| {
        let at = number % 1024 * 64;
        let to = Remote { address: remote.address + at as u64, ..remote };
        let write = Wr::write(1, end.mr.slice(at, 64), to);
        // Only the last Write of each call generates a completion.
        if number % GATHERED == GATHERED - 1 { write } else { write.unsignalled() }
    };
    let send = |nanos: u64| {
        let (clock, mut sent, mut under_way) = (trial.clock(), 0, 0);
        let start = clock.now().as_nanos();
        while clock.now().as_nanos() - start < nanos {
            for _ in 0..64 {
                while under_way + GATHERED > GATHERED_WINDOW {
                    end.sent_one();
                    under_way -= GATHERED;
                }
                let posted = end.qp.post_send_all((0..GATHERED).map(|number| write(sent + number)));
                assert_eq!(posted.expect("connected"), GATHERED);
                (sent, under_way) = (sent + GATHERED, under_way + GATHERED);
            }
        }
        all_taken(&end, remote);
        sent as f64
    };
    send(WARM.as_nanos() as u64);
    let span = trial.measure_once(|| send(trial.span_nanos()));
    connection.disconnect();
    connection.wait_disconnected(PATIENCE).expect("the peer ends too");
    span.per_second()
}
