//! Tests the step log, which clock-cycle models of the NIC's blocks use.

use crate::fixture::pair::{Landing, Pair};
use kiban_rdma::rnic::clocks::Step;
use kiban_rdma::rnic::{Access, Data, Operation, TaggedAddress};
use std::collections::BTreeMap;

/// Steps up to the point at which the operation is checked.
const START: [Step; 7] = [
    Step::FetchWqe,
    Step::Fence,
    Step::Request,
    Step::Requester,
    Step::Acceptor,
    Step::Accept,
    Step::CheckOperation,
];
/// Steps to send data from memory.
const FETCH: [Step; 5] = [Step::ReadStag, Step::CheckStag, Step::ReadPbl, Step::DmaRequest, Step::DmaLength];

fn sent(payload: u32) -> [Step; 4] {
    [Step::SegmentLength, Step::Header(14), Step::ReadDma, Step::WritePayload(payload)]
}

fn taken(payload: u32) -> [Step; 7] {
    [
        Step::ReceiveHeader(14),
        Step::CheckHeader,
        Step::ReadStag,
        Step::CheckStag,
        Step::ReadPbl,
        Step::DmaRequest,
        Step::ReceivePayload(payload),
    ]
}

/// Returns the steps of both ends for one work request.
fn steps(landing: Landing, operation: fn(TaggedAddress) -> Operation, length: u32) -> (Vec<Step>, Vec<Step>) {
    let mut pair = Pair::new(1470, landing);
    let near = pair.one.pattern(8000, Access::LOCAL);
    let far = pair.two.memory(8000, Access::ALL);
    pair.one.nic.clocks().listen();
    pair.two.nic.clocks().listen();
    let place = TaggedAddress { stag: far.stag, offset: far.region.address() };
    pair.one.send(1, operation(place), Data::one(near.sge(0, length)));
    pair.run();
    (pair.one.nic.clocks().take(), pair.two.nic.clocks().take())
}

#[test]
fn a_write_looks_up_source_memory_once_and_target_memory_per_segment() {
    for landing in [Landing::Whole, Landing::Crumbs(100), Landing::Direct(1000)] {
        let (here, there) = steps(landing, Operation::write, 3000);
        let expected = [&START[..], &FETCH, &sent(1456), &sent(1456), &sent(88), &[Step::Complete]].concat();
        assert_eq!(here, expected, "{landing:?}");
        assert_eq!(there, [taken(1456), taken(1456), taken(88)].concat(), "{landing:?}");
    }
}

#[test]
fn a_read_request_validates_its_sink_and_fetches_nothing() {
    for landing in [Landing::Whole, Landing::Crumbs(1)] {
        let (here, there) = steps(landing, Operation::read, 2000);
        let asked = [Step::ReadStag, Step::CheckStag, Step::SegmentLength, Step::Header(18 + 28)];
        assert_eq!(
            here,
            [&START[..], &asked, &taken(1456), &taken(544), &[Step::Complete]].concat(),
            "{landing:?}"
        );
        let request = [Step::ReceiveHeader(18), Step::CheckHeader];
        assert_eq!(
            there,
            [&request[..], &START[2..], &FETCH, &sent(1456), &sent(544)].concat(),
            "{landing:?}"
        );
    }
}

#[test]
fn without_payload_no_memory_is_looked_up() {
    for (operation, header) in [(Operation::write as fn(TaggedAddress) -> _, 14), (Operation::read, 46)] {
        let (here, there) = steps(Landing::Whole, operation, 0);
        let count = |steps: &[Step]| {
            let mut counts = BTreeMap::new();
            for step in steps {
                *counts.entry(format!("{step:?}")).or_insert(0) += 1;
            }
            counts
        };
        for steps in [count(&here), count(&there)] {
            for none in ["ReadStag", "ReadPbl", "DmaRequest", "ReadDma"] {
                assert!(!steps.contains_key(none), "{none}: {steps:?}");
            }
        }
        assert_eq!(count(&here)[&format!("Header({header})")], 1);
    }
}

#[test]
fn steps_are_recorded_only_if_a_log_is_installed() {
    let mut pair = Pair::new(1470, Landing::Whole);
    let near = pair.one.pattern(100, Access::LOCAL);
    let far = pair.two.memory(100, Access::ALL);
    let place = TaggedAddress { stag: far.stag, offset: far.region.address() };
    pair.one.send(1, Operation::write(place), Data::one(near.sge(0, 100)));
    pair.run();
    assert!(pair.one.nic.clocks().take().is_empty() && pair.two.nic.clocks().take().is_empty());
}
