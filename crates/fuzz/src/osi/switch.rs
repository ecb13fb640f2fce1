//! An X.25 switch with hostile peers on its ports, and a PAD with a hostile host and any user.
//!
//! Switch    two lines and an XOT connection, whose peers send arbitrary packets; the driver routes calls to
//!           arbitrary ports. What is sent can be parsed and is bounded, there are never more circuits than
//!           allowed, and when all ports are down, no circuit is left.
//! PAD       every message sent is one that X.29 defines, units are no longer than a packet, and a step
//!           causes little output. After all, parameters are still valid.

use super::circuits::{config, craft, heard, sizes};
use crate::features::Features;
use crate::input::Input;
use kiban_base::{Instant, Rope};
use kiban_osi::pad::{Output, Pad, Profile};
use kiban_osi::wire::lapb_framing::Device;
use kiban_osi::wire::x25 as packets;
use kiban_osi::wire::x29::Message;
use kiban_osi::wire::xot as framing;
use kiban_osi::x25::switch::{Event, Switch, SwitchConfig};
use kiban_osi::x25::xot::Xot;
use kiban_osi::x25::{Call, Cause, Indication, Interface, Role, Sizes};
use std::time::Duration;

const STEPS_MAX: usize = 300;
/// Maximum number of packets that one step may cause on one port.
const OUT_MAX: usize = 400;
const CIRCUITS_MAX: usize = 3;

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 40], vec![1; 60], (0..200).collect(), (0..200u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(crate) fn switch(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let (modulo, window) = sizes(&mut input);
    let mut switch =
        Switch::new(SwitchConfig { circuits_max: CIRCUITS_MAX, clear_timeout: Duration::from_secs(30) });
    let mut now = Instant::ZERO;
    let lines = [Role::Dce, Role::Dte]
        .map(|role| switch.add_interface(Interface::on_device(config(role, modulo, window))));
    let xot = switch.add_xot(Xot::called(config(Role::Dte, modulo, window)));
    let ports = [lines[0], lines[1], xot];
    let front = packets::Front { modulo, qualifier: false, delivery: false, channel: 0 }.bytes();
    let confirmed = Device::Data([&front[..], &[0xff]].concat().into());
    for line in lines {
        switch.start(line);
        switch.arrive(line, Device::Connect.write(), now);
        switch.arrive(line, confirmed.clone().write(), now);
    }
    let mut near = [(0, 0); 3];
    let mut waiting = Vec::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let of = usize::from(input.byte()) % 3;
        match input.byte() % 16 {
            0 => now += Duration::from_secs(u64::from(input.byte())),
            1 if input.byte() == 0 => {
                switch.down(ports[of], now);
                switch.start(ports[of]);
                switch.arrive(ports[of], Device::Connect.write(), now);
                switch.arrive(ports[of], confirmed.clone().write(), now);
            }
            2..=4 => {
                let target = ports.get(usize::from(input.byte()) % 4).copied().unwrap_or(99);
                match waiting.pop() {
                    Some((circuit, call)) if target != 99 => switch.connect(circuit, target, call, now),
                    Some((circuit, _)) => switch.refuse(circuit, input.byte(), now),
                    None => {}
                }
            }
            _ => {
                let packet = craft(&mut input, modulo, near[of]);
                let bytes = match of {
                    2 => [&[0, 0, 0, packet.len() as u8], &packet[..]].concat().into(),
                    _ => Device::Data(packet.into()).write(),
                };
                switch.arrive(ports[of], bytes, now);
            }
        }
        switch.settle(now);
        for (of, port) in ports.iter().enumerate() {
            let mut out = 0;
            while let Some(bytes) = switch.poll_down(*port, now) {
                let packet = match of {
                    2 => {
                        let bytes = bytes.to_vec();
                        let (_, used) = framing::Header::read(&bytes).expect("sent packets can be parsed");
                        bytes[used..].to_vec()
                    }
                    _ => match Device::read(bytes) {
                        Ok(Device::Data(packet)) => packet.to_vec(),
                        _ => continue,
                    },
                };
                let (header, _) = packets::Header::read(&packet).expect("sent packets can be parsed");
                heard(&packet, &mut near[of], header.front.modulo, features);
                out += 1;
                assert!(out < OUT_MAX, "a port sends without end");
            }
        }
        while let Some(event) = switch.poll() {
            features.show(core::mem::discriminant(&event));
            if let Event::Incoming { circuit, call, .. } = event {
                waiting.push((circuit, call));
            }
        }
        assert!(switch.circuits() <= CIRCUITS_MAX, "too many circuits");
    }
    switch.counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    for port in ports {
        switch.down(port, now);
    }
    switch.settle(now + Duration::from_secs(60));
    assert_eq!(switch.circuits(), 0, "a circuit is left without ports");
}

pub(crate) fn pad(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let profile = if input.byte() & 1 == 0 { Profile::Simple } else { Profile::Transparent };
    let mut pad = Pad::new(profile);
    let mut now = Instant::ZERO;
    let packet_bytes = 32;
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let length = usize::from(input.byte() % 40);
        match input.byte() % 16 {
            0 => now += Duration::from_millis(u64::from(input.byte()) * 50),
            1 => pad.on_break(),
            2 | 3 => {
                let sizes = Sizes { packet_bytes_out: packet_bytes, ..Sizes::same(128, 2) };
                pad.call(Call::default());
                pad.on_indication(Indication::Accepted { channel: 1, sizes, call: Call::default() });
            }
            4 => {
                let cause = Cause { cause: input.byte(), diagnostic: Some(input.byte()) };
                let by_peer = input.byte() & 1 == 0;
                pad.on_indication(match input.byte() % 4 {
                    0 => Indication::Cleared { channel: 1, by_peer, cause, user_data: Vec::new() },
                    1 => Indication::ClearConfirmed { channel: 1 },
                    2 => Indication::Reset { channel: 1, by_peer, cause },
                    _ => Indication::Down,
                });
            }
            5 if input.byte() == 0 => pad.on_end(),
            6..=9 => pad.on_terminal(input.take(length), now),
            10 => pad.on_terminal(b"\r", now),
            11..=13 => {
                let data = Rope::copied(input.take(length));
                pad.on_indication(Indication::Data { channel: 1, data, qualifier: true, delivery: false });
            }
            _ => {
                let data = Rope::copied(input.take(length));
                pad.on_indication(Indication::Data { channel: 1, data, qualifier: false, delivery: false });
            }
        }
        if pad.deadline() <= now {
            pad.settle(now);
        }
        assert!(pad.deadline() > now, "a deadline is in the past");
        let mut out = 0;
        while let Some(output) = pad.poll() {
            features.show(core::mem::discriminant(&output));
            out += match output {
                Output::Terminal(octets) => octets.len(),
                Output::Data(octets, true) => {
                    features.show((
                        "message",
                        Message::read(&octets).map(|message| core::mem::discriminant(&message)),
                    ));
                    assert!(Message::read(&octets).is_ok(), "an invalid message: {octets:?}");
                    octets.len()
                }
                Output::Data(octets, false) => {
                    assert!(octets.len() <= 128 + 1, "a unit longer than a packet");
                    octets.len()
                }
                _ => 1,
            };
            // Forty characters, each with 255 octets of padding, or a list of all parameters for each.
            assert!(out < 40_000, "too much output");
        }
    }
    let mut parameters = *pad.parameters();
    for of in (1..=22).filter(|of| *of != 11) {
        let value = parameters.get(of).expect("there are 22");
        features.show(("parameter", of, value.checked_ilog2()));
        assert_eq!(parameters.set(of, value), Ok(()), "{of}:{value}");
    }
}
