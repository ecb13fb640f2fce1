//! Captures of the kernel, changed: cut, doubled, of one direction only, with late packets.

use kiban_explain::{Cause, Explained, Limit, Report};

/// A record of a pcap file: its time, ns, and its packet.
#[derive(Clone)]
struct Record {
    at: u64,
    packet: Vec<u8>,
    original_bytes: u32,
}

impl Record {
    /// Returns whether the packet is from the client, the end with the higher port.
    fn is_from_client(&self) -> bool {
        let header = usize::from(self.packet[0] & 15) * 4;
        self.packet[header..header + 2] > self.packet[header + 2..header + 4]
    }
}

/// Reads a file of raw IPv4 packets, as `captures.py` writes it.
fn records(name: &str) -> Vec<Record> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let file = contents(&path);
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let mut records = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let (captured, nanos) = (number(at + 8) as usize, u64::from(number(at)) * 1_000_000_000);
        records.push(Record {
            at: nanos + u64::from(number(at + 4)),
            packet: file[at + 16..][..captured].to_vec(),
            original_bytes: number(at + 12),
        });
        at += 16 + captured;
    }
    records
}

fn contents(path: &str) -> Vec<u8> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path).expect("it is part of the source");
    file.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

fn file(records: &[Record]) -> Vec<u8> {
    let mut file = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    for record in records {
        let (seconds, nanos) = (record.at / 1_000_000_000, record.at % 1_000_000_000);
        let head = [seconds as u32, nanos as u32, record.packet.len() as u32, record.original_bytes];
        file.extend(head.iter().flat_map(|number| number.to_le_bytes()));
        file.extend(&record.packet);
    }
    file
}

fn explain(records: &[Record]) -> (Report, Explained) {
    let report = kiban_explain::explain(&file(records)).expect("a capture");
    assert_eq!((report.connections.len(), report.skipped), (1, 0));
    let one = report.connections[0].clone();
    (report, one)
}

fn cause(one: &Explained) -> Option<Cause> {
    one.verdict.as_ref().map(|finding| finding.cause)
}

const ALL: [&str; 8] = [
    "healthy.pcap",
    "healthy-long.pcap",
    "receiver_limited.pcap",
    "sender_limited.pcap",
    "retransmission_timeout.pcap",
    "zero_window.pcap",
    "lost_window_scaling.pcap",
    "bufferbloat.pcap",
];

#[test]
fn without_a_handshake_no_window_is_believed_and_nothing_is_healthy() {
    for name in ALL {
        let all = records(name);
        let (_, whole) = explain(&all);
        let (_, one) = explain(&all[4..]);
        assert_eq!(one.limits, [Limit::Handshake], "{name}");
        assert_eq!(one.ends, whole.ends, "the client and the server are recognised: {name}");
        assert_ne!(one.words(), "healthy", "{name}");
        assert!(one.to_string().contains("note: this connection begins without its handshake"), "{name}");
        let of_windows = [Cause::ReceiverLimited, Cause::SillyWindow, Cause::LostWindowScaling];
        let all = one.verdict.iter().chain(&one.also);
        assert!(all.clone().all(|finding| !of_windows.contains(&finding.cause)), "{name}: {one}");
        // A window of 0 is closed whatever its scale.
        assert!(
            name == "zero_window.pcap" || all.clone().all(|one| one.cause != Cause::SlowReader),
            "{name}"
        );
        let kept = [Cause::SenderLimited, Cause::RetransmissionTimeout, Cause::SlowReader];
        if let Some(cause) = cause(&whole).filter(|cause| kept.contains(cause)) {
            assert!(all.clone().any(|one| one.cause == cause), "{name}: {one}");
        }
    }
}

#[test]
fn a_capture_of_one_direction_is_not_judged() {
    for name in ALL {
        for client in [false, true] {
            let half: Vec<Record> =
                records(name).into_iter().filter(|record| record.is_from_client() == client).collect();
            let (_, one) = explain(&half);
            assert_eq!((cause(&one), &one.limits[..]), (None, &[Limit::OneDirection][..]), "{name}: {one}");
            assert_eq!((one.words(), one.rtt_ms), ("no cause found", None), "{name}");
        }
    }
}

#[test]
fn packets_that_are_captured_twice_count_once() {
    for name in ALL {
        let all = records(name);
        let (_, once) = explain(&all);
        // As with `tcpdump -i any` on a bridge: each packet again, a moment later.
        let copies = |packet: &Record| Record { at: packet.at + 40_000, ..packet.clone() };
        let mut doubled: Vec<Record> = all.iter().cloned().chain(all.iter().map(copies)).collect();
        doubled.sort_by_key(|record| record.at);
        let (report, twice) = explain(&doubled);
        assert_eq!(report.duplicates as usize, all.len(), "{name}");
        assert_eq!((cause(&twice), twice.packets), (cause(&once), once.packets), "{name}: {twice}");
        // Hosts may leave the identification at 0.
        for record in &mut doubled {
            record.packet[4..6].fill(0);
        }
        let (report, twice) = explain(&doubled);
        assert_eq!(cause(&twice), cause(&once), "{name}: {twice}");
        assert!(report.duplicates as usize >= all.len() * 9 / 10, "{name}: {}", report.duplicates);
    }
}

#[test]
fn equal_acknowledgements_are_no_copies() {
    for name in ALL {
        let mut all = records(name);
        let (report, _) = explain(&all);
        assert_eq!(report.duplicates, 0, "{name}");
        for record in &mut all {
            record.packet[4..6].fill(0);
        }
        let (report, _) = explain(&all);
        assert_eq!(report.duplicates, 0, "{name}");
    }
}

#[test]
fn a_late_answer_to_the_syn_hides_no_cause() {
    for name in ALL {
        let mut all = records(name);
        let (_, whole) = explain(&all);
        all[0].at -= 80_000_000;
        let (_, one) = explain(&all);
        assert_eq!(cause(&one), cause(&whole), "{name}: {one}");
        let [late, before] = [&one, &whole].map(|one| one.rtt_ms.expect("it is known"));
        assert!(late < before + 40.0, "{name}: {late} ms, {before} ms");
    }
}

#[test]
fn the_window_of_a_syn_is_not_scaled() {
    let (_, one) = explain(&records("healthy.pcap"));
    let syns: Vec<&str> =
        one.steps.iter().map(|step| step.what.as_str()).filter(|what| what.contains("SYN")).collect();
    assert!(!syns.is_empty());
    for what in syns {
        let window = what.rsplit(' ').next().and_then(|window| window.parse().ok());
        assert!(window.is_none_or(|window: u32| window < 65536), "{what}");
    }
}
