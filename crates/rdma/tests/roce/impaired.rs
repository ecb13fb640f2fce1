//! Many operations over a wire that loses, duplicates and delays packets: the result is that of a wire that
//! does not, whether both ends, one or none retransmit selectively.

use crate::pair::{BYTES, DELAY, Pair, RoceTraits, pattern, traits};
use kiban_base::SimRng;
use kiban_rdma::rnic::{Data, Operation, SendWork, Status};
use kiban_rdma::wire::rdmap::Atomic;
use kiban_rdma::wire::roce::Packet;
use std::time::Duration;

/// The halves of the requester's memory: what it sends, and where reads go.
const SINKS: u64 = BYTES as u64 / 2;
const SLOT: u64 = 8192;
const OPERATIONS: u64 = 12;

/// The memories afterwards, and what completed at each side.
#[derive(PartialEq)]
struct Outcome {
    memories: [Vec<u8>; 2],
    sent: Vec<(u64, Status)>,
    received: Vec<(u64, u32, Option<u64>)>,
}

/// Returns how many packets each host keeps behind a missing one: in half of the worlds both do, in a quarter
/// only one does.
fn reorder_max(seed: u64) -> [u32; 2] {
    let mut rng = SimRng::from_seed(seed ^ 0xbead);
    let [own, peer] = [(); 2].map(|()| 1 + rng.below(80) as u32);
    match seed % 8 {
        0..4 => [own, peer],
        4 => [own, 0],
        5 => [0, peer],
        _ => [0; 2],
    }
}

/// Runs random operations with this seed.
fn run(seed: u64, is_impaired: bool) -> Outcome {
    let mut rng = SimRng::from_seed(seed);
    let traits = RoceTraits {
        path_mtu: 256 << rng.below(5),
        window: 1 + rng.below(80) as u32,
        ord: 1 + rng.below(4) as u16,
        first_psn_out: rng.below(1 << 24) as u32,
        // Among hundreds of losses, some come eight in a row; giving up is tested elsewhere.
        retries: u8::MAX,
        reorder_max: reorder_max(seed),
        ..traits()
    };
    let mut pair = Pair::new(traits);
    pair.hosts[0].fill(0, &pattern(seed, SINKS as usize));
    pair.hosts[1].fill(SINKS, &pattern(seed + 1, SINKS as usize));
    // In some worlds, a receive is posted only when a message was refused for lack of it.
    let (posts_late, mut receives, mut posted) = (seed.is_multiple_of(3), Vec::new(), 0);
    for id in 0..OPERATIONS {
        let length = rng.below(SLOT) as u32;
        let source = pair.hosts[0].element(id * SLOT, length);
        let sink = pair.hosts[0].element(SINKS + id * SLOT, length);
        let target = pair.at(1, id * SLOT);
        let (operation, sge) = match rng.below(6) {
            0 => (Operation::SEND, source),
            1 => (Operation::SendImmediate { data: id as u32 }, source),
            2 => (Operation::write(target), source),
            3 => (Operation::Write { remote: target, immediate: Some(id) }, source),
            4 => (Operation::read(pair.at(1, SINKS + id * SLOT)), sink),
            _ => {
                let (remote, atomic) = (pair.at(1, BYTES as u64 - 8), Atomic::FetchAdd { add: 1, mask: 0 });
                (Operation::Atomic { remote, atomic }, pair.hosts[0].element(SINKS + id * SLOT, 8))
            }
        };
        if matches!(
            operation,
            Operation::Send { .. }
                | Operation::SendImmediate { .. }
                | Operation::Write { immediate: Some(_), .. }
        ) {
            let sge = pair.hosts[1].element(id * SLOT, SLOT as u32);
            receives.push((id, sge));
        }
        let work = SendWork { fence: rng.below(4) == 0, ..SendWork::new(id, operation, Data::one(sge)) };
        let qp = pair.hosts[0].qp;
        pair.hosts[0].nic.post_send(qp, work).expect("room");
    }
    let rate = if is_impaired { 1 + rng.below(12) } else { 0 };
    let mut wire = SimRng::from_seed(seed ^ 0x5eed);
    let mut fate = |_: usize, _: &Packet| {
        let mut hits = || wire.below(100) < rate;
        let (lost, twice, late) = (hits(), hits(), hits());
        let delay = |far: bool| DELAY + Duration::from_micros(if far { wire.below(100) } else { 0 });
        if lost {
            Vec::new()
        } else {
            (0..1 + u32::from(twice)).map(|copy| copy > 0 || late).map(delay).collect()
        }
    };
    loop {
        let refused = pair.hosts[1].nic.counters().rnr_naks_out as usize;
        while posted < receives.len() && (!posts_late || posted < refused) {
            let (id, sge) = receives[posted];
            pair.hosts[1].receive(id, sge);
            posted += 1;
        }
        pair.send(&mut fate);
        if !pair.step() {
            break;
        }
    }
    let received = pair.hosts[1].completions();
    assert_eq!(received.len(), receives.len(), "every message arrives once");
    let received = received.iter().map(|done| (done.id, done.bytes, done.immediate)).collect();
    let [one, two] = &mut pair.hosts;
    Outcome { memories: [one.bytes(0, BYTES), two.bytes(0, BYTES)], sent: one.results(), received }
}

#[test]
fn nothing_shows_that_packets_were_lost_duplicated_or_reordered() {
    for seed in 0..1000 {
        let (impaired, clean) = (run(seed, true), run(seed, false));
        let expected: Vec<_> = (0..OPERATIONS).map(|id| (id, Status::Success)).collect();
        assert_eq!(impaired.sent, expected, "seed {seed}");
        assert!(impaired == clean, "seed {seed}: the memories or completions differ");
    }
}
