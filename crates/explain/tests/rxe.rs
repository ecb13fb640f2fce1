//! Captures of RoCEv2 between Linux's `rdma_rxe` at both ends.

use kiban_explain::{Cause, Explained, Report, explain, roce};

macro_rules! capture {
    ($name:literal) => {
        explain(include_bytes!(concat!("../../rdma/tests/data/rxe-", $name, ".pcap"))).expect("a capture")
    };
}

/// Returns the explanations of the RoCEv2 connections; the programs also use TCP.
fn connections(report: &Report) -> Vec<&Explained> {
    report.connections.iter().filter(|one| one.roce.is_some()).collect()
}

#[test]
fn queue_pairs_are_paired_with_and_without_communication_management() {
    // The number of connections, the messages of both ends of the first, its path MTU, and the packets that
    // are only counted: of communication management, UD and UC.
    let rows = [
        ("rc-pingpong", capture!("rc-pingpong"), 1, [4, 4], 1024, [0, 0, 0]),
        ("write", capture!("write"), 1, [5, 0], 1024, [0, 0, 0]),
        ("read", capture!("read"), 1, [5, 0], 1024, [0, 0, 0]),
        ("atomic", capture!("atomic"), 1, [5, 0], 1024, [0, 0, 0]),
        ("rping", capture!("rping"), 1, [6, 12], 1024, [5, 0, 0]),
        ("ucmatose", capture!("ucmatose"), 2, [4, 4], 1024, [10, 0, 0]),
        ("uc-pingpong", capture!("uc-pingpong"), 0, [0, 0], 0, [0, 0, 32]),
        ("ud-pingpong", capture!("ud-pingpong"), 0, [0, 0], 0, [0, 8, 0]),
        ("udaddy", capture!("udaddy"), 0, [0, 0], 0, [2, 8, 0]),
    ];
    for (name, report, count, messages, path_mtu, [management, datagrams, unreliable]) in rows {
        let found = connections(&report);
        assert_eq!((found.len(), report.skipped), (count, 0), "{name}: {report}");
        let uncounted = roce::Uncounted { management, datagrams, unreliable, unknown: 0 };
        assert_eq!(report.roce, uncounted, "{name}");
        for one in &found {
            let details = one.roce.as_ref().expect("RoCEv2");
            assert!(details.queue_pairs.iter().all(Option::is_some), "{name}: {one}");
            assert_eq!(details.path_mtu, path_mtu, "{name}");
            let flows = &details.flows;
            assert!(flows.iter().all(|flow| flow.icrc_errors == 0 && flow.bytes_again == 0), "{name}: {one}");
        }
        if let Some(first) = found.first() {
            let flows = &first.roce.as_ref().expect("RoCEv2").flows;
            assert_eq!(flows.each_ref().map(|flow| flow.messages), messages, "{name}: {first}");
        }
    }
}

#[test]
fn lossy_writes_of_rxe_are_losses_or_timeouts() {
    let report = explain(include_bytes!("data/roce-loss.pcap")).expect("a capture");
    let found = connections(&report);
    let [one] = found[..] else { panic!("{report}") };
    let finding = one.verdict.as_ref().expect("it is slow");
    // Most NAKs are not lost, so that losses are repaired without the timer.
    assert_eq!((finding.cause, finding.sender), (Cause::Roce(roce::Cause::PacketLoss), 0), "{one}");
    let flow = &one.roce.as_ref().expect("RoCEv2").flows[0];
    assert!(flow.sequence_naks >= 5 && flow.bytes_again > 100_000, "{one}");
    assert!(one.steps.iter().any(|step| step.what.starts_with("NAK (sequence error)")), "{one}");
    // All numbers are those of the file.
    let numbers = finding.evidence.iter().flat_map(|piece| &piece.packets);
    assert!(numbers.into_iter().all(|number| (1..=report.packets).contains(number)));
}

#[test]
fn a_capture_of_one_direction_is_a_connection_by_itself() {
    let file = include_bytes!("data/roce-loss.pcap");
    let mut kept = file[..24].to_vec();
    let mut rest = &file[24..];
    while let Some((header, after)) = rest.split_at_checked(16) {
        let captured = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        let (data, after) = after.split_at(captured);
        // Ethernet and IPv4: the client's UDP.
        if data[23] == 17 && data[26..30] == [10, 78, 0, 3] {
            kept.extend([header, data].concat());
        }
        rest = after;
    }
    let report = explain(&kept).expect("a capture");
    let found = connections(&report);
    let [one] = found[..] else { panic!("{report}") };
    assert_eq!(one.roce.as_ref().expect("RoCEv2").queue_pairs[0], None);
    assert!(one.directions[0].retransmits > 0, "{one}");
}
