//! An adversary that can forge the peer's packets and knows every number: what it can do, by the protocol's
//! design, and that it can do nothing else.
//!
//! RoCEv2 has no authentication (IBTA volume 1 §10.2 leaves protection to keys), so a program that knows the
//! queue pair's number and PSN speaks for the peer. The test forges random packets around the expected PSNs
//! and looks at everything that the victim owns.

use crate::pair::{BASE, BYTES, Host, Pair, RoceTraits, traits};
use kiban_base::{Region, SharedBytes, SimRng};
use kiban_rdma::rnic::{Access, Kind, Operation, QpState, Sge, Status, TaggedAddress};
use kiban_rdma::wire::roce::{
    Aeth, AtomicAckEth, AtomicEth, Bth, NakCode, Opcode, PSN_MASK, Packet, Reth, SelectiveAck, Syndrome,
};
use std::collections::BTreeSet;
use std::ops::Range;

const SEEDS: u64 = 300;
const FORGED: usize = 60;
const REGION_BYTES: usize = 4096;
/// The contents of memory that no packet may read or change, of memory with remote access, of memory that the
/// victim sends, and of forged packets.
const SECRET: u8 = 0x77;
const EXPOSED: u8 = 0x33;
const SOURCE: u8 = 0x55;
const FORGERY: u8 = 0x44;
/// The posted receives: `RECEIVES` of this length, this far apart.
const RECEIVES: u64 = 4;
const RECEIVE_BYTES: u32 = 256;
const RECEIVE_STRIDE: u64 = 512;
/// Where the victim's read puts the response.
const SINK: Range<usize> = 100..1100;

const LOCAL: Access = Access { local_write: true, ..Access::NONE };
const REMOTE: Access =
    Access { local_write: true, remote_read: true, remote_write: true, remote_atomic: true, ..Access::NONE };

/// What the adversary may achieve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Effect {
    /// A Write or an atomic changes memory whose key it has.
    ChangedExposed,
    /// A Read returns memory whose key it has.
    ReadExposed,
    /// A Send fills a posted receive.
    FilledReceive,
    /// A forged response fills the sink of the victim's own read.
    FilledSink,
    /// A forged acknowledgement completes the victim's work although nothing arrived.
    CompletedWork,
    /// A NAK or an invalid request ends the connection.
    EndedConnection,
    /// A Send with Invalidate revokes a key.
    RevokedKey,
}

struct Area {
    memory: Region,
    base: u64,
    stag: u32,
}

impl Area {
    fn new(host: &mut Host, base: u64, access: Access, content: u8) -> Area {
        let memory = Region::new(base, REGION_BYTES);
        memory.write(base, SharedBytes::from(&[content; REGION_BYTES][..])).expect("within");
        let stag = host.nic.register(host.pd, memory.clone(), access).expect("room");
        Area { memory, base, stag }
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.read(self.base, REGION_BYTES).expect("within")
    }

    fn element(&self, offset: u64, length: u32) -> Sge {
        Sge { stag: self.stag, address: self.base + offset, length }
    }
}

/// The keys and addresses that a forged packet names.
struct Known {
    targets: Vec<(u32, u64)>,
    expected: u32,
    outstanding: u32,
}

fn forge(rng: &mut SimRng, known: &Known) -> (Packet, Vec<u8>) {
    let opcode = loop {
        let octet = rng.below(25) as u8;
        let opcode = if octet == 24 { Ok(Opcode::SelectiveAck) } else { Opcode::read(octet) };
        if let Ok(opcode) = opcode {
            break opcode;
        }
    };
    let (is_response, carries_payload) = match opcode {
        Opcode::Transport(_, operation) => (operation.is_response(), operation.carries_payload()),
        _ => (true, false),
    };
    let around = if is_response { known.outstanding } else { known.expected };
    let psn = around.wrapping_add(rng.below(9) as u32).wrapping_sub(4) & PSN_MASK;
    let lengths = [0, 4, 8, 200, 1000, 1024];
    let length = if carries_payload { lengths[rng.below(6) as usize] } else { 0 };
    let (rkey, base) = known.targets[rng.below(known.targets.len() as u64) as usize];
    let address = base + 8 * rng.below(REGION_BYTES as u64 / 8);
    let bth = Bth::new(opcode, 0xffff, 0x1001, psn);
    let mut packet = Packet::new(Bth { ack_request: true, selective: rng.below(2) == 0, ..bth });
    let headers = opcode.headers();
    let syndromes = [Syndrome::Ack(31), Syndrome::Nak(NakCode::RemoteOperational), Syndrome::RnrNak(1)];
    packet.reth = headers.rdma.then_some(Reth { address, rkey, length: length as u32 + rng.below(2) as u32 });
    packet.atomic = headers.atomic.then_some(AtomicEth { address, rkey, swap_or_add: 1, compare: 0 });
    packet.aeth =
        headers.ack.then(|| Aeth { syndrome: syndromes[rng.below(12).saturating_sub(9) as usize], msn: 1 });
    packet.atomic_ack = headers.atomic_ack.then_some(AtomicAckEth { original: 0x4444_4444_4444_4444 });
    packet.selective_ack =
        headers.selective_ack.then(|| SelectiveAck::new(psn, rng.below(99) as u32, |psn| psn % 3 == 0));
    packet.immediate = headers.immediate.then_some(7);
    packet.invalidate = headers.invalidate.then_some(rkey);
    (packet, vec![FORGERY; length])
}

/// Returns whether all bytes outside of the ranges are `content`.
fn is_untouched(bytes: &[u8], content: u8, except: &[Range<usize>]) -> bool {
    let may_change = |at: usize| except.iter().any(|range| range.contains(&at));
    bytes.iter().enumerate().all(|(at, byte)| *byte == content || may_change(at))
}

fn attack(seed: u64, effects: &mut BTreeSet<Effect>) {
    let mut rng = SimRng::from_seed(seed);
    let traits = RoceTraits { ack_timeout: None, ..traits() };
    let mut pair = Pair::with_access(traits, LOCAL);
    pair.hosts[1].fill(0, &vec![SECRET; BYTES]);
    let victim = &mut pair.hosts[1];
    let exposed = Area::new(victim, 0x50_0000, REMOTE, EXPOSED);
    let inbox = Area::new(victim, 0x60_0000, LOCAL, SECRET);
    let sink = Area::new(victim, 0x70_0000, LOCAL, SECRET);
    let source = Area::new(victim, 0x80_0000, LOCAL, SOURCE);
    for id in 0..RECEIVES {
        victim.receive(id, inbox.element(id * RECEIVE_STRIDE, RECEIVE_BYTES));
    }
    victim.post(10, Operation::SEND, source.element(0, 1000));
    let peer_stag = pair.hosts[0].stag;
    let remote = TaggedAddress { stag: peer_stag, offset: BASE };
    pair.hosts[1].post(11, Operation::read(remote), sink.element(SINK.start as u64, SINK.len() as u32));
    // The peer never receives the victim's packets, and sends none: every packet is forged.
    let mut known = Known {
        targets: [&exposed, &exposed, &exposed, &inbox, &sink, &source]
            .iter()
            .map(|area| (area.stag, area.base))
            .chain([(pair.hosts[1].stag, BASE)])
            .collect(),
        expected: traits.first_psn_out,
        outstanding: traits.first_psn_in,
    };
    let mut seen = 0;
    for _ in 0..FORGED {
        pair.send(&mut |_, _| crate::pair::is_lost());
        // The adversary sees the victim's acknowledgements, and so knows what it expects next.
        for (_, packet, payload) in &pair.sent[seen..] {
            assert!(
                !payload.contains(&SECRET),
                "seed {seed}: {packet:?} carries memory that nobody may read"
            );
            let is_read =
                matches!(packet.bth.opcode, Opcode::Transport(_, operation) if operation.is_response());
            if is_read && !payload.is_empty() {
                effects.insert(Effect::ReadExposed);
            }
            if is_read {
                known.expected = packet.bth.psn.wrapping_add(1) & PSN_MASK;
            }
        }
        seen = pair.sent.len();
        let (packet, payload) = forge(&mut rng, &known);
        pair.deliver(1, &packet, &payload);
    }

    let context = format!("seed {seed}");
    assert!(is_untouched(&pair.hosts[1].bytes(0, BYTES), SECRET, &[]), "{context}: private memory");
    assert!(is_untouched(&source.bytes(), SOURCE, &[]), "{context}: what the victim sends");
    let receives: Vec<Range<usize>> = (0..RECEIVES)
        .map(|id| (id * RECEIVE_STRIDE) as usize)
        .map(|start| start..start + RECEIVE_BYTES as usize)
        .collect();
    assert!(is_untouched(&inbox.bytes(), SECRET, &receives), "{context}: around posted receives");
    assert!(is_untouched(&sink.bytes(), SECRET, std::slice::from_ref(&SINK)), "{context}: around the sink");
    if !is_untouched(&sink.bytes(), SECRET, &[]) {
        effects.insert(Effect::FilledSink);
    }
    if !is_untouched(&exposed.bytes(), EXPOSED, &[]) {
        effects.insert(Effect::ChangedExposed);
    }

    let victim = &mut pair.hosts[1];
    let mut open: BTreeSet<u64> = (0..RECEIVES).chain([10, 11]).collect();
    for done in victim.completions() {
        assert!(open.remove(&done.id), "{context}: {} completes twice or was never posted", done.id);
        let is_receive = done.id < RECEIVES;
        match done.status {
            Status::Success if is_receive => {
                // For a Write with immediate data, it is the length of the Write.
                let fits = done.bytes <= RECEIVE_BYTES || done.kind == Kind::ReceiveImmediate;
                assert!(fits, "{context}: {done:?}");
                effects.insert(Effect::FilledReceive);
                if done.invalidated.is_some() {
                    effects.insert(Effect::RevokedKey);
                }
            }
            Status::Success => {
                effects.insert(Effect::CompletedWork);
            }
            _ => {}
        }
    }
    if matches!(victim.nic.query_qp(victim.qp), Ok((_, QpState::Error, _))) {
        effects.insert(Effect::EndedConnection);
    }
}

#[test]
fn forged_packets_have_only_the_effects_that_keys_and_psns_allow() {
    let mut effects = BTreeSet::new();
    (0..SEEDS).for_each(|seed| attack(seed, &mut effects));
    use Effect::*;
    let all =
        [ChangedExposed, ReadExposed, FilledReceive, FilledSink, CompletedWork, EndedConnection, RevokedKey];
    assert_eq!(effects, BTreeSet::from(all), "the list of effects is complete and no longer than needed");
}
