//! Urgent data (RFC 9293 §3.8.5, RFC 6093): a mark in the stream.

use crate::common::peer::*;
use kiban_tcpip::tcp::{Config, Nagle};

#[test]
fn queued_data_is_urgent_until_it_is_acknowledged() {
    let mut talk =
        Peer::established(Config { segment_bytes_max: 10_000, nagle: Nagle::Off, ..Config::default() });
    talk.write(b"before");
    talk.hear(seg(ACK, 1, 7, 60_000), b"");
    talk.said();
    talk.room = 0;
    talk.write(&bytes(1500));
    let id = talk.id();
    talk.station.tcp.send_urgent(id).unwrap();
    talk.write(b"and more");
    talk.room = 1000;
    talk.settle();
    // The pointer refers to the byte after the last urgent one, relative to each segment. No large segment is
    // sent, because splitting it would shift the pointer.
    assert_eq!(
        talk.said(),
        [
            "URG ACK 7+1000 ack 1 win 65535 urgent 1500".replace("URG ACK", "ACK URG"),
            "PSH ACK URG 1007+508 ack 1 win 65535 urgent 500".into()
        ]
    );
    talk.hear(seg(ACK, 1, 1507, 60_000), b"");
    talk.write(&bytes(3000));
    assert!(talk.said().iter().all(|words| !words.contains("URG")));
}
