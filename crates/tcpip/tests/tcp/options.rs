//! Timestamps (RFC 7323), and SACK reports from the receiver (RFC 2018, RFC 2883).

use crate::common::peer::*;
use kiban_tcpip::tcp::{Config, State};
use kiban_tcpip::wire::tcp::{Header, Options, Timestamps};

/// The options of a modern peer, whose clock is at 100.
const MODERN: Options = Options {
    mss: Some(1000),
    sack_permitted: true,
    timestamps: Some(Timestamps { value: 100, echo: 0 }),
    ..Options::NONE
};

fn modern() -> Peer {
    let mut talk = Peer::listening(Config { tail_loss_probe: false, ..Config::default() });
    talk.hear(Header { options: MODERN, ..seg(SYN, 0, 0, 60_000) }, b"");
    assert_eq!(talk.said(), ["SYN ACK 0+0 ack 1 win 65535 mss 1460 sack-permitted echo 100"]);
    talk.hear(at(101, seg(ACK, 1, 1, 60_000)), b"");
    assert_eq!(talk.state(), Some(State::Established));
    talk.told();
    talk
}

/// Sets the peer's timestamp to `value`.
fn at(value: u32, header: Header) -> Header {
    let timestamps = Some(Timestamps { value, echo: 0 });
    Header { options: Options { timestamps, ..header.options }, ..header }
}

/// Returns a session with SACK and without timestamps.
fn with_sack() -> Peer {
    let options = Options { timestamps: None, ..MODERN };
    Peer::established_with(Config::default(), 60_000, options)
}

#[test]
fn sack_blocks_share_a_data_segment_if_they_fit_and_go_alone_otherwise() {
    let mut talk = modern();
    talk.arrive(at(110, seg(ACK, 1001, 1, 60_000)), &bytes(1000));
    talk.write(b"short");
    // RFC 5681 §2: only a pure ACK counts as a duplicate, so one follows.
    assert_eq!(
        talk.said(),
        [
            "PSH ACK 1+5 ack 1 win 65535 echo 101 sack 1001..2001",
            "ACK 6+0 ack 1 win 65535 echo 101 sack 1001..2001"
        ]
    );
    talk.arrive(at(111, seg(ACK, 3001, 6, 60_000)), &bytes(1000));
    talk.write(&bytes(988));
    assert_eq!(
        talk.said(),
        [
            "PSH ACK 6+988 ack 1 win 65535 echo 101",
            "ACK 994+0 ack 1 win 65535 echo 101 sack 3001..4001 sack 1001..2001"
        ]
    );
}

#[test]
fn discarded_out_of_order_data_is_not_reported() {
    let mut talk = with_sack();
    talk.hear(seg(ACK, 1001, 1, 60_000), &bytes(1000));
    // Less than an eighth of the pages is free: out-of-order data is freed first.
    let pages: Vec<_> = (0..900).map_while(|_| talk.station.memory.receive.take()).collect();
    talk.said();
    talk.hear(seg(ACK, 3001, 1, 60_000), &bytes(1000));
    assert_eq!(talk.said(), ["ACK 1+0 ack 1 win 65535"]);
    assert!(talk.station.tcp.counters().out_of_order_dropped >= 2);
    drop(pages);
}
