//! Talks about urgent data (RFC 9293 §3.8.5, RFC 6093): a mark in the stream.

use crate::common::talk::*;
use kiban_tcpip::tcp::{Config, Nagle, Refusal};
use kiban_tcpip::wire::tcp::{Flags, Header};

const URG: Flags = Flags::URG;

fn marked(sequence: u32, urgent: u16) -> Header {
    Header { urgent, ..seg(ACK | URG, sequence, 1, 60_000) }
}

#[test]
fn the_host_gets_the_distance_of_the_urgent_mark_and_the_data_in_line() {
    let mut talk = Talk::established(Config::default());
    talk.hear(marked(1, 5), b"now!!later");
    assert_eq!(talk.told(), ["urgent 5", "data 10"]);
    assert_eq!(talk.got, b"now!!later");
    // The same mark again causes no indication, nor does one before delivered data.
    talk.hear(marked(11, 0), b"x");
    assert_eq!(talk.told(), ["data 1"]);
    // Bytes that are yet to come, told at once by a segment without any; and once.
    talk.hear(marked(12, 300), b"");
    talk.hear(marked(12, 300), b"");
    talk.hear(marked(12, 200), b"");
    assert_eq!(talk.told(), ["urgent 300"]);
    talk.hear(marked(12, 400), b"");
    assert_eq!(talk.told(), ["urgent 400"], "the mark has moved on");
    // Without the flag the field means nothing.
    talk.hear(Header { urgent: 9000, ..seg(ACK, 12, 1, 60_000) }, b"y");
    assert_eq!(talk.told(), ["data 1"]);
}

#[test]
fn queued_data_is_urgent_until_it_is_acknowledged() {
    let mut talk =
        Talk::established(Config { segment_bytes_max: 10_000, nagle: Nagle::Off, ..Config::default() });
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
    // Behind the last urgent byte, from each segment's own place; no large segment, for a cut would move it.
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

#[test]
fn the_urgent_mark_is_sent_through_a_closed_window() {
    let mut talk = Talk::established(Config::default());
    talk.hear(seg(ACK, 1, 1, 0), b"");
    talk.write(b"urgent");
    let id = talk.id();
    talk.station.tcp.send_urgent(id).unwrap();
    // The next acknowledgement carries it.
    talk.hear(seg(ACK, 1, 1, 0), &bytes(2000));
    talk.pass(Config::default().delayed_ack);
    assert_eq!(talk.said(), ["ACK URG 1+0 ack 2001 win 65535 urgent 6"]);
}

#[test]
fn an_urgent_mark_beyond_65535_bytes_is_sent_as_65535() {
    let mut talk = Talk::established(Config::default());
    talk.room = 0;
    talk.write(&bytes(70_000));
    let id = talk.id();
    talk.station.tcp.send_urgent(id).unwrap();
    talk.room = 1;
    talk.settle();
    assert_eq!(talk.frames[0].header().0.urgent, 65_535);
    talk.finish().unwrap();
    assert_eq!(talk.station.tcp.send_urgent(id), Err(Refusal::Finished));
}
