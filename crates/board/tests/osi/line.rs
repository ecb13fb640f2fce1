//! Two lower modules on a line: the network service of X.213 over X.25 and LAPB, with and without lost
//! frames.

use kiban_base::{Instant, Rope};
use kiban_osi::lapb::{self, Role};
use kiban_osi::network::{Indication, Origin, Reason, Request};
use kiban_osi::stack::below::NetworkService;
use kiban_osi::stack::line::{Line, LineConfig};
use kiban_osi::x25::Call;
use proptest::prelude::*;

/// The DTE has index 0, the DCE index 1.
struct Pair {
    lines: [Line; 2],
    now: Instant,
    frames: u64,
    /// Every n-th frame is lost; 0 means no loss.
    lose_every: u64,
}

impl Pair {
    fn new(lose_every: u64) -> Pair {
        Pair::with(lose_every, |_| {})
    }

    fn with(lose_every: u64, change: impl Fn(&mut LineConfig)) -> Pair {
        let line = |role| {
            let mut config = LineConfig::new(role);
            change(&mut config);
            Line::new(config)
        };
        Pair { lines: [line(Role::Dte), line(Role::Dce)], now: Instant::ZERO, frames: 0, lose_every }
    }

    /// Delivers frames until nothing is left to deliver. Time advances only when nothing else is pending.
    fn carry(&mut self, until: Instant) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                self.lines[from].push(self.now);
                while let Some(frame) = self.lines[from].poll_frame(self.now) {
                    moved = true;
                    self.frames += 1;
                    if self.lose_every == 0 || !self.frames.is_multiple_of(self.lose_every) {
                        self.lines[1 - from].arrive(Rope::copied(&frame.to_vec()), self.now);
                    }
                }
            }
            if moved {
                continue;
            }
            let due = self.lines[0].deadline().min(self.lines[1].deadline());
            if due > until {
                return;
            }
            self.now = self.now.max(due);
            self.lines.iter_mut().for_each(|line| line.settle(self.now));
        }
    }

    fn hear(&mut self, side: usize) -> Vec<Indication> {
        let until = self.now + std::time::Duration::from_secs(10);
        self.carry(until);
        std::iter::from_fn(|| self.lines[side].poll(self.now)).collect()
    }

    fn ask(&mut self, side: usize, request: Request) {
        self.lines[side].request(request, self.now);
    }

    /// Opens a connection from `side`.
    fn connect(&mut self, side: usize) {
        self.ask(side, Request::Connect);
        // The restart procedure runs first; then the call is made.
        for _ in 0..3 {
            assert!(self.hear(side).is_empty());
            if self.hear(1 - side) == [Indication::Connected] {
                self.ask(1 - side, Request::Accept);
                assert_eq!(self.hear(side), [Indication::Connected]);
                return;
            }
        }
        panic!("no call arrives");
    }
}

fn unit(number: usize) -> Vec<u8> {
    (0..700 + number * 131 % 1349).map(|at| (at * 7 + number) as u8).collect()
}

#[test]
fn units_arrive_whole_and_in_order_whatever_the_line_loses() {
    for (lose_every, caller) in [(0, 0), (0, 1), (11, 0), (7, 1), (5, 0)] {
        let mut pair = Pair::new(lose_every);
        pair.connect(caller);
        let sent: Vec<_> = (0..200).map(unit).collect();
        let mut heard = Vec::new();
        for unit in &sent {
            pair.ask(caller, Request::Data(unit.clone().into()));
        }
        pair.ask(caller, Request::Disconnect { reason: Reason::Normal });
        while !matches!(heard.last(), Some(Indication::Disconnected { .. })) {
            let more = pair.hear(1 - caller);
            assert!(!more.is_empty(), "it halts with {lose_every}");
            heard.extend(more);
        }
        let end = Indication::Disconnected { origin: Origin::User, reason: Reason::Normal };
        assert_eq!(heard.pop(), Some(end), "the clear comes behind all units");
        let units: Vec<_> = heard
            .into_iter()
            .map(|indication| {
                if let Indication::Data(unit) = indication { unit.to_vec() } else { panic!("{indication:?}") }
            })
            .collect();
        assert!(units == sent, "lost every {lose_every}");
        assert_eq!(pair.lines[caller].waiting_bytes(), 0);
        // The data link stays up, so another connection can be opened.
        pair.connect(1 - caller);
    }
}

#[test]
fn a_host_that_does_not_read_stops_its_peer_by_the_window() {
    let mut pair = Pair::new(0);
    pair.connect(0);
    for number in 0..40 {
        pair.ask(0, Request::Data(unit(number).into()));
    }
    let until = pair.now;
    pair.carry(until);
    // One window has been delivered and the lower module is full; the rest waits above it.
    let crossed: usize = (0..7).map(|number| unit(number).len()).sum();
    let asked: usize = (0..40).map(|number| unit(number).len()).sum();
    let held = asked - crossed - pair.lines[0].waiting_bytes();
    assert!((7 * 2048 - 2048..=7 * 2048).contains(&held), "{held}");
    assert_eq!(pair.hear(1).len(), 7);
    assert_eq!(pair.hear(1).len(), 7);
}

#[test]
fn a_call_for_another_protocol_is_refused() {
    let mut pair = Pair::with(0, |config| config.call = Call { user_data: vec![9; 4], ..Call::default() });
    pair.ask(0, Request::Connect);
    let mut heard = Vec::new();
    for _ in 0..4 {
        assert!(pair.hear(1).is_empty());
        heard.extend(pair.hear(0));
    }
    assert!(matches!(heard[..], [Indication::Disconnected { origin: Origin::User, .. }]), "{heard:?}");
    assert_eq!(pair.lines[1].counters().calls_refused, 1);
}

#[test]
fn a_call_on_a_dead_line_fails() {
    let mut line = Line::new(LineConfig::new(Role::Dte));
    line.request(Request::Connect, Instant::ZERO);
    let mut now = Instant::ZERO;
    let attempts = lapb::Config::new(Role::Dte).attempts_max;
    for _ in 0..=attempts {
        while line.poll_frame(now).is_some() {}
        if line.deadline() == Instant::NEVER {
            break;
        }
        now = line.deadline();
        line.settle(now);
    }
    let indication = Indication::Disconnected { origin: Origin::Provider, reason: Reason::Unreachable };
    assert_eq!(line.poll(now), Some(indication));
}

/// The peer's action, and the request of the user on our side.
#[derive(Clone, Debug)]
enum Act {
    /// A frame of arbitrary bytes.
    Frame(Vec<u8>),
    /// One of the peer's frames, with one byte changed.
    Bent(usize, u8),
    Carry,
    Wait(u64),
    Ask(u8),
    Hear,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Act::Frame),
        4 => (0usize..12, any::<u8>()).prop_map(|(at, byte)| Act::Bent(at, byte)),
        4 => Just(Act::Carry),
        1 => (1u64..200_000).prop_map(Act::Wait),
        3 => (0u8..4).prop_map(Act::Ask),
        2 => Just(Act::Hear),
    ]
}

proptest! {
    #[test]
    fn no_peer_makes_a_line_panic(acts in prop::collection::vec(act(), 0..80)) {
        let mut pair = Pair::new(0);
        for act in acts {
            match act {
                Act::Frame(frame) => pair.lines[0].arrive(frame.into(), pair.now),
                Act::Bent(at, byte) => {
                    if let Some(frame) = pair.lines[1].poll_frame(pair.now) {
                        let mut frame = frame.to_vec();
                        if let Some(bent) = frame.get_mut(at) {
                            *bent = byte;
                        }
                        pair.lines[0].arrive(frame.into(), pair.now);
                    }
                }
                Act::Carry => {
                    let until = pair.now;
                    pair.carry(until);
                }
                Act::Wait(millis) => {
                    pair.now += std::time::Duration::from_millis(millis);
                    let now = pair.now;
                    pair.lines.iter_mut().for_each(|line| line.settle(now));
                }
                Act::Ask(0) => pair.ask(0, Request::Connect),
                Act::Ask(1) => pair.ask(0, Request::Accept),
                Act::Ask(2) => pair.ask(0, Request::Data(unit(3).into())),
                Act::Ask(_) => pair.ask(0, Request::Disconnect { reason: Reason::Abnormal }),
                Act::Hear => while pair.lines[0].poll(pair.now).is_some() {},
            }
        }
    }
}
