//! SYNs for which no state is kept (RFC 4987 §3.6).

use crate::common::cable::Nature;
use crate::common::station::{Frame, header};
use crate::common::world::{Role, World};
use crate::common::{at_ms, ms};
use core::net::{IpAddr, Ipv4Addr};
use kiban_tcpip::wire::tcp::{Flags, Header, Options, Sequence, Timestamps};

#[test]
fn a_million_syns_take_no_memory_and_a_real_client_connects() {
    let mut world = World::plain(Nature { delay: ms(1), ..Nature::default() }, 3);
    let (server, blocks) = (world.stations[1].address, world.stations[1].memory.pdus.available());
    for n in 0..1_000_000u32 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + n / 60_000));
        let options = Options {
            mss: Some(1452),
            window_shift: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: n, echo: 0 }),
            ..Options::NONE
        };
        let port = (n % 60_000) as u16 + 1;
        let syn = Header { options, ..header(port, Flags::SYN, Sequence(n), Sequence(0)) };
        assert!(world.stations[1].arrive(&Frame::of(source, server, &syn, b""), world.now));
        world.stations[1].out.down.clear();
        if n == 500_000 {
            // A handshake completes in the middle of the flood.
            world.converse(Role::eager(5).after_peer(), Role::eager(0).after_peer());
            world.run_until(|world| world.apps[0][1].complete_at.is_some());
        }
    }
    let station = &mut world.stations[1];
    let counters = station.tcp.counters();
    assert_eq!((station.tcp.sessions(), counters.syns_dropped), (129, 0));
    assert_eq!((counters.syn_cookies_sent, counters.syn_cookies_accepted), (1_000_001 - 128, 1));
    assert!(station.memory.pdus.available() >= blocks - 129);
    while world.step().unwrap() {}
    assert!(world.now < at_ms(300_000), "{:?}", world.now);
    assert_eq!((world.stations[1].tcp.sessions(), world.apps[0][1].gone), (1, None), "the client's goes on");
}
