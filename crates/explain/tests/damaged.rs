//! Damaged captures: whatever is in a file, the library returns a report or an error, and does not panic.

use kiban_base::SimRng;

const FILES: [&[u8]; 2] = [include_bytes!("data/nagle.pcapng"), include_bytes!("data/healthy.pcap")];

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
    for round in 0..400 {
        let mut file = FILES[round % FILES.len()].to_vec();
        for _ in 0..1 + rng.below(30) {
            let at = rng.below(file.len() as u64) as usize;
            file[at] = rng.below(256) as u8;
        }
        found += connections(&file).unwrap_or(0);
    }
    // Damaged addresses and ports are other connections.
    assert!(found > 400, "{found}");
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
