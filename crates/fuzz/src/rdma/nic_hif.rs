//! The interface between a board's NIC and programs: entries, greetings, and a ring that a program
//! overwrites.
//!
//! Input     bytes of an entry; and the contents of a work ring.
//! Checks    what is decoded can be written, and is then decoded to the same value. From any contents of a
//!           ring, the NIC takes at most as many entries as the ring has, none longer than a slot, or finds
//!           the ring poisoned.

use crate::features::Features;
use kiban_base::ring::{Consumer, Poisoned};
use kiban_base::{Region, SharedBytes};
use kiban_rdma::hif::{
    Answer, COMPLETION_BYTES, ENTRY_BYTES, Greeting, Layout, Notice, Piece, Refusal, Request, Transport,
    completion_from_bytes, completion_to_bytes,
};
use kiban_rdma::rnic::{
    Access, Completion, Data, Kind, Operation, QpAttributes, ReceiveWork, SendWork, Sge, Status,
    TaggedAddress,
};
use std::mem::discriminant;

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    if let Some((number, request)) = Request::from_bytes(bytes) {
        // A decoded request fits into an entry.
        let again = request.to_bytes(number).expect("it was in an entry");
        let (same, read) = Request::from_bytes(&again).expect("written");
        assert_eq!((same, format!("{read:?}")), (number, format!("{request:?}")));
        features.show(("request", discriminant(&request)));
        if let Request::PostSend { work, .. } = &request {
            features.show(("work", discriminant(&work.operation), discriminant(&work.data)));
        }
    }
    if let Some(notice) = Notice::from_bytes(bytes) {
        assert_eq!(Notice::from_bytes(&notice.to_bytes()), Some(notice.clone()));
        features.show(("notice", discriminant(&notice)));
    }
    if let Some(completion) = completion_from_bytes(bytes) {
        let again = completion_to_bytes(&completion);
        assert_eq!(completion_from_bytes(&again), Some(completion));
        features.show(("completion", discriminant(&completion.status), discriminant(&completion.kind)));
    }
    if let Some(greeting) = Greeting::from_bytes(bytes) {
        assert_eq!(greeting.to_bytes(), bytes);
        features.show(discriminant(&greeting));
    }
    take_all(bytes, features);
}

/// Takes all entries of a work ring whose slots begin with the bytes of the input.
fn take_all(bytes: &[u8], features: &mut Features<'_>) {
    let layout = Layout::new(0);
    let shape = layout.work();
    let front_bytes = shape.bytes() % shape.slots();
    let slot_bytes = shape.bytes() / shape.slots();
    let memory = Region::new(0, layout.work_at() + shape.bytes());
    let words = bytes.chunks(12).take(shape.slots());
    for (slot, word) in words.enumerate() {
        let at = (layout.work_at() + front_bytes + slot * slot_bytes) as u64;
        memory.write(at, SharedBytes::from(word)).expect("it lies within the ring");
    }
    let mut ring = Consumer::new(&memory, layout.work_at(), shape);
    let mut taken = 0;
    loop {
        match ring.peek() {
            Ok(Some(entry)) => {
                assert!(entry.len() <= ENTRY_BYTES, "{} bytes", entry.len());
                ring.release();
                taken += 1;
                assert!(taken <= shape.slots(), "each slot is taken once");
            }
            Ok(None) => return features.show(("taken", usize::min(taken, 3))),
            Err(Poisoned) => return features.show(("poisoned", usize::min(taken, 3))),
        }
    }
}

/// Returns entries of every kind.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let remote = TaggedAddress { stag: 1, offset: 2 };
    let sge = Sge { stag: 1, address: 2, length: 3 };
    let piece = Piece { memory: 1, offset: 2, length: 3 };
    let requests = [
        Request::CreateQp { attributes: QpAttributes::TARGET },
        Request::Register { pd: 1, pieces: vec![piece; 2], address: 4, access: Access::ALL },
        Request::Listen { transport: Transport::Roce, local: ([10, 0, 0, 1], 7471).into() },
        Request::Connect {
            transport: Transport::Tcp,
            remote: ([0xfd, 0, 0, 0, 0, 0, 0, 1], 7471).into(),
            qp: 1,
            depths: (2, 3),
            private_data: vec![7; 9],
        },
        Request::Prepare { qp: 1, acknowledges: true, depths: Some((1, 2)) },
        Request::PostSend { qp: 1, work: SendWork::new(9, Operation::write(remote), Data::one(sge)) },
        Request::PostReceive { qp: 1, work: ReceiveWork { id: 1, sges: [sge].into_iter().collect() } },
    ];
    let completion = Completion {
        id: 1,
        status: Status::Success,
        kind: Kind::Read,
        bytes: 2,
        qp: 3,
        immediate: Some(4),
        invalidated: None,
        source: None,
    };
    let notices = [
        Notice::Reply { number: 1, result: Ok(Answer::Number(2)) },
        Notice::Reply { number: 1, result: Err(Refusal::Other("no".into())) },
        Notice::Gone { end: 3 },
    ];
    let mut seeds: Vec<Vec<u8>> = requests.iter().filter_map(|request| request.to_bytes(5)).collect();
    seeds.extend(notices.iter().map(Notice::to_bytes));
    seeds.push(completion_to_bytes(&completion)[..COMPLETION_BYTES].to_vec());
    seeds.push(Greeting::Nic { key: [1; 16] }.to_bytes());
    seeds.push(Greeting::Memory { key: [1; 16], memory: 2 }.to_bytes());
    // Two full slots, and one whose length exceeds it.
    let full = |turn: u32, length: u32| [&turn.to_ne_bytes()[..], &length.to_ne_bytes(), &[0; 4]].concat();
    seeds.push([full(1, 8), full(2, 16), full(3, u32::MAX)].concat());
    seeds
}
