//! Calls through a switch, between lines and XOT connections.

use super::{Event, PortId, Switch, SwitchConfig};
use crate::lapb;
use crate::x25::xot::{CHANNEL, Xot};
use crate::x25::{
    AddressBlock, Both, Call, Cause, Config, Facilities, FastSelect, Indication, Interface, Misuse, Modulo,
    Request, Role, Sizes,
};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, Rope};

enum Kind {
    Line(Box<Interface>),
    Xot(Box<Xot>),
}

/// A host at the other end of a port.
struct End {
    port: PortId,
    kind: Kind,
    heard: Vec<Indication>,
    /// Whether the host leaves its indications in its packet layer.
    is_deaf: bool,
}

struct World {
    switch: Switch,
    now: Instant,
    ends: Vec<End>,
    events: Vec<Event>,
}

fn layer(role: Role) -> Config {
    Config { unit_bytes_max: 4096, outgoing_bytes_max: 16384, ..Config::new(role) }
}

impl World {
    fn new(config: SwitchConfig) -> World {
        World { switch: Switch::new(config), now: Instant::ZERO, ends: Vec::new(), events: Vec::new() }
    }

    /// Adds a host on a line with this packet size; returns its index.
    fn line(&mut self, packet_bytes: u16) -> usize {
        let config =
            |role| Config { default: Sizes::same(packet_bytes, 2), packet_bytes_max: 1024, ..layer(role) };
        let there = Interface::new(lapb::Config::new(Role::Dce), config(Role::Dce));
        let port = self.switch.add_interface(there);
        let mut here = Interface::new(lapb::Config::new(Role::Dte), config(Role::Dte));
        here.start();
        self.end(port, Kind::Line(here.into()))
    }

    /// Adds a host on an XOT connection; returns its index.
    fn xot(&mut self, calls: bool, modulo: Modulo) -> usize {
        let config = Config { modulo, ..layer(Role::Dte) };
        let (here, there) = if calls {
            (Xot::calling(config.clone()), Xot::called(config))
        } else {
            (Xot::called(config.clone()), Xot::calling(config))
        };
        let port = self.switch.add_xot(there);
        self.end(port, Kind::Xot(here.into()))
    }

    fn end(&mut self, port: PortId, kind: Kind) -> usize {
        self.ends.push(End { port, kind, heard: Vec::new(), is_deaf: false });
        self.run();
        self.ends.len() - 1
    }

    /// Moves frames until nothing moves.
    fn run(&mut self) {
        let mut has_moved = true;
        while core::mem::take(&mut has_moved) {
            for end in &mut self.ends {
                let down = |end: &mut End| match &mut end.kind {
                    Kind::Line(line) => line.poll_frame(self.now),
                    Kind::Xot(xot) => xot.poll_down(),
                };
                while let Some(frame) = down(end) {
                    has_moved = true;
                    self.switch.arrive(end.port, frame, self.now);
                }
                while let Some(frame) = self.switch.poll_down(end.port, self.now) {
                    has_moved = true;
                    match &mut end.kind {
                        Kind::Line(line) => line.arrive(frame, self.now),
                        Kind::Xot(xot) => xot.arrive(frame, self.now),
                    }
                }
                let up = |end: &mut End| match &mut end.kind {
                    Kind::Line(line) => line.layer_mut().poll_up(),
                    Kind::Xot(xot) => xot.poll_up(),
                };
                while let Some(indication) = (!end.is_deaf).then(|| up(end)).flatten() {
                    has_moved = true;
                    end.heard.push(indication);
                }
            }
        }
        self.events.extend(core::iter::from_fn(|| self.switch.poll()));
    }

    /// Moves time on in steps of LAPB's acknowledgement delay.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(20);
            self.switch.settle(self.now);
            for end in &mut self.ends {
                match &mut end.kind {
                    Kind::Line(line) => line.settle(self.now),
                    Kind::Xot(xot) => xot.settle(self.now),
                }
            }
            self.run();
        }
    }

    fn try_request(&mut self, end: usize, request: Request) -> Result<(), Misuse> {
        match &mut self.ends[end].kind {
            Kind::Line(line) => line.layer_mut().request(request, self.now),
            Kind::Xot(xot) => xot.request(request, self.now),
        }
    }

    fn request(&mut self, end: usize, request: Request) {
        self.try_request(end, request).expect("the state allows it");
        self.run();
    }

    fn heard(&mut self, end: usize) -> Vec<Indication> {
        core::mem::take(&mut self.ends[end].heard)
    }

    /// Calls from one host, routes the call to another, and accepts it there. Returns both channels.
    fn connect(&mut self, from: usize, to: usize, call: Call) -> [u16; 2] {
        let channel = match &self.ends[from].kind {
            Kind::Line(line) => line.layer().free_channel().expect("one is free"),
            Kind::Xot(_) => CHANNEL,
        };
        self.request(from, Request::Call { channel, call });
        self.route(to);
        let called = self.incoming(to).0;
        self.request(to, Request::Accept { channel: called, call: Call::default() });
        let heard = self.heard(from);
        assert!(matches!(heard[..], [.., Indication::Accepted { .. }]), "{heard:?}");
        [channel, called]
    }

    /// Routes the newest call to a host.
    fn route(&mut self, to: usize) {
        let found = self.events.iter().rev().find_map(|event| match event {
            Event::Incoming { circuit, call, .. } => Some((*circuit, call.clone())),
            _ => None,
        });
        let (circuit, call) = found.expect("a call has come");
        let port = self.ends[to].port;
        self.switch.connect(circuit, port, call, self.now);
        self.run();
    }

    fn incoming(&mut self, end: usize) -> (u16, Call) {
        let heard = self.heard(end);
        let found = heard.iter().find_map(|indication| match indication {
            Indication::Incoming { channel, call } => Some((*channel, call.clone())),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no call: {heard:?}"))
    }
}

fn call() -> Call {
    let addresses =
        AddressBlock { called: "45678901".parse().expect("digits"), calling: "12".parse().expect("digits") };
    Call { addresses, user_data: vec![1, 0, 0, 0], ..Call::default() }
}

fn data(channel: u16, data: Vec<u8>, qualifier: bool) -> Request {
    Request::Data { channel, data: data.into(), qualifier, delivery: false }
}

fn cause(cause: u8) -> Cause {
    Cause { cause, diagnostic: Some(7) }
}

/// The ends of a world, by kind: lines with different packet sizes, and XOT connections.
fn pairs() -> Vec<(World, usize, usize)> {
    let new = || World::new(SwitchConfig::default());
    let mut worlds = Vec::new();
    for with in 0..4 {
        let mut world = new();
        let (from, to) = match with {
            0 => (world.line(128), world.line(1024)),
            1 => (world.line(256), world.xot(false, Modulo::Eight)),
            2 => (world.xot(true, Modulo::OneTwentyEight), world.line(128)),
            _ => (world.xot(true, Modulo::Eight), world.xot(false, Modulo::Eight)),
        };
        worlds.push((world, from, to));
    }
    worlds
}

#[test]
fn a_call_passes_between_all_kinds_of_ports() {
    for (mut world, from, to) in pairs() {
        let asked = Call {
            facilities: Facilities {
                packet_bytes: Some(Both::same(512)),
                window: Some(Both::same(3)),
                called_extension: Some(vec![0x47, 0, 5]),
                ..Facilities::default()
            },
            ..call()
        };
        let [here, there] = world.connect(from, to, asked.clone());
        let Some(Event::Incoming { call, .. }) =
            world.events.iter().find(|event| matches!(event, Event::Incoming { .. }))
        else {
            panic!("{:?}", world.events)
        };
        assert_eq!((call.addresses, &call.user_data), (asked.addresses, &asked.user_data));
        assert_eq!(call.facilities.called_extension, asked.facilities.called_extension);

        let long: Vec<u8> = (0..4000).map(|at| at as u8).collect();
        world.request(from, data(here, long.clone(), false));
        world.request(from, data(here, vec![9], true));
        world.request(to, data(there, long.clone(), true));
        world.request(to, Request::Interrupt { channel: there, data: vec![5, 6] });
        let units = |heard: Vec<Indication>| -> Vec<(Vec<u8>, bool)> {
            let units = heard.into_iter().filter_map(|indication| match indication {
                Indication::Data { data, qualifier, .. } => Some((data.to_vec(), qualifier)),
                Indication::Interrupt { data, .. } => Some((data, true)),
                _ => None,
            });
            units.collect()
        };
        world.pass(Duration::from_secs(1));
        assert_eq!(units(world.heard(to)), [(long.clone(), false), (vec![9], true)]);
        let mut back = units(world.heard(from));
        back.sort();
        let mut expected = [(long, true), (vec![5, 6], true)];
        expected.sort();
        assert_eq!(back, expected);

        world.request(from, Request::Reset { channel: here, cause: cause(0) });
        assert!(matches!(world.heard(to)[..], [.., Indication::Reset { .. }]));
        assert!(world.heard(from).contains(&Indication::ResetConfirmed { channel: here }));
        world.request(to, data(there, vec![1; 300], false));
        world.pass(Duration::from_secs(1));
        assert_eq!(units(world.heard(from)), [(vec![1; 300], false)]);

        world.request(from, Request::Clear { channel: here, cause: cause(0), user_data: Vec::new() });
        let heard = world.heard(to);
        let Some(Indication::Cleared { by_peer: true, cause: got, .. }) = heard.last() else {
            panic!("{heard:?}")
        };
        assert_eq!(*got, cause(0));
        let Some(Event::Closed { was_open: true, bytes, .. }) =
            world.events.iter().find(|event| matches!(event, Event::Closed { .. }))
        else {
            panic!("{:?}", world.events)
        };
        assert_eq!(*bytes, [4001, 4300]);
        assert_eq!(world.switch.circuits(), 0);
        let finished = world.events.iter().filter(|event| matches!(event, Event::Finished(_))).count();
        let xots = world.ends.iter().filter(|end| matches!(end.kind, Kind::Xot(_))).count();
        assert_eq!(finished, xots, "{:?}", world.events);
    }
}

#[test]
fn data_sent_before_a_clear_is_delivered() {
    for (mut world, from, to) in pairs() {
        let [here, there] = world.connect(from, to, call());
        world.ends[to].is_deaf = true;
        for unit in 0..3 {
            world.request(from, data(here, vec![unit; 700], false));
        }
        world.pass(Duration::from_secs(1));
        world.request(from, Request::Clear { channel: here, cause: cause(0), user_data: Vec::new() });
        world.ends[to].is_deaf = false;
        world.pass(Duration::from_secs(1));
        let heard = world.heard(to);
        let count = heard.iter().filter(|up| matches!(up, Indication::Data { .. })).count();
        let Some(Indication::Cleared { channel, .. }) = heard.last() else { panic!("{heard:?}") };
        assert_eq!((count, *channel), (3, there));
    }
}

#[test]
fn a_host_that_takes_nothing_stops_only_its_own_circuits() {
    let mut world = World::new(SwitchConfig::default());
    let (from, deaf, other) = (world.line(1024), world.xot(false, Modulo::Eight), world.line(128));
    let [to_deaf, _] = world.connect(from, deaf, call());
    let [to_other, _] = world.connect(from, other, call());
    world.ends[deaf].is_deaf = true;
    let mut sent = 0;
    // The host's packet layer accepts 16 KiB; the switch and the other host hold a few more units.
    while world.try_request(from, data(to_deaf, vec![1; 4000], false)).is_ok() {
        sent += 1;
        assert!(sent < 100, "the sender was not stopped");
        world.pass(Duration::from_millis(100));
    }
    world.request(from, data(to_other, vec![2; 100], false));
    world.pass(Duration::from_secs(1));
    let heard = world.heard(other);
    assert!(matches!(heard[..], [.., Indication::Data { .. }]), "{heard:?}");
    world.ends[deaf].is_deaf = false;
    world.pass(Duration::from_secs(2));
    let heard = world.heard(deaf);
    assert_eq!(heard.iter().filter(|up| matches!(up, Indication::Data { .. })).count(), sent);
}

#[test]
fn a_refused_call_is_cleared_with_the_cause_of_the_called_side() {
    // The called host clears; on a line to a DTE, the cause passes unchanged.
    let mut world = World::new(SwitchConfig::default());
    let (from, to) = (world.line(128), world.xot(false, Modulo::Eight));
    let fast = Call {
        facilities: Facilities { fast_select: FastSelect::Restricted, ..Facilities::default() },
        user_data: vec![3; 100],
        ..call()
    };
    world.request(from, Request::Call { channel: 16, call: fast });
    world.route(to);
    let (channel, got) = world.incoming(to);
    assert_eq!(got.user_data, vec![3; 100]);
    let answer = vec![4; 90];
    world.request(to, Request::Clear { channel, cause: cause(0x0d), user_data: answer.clone() });
    let heard = world.heard(from);
    let Some(Indication::Cleared { cause: got, user_data, .. }) = heard.last() else { panic!("{heard:?}") };
    assert_eq!((*got, user_data), (cause(0x0d), &answer));
}

#[test]
fn a_dte_sends_only_causes_that_a_dte_may_send() {
    // The switch is the DTE of a line to a network.
    let mut switch = Switch::new(SwitchConfig::default());
    let interface = |role| Interface::new(lapb::Config::new(role), layer(role));
    let port = switch.add_interface(interface(Role::Dte));
    switch.start(port);
    let mut world = World::new(SwitchConfig::default());
    world.switch = switch;
    let network = world.end(port, Kind::Line(interface(Role::Dce).into()));
    world.request(network, Request::Call { channel: 1, call: call() });
    let Some(Event::Incoming { circuit, .. }) = world.events.last() else { panic!("{:?}", world.events) };
    world.switch.refuse(*circuit, 0x0d, world.now);
    world.run();
    let heard = world.heard(network);
    let Some(Indication::Cleared { cause: got, .. }) = heard.last() else { panic!("{heard:?}") };
    assert_eq!(got.cause, 0x8d);
}

#[test]
fn calls_beyond_the_limit_and_to_ports_without_a_link_are_cleared() {
    let mut world = World::new(SwitchConfig { circuits_max: 1, ..SwitchConfig::default() });
    let (from, to) = (world.line(128), world.line(128));
    world.connect(from, to, call());
    world.request(from, Request::Call { channel: 15, call: call() });
    let heard = world.heard(from);
    let Some(Indication::Cleared { cause, .. }) = heard.last() else { panic!("{heard:?}") };
    assert_eq!((cause.cause, world.switch.counters().calls_refused), (0x05, 1));

    let mut world = World::new(SwitchConfig::default());
    let from = world.line(128);
    let idle = Interface::new(lapb::Config::new(Role::Dce), layer(Role::Dce));
    let idle = world.switch.add_interface(idle);
    for port in [idle, 99] {
        world.request(from, Request::Call { channel: 16, call: call() });
        let circuit = world.switch.counters().calls;
        world.switch.connect(circuit, port, call(), world.now);
        world.run();
        let heard = world.heard(from);
        let Some(Indication::Cleared { cause, .. }) = heard.last() else { panic!("{heard:?}") };
        assert_eq!(cause.cause, 0x09, "port {port}");
    }
}

#[test]
fn a_second_call_on_an_xot_connection_is_cleared() {
    let mut world = World::new(SwitchConfig::default());
    // The switch has called the host at the second port.
    let (from, to) = (world.line(128), world.xot(false, Modulo::Eight));
    world.connect(from, to, call());
    world.events.clear();
    let clear = Request::Clear { channel: CHANNEL, cause: cause(0), user_data: Vec::new() };
    // Both requests arrive before the switch's driver can close the connection.
    world.try_request(to, clear).expect("the call is open");
    let Kind::Xot(host) = &mut world.ends[to].kind else { unreachable!() };
    let mut bytes = host.poll_down().expect("a clear");
    let mut other = Xot::calling(layer(Role::Dte));
    other.request(Request::Call { channel: CHANNEL, call: call() }, world.now).expect("a call");
    bytes.append(other.poll_down().expect("a call"));
    let port = world.ends[to].port;
    world.switch.arrive(port, bytes, world.now);
    world.run();
    let is_call = |event: &Event| matches!(event, Event::Incoming { .. });
    assert!(!world.events.iter().any(is_call), "{:?}", world.events);
    assert_eq!(world.switch.counters().calls_refused, 1);
}

#[test]
fn a_lost_line_clears_its_circuits_and_comes_back() {
    let mut world = World::new(SwitchConfig::default());
    let (from, to) = (world.line(128), world.line(128));
    let [here, _] = world.connect(from, to, call());
    let port = world.ends[to].port;
    world.switch.down(port, world.now);
    world.run();
    let heard = world.heard(from);
    let Some(Indication::Cleared { channel, cause, .. }) = heard.last() else { panic!("{heard:?}") };
    assert_eq!((*channel, cause.cause, world.switch.circuits()), (here, 0x09, 0));
    assert!(world.events.contains(&Event::Down(port)));
    // The host at the other end notices by itself, and sets its link up again.
    world.events.clear();
    world.switch.start(port);
    world.pass(Duration::from_secs(1));
    assert!(world.events.contains(&Event::Up(port)), "{:?}", world.events);
    world.heard(to);
    world.connect(from, to, call());
}

#[test]
fn an_interface_retries_until_its_peer_answers() {
    let retry = Duration::from_secs(5);
    let mut link = lapb::Config::new(Role::Dte);
    (link.reply_timeout, link.attempts_max) = (Duration::from_millis(100), 2);
    let mut interface = Interface::new(link, layer(Role::Dte)).with_retry_delay(retry);
    interface.start();
    let mut now = Instant::ZERO;
    let mut sabms = 0;
    while interface.counters().retries < 2 {
        sabms += core::iter::from_fn(|| interface.poll_frame(now)).count();
        now = interface.deadline();
        interface.settle(now);
    }
    assert_eq!((sabms, now >= Instant::ZERO + 2 * retry), (4, true));
}

#[test]
fn a_device_with_its_own_lapb_is_set_up_and_carries_packets() {
    let mut interface = Interface::on_device(layer(Role::Dte));
    let now = Instant::ZERO;
    interface.start();
    let sent = |interface: &mut Interface| interface.poll_frame(now).map(|frame| frame.to_vec());
    assert_eq!((sent(&mut interface), sent(&mut interface)), (Some(vec![1]), None));
    interface.arrive(Rope::copied(&[1]), now);
    assert_eq!(sent(&mut interface), Some(vec![0, 0x10, 0, 0xfb, 0, 161]));
    interface.arrive(Rope::copied(&[0, 0x10, 0, 0xff]), now);
    assert_eq!(interface.layer_mut().poll_up(), Some(Indication::Ready));
    interface.arrive(Rope::copied(&[2]), now);
    assert_eq!(interface.layer_mut().poll_up(), Some(Indication::Down));
    interface.arrive(Rope::copied(&[9]), now);
    assert_eq!(interface.counters().invalid, 1);
}
