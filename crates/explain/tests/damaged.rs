//! Damaged captures: whatever is in a file, the library returns a report or an error, and does not panic.

use kiban_base::SimRng;

const FILES: [&[u8]; 5] = [
    include_bytes!("data/nagle.pcapng"),
    include_bytes!("data/healthy.pcap"),
    // RoCEv2: lost packets; Reads, and messages of communication management.
    include_bytes!("data/roce-loss.pcap"),
    include_bytes!("../../rdma/tests/data/rxe-read.pcap"),
    include_bytes!("../../rdma/tests/data/rxe-rping.pcap"),
];

/// Returns how many connections are found, after looking at all texts of the report.
fn connections(file: &[u8]) -> Option<usize> {
    let report = kiban_explain::explain(file).ok()?;
    let texts: usize = report.connections.iter().map(|one| one.to_string().len()).sum();
    assert!(!report.to_string().is_empty() && texts >= report.connections.len());
    Some(report.connections.len())
}

#[test]
fn a_file_that_ends_anywhere_is_explained_up_to_there() {
    for file in FILES {
        let whole = kiban_explain::explain(file).expect("a capture");
        assert!(whole.unread.is_none() && whole.packets > 20);
        let mut before = 0;
        for bytes in (0..file.len()).step_by(61) {
            let Ok(report) = kiban_explain::explain(&file[..bytes]) else {
                assert!(bytes < 64, "{bytes}");
                continue;
            };
            assert!(report.packets >= before && report.packets <= whole.packets);
            before = report.packets;
        }
        assert!(before + 2 >= whole.packets, "{before}");
    }
}

#[test]
fn damaged_bytes_never_end_the_program() {
    let mut rng = SimRng::from_seed(1);
    let mut found = 0;
    for round in 0..1000 {
        let mut file = FILES[round % FILES.len()].to_vec();
        for _ in 0..1 + rng.below(30) {
            let at = rng.below(file.len() as u64) as usize;
            file[at] = rng.below(256) as u8;
        }
        found += connections(&file).unwrap_or(0);
    }
    // Damaged addresses and ports are other connections.
    assert!(found > 1000, "{found}");
}

#[test]
fn packets_in_any_order_and_any_number_are_explained() {
    // Records of a pcap file: reversed, repeated, and all at the same time.
    let file = FILES[1];
    let header = 24;
    let mut records = Vec::new();
    let mut rest = &file[header..];
    while rest.len() >= 16 {
        let captured = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let (record, after) = rest.split_at(16 + captured);
        records.push(record.to_vec());
        rest = after;
    }
    assert!(records.len() > 20);
    let count = records.len();
    for round in 0..3 {
        let mut changed = file[..header].to_vec();
        for (at, record) in records.iter().rev().chain(&records).enumerate() {
            let mut record = record.clone();
            match round {
                0 => {}
                1 => record[..8].fill(0),
                _ => record[..4].copy_from_slice(&(((2 * count - at) * 40_000_000) as u32).to_le_bytes()),
            }
            changed.extend(record);
        }
        assert_eq!(connections(&changed), Some(1), "{round}");
    }
}

/// Returns a pcap file of packets of RC from one address to another, a microsecond apart: opcode, destination
/// queue pair, PSN, and what follows the BTH.
fn roce(packets: impl Iterator<Item = (bool, u8, u32, u32, Vec<u8>)>) -> Vec<u8> {
    use kiban_capture::{FileHeader, LINK_TYPE_RAW, RecordHeader};
    let header = FileHeader::new(LINK_TYPE_RAW);
    let mut file = Vec::new();
    header.write(&mut file);
    for ((is_back, opcode, qpn, psn, rest), at) in packets.zip(0u64..) {
        let udp_bytes = (8 + 12 + rest.len() + 4) as u16;
        let [from, to] = if is_back { [2, 1] } else { [1, 2] };
        let mut data = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to];
        data[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
        data.extend([&[0xc0, 0, 0x12, 0xb7][..], &udp_bytes.to_be_bytes(), &[0, 0]].concat());
        data.extend([opcode, 0x40, 0xff, 0xff]);
        data.extend(qpn.to_be_bytes());
        data.extend(psn.to_be_bytes());
        data.extend(rest);
        // The ICRC is cut off.
        let (captured_bytes, original_bytes) = (data.len() as u32, data.len() as u32 + 4);
        RecordHeader { nanoseconds: at * 1000, captured_bytes, original_bytes }.write(&header, &mut file);
        file.extend(data);
    }
    file
}

#[test]
fn hostile_roce_packets_take_time_and_memory_in_proportion_to_their_number() {
    const COUNT: u32 = 100_000;
    let read = |length: u32| [&[0; 12][..], &length.to_be_bytes()].concat();
    let ack = vec![0x1f, 0, 0, 0];
    // Every packet goes to a queue pair of its own.
    let file = roce((0..COUNT).map(|n| (n % 2 == 1, 4, n & 0xff_ffff, 7, Vec::new())));
    assert_eq!(connections(&file), Some(COUNT as usize));
    // All have the same PSN, and all are answered.
    let acks = ack.clone();
    let file = roce((0..COUNT).map(|n| match n % 2 {
        0 => (false, 4, n % 5000, 7, Vec::new()),
        _ => (true, 17, n % 5000, 7, acks.clone()),
    }));
    assert!(connections(&file).is_some_and(|count| count <= 5000));
    // One queue pair: PSNs that jump and go back, Reads of 4 GB, and answers to none of them.
    let mut rng = SimRng::from_seed(2);
    let file = roce((0..COUNT).map(|n| {
        let psn = rng.below(1 << 24) as u32;
        match n % 4 {
            0 => (false, 12, 1, psn, read(u32::MAX)),
            1 => (false, 7, 1, psn, Vec::new()),
            2 => (true, 17, 2, psn, vec![[0x1f, 0x60, 0x20, 0x3f][(n / 4 % 4) as usize], 0, 0, 0]),
            _ => (true, 14, 2, psn, Vec::new()),
        }
    }));
    assert!(connections(&file).is_some_and(|count| count <= 2));
    // A long window, repeated from its first packet again and again.
    let file = roce((0..COUNT).map(|n| (false, 7, 1, if n % 2 == 0 { n / 2 } else { 0 }, Vec::new())));
    assert_eq!(connections(&file), Some(1));
}
