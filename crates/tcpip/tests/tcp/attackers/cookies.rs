//! Scripts about SYNs for which no state is kept (RFC 4987 §3.6).

use crate::common::peer::*;
use crate::common::station::Frame;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use kiban_tcpip::tcp::Config;
use kiban_tcpip::wire::tcp::{Header, Options, Timestamps};

const SECOND: Duration = Duration::from_secs(1);

fn offering(value: Option<u32>) -> Options {
    Options {
        mss: Some(1452),
        window_shift: Some(7),
        sack_permitted: true,
        timestamps: value.map(|value| Timestamps { value, echo: 0 }),
        ..Options::NONE
    }
}

/// Returns the last segment of a handshake, which echoes the timestamp of our SYN-ACK.
fn last(talk: &Peer, value: u32) -> Header {
    let ours = talk.frames.last().unwrap().header().0.options.timestamps;
    let timestamps = ours.map(|ours| Timestamps { value, echo: ours.value });
    Header { options: Options { timestamps, ..Options::NONE }, ..seg(ACK, 1, 1, 500) }
}

#[test]
fn a_million_syns_take_no_memory_and_a_real_client_connects() {
    let mut talk = Peer::listening(Config::default());
    let (server, blocks) = (talk.local(), talk.station.memory.pdus.available());
    for n in 0..1_000_000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n / 60_000));
        let header = Header {
            source_port: (n % 60_000) as u16 + 1,
            options: offering(Some(n)),
            ..seg(SYN, n, 0, 1000)
        };
        let frame = Frame::of(source, server.ip(), &header, b"");
        assert!(talk.station.arrive(&frame, talk.now));
        while talk.station.out.down.pop_front().is_some() {}
        if n == 500_000 {
            // A handshake completes in the middle of the flood.
            talk.settle();
            talk.frames.clear();
            let syn = Header { options: offering(Some(100)), ..seg(SYN, 0, 0, 8000) };
            talk.initial = {
                talk.hear(syn, b"");
                talk.frames.last().unwrap().header().0.sequence
            };
            let ack = last(&talk, 101);
            talk.hear(ack, b"hello");
            assert_eq!(talk.told(), ["accepted", "data 5"]);
        }
    }
    let counters = talk.station.tcp.counters();
    assert_eq!((talk.station.tcp.sessions(), counters.syns_dropped), (129, 0));
    assert_eq!(counters.syn_cookies_sent, 1_000_001 - 128);
    assert!(talk.station.memory.pdus.available() >= blocks - 129);
    talk.pass(SECOND * 300);
    assert_eq!(talk.station.tcp.sessions(), 1);
}
