//! Loss recovery with a peer that sends SACK, and the congestion window (RFC 2018, RFC 2883, RFC 3042, RFC
//! 6675, RFC 6937, RFC 8985, RFC 9438).

use crate::common::ms;
use crate::common::peer::*;
use kiban_tcpip::tcp::{Config, CongestionControl, Info};
use kiban_tcpip::wire::tcp::{Header, Options, SackBlock, SackBlocks};

/// Returns a session whose peer supports SACK, with a measured round trip of 100 ms.
fn talk_with(config: Config) -> Peer {
    let mut talk = Peer::listening(Config { sack: true, ..config });
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::NONE };
    talk.hear(Header { options, ..seg(SYN, 0, 0, 60_000) }, b"");
    talk.pass(ms(100));
    talk.hear(seg(ACK, 1, 1, 60_000), b"");
    talk.said();
    talk.told();
    talk
}

/// Delivers an acknowledgement with SACK blocks, in relative numbers.
fn sack(talk: &mut Peer, acknowledgment: u32, blocks: &[(u32, u32)]) {
    let mut list = SackBlocks::new();
    for (left, right) in blocks {
        let at = |n: u32| talk.initial + n;
        assert!(list.push(SackBlock { left: at(*left), right: at(*right) }));
    }
    let options = Options { sack: list, ..Options::NONE };
    talk.hear(Header { options, ..seg(ACK, 1, acknowledgment, 60_000) }, b"");
}

fn info(talk: &Peer) -> Info {
    talk.station.tcp.info(talk.id()).unwrap()
}

// ---- Holes

#[test]
fn a_large_segment_is_cut_where_the_peer_holds_part_of_it() {
    let mut talk = talk_with(Config { segment_bytes_max: 8000, ..Config::default() });
    talk.write(&bytes(8000));
    talk.said();
    talk.pass(ms(100));
    sack(&mut talk, 1, &[(2001, 3001), (4001, 8001)]);
    assert_eq!(talk.said_briefly(), ["ACK 1+1000 ack 1", "ACK 1001+1000 ack 1", "ACK 3001+1000 ack 1"]);
}

// ---- The window

#[test]
fn recovery_reduces_the_rate_in_proportion_to_deliveries() {
    // RFC 6937 with Reno: one of fourteen outstanding segments is lost. While the other thirteen arrive,
    // seven are sent, one for every two.
    let config =
        Config { congestion: CongestionControl::Reno, initial_window_segments: 20, ..Config::default() };
    let mut talk = talk_with(config);
    talk.write(&bytes(40_000));
    let out = talk.said().len() as u32;
    talk.pass(ms(100));
    let mut sent = Vec::new();
    for n in 2..=out {
        sack(&mut talk, 1, &[(1001, n * 1000 + 1)]);
        sent.push(talk.said().len());
    }
    let all: usize = sent.iter().sum();
    // Limited transmit sends the first two, and the retransmission is the third; then half of the delivered
    // amount is sent.
    assert!((out as usize / 2..=out as usize / 2 + 3).contains(&all), "{sent:?}");
    assert!(sent.iter().all(|count| *count <= 2), "no burst: {sent:?}");
    sack(&mut talk, out * 1000 + 1, &[]);
    assert_eq!(info(&talk).congestion_window_bytes, 7300, "half of the initial window of 14,600");
}
