//! What the sets of simulated connections have in common: numbers drawn from a seed, captures, and the check
//! of precision and recall.

use crate::score::{Score, words};
use kiban_base::SimRng;
use kiban_capture::{FileHeader, LINK_TYPE_RAW, RecordHeader};
use kiban_explain::{Cause, Explained};
use kiban_sim::{CableNumber, Middlebox, Tap, World};
use kiban_tcpip::ip::Prefix;
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// Draws numbers.
pub(crate) struct Draw(pub(crate) SimRng);

impl Draw {
    /// Returns a number from a range, on a logarithmic scale.
    pub(crate) fn number(&mut self, from: u64, to: u64) -> u64 {
        let (low, high) = ((from as f64).ln(), (to as f64).ln());
        (low + (high - low) * self.0.unit()).exp() as u64
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }
}

/// Packets with their times, ns.
pub(crate) type Packets = Rc<RefCell<Vec<(u64, Vec<u8>)>>>;

pub(crate) fn address(six: bool, side: u8) -> (IpAddr, Prefix) {
    let of = |host: u8| match six {
        true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
        false => IpAddr::from([10, 0, 0, host]),
    };
    (of(1 + side), Prefix::new(of(0), if six { 64 } else { 24 }))
}

/// Records what is sent on a cable, after `change` and before `middlebox`.
pub(crate) fn watch(
    packets: &Packets,
    change: impl Fn(&mut [u8]) + 'static,
    mut middlebox: Option<Middlebox>,
) -> Middlebox {
    let packets = packets.clone();
    Box::new(move |now, bytes| {
        change(bytes);
        packets.borrow_mut().push((now.as_nanos(), bytes.clone()));
        middlebox.as_mut().is_none_or(|middlebox| middlebox(now, bytes))
    })
}

/// Records what arrives on a cable.
pub(crate) fn tap(world: &mut World, cable: CableNumber) -> Rc<RefCell<Vec<u8>>> {
    let file = Rc::new(RefCell::new(Vec::new()));
    let place = file.clone();
    world
        .cable(cable)
        .set_tap(Tap::new(0, Box::new(move |bytes| place.borrow_mut().extend_from_slice(bytes))));
    file
}

/// Returns the packets of a tap's file, `early` before they arrived.
pub(crate) fn arrived(file: &[u8], early: Duration) -> Vec<(u64, Vec<u8>)> {
    let Ok((header, _)) = FileHeader::read(file) else { return Vec::new() };
    let records = header.records(file).map(|record| record.expect("the tap writes whole records"));
    let early = early.as_nanos() as u64;
    records.map(|(record, data)| (record.nanoseconds.saturating_sub(early), data.to_vec())).collect()
}

/// Returns a capture file with at most `snap_bytes` of each packet.
pub(crate) fn file(packets: &[(u64, Vec<u8>)], snap_bytes: usize) -> Vec<u8> {
    let header = FileHeader::new(LINK_TYPE_RAW);
    let mut file = Vec::new();
    header.write(&mut file);
    for (nanoseconds, data) in packets {
        let kept = data.len().min(snap_bytes);
        let (captured_bytes, original_bytes) = (kept as u32, data.len() as u32);
        RecordHeader { nanoseconds: *nanoseconds, captured_bytes, original_bytes }.write(&header, &mut file);
        file.extend_from_slice(&data[..kept]);
    }
    file
}

/// A set of connections with known causes.
pub(crate) struct Set {
    pub(crate) causes: Vec<Cause>,
    /// Runs a connection from a seed, and returns its capture.
    pub(crate) run: fn(Option<Cause>, u64) -> Vec<u8>,
    /// The first seeds with which the rules were written, and of those that were held out: even and odd ones.
    pub(crate) first: [u64; 2],
    /// Connections per cause. `KIBAN_EXPLAIN_EACH` asks for another number, `KIBAN_EXPLAIN_FIRST` for one set
    /// of seeds.
    pub(crate) each: u64,
    /// The least precision and recall of any verdict, below the figures in docs/explain.md. Seeds and virtual
    /// time make the result the same in every run.
    pub(crate) floor: f64,
}

impl Set {
    /// Explains the connection of a seed. With `KIBAN_EXPLAIN_KEEP`, its capture is kept in that directory,
    /// to be looked at with Wireshark.
    fn explained(&self, cause: Option<Cause>, seed: u64) -> Explained {
        let file = (self.run)(cause, seed);
        if let Ok(dir) = std::env::var("KIBAN_EXPLAIN_KEEP") {
            let name = format!("{dir}/{}-{seed}.pcap", cause.map_or("healthy", Cause::name));
            std::fs::write(name, &file).expect("KIBAN_EXPLAIN_KEEP names a directory with room");
        }
        let mut report = kiban_explain::explain(&file).expect("the file is a capture");
        assert_eq!((report.connections.len(), report.skipped), (1, 0), "{cause:?} {seed}: {report}");
        report.connections.remove(0)
    }

    /// Explains connections of every kind, `each` per cause and 5.5 times as many healthy ones, of every
    /// other seed from `first`.
    fn score(&self, each: u64, first: u64) -> Score {
        let mut score = Score::default();
        let kinds = self.causes.iter().map(|cause| (Some(*cause), each)).chain([(None, each * 11 / 2)]);
        for (label, count) in kinds {
            for seed in (0..count).map(|seed| 2 * seed + first) {
                let explained = self.explained(label, seed);
                let verdict = explained.verdict.as_ref().map(|finding| finding.cause);
                score.add(label, verdict);
                if verdict != label
                    && std::env::var("KIBAN_EXPLAIN_SHOW").is_ok_and(|shown| shown == (first % 2).to_string())
                {
                    println!("{} {seed}: {explained}", words(label));
                }
            }
        }
        score
    }

    /// Prints precision and recall of all verdicts, and checks them.
    pub(crate) fn check(&self) {
        let each = std::env::var("KIBAN_EXPLAIN_EACH").ok().and_then(|each| each.parse().ok());
        let each = each.unwrap_or(self.each);
        for (first, name) in
            self.first.into_iter().zip(["seeds that the rules were written with", "seeds held out"])
        {
            if std::env::var("KIBAN_EXPLAIN_FIRST").is_ok_and(|only| only != first.to_string()) {
                continue;
            }
            let score = self.score(each, first);
            println!("simulated, {name}:\n{score}");
            for label in self.causes.iter().copied().map(Some).chain([None]) {
                let (precision, recall) = score.of(label);
                let holds = precision >= Some(self.floor) && recall >= Some(self.floor);
                assert!(holds, "{}, {name}:\n{score}", words(label));
            }
        }
    }
}
