//! Tests that replay captures of another implementation over XOT, with this crate at one end and the captured
//! packets at the other.

use kiban_base::{Instant, Rope};
use kiban_capture as capture;
use kiban_osi::wire::x25::{self, Header, Kind};
use kiban_osi::wire::xot;
use kiban_osi::x25::xot::{CHANNEL, Xot};
use kiban_osi::x25::{Call, Cause, Config, Facilities, Indication, Modulo, Request, Role, Sizes};
use std::collections::VecDeque;

const MOD_8: &[u8] = include_bytes!("../data/xot-mod8.pcap");
const MOD_128: &[u8] = include_bytes!("../data/xot-mod128.pcap");
const T0: Instant = Instant::ZERO;

/// Returns the packets of a capture in order, each with its XOT header and its direction (0: sent by the TCP
/// client).
fn packets(pcap: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (file, _) = capture::FileHeader::read(pcap).expect("a capture");
    let (mut streams, mut all) = ([Vec::new(), Vec::new()], Vec::new());
    for record in file.records(pcap) {
        let (_, frame) = record.expect("a record");
        let (ip_bytes, tcp) = (usize::from(u16::from_be_bytes([frame[16], frame[17]])), &frame[34..]);
        let way = usize::from(u16::from_be_bytes([tcp[0], tcp[1]]) == xot::PORT);
        streams[way].extend_from_slice(&frame[34 + usize::from(tcp[12] >> 4) * 4..14 + ip_bytes]);
        while let Ok((header, used)) = xot::Header::read(&streams[way]) {
            let end = used + usize::from(header.packet_bytes);
            if streams[way].len() < end {
                break;
            }
            all.push((way, streams[way].drain(..end).collect()));
        }
    }
    all
}

fn kind(packet: &[u8]) -> Kind {
    Header::read(&packet[xot::HEADER_BYTES..]).expect("a packet").0.kind
}

/// Returns the part of a packet that does not depend on when the receiver acknowledges: for a data packet,
/// the user data with the M, Q and D bits; for any other packet, everything.
fn essence(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, used) = Header::read(&packet[xot::HEADER_BYTES..]).expect("a packet");
    let rest = &packet[xot::HEADER_BYTES + used..];
    match header.kind {
        Kind::Data { more, .. } => {
            let front = [u8::from(more), u8::from(header.front.qualifier), u8::from(header.front.delivery)];
            Some([&front, rest].concat())
        }
        Kind::ReceiveReady(_) | Kind::ReceiveNotReady(_) => None,
        _ => Some(packet.to_vec()),
    }
}

fn config(modulo: Modulo) -> Config {
    let window = modulo.mask();
    Config { modulo, default: Sizes::same(128, 2), window_max: window, ..Config::new(Role::Dte) }
}

#[test]
fn replaying_the_called_side_echoes_the_recorded_packets() {
    for pcap in [MOD_8, MOD_128] {
        let all = packets(pcap);
        let mut end = Xot::called(config(Modulo::OneTwentyEight));
        let mut said = Vec::new();
        for (_, packet) in all.iter().filter(|(way, _)| *way == 0) {
            end.arrive(Rope::copied(packet), T0);
            loop {
                let before = said.len();
                while let Some(indication) = end.poll_up() {
                    let request = match indication {
                        Indication::Incoming { .. } => {
                            Request::Accept { channel: CHANNEL, call: Call::default() }
                        }
                        Indication::Data { data, qualifier, .. } => {
                            Request::Data { channel: CHANNEL, data, qualifier, delivery: false }
                        }
                        Indication::Cleared { .. } | Indication::Reset { by_peer: true, .. } => continue,
                        other => panic!("{other:?}"),
                    };
                    end.request(request, T0).expect("as the recorded peer did");
                }
                said.extend(
                    core::iter::from_fn(|| end.poll_down()).filter_map(|packet| essence(&packet.to_vec())),
                );
                if said.len() == before {
                    break;
                }
            }
        }
        let counters = end.packet_layer().counters();
        assert_eq!((counters.resets_for_errors, counters.clears_for_errors, counters.discarded), (0, 0, 0));
        let recorded: Vec<Vec<u8>> =
            all.iter().filter(|(way, _)| *way == 1).filter_map(|(_, packet)| essence(packet)).collect();
        assert_eq!(said.len(), recorded.len());
        for (number, (said, recorded)) in said.iter().zip(&recorded).enumerate() {
            assert_eq!(said, recorded, "number {number}");
        }
    }
}

#[test]
fn replaying_the_caller_sends_the_recorded_packets() {
    for (pcap, modulo) in [(MOD_8, Modulo::Eight), (MOD_128, Modulo::OneTwentyEight)] {
        let all = packets(pcap);
        let mut end = Xot::calling(config(modulo));
        let (mut said, mut recorded, mut received) = (VecDeque::new(), Vec::new(), 0);
        for (at, (way, packet)) in all.iter().enumerate() {
            if *way == 1 {
                end.arrive(Rope::copied(packet), T0);
            } else if let Some(essence) = essence(packet) {
                recorded.push(essence);
                let rest = &packet[xot::HEADER_BYTES + 3..];
                let request = match kind(packet) {
                    Kind::CallRequest => {
                        let (call, _) = x25::Call::read(rest, false).expect("a call");
                        let facilities = Facilities::read(call.facilities).expect("facilities");
                        let (addresses, user_data) = (call.addresses, call.user_data.to_vec());
                        Some(Request::Call {
                            channel: CHANNEL,
                            call: Call { addresses, facilities, user_data },
                        })
                    }
                    Kind::Data { .. } => unit_that_begins(&all, at),
                    Kind::ResetRequest => {
                        let (cause, _) = Cause::read(rest).expect("a reset");
                        Some(Request::Reset { channel: CHANNEL, cause })
                    }
                    Kind::ClearRequest => {
                        let (cause, _) = Cause::read(rest).expect("a clear");
                        Some(Request::Clear { channel: CHANNEL, cause, user_data: Vec::new() })
                    }
                    _ => None,
                };
                if let Some(request) = request {
                    end.request(request, T0).expect("as the recorded peer did");
                }
            }
            while let Some(indication) = end.poll_up() {
                received += usize::from(matches!(indication, Indication::Data { .. }));
            }
            said.extend(
                core::iter::from_fn(|| end.poll_down()).filter_map(|packet| essence(&packet.to_vec())),
            );
        }
        let counters = end.packet_layer().counters();
        assert_eq!((counters.resets_for_errors, counters.clears_for_errors), (0, 0));
        assert!(received > 3, "{received} units");
        assert_eq!(Vec::from(said), recorded);
    }
}

/// Returns the unit that begins with the packet at `at`, or `None` if that packet continues a unit.
fn unit_that_begins(all: &[(usize, Vec<u8>)], at: usize) -> Option<Request> {
    let more = |packet: &[u8]| matches!(kind(packet), Kind::Data { more: true, .. });
    let is_data = |packet: &[u8]| matches!(kind(packet), Kind::Data { .. });
    let own = |from: &[(usize, Vec<u8>)]| -> Vec<Vec<u8>> {
        from.iter()
            .filter(|(way, packet)| *way == 0 && is_data(packet))
            .map(|(_, packet)| packet.clone())
            .collect()
    };
    if own(&all[..at]).last().is_some_and(|before| more(before)) {
        return None;
    }
    let mut data = Vec::new();
    let mut qualifier = false;
    for packet in own(&all[at..]) {
        let (header, used) = Header::read(&packet[xot::HEADER_BYTES..]).expect("a packet");
        qualifier = header.front.qualifier;
        data.extend_from_slice(&packet[xot::HEADER_BYTES + used..]);
        if !more(&packet) {
            break;
        }
    }
    Some(Request::Data { channel: CHANNEL, data: data.into(), qualifier, delivery: false })
}
