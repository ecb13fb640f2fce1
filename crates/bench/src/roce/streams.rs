//! RoCEv2's side of the comparisons: Writes in one direction, and Sends back and forth.

use super::end::{BASE, End};
use crate::rdma::{BATCH_BYTES, Measured, Peer, RING_BYTES, WARM, answer, next_word, own_address};
use kiban_base::Wait;
use kiban_lab::Trial;
use kiban_rdma_runtime::verbs::{Data, Operation, ReceiveWork, SendWork, TaggedAddress};
use std::net::IpAddr;

/// The maximum number of blocks in flight; a ring with fewer blocks lowers it.
const BLOCKS_MAX: usize = 16;
/// The number of receives posted, and the length of each.
const RECEIVES: u64 = 4;
const RECEIVE_BYTES: usize = 4096;

/// The parameters of a connection.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) here: IpAddr,
    pub(super) there: IpAddr,
    pub(super) path_mtu: usize,
    pub(super) wait: (&'static str, Wait),
}

/// A connected queue pair, and the peer's key.
struct Connected {
    end: End,
    qp: u32,
    rkey: u32,
}

impl Connected {
    fn receive(&self, id: u64) {
        let sges = self.end.block(RING_BYTES / 2 + id as usize * RECEIVE_BYTES, RECEIVE_BYTES);
        self.end.engine.post_receives(self.qp, [ReceiveWork { id, sges }]).expect("room");
    }

    fn send(&self, at: usize, bytes: usize) {
        let work = SendWork::new(0, Operation::SEND, Data::Elements(self.end.block(at, bytes)));
        self.end.engine.post_sends(self.qp, [work]).expect("room");
    }
}

/// Serves one connection: provides memory for Writes, and returns every message until an empty one arrives.
pub(super) fn serve(path_mtu: usize, wait: Wait) {
    let end = End::open(own_address(), wait);
    let (qp, qpn) = end.queue_pair();
    let rkey = end.key;
    let connected = Connected { end, qp, rkey };
    (0..RECEIVES).for_each(|id| connected.receive(id));
    answer(format!("{qpn} {rkey}"));
    let words = next_word().expect("the benchmark connects");
    let (peer, peer_qpn) = words.trim().split_once(' ').expect("an address and a number");
    let (peer, peer_qpn) = (peer.parse().expect("an address"), peer_qpn.parse().expect("a number"));
    connected.end.connect(qp, peer, peer_qpn, path_mtu);
    answer("connected");
    loop {
        let (id, bytes) = connected.end.next(&connected.end.received);
        if bytes == 0 {
            break;
        }
        connected.send(RING_BYTES / 2 + id as usize * RECEIVE_BYTES, bytes);
        connected.receive(id);
        connected.end.next(&connected.end.sent);
    }
    // The acknowledgement of the last message leaves with the queue pair.
    connected.end.engine.destroy_qp(qp).expect("it exists");
}

fn connect(peer: &mut Peer, setup: &Setup) -> Connected {
    let &Setup { here, there, path_mtu, wait } = setup;
    let said = peer.ask(&format!("roce {path_mtu} {}", wait.0));
    let (qpn, rkey) = said.split_once(' ').expect("two numbers");
    let (peer_qpn, rkey) = (qpn.parse().expect("a number"), rkey.parse().expect("a number"));
    let end = End::open(here, wait.1);
    let (qp, qpn) = end.queue_pair();
    assert_eq!(peer.ask(&format!("{here} {qpn}")), "connected");
    end.connect(qp, there, peer_qpn, path_mtu);
    Connected { end, qp, rkey }
}

/// Ends the peer's loop.
fn disconnect(connected: &Connected) {
    connected.send(0, 0);
    connected.end.next(&connected.end.sent);
}

/// Streams Writes in one direction. The result's unit of work is a byte.
pub(super) fn writes(trial: &Trial, peer: &mut Peer, block_bytes: usize, setup: &Setup) -> Measured {
    let connected = connect(peer, setup);
    let Connected { end, qp, rkey } = &connected;
    let blocks = RING_BYTES / block_bytes;
    let in_flight_max = BLOCKS_MAX.min(blocks);
    let send = |nanos: u64| {
        let (clock, mut sent, mut in_flight) = (trial.clock(), 0, 0);
        let start = clock.now().as_nanos();
        while sent == 0 || clock.now().as_nanos() - start < nanos {
            for number in 0..BATCH_BYTES / block_bytes {
                if in_flight == in_flight_max {
                    end.next(&end.sent);
                    in_flight -= 1;
                }
                let at = number % blocks * block_bytes;
                let remote = TaggedAddress { stag: *rkey, offset: BASE + at as u64 };
                let data = Data::Elements(end.block(at, block_bytes));
                let work = SendWork::new(1, Operation::write(remote), data);
                end.engine.post_sends(*qp, [work]).expect("room");
                in_flight += 1;
            }
            sent += 1;
        }
        // A Write completes when the peer has acknowledged it: its bytes are in the peer's memory.
        for _ in 0..in_flight {
            end.next(&end.sent);
        }
        (sent * BATCH_BYTES) as f64
    };
    send(WARM.as_nanos() as u64);
    let measured = Measured::of(trial, peer, || send(trial.span_nanos()));
    disconnect(&connected);
    measured
}

/// Sends messages back and forth; returns half a round trip in microseconds.
pub(super) fn ping_pong(trial: &Trial, peer: &mut Peer, bytes: usize, setup: &Setup) -> f64 {
    let connected = connect(peer, setup);
    let end = &connected.end;
    (0..RECEIVES).for_each(|id| connected.receive(id));
    let turns = |count: usize| {
        for _ in 0..count {
            connected.send(0, bytes);
            let (id, received) = end.next(&end.received);
            assert_eq!(received, bytes);
            connected.receive(id);
            end.next(&end.sent);
        }
        count as f64
    };
    turns(200);
    let span = trial.measure(|| turns(100));
    disconnect(&connected);
    span.nanos_each() / 2e3
}
