//! The memory of idle queue pairs: the resident memory of two processes that hold the two ends of a thousand
//! connections.

use super::end::End;
use crate::rdma::{Peer, answer, grown, next_word, own_address, resident};
use kiban_base::Wait;
use kiban_lab::{Bench, Target, Trial, Unit};
use std::net::IpAddr;

const QUEUE_PAIRS: usize = 1000;
const PATH_MTU: usize = 1024;

pub(super) fn run(bench: &mut Bench, address: IpAddr) {
    // CPU load does not affect memory use, so this row ignores the load from other processes.
    let kept = std::mem::replace(&mut bench.options_mut().foreign_cores_max, f64::INFINITY);
    bench.single(
        &format!("{QUEUE_PAIRS} idle queue pairs, resident memory of both ends"),
        Unit::Named("MB"),
        ("RoCEv2", |_: &mut Trial| {
            let mut ends = [Peer::start_at(address), Peer::start_at(address)];
            let numbers = ends.each_mut().map(|end| end.ask(&format!("roce-idle {QUEUE_PAIRS}")));
            ends[0].tell(&numbers[1]);
            ends[1].tell(&numbers[0]);
            let bytes = ends.each_mut().map(|end| end.hear().parse::<f64>().expect("bytes"));
            ends.iter_mut().for_each(|end| end.tell("enough"));
            (bytes[0] + bytes[1]) / 1e6
        }),
        Target::None,
    );
    bench.options_mut().foreign_cores_max = kept;
}

/// Creates queue pairs and connects them with those of the peer, whose numbers are the next line.
pub(super) fn serve(count: usize) {
    let address = own_address();
    let end = End::open(address, Wait::Interrupt);
    let before = resident();
    let made: Vec<(u32, u32)> = (0..count).map(|_| end.queue_pair()).collect();
    let numbers: Vec<String> = made.iter().map(|(_, qpn)| qpn.to_string()).collect();
    answer(numbers.join(" "));
    let theirs = next_word().expect("the benchmark connects them");
    for ((qp, _), peer) in made.iter().zip(theirs.split_whitespace()) {
        end.connect(*qp, address, peer.parse().expect("a number"), PATH_MTU);
    }
    grown(before);
}
