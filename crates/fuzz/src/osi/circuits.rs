//! LAPB and X.25 with a hostile peer. An input is a sequence of packets from the peer, calls from the host,
//! and time steps.
//!
//! Link      one step causes few frames, each of which can be parsed. No deadline is in the past. After a
//!           correct set-up, a packet still gets through.
//! Layer     sent packets can be parsed and are no longer than agreed. The queue for a host that does not
//!           poll is bounded. After a restart, a call can be made and data gets through. The same applies to
//!           XOT, whose stream may be split anywhere.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Instant, Rope};
use kiban_osi::lapb::{self, Link, Modulo};
use kiban_osi::wire::lapb as frames;
use kiban_osi::wire::x25 as packets;
use kiban_osi::wire::xot as framing;
use kiban_osi::x25::xot::{CHANNEL, Xot};
use kiban_osi::x25::{
    Below, Both, Call, Cause, Channels, Config, Facilities, FastSelect, Indication, Layer, Request, Role,
    Sizes,
};
use std::time::Duration;

const STEPS_MAX: usize = 300;
/// Maximum number of packets and frames that one step may cause: a window of them, and answers.
const OUT_MAX: usize = 400;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 40], vec![1; 60], (0..200).collect(), (0..200u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(super) fn sizes(input: &mut Input<'_>) -> (Modulo, u8) {
    match input.byte() {
        byte if byte & 1 == 0 => (Modulo::Eight, byte >> 1 & 7),
        byte => (Modulo::OneTwentyEight, byte >> 1),
    }
}

pub(crate) fn link(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let (modulo, window) = sizes(&mut input);
    let role = if input.byte() & 1 == 0 { lapb::Role::Dte } else { lapb::Role::Dce };
    let config = lapb::Config {
        modulo,
        window: window.max(1),
        information_bytes_max: 64,
        queue_frames_max: 8,
        up_frames_max: 4,
        attempts_max: 3,
        ..lapb::Config::new(role)
    };
    let mut link = Link::new(config);
    let (own, peer) = if role == lapb::Role::Dte { (frames::A, frames::B) } else { (frames::B, frames::A) };
    let mut now = Instant::ZERO;
    // The sequence numbers last sent to the peer. Packets with numbers close to these reach deeper states.
    let (mut n_s, mut n_r) = (0u8, 0u8);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() % 16 {
            0 => features.show(("connect", link.request(lapb::Request::Connect).is_ok())),
            1 => features.show(("disconnect", link.request(lapb::Request::Disconnect).is_ok())),
            2 | 3 => {
                let packet = Rope::copied(input.take(9));
                features.show(("data", link.request(lapb::Request::Data(packet)).is_ok()));
            }
            4 => link.request(lapb::Request::Busy(input.byte() & 1 == 0)).expect("always taken"),
            5 => now += Duration::from_millis(1 << (input.byte() % 16)),
            6 => while link.poll_up().is_some() {},
            7 => link.arrive(Rope::copied(input.take(6)), now),
            kind => {
                let mask = modulo.mask();
                let near = |number: u8, distance: u32| number.wrapping_add(distance as u8) & mask;
                let control = match kind {
                    8..=10 => {
                        let n_s =
                            if input.byte().is_multiple_of(4) { near(n_s, input.distance()) } else { n_s };
                        frames::Control::Information { n_s, n_r: near(n_r, input.distance()) }
                    }
                    11 | 12 => {
                        use frames::Supervisory::{ReceiveNotReady, ReceiveReady, Reject};
                        let of = [ReceiveReady, ReceiveNotReady, Reject][usize::from(input.byte()) % 3];
                        frames::Control::Supervisory(of, near(n_r, input.distance()))
                    }
                    _ => {
                        use frames::Unnumbered::{Disc, Dm, Frmr, Sabm, Sabme, Ua};
                        let set = if modulo == Modulo::Eight { Sabm } else { Sabme };
                        let all = [set, Ua, set, Ua, Dm, Disc, Frmr, Sabm, Sabme];
                        frames::Control::Unnumbered(all[usize::from(input.byte()) % all.len()])
                    }
                };
                let how = input.byte();
                let is_command = match control {
                    frames::Control::Information { .. } => true,
                    frames::Control::Supervisory(..) => how & 2 != 0,
                    _ => !matches!(
                        control,
                        frames::Control::Unnumbered(
                            frames::Unnumbered::Ua | frames::Unnumbered::Dm | frames::Unnumbered::Frmr
                        )
                    ),
                } ^ (how >= 0xf0);
                let address = if is_command { own } else { peer };
                let header = frames::Header { address, control, poll_final: how & 1 != 0 };
                features.show((link.state(), core::mem::discriminant(&header.control), is_command, kind));
                let mut frame = [0; 3];
                let length = header.write(modulo, &mut frame);
                let mut frame = frame[..length].to_vec();
                if matches!(control, frames::Control::Information { .. }) || how & 0x7c == 0x7c {
                    frame.extend_from_slice(input.take(usize::from(how) / 3));
                }
                link.arrive(frame.into(), now);
            }
        }
        link.settle(now);
        assert!(link.deadline() > now, "a deadline in the past");
        let mut out = 0;
        while let Some(frame) = link.poll_down(now) {
            let (header, _) =
                frames::Header::read(&frame.to_vec(), modulo).expect("sent packets can be parsed");
            features.show((link.state(), core::mem::discriminant(&header.control), header.poll_final));
            // Update the numbers that the peer sends next.
            match header.control {
                frames::Control::Information { n_s: number, n_r: next } => {
                    (n_s, n_r) = (next, number.wrapping_add(1) & modulo.mask());
                }
                frames::Control::Supervisory(_, next) => n_s = next,
                _ => (n_s, n_r) = (0, 0),
            }
            out += 1;
            assert!(out < OUT_MAX, "a link sends without end");
        }
    }
    link.counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    // From here on, the peer behaves correctly. It sends the command twice, because the link may be
    // disconnecting when the first command arrives.
    link.request(lapb::Request::Busy(false)).expect("always taken");
    while link.poll_up().is_some() {}
    let set = if modulo == Modulo::Eight { 0x3f } else { 0x7f };
    for _ in 0..2 {
        link.arrive(Rope::copied(&[own, set]), now);
    }
    assert_eq!(link.state(), lapb::State::Connected);
    let header = frames::Header {
        address: own,
        control: frames::Control::Information { n_s: 0, n_r: 0 },
        poll_final: false,
    };
    let mut frame = [7; 4];
    let length = header.write(modulo, &mut frame);
    while link.poll_down(now).is_some() {}
    link.arrive(Rope::copied(&frame[..length + 1]), now);
    let heard: Vec<_> = core::iter::from_fn(|| link.poll_up()).collect();
    assert!(
        matches!(heard.last(), Some(lapb::Indication::Data(packet)) if packet.to_vec() == [7]),
        "{heard:?}"
    );
}

pub(super) fn config(role: Role, modulo: Modulo, window: u8) -> Config {
    Config {
        modulo,
        channels: Channels {
            permanent: Some(1..=1),
            incoming: Some(2..=2),
            two_way: Some(3..=4),
            outgoing: Some(5..=5),
        },
        default: Sizes::same(16, window.clamp(1, modulo.mask())),
        window_max: modulo.mask(),
        unit_bytes_max: 200,
        outgoing_bytes_max: 300,
        calls_max: 3,
        ..Config::new(role)
    }
}

/// Returns a packet chosen by the input, mostly well-formed.
pub(super) fn craft(input: &mut Input<'_>, modulo: Modulo, near: (u8, u8)) -> Vec<u8> {
    use packets::Kind;
    let how = input.byte();
    let mask = modulo.mask();
    let number = |input: &mut Input<'_>, near: u8| {
        if input.byte().is_multiple_of(4) { near.wrapping_add(input.distance() as u8) & mask } else { near }
    };
    let kind = match how % 20 {
        0..=4 => {
            let (p_s, p_r) = (number(input, near.0), number(input, near.1));
            Kind::Data { p_s, p_r, more: input.byte() & 1 != 0 }
        }
        5 => Kind::ReceiveReady(number(input, near.1)),
        6 => Kind::ReceiveNotReady(number(input, near.1)),
        7 => Kind::Reject(number(input, near.1)),
        8 | 9 => Kind::CallRequest,
        10 => Kind::CallAccepted,
        11 => Kind::ClearRequest,
        12 => Kind::ClearConfirmation,
        13 => Kind::Interrupt,
        14 => Kind::InterruptConfirmation,
        15 => Kind::ResetRequest,
        16 => Kind::ResetConfirmation,
        17 => Kind::RestartRequest,
        18 => Kind::RestartConfirmation,
        _ => {
            [Kind::Diagnostic, Kind::RegistrationRequest, Kind::Unknown(0x2f)][usize::from(input.byte()) % 3]
        }
    };
    let is_restart = matches!(kind, Kind::RestartRequest | Kind::RestartConfirmation);
    let channel = match input.byte() {
        0..8 => u16::from(input.byte()),
        _ if is_restart => 0,
        byte => u16::from(byte) % 5 + 1,
    };
    let front = packets::Front { modulo, qualifier: how >= 0xf0, delivery: how & 0x40 != 0, channel };
    let mut packet = vec![0; 4];
    let length = packets::Header { front, kind }.write(&mut packet);
    packet.truncate(length);
    match kind {
        Kind::CallRequest | Kind::CallAccepted => {
            let fields =
                [&[0][..], &[0, 0], &[0, 3, 0x43, 2, 2], &[0, 3, 0x42, 5, 6], &[0, 2, 1, 0x80], &[0, 9, 1]];
            packet.extend_from_slice(fields[usize::from(input.byte()) % fields.len()]);
            packet.extend_from_slice(input.take(usize::from(how >> 5)));
        }
        Kind::ClearRequest | Kind::ResetRequest | Kind::RestartRequest => {
            packet.extend_from_slice(&[0, how][..1 + usize::from(how & 1)]);
        }
        Kind::Data { .. } | Kind::Interrupt => packet.extend_from_slice(input.take(16)),
        _ => {}
    }
    packet
}

fn request(input: &mut Input<'_>, channel: u16) -> Request {
    let cause = Cause { cause: 0, diagnostic: Some(input.byte()) };
    let how = input.byte();
    let facilities = Facilities {
        packet_bytes: (how & 1 != 0).then_some(Both { called: 32, calling: 64 }),
        window: (how & 2 != 0).then_some(Both::same(how >> 4)),
        fast_select: [FastSelect::No, FastSelect::Unrestricted, FastSelect::Restricted][usize::from(how) % 3],
        ..Facilities::default()
    };
    let call = Call { facilities, user_data: input.take(usize::from(how) >> 3).to_vec(), ..Call::default() };
    match input.byte() % 12 {
        0 => Request::Restart(cause),
        1 | 2 => Request::Call { channel, call },
        3 => Request::Accept { channel, call },
        4 => Request::Accept { channel, call: Call::default() },
        5 => Request::Clear { channel, cause, user_data: Vec::new() },
        6..=8 => {
            let data = Rope::copied(input.take(usize::from(how) / 2));
            Request::Data { channel, data, qualifier: how & 1 != 0, delivery: how & 2 != 0 }
        }
        9 => Request::Interrupt { channel, data: input.take(usize::from(how) >> 3).to_vec() },
        10 => Request::Reset { channel, cause },
        _ => Request::Receive { channel, ready: how & 1 != 0 },
    }
}

/// Checks that output can be parsed; updates the peer's next numbers.
pub(super) fn heard(packet: &[u8], near: &mut (u8, u8), modulo: Modulo, features: &mut Features<'_>) {
    let (header, used) = packets::Header::read(packet).expect("sent packets can be parsed");
    features.show((core::mem::discriminant(&header.kind), packet.get(4).filter(|_| packet.len() == 5)));
    match header.kind {
        packets::Kind::Data { p_s, p_r, .. } => {
            assert!(packet.len() - used <= 4096, "longer than any packet");
            *near = (p_r, p_s.wrapping_add(1) & modulo.mask());
        }
        packets::Kind::ReceiveReady(p_r) | packets::Kind::ReceiveNotReady(p_r) => near.0 = p_r,
        _ => {}
    }
}

pub(crate) fn layer(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let (modulo, window) = sizes(&mut input);
    let role = if input.byte() & 1 == 0 { Role::Dte } else { Role::Dce };
    let mut layer = Layer::new(config(role, modulo, window));
    let (mut now, mut near) = (Instant::ZERO, (0, 0));
    let front = |channel| packets::Front { modulo, qualifier: false, delivery: false, channel }.bytes();
    let confirmed = [&front(0)[..], &[0xff]].concat();
    layer.arrive(Below::Up, now);
    layer.arrive(Below::Data(Rope::copied(&confirmed)), now);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() % 16 {
            0 => now += Duration::from_secs(u64::from(input.byte())),
            1 if input.byte() == 0 => {
                layer.arrive([Below::Up, Below::Down][usize::from(input.byte() & 1)].clone(), now)
            }
            2..=5 => {
                let channel = u16::from(input.byte()) % 7;
                let request = request(&mut input, channel);
                features.show((core::mem::discriminant(&request), layer.request(request, now).err()));
            }
            6 => layer.arrive(Below::Data(Rope::copied(input.take(8))), now),
            7..=9 => {
                while let Some(indication) = layer.poll_up() {
                    features.show(core::mem::discriminant(&indication));
                    if let Indication::Data { data, .. } = indication {
                        assert!(data.len() <= 200, "a unit longer than its bound");
                    }
                }
            }
            _ => layer.arrive(Below::Data(craft(&mut input, modulo, near).into()), now),
        }
        layer.settle(now);
        assert!(layer.deadline() > now, "a deadline in the past");
        let mut out = 0;
        while let Some(packet) = layer.poll_down() {
            heard(&packet.to_vec(), &mut near, modulo, features);
            out += 1;
            assert!(out < OUT_MAX, "a layer sends without end");
        }
    }
    layer.counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    let waiting = core::iter::from_fn(|| layer.poll_up()).count();
    assert!(waiting < 2000, "{waiting} indications wait");
    // From here on, the peer behaves correctly.
    layer.arrive(Below::Up, now);
    while layer.poll_down().is_some() {}
    layer.arrive(Below::Data(Rope::copied(&confirmed)), now);
    layer.arrive(Below::Data(Rope::copied(&[&front(3)[..], &[0x0b, 0, 0]].concat())), now);
    layer.request(Request::Accept { channel: 3, call: Call::default() }, now).expect("it is called");
    while layer.poll_up().is_some() {}
    let data = packets::Header {
        front: packets::Front { modulo, qualifier: false, delivery: false, channel: 3 },
        kind: packets::Kind::Data { p_s: 0, p_r: 0, more: false },
    };
    let mut packet = vec![0; data.length()];
    data.write(&mut packet);
    packet.push(7);
    layer.arrive(Below::Data(packet.into()), now);
    assert!(
        matches!(layer.poll_up(), Some(Indication::Data { channel: 3, data, .. }) if data.to_vec() == [7])
    );
}

pub(crate) fn connection(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let (modulo, window) = sizes(&mut input);
    let config = config(Role::Dte, modulo, window);
    let mut xot = if input.byte() & 1 == 0 { Xot::called(config) } else { Xot::calling(config) };
    let (mut now, mut near, mut stream) = (Instant::ZERO, (0, 0), Vec::new());
    for _ in 0..STEPS_MAX {
        if input.is_empty() || xot.is_broken() {
            break;
        }
        match input.byte() % 16 {
            0 => now += Duration::from_secs(u64::from(input.byte())),
            1..=4 => {
                let request = request(&mut input, CHANNEL);
                features.show((core::mem::discriminant(&request), xot.request(request, now).err()));
            }
            5 if input.byte() == 0 => stream.extend_from_slice(input.take(7)),
            6 | 7 => while xot.poll_up().is_some() {},
            _ => {
                let packet = craft(&mut input, modulo, near);
                stream.extend_from_slice(&[0, 0, 0, packet.len() as u8]);
                stream.extend_from_slice(&packet);
            }
        }
        let cut = stream.len().saturating_sub(usize::from(input.byte() & 3));
        xot.arrive(stream.drain(..cut).collect::<Vec<u8>>().into(), now);
        xot.settle(now);
        let mut out = 0;
        while let Some(packet) = xot.poll_down() {
            let packet = packet.to_vec();
            let (header, used) = framing::Header::read(&packet).expect("sent packets can be parsed");
            assert_eq!(usize::from(header.packet_bytes), packet.len() - used);
            let (header, _) = packets::Header::read(&packet[used..]).expect("sent packets can be parsed");
            heard(&packet[used..], &mut near, header.front.modulo, features);
            out += 1;
            assert!(out < OUT_MAX, "a connection sends without end");
        }
    }
    xot.packet_layer().counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    xot.counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    assert!(core::iter::from_fn(|| xot.poll_up()).count() < 2000, "too many indications wait");
}
