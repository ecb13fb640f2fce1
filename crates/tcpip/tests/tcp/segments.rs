//! Which segments are accepted, how the others are answered (RFC 9293 §3.10.7.4, RFC 5961), and how sessions
//! end.

use crate::common::ms;
use crate::common::peer::*;
use kiban_tcpip::tcp::Config;
use kiban_tcpip::wire::tcp::Header;

const WINDOW: u32 = 10_000;

fn config() -> Config {
    Config { receive_buffer_bytes: WINDOW, ..Config::default() }
}

/// Returns a session whose next byte is 1001, so that older sequence numbers exist. The window ends at 1001 +
/// 10,000.
fn talk() -> Peer {
    let mut talk = Peer::established(config());
    talk.hear(seg(ACK, 1, 1, 60_000), &bytes(1000));
    talk.pass(ms(50));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1001 win 10000"]);
    talk.told();
    talk
}

#[test]
fn a_segment_with_a_wrong_checksum_or_header_is_counted_and_dropped() {
    use crate::common::station::Frame;
    let mut talk = talk();
    let header = Header { sequence: PEER + 1001, acknowledgment: talk.initial + 1, ..seg(ACK, 0, 0, 60_000) };
    let good = Frame::of(PEER_ADDRESS, talk.station.address, &header, b"hello");
    for bit in 0..good.bytes.len() * 8 {
        let mut bad = good.clone();
        bad.bytes[bit / 8] ^= 1 << (bit % 8);
        talk.station.arrive(&bad, talk.now);
        talk.settle();
    }
    let mut short = good.clone();
    short.bytes[12] = 0x40;
    short.seal();
    talk.station.arrive(&short, talk.now);
    let mut long = good.clone();
    long.bytes[12] = 0xf0;
    long.seal();
    talk.station.arrive(&long, talk.now);
    talk.station.arrive(&Frame { bytes: good.bytes[..19].to_vec(), ..good }, talk.now);
    talk.settle();
    let counters = talk.station.tcp.counters();
    assert_eq!((counters.checksum_errors + counters.malformed, talk.got.len()), (25 * 8 + 3, 1000));
    assert_eq!(talk.said().len(), 0);
}
