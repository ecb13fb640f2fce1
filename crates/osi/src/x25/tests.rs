use super::call::{Both, Call, Facilities, Sizes};
use super::config::{CONTROL_PACKETS_MAX, Channels, Config};
use super::layer::Layer;
use super::primitives::{Below, Indication, Misuse, Request};
use super::xot::{CHANNEL, Pvc, Xot};
use crate::lapb::Role;
use crate::wire::x25::{AddressBlock, Cause, FastSelect, Modulo};
use crate::wire::xot::PvcStatus;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Bytes, Instant, Rope};

const T0: Instant = Instant::ZERO;
const SECOND: Duration = Duration::from_secs(1);

fn config(role: Role) -> Config {
    let channels = Channels {
        permanent: Some(1..=2),
        incoming: Some(3..=4),
        two_way: Some(5..=8),
        outgoing: Some(9..=10),
    };
    Config { channels, ..Config::new(role) }
}

/// Returns a layer whose link is up and whose restart is complete.
fn ready(role: Role) -> Layer {
    let mut layer = Layer::new(config(role));
    layer.arrive(Below::Up, T0);
    assert_eq!(sent(&mut layer).len(), 1);
    receive(&mut layer, &[0x10, 0, 0xff]);
    assert_eq!(indications(&mut layer), [Indication::Ready]);
    layer
}

fn receive(layer: &mut Layer, packet: &[u8]) {
    layer.arrive(Below::Data(Rope::copied(packet)), T0);
}

fn sent(layer: &mut Layer) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| layer.poll_down()).map(|packet| packet.to_vec()).collect()
}

fn indications(layer: &mut Layer) -> Vec<Indication> {
    core::iter::from_fn(|| layer.poll_up()).collect()
}

/// Returns a DTE with a call on channel 5. Its window is 2; it sends packets of at most 16 octets, and
/// receives packets of at most 32.
fn connected() -> Layer {
    let mut layer = ready(Role::Dte);
    receive(&mut layer, &[0x10, 5, 0x0b, 0, 6, 0x42, 4, 5, 0x43, 2, 2]);
    assert_eq!(indications(&mut layer).len(), 1);
    layer.request(Request::Accept { channel: 5, call: Call::default() }, T0).expect("a call is pending");
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x0f, 0, 6, 0x42, 4, 5, 0x43, 2, 2]]);
    layer
}

fn data(channel: u16, data: impl Into<Rope>) -> Request {
    Request::Data { channel, data: data.into(), qualifier: false, delivery: false }
}

fn ours(diagnostic: u8) -> Cause {
    Cause { cause: 0, diagnostic: Some(diagnostic) }
}

/// Exchanges packets between two layers until neither has anything more to send.
fn run(one: &mut Layer, two: &mut Layer) {
    loop {
        let mut moved = false;
        while let Some(packet) = one.poll_down() {
            two.arrive(Below::Data(packet), T0);
            moved = true;
        }
        while let Some(packet) = two.poll_down() {
            one.arrive(Below::Data(packet), T0);
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

#[test]
fn two_ends_restart_call_send_and_clear() {
    let (mut dte, mut dce) = (Layer::new(config(Role::Dte)), Layer::new(config(Role::Dce)));
    dte.arrive(Below::Up, T0);
    dce.arrive(Below::Up, T0);
    run(&mut dte, &mut dce);
    assert_eq!(
        (indications(&mut dte), indications(&mut dce)),
        (vec![Indication::Ready], vec![Indication::Ready])
    );
    assert_eq!((dte.free_channel(), dce.free_channel()), (Some(10), Some(3)));

    let facilities = Facilities {
        packet_bytes: Some(Both::same(1024)),
        window: Some(Both { called: 7, calling: 4 }),
        fast_select: FastSelect::Unrestricted,
        ..Facilities::default()
    };
    let addresses = AddressBlock { called: "731100".parse().expect("digits"), ..AddressBlock::default() };
    let call = Call { addresses, facilities, user_data: vec![7; 100] };
    dte.request(Request::Call { channel: 10, call: call.clone() }, T0).expect("a free channel");
    run(&mut dte, &mut dce);
    assert_eq!(indications(&mut dce), [Indication::Incoming { channel: 10, call }]);
    // The called DCE answers with smaller packets.
    let facilities =
        Facilities { packet_bytes: Some(Both { called: 512, calling: 256 }), ..Facilities::default() };
    let answer = Call { facilities, user_data: b"welcome".to_vec(), ..Call::default() };
    dce.request(Request::Accept { channel: 10, call: answer }, T0).expect("a call is pending");
    run(&mut dte, &mut dce);
    let Indication::Accepted { sizes, call, .. } = indications(&mut dte).remove(0) else {
        panic!("not accepted")
    };
    let expected = Sizes { packet_bytes_out: 256, packet_bytes_in: 512, window_out: 4, window_in: 7 };
    assert_eq!((sizes, &call.user_data[..]), (expected, &b"welcome"[..]));
    assert_eq!(dce.sizes(10).map(|sizes| (sizes.packet_bytes_in, sizes.window_out)), Some((256, 7)));

    let unit: Vec<u8> = (0..5000).map(|at| at as u8).collect();
    dte.request(
        Request::Data { channel: 10, data: unit.clone().into(), qualifier: true, delivery: true },
        T0,
    )
    .expect("room");
    run(&mut dte, &mut dce);
    assert_eq!(indications(&mut dte), []);
    let taken = Indication::Data { channel: 10, data: unit.into(), qualifier: true, delivery: true };
    assert_eq!(indications(&mut dce), [taken]);
    run(&mut dte, &mut dce);
    // With the D bit, delivery is confirmed after the host has taken the packet, not before.
    assert_eq!(indications(&mut dte), [Indication::Delivered { channel: 10 }]);

    dce.request(Request::Clear { channel: 10, cause: ours(241), user_data: b"bye".to_vec() }, T0)
        .expect("a circuit");
    run(&mut dte, &mut dce);
    let cleared =
        Indication::Cleared { channel: 10, by_peer: true, cause: ours(241), user_data: b"bye".to_vec() };
    assert_eq!(
        (indications(&mut dte), indications(&mut dce)),
        (vec![cleared], vec![Indication::ClearConfirmed { channel: 10 }])
    );
    assert_eq!((dte.free_channel(), dte.deadline() != Instant::NEVER), (Some(10), true));
}

#[test]
fn a_unit_is_segmented_without_copying_and_waits_for_the_window() {
    let mut layer = connected();
    let page = Bytes::from((0..100).collect::<Vec<u8>>());
    layer.request(data(5, page.clone()), T0).expect("room");
    let mut packets: Vec<Rope> = core::iter::from_fn(|| layer.poll_down()).collect();
    // This end is the called DTE, whose packets carry at most 16 octets.
    let heads: Vec<Vec<u8>> = packets.iter().map(|packet| packet.to_vec()[..4].into()).collect();
    assert_eq!(heads, [[0x10, 5, 0x10, 0], [0x10, 5, 0x12, 16]]);
    packets[1].skip(3);
    assert_eq!(packets.remove(1).into_bytes().as_ptr(), page[16..].as_ptr());
    receive(&mut layer, &[0x10, 5, 0x41]);
    assert_eq!(sent(&mut layer).len(), 2);
    // RNR stops the data packets; RR lets them continue.
    receive(&mut layer, &[0x10, 5, 0x85]);
    assert_eq!(sent(&mut layer).len(), 0);
    receive(&mut layer, &[0x10, 5, 0x81]);
    assert_eq!(sent(&mut layer).len(), 2);
    receive(&mut layer, &[0x10, 5, 0xc1]);
    assert_eq!(sent(&mut layer), [[&[0x10, 5, 0x0c][..], &page[96..]].concat()]);
    assert!(!layer.is_quiet(5));
    receive(&mut layer, &[0x10, 5, 0xe1]);
    assert!(layer.is_quiet(5));
}

#[test]
fn a_unit_is_reassembled_and_acknowledged_when_it_is_read() {
    let mut layer = connected();
    for (control, byte) in [(0x10, 1), (0x12, 2)] {
        receive(&mut layer, &[&[0x90, 5, control][..], &[byte; 32]].concat());
        assert_eq!(indications(&mut layer), []);
        assert_eq!(sent(&mut layer), [[0x10, 5, 0x21 + (control - 0x10) * 16]]);
    }
    receive(&mut layer, &[0x90, 5, 0x04, 3]);
    assert_eq!(sent(&mut layer), [[0; 0]; 0]);
    let Indication::Data { data, qualifier, delivery, .. } = indications(&mut layer).remove(0) else {
        panic!("no data")
    };
    assert_eq!((data.to_vec(), qualifier, delivery), ([&[1; 32][..], &[2; 32], &[3]].concat(), true, false));
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x61]]);
    // The host stops reception, so an RNR is sent.
    layer.request(Request::Receive { channel: 5, ready: false }, T0).expect("a circuit");
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x65]]);
    receive(&mut layer, &[0x10, 5, 0x06, 4]);
    assert_eq!((indications(&mut layer).len(), sent(&mut layer).len()), (1, 0));
    layer.request(Request::Receive { channel: 5, ready: true }, T0).expect("a circuit");
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x81]]);
}

#[test]
fn short_packets_of_an_incomplete_unit_do_not_keep_their_buffers() {
    struct Buffer {
        octets: Vec<u8>,
        /// Shows whether the buffer still exists.
        _exists: Arc<()>,
    }
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.octets
        }
    }
    let mut layer = connected();
    let buffers = Arc::new(());
    for count in 0..100_u8 {
        // One octet, with the M bit.
        let octets = vec![0x10, 5, ((count & 7) << 1) | 0x10, count];
        let buffer = Buffer { octets, _exists: buffers.clone() };
        let packet = Rope::from(Bytes::from_owner(buffer));
        layer.arrive(Below::Data(packet), T0);
        assert_eq!(sent(&mut layer).len(), 1, "it is acknowledged");
    }
    assert_eq!(Arc::strong_count(&buffers), 1);
    receive(&mut layer, &[0x10, 5, (100 & 7) << 1, 100]);
    let indications = indications(&mut layer);
    let [Indication::Data { data, .. }] = &indications[..] else { panic!("{indications:?}") };
    assert_eq!(data.to_vec(), (0..=100).collect::<Vec<u8>>());
}

#[test]
fn an_invalid_data_packet_resets_the_circuit() {
    let long = [&[0x10, 5, 0x00][..], &[0; 33]].concat();
    let rows: [(&[u8], u8); 12] = [
        (&[0x10, 5, 0x02, 1], 1),
        (&[0x10, 5, 0x20, 1], 2),
        (&[0x10, 5, 0x21], 2),
        (&long, 39),
        (&[0x10, 5, 0x09], 37),
        (&[0x10, 5, 0x1f], 27),
        (&[0x10, 5, 0x27], 43),
        (&[0x10, 5, 0x23], 38),
        (&[0x10, 5, 0x2b], 33),
        (&[0x10, 5], 38),
        (&[0x10, 5, 0xfb, 0, 0], 41),
        (&[0x10, 5, 0x1b], 38),
    ];
    for (packet, code) in rows {
        let mut layer = connected();
        receive(&mut layer, packet);
        assert_eq!(sent(&mut layer), [[0x10, 5, 0x1b, 0, code]], "{packet:02x?}");
        assert_eq!(
            indications(&mut layer),
            [Indication::Reset { channel: 5, by_peer: false, cause: ours(code) }]
        );
        // Until the reset is confirmed, received data is discarded, and requests to send are rejected.
        receive(&mut layer, &[0x10, 5, 0x00, 1]);
        assert_eq!(layer.request(data(5, vec![1]), T0), Err(Misuse::State));
        receive(&mut layer, &[0x10, 5, 0x1f]);
        assert_eq!(indications(&mut layer), [Indication::ResetConfirmed { channel: 5 }]);
        layer.request(data(5, vec![1]), T0).expect("room");
        assert_eq!(sent(&mut layer), [[0x10, 5, 0x00, 1]]);
    }
    let mut layer = connected();
    receive(&mut layer, &[0x90, 5, 0x10, 1]);
    receive(&mut layer, &[0x10, 5, 0x12, 1]);
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x1b, 0, 83]]);
}

#[test]
fn a_reset_empties_both_directions_and_colliding_resets_are_confirmed() {
    let mut layer = connected();
    layer.request(data(5, vec![1; 100]), T0).expect("room");
    assert_eq!(sent(&mut layer).len(), 2);
    receive(&mut layer, &[0x10, 5, 0x1b, 5, 1]);
    let cause = Cause { cause: 5, diagnostic: Some(1) };
    assert_eq!(indications(&mut layer), [Indication::Reset { channel: 5, by_peer: true, cause }]);
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x1f]]);
    assert!(layer.is_quiet(5));
    layer.request(Request::Reset { channel: 5, cause: ours(250) }, T0).expect("a circuit");
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x1b, 0, 250]]);
    receive(&mut layer, &[0x10, 5, 0x1b, 0, 0]);
    assert_eq!(
        (indications(&mut layer), sent(&mut layer).len()),
        (vec![Indication::ResetConfirmed { channel: 5 }], 0)
    );
}

#[test]
fn an_interrupt_is_confirmed_when_it_is_read() {
    let mut layer = connected();
    layer.request(Request::Interrupt { channel: 5, data: vec![9; 32] }, T0).expect("a circuit");
    assert_eq!(layer.request(Request::Interrupt { channel: 5, data: vec![9] }, T0), Err(Misuse::State));
    assert_eq!(sent(&mut layer), [[&[0x10, 5, 0x23][..], &[9; 32]].concat()]);
    receive(&mut layer, &[0x10, 5, 0x27]);
    receive(&mut layer, &[0x10, 5, 0x23, 1, 2]);
    assert_eq!(sent(&mut layer).len(), 0);
    let expected = [
        Indication::InterruptConfirmed { channel: 5 },
        Indication::Interrupt { channel: 5, data: vec![1, 2] },
    ];
    assert_eq!(indications(&mut layer), expected);
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x27]]);
    receive(&mut layer, &[0x10, 5, 0x23, 1]);
    receive(&mut layer, &[0x10, 5, 0x23, 1]);
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x1b, 0, 44]]);
}

#[test]
fn an_invalid_call_packet_clears_the_call() {
    let long = [&[0x10, 5, 0x0b, 0, 0][..], &[0; 17]].concat();
    let rows: [(&[u8], u8); 9] = [
        (&[0x10, 5, 0x0f, 0, 0], 20),
        (&[0x10, 5, 0x00, 1], 20),
        (&[0x10, 5, 0x17], 20),
        (&[0x10, 9, 0x0b, 0, 0], 34),
        (&long, 39),
        (&[0x10, 5, 0x0b, 0, 3, 0x42, 3, 7], 66),
        (&[0x10, 5, 0x0b, 0, 3, 0x43, 0, 2], 66),
        (&[0x10, 5, 0x0b, 0, 9, 0x43], 69),
        (&[0x10, 5, 0x0b, 0x02, 0xaa, 0], 67),
    ];
    for (packet, code) in rows {
        let mut layer = ready(Role::Dte);
        receive(&mut layer, packet);
        assert_eq!(sent(&mut layer), [[0x10, packet[1], 0x13, 0, code]], "{packet:02x?}");
        assert_eq!(indications(&mut layer), []);
        // The host was never notified of this call, so it gets no indication that the call has ended.
        receive(&mut layer, &[0x10, packet[1], 0x17]);
        assert_eq!((indications(&mut layer), layer.free_channel()), (vec![], Some(10)));
    }
    // These answers do not match the request. This end is a DCE, which sends a non-zero clearing cause.
    let rows: [(FastSelect, &[u8], u8); 4] = [
        (FastSelect::No, &[0, 0, 1], 39),
        (FastSelect::Restricted, &[0, 0], 42),
        (FastSelect::No, &[0, 3, 0x42, 11, 11], 66),
        (FastSelect::No, &[0, 3, 0x43, 7, 1], 66),
    ];
    for (fast_select, answer, code) in rows {
        let mut layer = ready(Role::Dce);
        let facilities =
            Facilities { fast_select, packet_bytes: Some(Both::same(1024)), ..Facilities::default() };
        layer
            .request(Request::Call { channel: 3, call: Call { facilities, ..Call::default() } }, T0)
            .expect("free");
        assert_eq!(sent(&mut layer).len(), 1);
        receive(&mut layer, &[&[0x10, 3, 0x0f][..], answer].concat());
        assert_eq!(sent(&mut layer), [[0x10, 3, 0x13, 0x13, code]]);
        assert!(matches!(
            indications(&mut layer)[..],
            [Indication::Cleared { channel: 3, by_peer: false, .. }]
        ));
    }
}

#[test]
fn in_a_call_collision_the_dtes_call_wins() {
    let (mut dte, mut dce) = (ready(Role::Dte), ready(Role::Dce));
    let call = || Request::Call { channel: 6, call: Call::default() };
    dte.request(call(), T0).expect("free");
    dce.request(call(), T0).expect("free");
    run(&mut dte, &mut dce);
    assert_eq!(indications(&mut dte), []);
    let [Indication::Cleared { channel: 6, .. }, Indication::Incoming { channel: 6, .. }] =
        &indications(&mut dce)[..]
    else {
        panic!("the DCE's call has not lost")
    };
    dce.request(Request::Accept { channel: 6, call: Call::default() }, T0).expect("a call is pending");
    run(&mut dte, &mut dce);
    assert!(matches!(indications(&mut dte)[..], [Indication::Accepted { channel: 6, .. }]));
}

#[test]
fn a_restart_ends_every_circuit() {
    let mut layer = connected();
    receive(&mut layer, &[0x10, 0, 0xfb, 7, 0]);
    let cause = Cause { cause: 7, diagnostic: Some(0) };
    let reset = |channel| Indication::Reset { channel, by_peer: true, cause };
    let cleared = Indication::Cleared { channel: 5, by_peer: true, cause, user_data: Vec::new() };
    assert_eq!(indications(&mut layer), [reset(1), reset(2), cleared, Indication::Restarted(cause)]);
    assert_eq!(sent(&mut layer), [[0x10, 0, 0xff]]);
    // After this end's own restart, packets are discarded until it is confirmed.
    layer.request(Request::Restart(ours(0)), T0).expect("always");
    assert_eq!(sent(&mut layer), [[0x10, 0, 0xfb, 0, 0]]);
    receive(&mut layer, &[0x10, 5, 0x0b, 0, 0]);
    assert_eq!(layer.request(data(1, vec![1]), T0), Err(Misuse::State));
    assert_eq!(layer.deadline(), T0 + 180 * SECOND);
    layer.settle(T0 + 180 * SECOND);
    assert_eq!(sent(&mut layer), [[0x10, 0, 0xfb, 0, 52]]);
    receive(&mut layer, &[0x10, 0, 0xfb, 0, 0]);
    assert_eq!(indications(&mut layer).last(), Some(&Indication::Ready));
    // A restart confirmation without a restart.
    receive(&mut layer, &[0x10, 0, 0xff]);
    assert_eq!(sent(&mut layer), [[0x10, 0, 0xfb, 0, 17]]);
}

#[test]
fn a_dce_sends_a_diagnostic_for_unassignable_packets() {
    let rows: [(&[u8], &[u8]); 5] = [
        (&[0x10], &[38, 0x10]),
        (&[0x30, 5, 0x0b, 0], &[40, 0x30, 5, 0x0b]),
        (&[0x20, 5, 0x0b, 0], &[40, 0x20, 5, 0x0b]),
        (&[0x10, 99, 0x0b, 0], &[36, 0x10, 99, 0x0b]),
        (&[0x10, 0, 0x0b, 0], &[36, 0x10, 0, 0x0b]),
    ];
    for (packet, explained) in rows {
        let mut layer = ready(Role::Dce);
        receive(&mut layer, packet);
        assert_eq!(sent(&mut layer), [[&[0x10, 0, 0xf1][..], explained].concat()]);
        // A DTE accepts any cause that a DCE sends, but sends only cause 0 itself.
        let mut layer = ready(Role::Dte);
        receive(&mut layer, packet);
        assert_eq!(sent(&mut layer).len(), 0);
        receive(&mut layer, &[&[0x10, 0, 0xf1][..], explained].concat());
        assert_eq!(indications(&mut layer), [Indication::Diagnostic(explained[0], explained[1..].into())]);
    }
}

#[test]
fn timers_end_unanswered_procedures() {
    let mut layer = ready(Role::Dte);
    layer.request(Request::Call { channel: 9, call: Call::default() }, T0).expect("free");
    assert_eq!(sent(&mut layer), [[0x10, 9, 0x0b, 0, 0]]);
    let mut at = T0;
    for expected in [49, 50] {
        while sent_is_empty_until(&mut layer, &mut at) {}
        assert_eq!(sent(&mut layer), [[0x10, 9, 0x13, 0, expected]], "{at:?}");
    }
    assert_eq!(indications(&mut layer).len(), 1);
    while told_nothing_until(&mut layer, &mut at) {}
    assert_eq!(layer.free_channel(), Some(10));
    assert!(at >= T0 + 560 * SECOND);

    let mut layer = connected();
    layer.request(Request::Reset { channel: 5, cause: ours(250) }, T0).expect("a circuit");
    assert_eq!(sent(&mut layer), [[0x10, 5, 0x1b, 0, 250]]);
    for expected in [&[0x10, 5, 0x1b, 0, 51], &[0x10, 5, 0x13, 0, 51]] {
        while sent_is_empty_until(&mut layer, &mut at) {}
        assert_eq!(sent(&mut layer), [expected]);
    }
}

fn sent_is_empty_until(layer: &mut Layer, at: &mut Instant) -> bool {
    assert_ne!(layer.deadline(), Instant::NEVER, "a timer runs");
    *at = layer.deadline().max(*at);
    let before = layer.counters().timeouts;
    layer.settle(*at);
    layer.counters().timeouts == before
}

fn told_nothing_until(layer: &mut Layer, at: &mut Instant) -> bool {
    sent_is_empty_until(layer, at);
    indications(layer).is_empty()
}

#[test]
fn a_permanent_circuit_has_no_calls() {
    let mut layer = ready(Role::Dte);
    layer.request(data(2, vec![7]), T0).expect("the channel is open");
    assert_eq!(sent(&mut layer), [[0x10, 2, 0x00, 7]]);
    receive(&mut layer, &[0x10, 2, 0x0b, 0, 0]);
    assert_eq!(sent(&mut layer), [[0x10, 2, 0x1b, 0, 35]]);
    let clear = Request::Clear { channel: 2, cause: ours(0), user_data: Vec::new() };
    assert_eq!(layer.request(clear, T0), Err(Misuse::Channel));
}

#[test]
fn limits_are_enforced() {
    let mut layer = Layer::new(Config {
        calls_max: 2,
        outgoing_bytes_max: 100,
        unit_bytes_max: 100,
        ..config(Role::Dte)
    });
    layer.arrive(Below::Up, T0);
    receive(&mut layer, &[0x10, 0, 0xff]);
    assert_eq!((indications(&mut layer).len(), sent(&mut layer).len()), (1, 1));
    for channel in 5..8 {
        receive(&mut layer, &[0x10, channel, 0x0b, 0, 0]);
    }
    assert_eq!(sent(&mut layer), [[0x10, 7, 0x13, 0, 71]]);
    layer.request(Request::Accept { channel: 5, call: Call::default() }, T0).expect("a call is pending");
    layer.request(data(5, vec![0; 60]), T0).expect("room");
    assert_eq!((layer.room(5), layer.request(data(5, vec![0; 60]), T0)), (40, Err(Misuse::Full)));
    assert_eq!(sent(&mut layer).len(), 2);
    receive(&mut layer, &[&[0x10, 5, 0x10][..], &[0; 60]].concat());
    receive(&mut layer, &[&[0x10, 5, 0x12][..], &[0; 60]].concat());
    assert_eq!(sent(&mut layer).last(), Some(&vec![0x10, 5, 0x1b, 0, 163]));
    // The host does not poll indications, and the link does not take packets.
    for _ in 0..10_000 {
        for packet in [
            &[0x10, 5, 0x00, 1][..],
            &[0x10, 5, 0x23, 1],
            &[0x10, 5, 0x1b, 0, 0],
            &[0x10, 99, 0x0b],
            &[0x10, 0, 0xf1, 1],
            &[0x10, 8, 0x0b, 0, 0],
            &[0x10, 8, 0x13, 0, 0],
        ] {
            receive(&mut layer, packet);
        }
    }
    assert!(layer.counters().control_lost > 0);
    assert!(indications(&mut layer).len() <= CONTROL_PACKETS_MAX + 10);
    for _ in 0..10_000 {
        for packet in [&[0x10, 0, 0xfb, 0, 0][..], &[0x10, 0, 0xff], &[0x10, 0, 0xff]] {
            receive(&mut layer, packet);
        }
    }
    assert!(indications(&mut layer).len() <= 10);
}

/// Connects two XOT ends; the streams are cut into pieces of `cut` bytes.
fn run_xot(one: &mut Xot, two: &mut Xot, cut: usize) {
    fn carry(from: &mut Xot, to: &mut Xot, cut: usize) -> bool {
        let mut stream = Rope::new();
        while let Some(packet) = from.poll_down() {
            stream.append(packet);
        }
        let moved = !stream.is_empty();
        while !stream.is_empty() {
            to.arrive(stream.split_to(cut.min(stream.len())), T0);
        }
        moved
    }
    while carry(one, two, cut) | carry(two, one, cut) {}
}

#[test]
fn xot_carries_a_circuit_in_either_modulo() {
    for (modulo, window) in [(Modulo::Eight, 7), (Modulo::OneTwentyEight, 100)] {
        for cut in [1, 2, 7, 100, 5000] {
            let sizes = Sizes::same(1024, window);
            let config = Config { modulo, default: sizes, window_max: window, ..Config::new(Role::Dte) };
            let mut one = Xot::calling(config);
            let mut two = Xot::called(Config { window_max: 127, ..Config::new(Role::Dte) }.in_modulo_128());
            let call = Call { user_data: vec![3, 1, 1, 0], ..Call::default() };
            one.request(Request::Call { channel: CHANNEL, call }, T0).expect("free");
            run_xot(&mut one, &mut two, cut);
            let Some(Indication::Incoming { call, .. }) = two.poll_up() else { panic!("no call") };
            assert_eq!(call.facilities.packet_bytes, Some(Both::same(1024)));
            two.request(Request::Accept { channel: CHANNEL, call: Call::default() }, T0)
                .expect("a call is pending");
            run_xot(&mut one, &mut two, cut);
            assert!(matches!(one.poll_up(), Some(Indication::Accepted { .. })));
            let unit: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
            one.request(data(CHANNEL, unit.clone()), T0).expect("room");
            run_xot(&mut one, &mut two, cut);
            let Some(Indication::Data { data, .. }) = two.poll_up() else { panic!("no data") };
            assert_eq!(data, Rope::from(unit));
        }
    }
}

impl Config {
    fn in_modulo_128(self) -> Config {
        Config { modulo: Modulo::OneTwentyEight, ..self }
    }
}

#[test]
fn xot_discards_packets_of_no_circuit_and_ends_on_invalid_headers() {
    let mut xot = Xot::called(Config::new(Role::Dte));
    for packet in [&[0x10, 0, 0xfb, 0, 0][..], &[0x10, 7, 0x01], &[0x10, 0, 0xf1, 1], &[0x10, 1, 0xf3]] {
        let framed = [&[0, 0, 0, packet.len() as u8][..], packet].concat();
        xot.arrive(framed.into(), T0);
    }
    assert_eq!((xot.counters().discarded, xot.poll_down(), xot.is_broken()), (4, None, false));
    xot.arrive(vec![0, 1, 0, 3].into(), T0);
    assert!(xot.is_broken());
    assert_eq!(xot.poll_up(), Some(Indication::Down));
}

#[test]
fn a_permanent_circuit_over_xot_is_set_up_and_reset() {
    let pvc = |flow: bool| Pvc {
        initiator: (b"Serial0".to_vec(), 7),
        responder: (b"Serial1".to_vec(), 9),
        sizes: if flow {
            Sizes { packet_bytes_out: 256, packet_bytes_in: 128, window_out: 3, window_in: 2 }
        } else {
            Sizes { packet_bytes_out: 128, packet_bytes_in: 256, window_out: 2, window_in: 3 }
        },
        modulo: Modulo::Eight,
    };
    type Change = fn(&mut Pvc);
    let rows: [(Change, PvcStatus); 5] = [
        (|_| (), PvcStatus::OK),
        (|pvc| pvc.responder.0 = b"Serial2".to_vec(), PvcStatus::NO_INTERFACE),
        (|pvc| pvc.responder.1 = 1, PvcStatus::NO_PVC),
        (|pvc| pvc.initiator.1 = 1, PvcStatus::MISMATCH),
        (|pvc| pvc.sizes.window_in = 7, PvcStatus::FLOW_MISMATCH),
    ];
    for (change, status) in rows {
        let mut asked = pvc(true);
        change(&mut asked);
        let mut one = Xot::permanent(Config::new(Role::Dte), asked, true);
        let mut two = Xot::permanent(Config::new(Role::Dte), pvc(false), false);
        run_xot(&mut one, &mut two, 1000);
        if status != PvcStatus::OK {
            assert_eq!((one.refusal(), two.refusal()), (Some(status), Some(status)));
            continue;
        }
        one.request(data(CHANNEL, vec![7; 600]), T0).expect("it is up");
        run_xot(&mut one, &mut two, 1000);
        let last = core::iter::from_fn(|| two.poll_up()).last();
        assert!(matches!(last, Some(Indication::Data { data, .. }) if data.len() == 600));
    }
}
