//! An EFE-like endpoint with a hostile peer. An input is a sequence of frames, calls from the host, and time
//! steps.
//!
//! Set-up    an endpoint with two flows. One leads to a *peer* that connects correctly, knows the flow's
//!           number and key, and then sends arbitrary frames. The other leads to a correct endpoint, the
//!           *canary*.
//! Checks    one step causes few frames, and every sent frame can be parsed. The endpoint's next deadline is
//!           not in the past. Received segments are no longer than the flow allows. At the end, the canary's
//!           segments have arrived, once and in order, everything can be closed, and no state is left.

use crate::features::Features;
use crate::input::Input;
use kiban_base::Instant;
use kiban_rdma::efe::{Config, Endpoint, Event, FlowNumber, Peer, RequestError};
use kiban_rdma::wire::efe::{HEADER_BYTES, Header, Kind, SACK_MAP_BYTES, Setup};
use std::time::Duration;

const HOSTILE: Peer = Peer(1);
const CANARY: Peer = Peer(2);
const SELF: Peer = Peer(3);
const SERVICE: u16 = 5;
const SEGMENT_BYTES: usize = 200;
const STEPS_MAX: usize = 300;
/// Maximum number of frames that one step may cause: a window, and answers.
const FRAMES_MAX: usize = 200;

/// The hostile peer, and the numbers that it has learned from the endpoint's frames.
#[derive(Default)]
struct Liar {
    flow: u32,
    key: u32,
    /// The next sequence number that the endpoint expects from the peer, and the last one received from it.
    next: u32,
    seen: u32,
    transmission: u32,
}

fn header(kind: Kind) -> Header {
    Header {
        kind,
        flags: 0,
        credit: 64,
        payload_bytes: 0,
        flow: 0,
        key: 0,
        sequence: 0,
        acknowledged: 0,
        transmission: 0,
        echo: 0,
        held: 0,
    }
}

fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    Header { payload_bytes: payload.len() as u16, ..header }.write(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

fn setup() -> Vec<u8> {
    let setup = Setup { flow: 77, key: 0x5eed, service: SERVICE, segment_bytes: 1472, greeting: b"liar" };
    let mut bytes = vec![0; setup.length()];
    setup.write(&mut bytes);
    bytes
}

impl Liar {
    fn request() -> Vec<u8> {
        frame(Header { sequence: u32::MAX - 20, ..header(Kind::Ask) }, &setup())
    }

    fn hear(&mut self, bytes: &[u8], features: &mut Features<'_>) {
        let (header, _) = Header::read(bytes).expect("sent packets can be parsed");
        features.show((header.kind as u8, header.flags, header.credit));
        if header.kind == Kind::Accept
            && let Ok((setup, _)) = Setup::read(header.payload(bytes))
        {
            (self.flow, self.key) = (setup.flow, setup.key);
            (self.next, self.seen) = (header.acknowledged, header.sequence);
        }
        if header.kind.is_sequenced() {
            (self.seen, self.transmission) = (header.sequence.wrapping_add(1), header.transmission);
        }
        if matches!(header.kind, Kind::Data | Kind::End | Kind::Ack) {
            self.next = header.acknowledged;
        }
    }

    /// Returns a frame chosen by the input.
    fn craft(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let kind = [
            Kind::Data,
            Kind::Ack,
            Kind::Data,
            Kind::Ack,
            Kind::End,
            Kind::Abort,
            Kind::Accept,
            Kind::Reject,
        ][usize::from(input.byte()) % 8];
        let odd = input.byte();
        let payload = match kind {
            Kind::Data => vec![0xee; usize::from(odd)],
            Kind::Ack => {
                let map = if odd.is_multiple_of(4) { u64::from(input.long()) << (odd >> 2) } else { 0 };
                map.to_be_bytes()[..SACK_MAP_BYTES].to_vec()
            }
            Kind::Accept => setup(),
            _ => Vec::new(),
        };
        let header = Header {
            // These frames have no valid check field.
            flags: input.byte() & 7,
            credit: if odd.is_multiple_of(16) { input.byte() } else { 64 - odd % 65 },
            flow: if input.byte().is_multiple_of(16) { input.long() } else { self.flow },
            key: if input.byte().is_multiple_of(16) { input.long() } else { self.key },
            sequence: self.next.wrapping_add(input.distance()),
            acknowledged: self.seen.wrapping_add(input.distance()),
            transmission: input.long() >> 8,
            echo: self.transmission.wrapping_add(input.distance()) & 0xff_ffff,
            held: input.short(),
            ..header(kind)
        };
        let mut bytes = frame(header, &payload);
        if input.byte().is_multiple_of(32) {
            bytes.truncate(usize::from(input.byte()));
        }
        bytes
    }
}

struct World {
    end: Endpoint,
    good: Endpoint,
    liar: Liar,
    now: Instant,
    /// The canary's flow at both ends, and the segments transferred.
    canary: [FlowNumber; 2],
    sent: u32,
    read: u32,
}

impl World {
    /// Delivers the frames of both endpoints.
    fn exchange(&mut self, features: &mut Features<'_>) {
        let mut room = vec![0; self.end.frame_bytes_max()];
        for _ in 0..4 {
            self.end.settle(self.now);
            self.good.settle(self.now);
            assert!(self.end.deadline() >= self.now || self.end.deadline() == Instant::NEVER);
            let mut frames = 0;
            while let Some((to, length)) = self.end.fetch(&mut room, self.now) {
                match to {
                    CANARY => self.good.arrive(SELF, &room[..length], self.now),
                    _ => self.liar.hear(&room[..length], features),
                }
                frames += 1;
                assert!(frames < FRAMES_MAX, "an endpoint sends without end");
            }
            while let Some((_, length)) = self.good.fetch(&mut room, self.now) {
                self.end.arrive(CANARY, &room[..length], self.now);
            }
        }
    }

    /// Sends a segment of the canary, which must arrive.
    fn sing(&mut self) {
        let mut out = Vec::new();
        match self.good.send(self.canary[1], &self.sent.to_be_bytes(), self.now) {
            Ok(()) => self.sent += 1,
            Err(RequestError::Full) => {}
            Err(refusal) => panic!("the canary is connected: {refusal}"),
        }
        while self.end.receive(self.canary[0], &mut out, self.now) {
            assert_eq!(out, self.read.to_be_bytes(), "once and in order");
            self.read += 1;
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0; 40], vec![1; 60], (0..200).collect(), (0..200u8).map(|n| n.wrapping_mul(7)).collect()]
}

pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let config = Config { segment_bytes: SEGMENT_BYTES, asked_max: 8, ..Config::default() };
    let (mut end, good) =
        (Endpoint::new(config.clone(), crate::key::key(1)), Endpoint::new(config, crate::key::key(2)));
    end.listen(SERVICE);
    let now = Instant::ZERO;
    let mut world = World { end, good, liar: Liar::default(), now, canary: [0; 2], sent: 0, read: 0 };

    // The canary connects. The peer connects too, and behaves correctly at first.
    world.canary[1] = world.good.connect(SELF, SERVICE, b"canary", now).expect("room");
    world.exchange(features);
    let Some(Event::ConnectRequest { flow, .. }) = world.end.poll() else { panic!("the canary requests") };
    world.end.accept(flow, b"", now).expect("it was asked");
    world.canary[0] = flow;
    world.end.arrive(HOSTILE, &Liar::request(), now);
    let Some(Event::ConnectRequest { flow, .. }) = world.end.poll() else { panic!("the peer requests") };
    world.end.accept(flow, b"", now).expect("it was asked");
    let mut hostile = Some(flow);
    world.exchange(features);

    let mut out = Vec::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match (input.byte() % 16, hostile) {
            (0, Some(flow)) => {
                let length = usize::from(input.byte());
                features.show(world.end.send(flow, &[7; 256][..length], world.now).is_ok());
            }
            (1, Some(flow)) => {
                while world.end.receive(flow, &mut out, world.now) {
                    assert!(out.len() <= SEGMENT_BYTES, "longer than the flow allows");
                }
            }
            (2, Some(flow)) => features.show(world.end.finish(flow).is_ok()),
            (3, Some(flow)) if input.byte().is_multiple_of(4) => {
                world.end.abort(flow, world.now).expect("it is there");
                hostile = None;
            }
            (4, None) => world.end.arrive(HOSTILE, &Liar::request(), world.now),
            (5, _) => world.now += Duration::from_micros(1 << (input.byte() % 18)),
            (6, _) => world.sing(),
            _ => {
                let bytes = world.liar.craft(&mut input);
                world.end.arrive(HOSTILE, &bytes, world.now);
            }
        }
        world.exchange(features);
        while let Some(event) = world.end.poll() {
            features.show(std::mem::discriminant(&event));
            match event {
                Event::ConnectRequest { flow, .. } if hostile.is_none() => {
                    hostile = world.end.accept(flow, b"", world.now).is_ok().then_some(flow);
                }
                Event::Ended { flow, .. } => {
                    assert_ne!(flow, world.canary[0], "the canary's flow is nobody else's");
                    if hostile == Some(flow) {
                        hostile = None;
                    }
                }
                _ => {}
            }
        }
    }
    world.end.counters().each(&mut |name, value| features.show((name, value.checked_ilog2())));
    // Deliver the canary's last segments, then close everything.
    for _ in 0..100 {
        if world.sent == world.read {
            break;
        }
        world.now += Duration::from_millis(20);
        world.exchange(features);
        let (sent, mut rest) = (world.sent, Vec::new());
        while world.end.receive(world.canary[0], &mut rest, world.now) {
            assert_eq!(rest, world.read.to_be_bytes(), "once and in order");
            world.read += 1;
        }
        assert!(world.read <= sent);
    }
    assert_eq!(world.sent, world.read, "the canary's segments have arrived");
    for flow in hostile.into_iter().chain([world.canary[0]]) {
        world.end.abort(flow, world.now).expect("it is there");
    }
    for _ in 0..20 {
        world.now += Duration::from_secs(1);
        world.exchange(features);
    }
    assert_eq!((world.end.flows(), world.good.flows()), (0, 0), "nothing is left");
}
