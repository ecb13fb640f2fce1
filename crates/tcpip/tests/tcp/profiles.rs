//! Rules that differ between systems: each rule is a setting, and a profile is a set of settings.

use crate::common::peer::*;
use kiban_tcpip::tcp::{Config, PROFILES};
use kiban_tcpip::wire::tcp::Options;

fn options(mss: u16) -> Options {
    Options { mss: Some(mss), ..Options::NONE }
}

// ---- Profiles

#[test]
fn every_profile_has_a_name_and_the_first_is_the_default() {
    assert_eq!(Config::profile(PROFILES[0]), Some(Config::default()));
    let known: Vec<Config> = PROFILES.iter().filter_map(|name| Config::profile(name)).collect();
    assert_eq!(known.len(), PROFILES.len());
    assert!(known[1] != known[0] && known[2] != known[0] && known[1] != known[2]);
    assert_eq!(Config::profile("4.2bsd"), None);
}

#[test]
fn a_profile_can_be_written_down_and_read_back() {
    for name in PROFILES {
        let profile = Config::profile(name).expect("it has a name");
        let mut read = Config::default();
        profile.each(&mut |name, word, _| read.set(name, word).expect("what is shown can be read"));
        assert_eq!(read, profile);
    }
}

// ---- The writer

#[test]
fn a_write_may_begin_below_the_mark_and_end_beyond_it() {
    let config = Config { send_buffer_bytes: 2000, write_overshoot_bytes: 5000, ..Config::default() };
    let mut talk = Peer::established_with(config, 1, options(1000));
    assert_eq!(talk.station.tcp.room(talk.id()), 7000);
    talk.write(&bytes(1999));
    assert_eq!(talk.station.tcp.room(talk.id()), 5001);
    talk.write(&bytes(1000));
    assert_eq!(talk.station.tcp.room(talk.id()), 0);
}

#[test]
fn the_send_mark_may_be_rounded_up_to_full_segments() {
    for (buffer, rounds, room) in [(2000, false, 2000), (2000, true, 9140), (9500, true, 18_280)] {
        let config =
            Config { mss: 9140, send_buffer_bytes: buffer, send_round_to_mss: rounds, ..Config::default() };
        let talk = Peer::established_with(config, 60_000, options(9140));
        assert_eq!(talk.station.tcp.room(talk.id()), room);
    }
}

#[test]
fn a_blocked_writer_is_woken_at_its_low_water_mark() {
    // The number of bytes acknowledged, from a full buffer of 5000, and whether the writer is then woken.
    for (low, acknowledged, wakes) in [
        (None, 2499, false),
        (None, 2500, true),
        (Some(2048), 2047, false),
        (Some(2048), 2048, true),
        (Some(9140), 4999, false),
        (Some(9140), 5000, true),
    ] {
        let config = Config { send_buffer_bytes: 5000, send_low_water_bytes: low, ..Config::default() };
        let mut talk = Peer::established(config);
        talk.write(&bytes(5000));
        let id = talk.id();
        talk.station.tcp.writer(id).expect("it is open").wait_for_room();
        talk.hear(seg(ACK, 1, 1 + acknowledged, 60_000), b"");
        let told = talk.up.iter().filter(|said| *said == "writable").count();
        assert_eq!(told, usize::from(wakes), "{low:?} {acknowledged}");
        // Below the mark, a write that does not fit is refused entirely, but a write that fits is accepted.
        let writer = talk.station.tcp.writer(id).expect("it is open");
        let room = acknowledged as usize;
        assert_eq!(writer.room_for(room), room);
        assert_eq!(writer.room_for(9000), if wakes || low.is_none() { room } else { 0 });
    }
}
