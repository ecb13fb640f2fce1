use super::config::{Config, PENDING_FRAMES_MAX, Role};
use super::link::Link;
use super::primitives::{Indication, Misuse, Reason, Request};
use super::state::{Act, Event, State, cell};
use crate::wire::lapb::{self, Modulo};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use kiban_base::{Instant, Rope, SimRng};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

/// Compares the state table with the standard's, which was typed in separately. Rows are events, columns are
/// states.
#[test]
fn every_cell_matches_the_standard() {
    let table = "
        Set          ua-or-dm/C  ua/C      ua/C        ua/C      dm/D
        OtherSet     dm/D        dm/D      reject/R    again/R   dm/D
        Disc         dm/D        dm/D      ua/D        ua/D      ua/D
        PollCommand  dm/D        -/S       transfer/C  again/R   -/G
        Command      -/D         -/S       transfer/C  again/R   -/G
        Response     -/D         -/S       transfer/C  -/R       -/G
        UaFinal      -/D         agreed/C  -/C         -/R       gone/D
        Ua           -/D         -/S       -/C         -/R       -/G
        DmFinal      -/D         gone/D    set/S       set/S     gone/D
        Dm           wanted/S    -/S       set/S       set/S     -/G
        Frmr         -/D         -/S       set/S       set/S     -/G
        Invalid      -/D         -/S       reject/R    again/R   -/G
    ";
    let mut rows = 0;
    for (event, row) in Event::ALL.into_iter().zip(table.lines().filter(|line| !line.trim().is_empty())) {
        let mut words = row.split_whitespace();
        assert_eq!(words.next(), Some(&*alloc::format!("{event:?}")));
        for (state, expected) in State::ALL.into_iter().zip(words.by_ref()) {
            let (act, next) = cell(state, event);
            let act = match act {
                Act::Ignore => "-",
                Act::Ua => "ua",
                Act::Dm => "dm",
                Act::UaOrDm => "ua-or-dm",
                Act::Set => "set",
                Act::SetIfWanted => "wanted",
                Act::Agreed => "agreed",
                Act::Gone => "gone",
                Act::Transfer => "transfer",
                Act::Reject => "reject",
                Act::RejectAgain => "again",
            };
            let next = match next {
                State::Disconnected => "D",
                State::SettingUp => "S",
                State::Connected => "C",
                State::Rejecting => "R",
                State::Disconnecting => "G",
            };
            assert_eq!(alloc::format!("{act}/{next}"), expected, "{event:?} in {state:?}");
        }
        assert_eq!(words.next(), None);
        rows += 1;
    }
    assert_eq!(rows, Event::ALL.len());
}

fn link(role: Role) -> Link {
    Link::new(Config::new(role))
}

fn frames(link: &mut Link, now: Instant) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| link.poll_down(now)).map(|frame| frame.to_vec()).collect()
}

fn indications(link: &mut Link) -> Vec<Indication> {
    core::iter::from_fn(|| link.poll_up()).collect()
}

/// Returns a DTE whose link is up.
fn connected(change: impl FnOnce(&mut Config)) -> Link {
    let mut config = Config::new(Role::Dte);
    change(&mut config);
    let is_basic = config.modulo == Modulo::Eight;
    let mut link = Link::new(config);
    link.request(Request::Connect).expect("it is down");
    assert_eq!(frames(&mut link, Instant::ZERO), [vec![1, if is_basic { 0x3f } else { 0x7f }]]);
    link.arrive(Rope::copied(&[1, 0x73]), Instant::ZERO);
    assert_eq!(indications(&mut link), [Indication::Connected]);
    link
}

/// Checks the machine against its table: the frames sent and the next state, for every state and frame.
#[test]
fn the_machine_follows_its_table() {
    let events: [(Event, &[u8]); 12] = [
        (Event::Set, &[3, 0x3f]),
        (Event::OtherSet, &[3, 0x7f]),
        (Event::Disc, &[3, 0x53]),
        (Event::PollCommand, &[3, 0x11]),
        (Event::Command, &[3, 0x01]),
        (Event::Response, &[1, 0x01]),
        (Event::UaFinal, &[1, 0x73]),
        (Event::Ua, &[1, 0x63]),
        (Event::DmFinal, &[1, 0x1f]),
        (Event::Dm, &[1, 0x0f]),
        (Event::Frmr, &[1, 0x97, 0, 0, 1]),
        (Event::Invalid, &[3, 0xef]),
    ];
    for state in State::ALL {
        for (event, frame) in events {
            let mut link = match state {
                State::Disconnected | State::SettingUp => link(Role::Dte),
                _ => connected(|_| {}),
            };
            match state {
                State::SettingUp => link.request(Request::Connect).expect("it is down"),
                State::Disconnecting => link.request(Request::Disconnect).expect("it is up"),
                State::Rejecting => link.arrive(Rope::copied(&[3, 0xef]), Instant::ZERO),
                State::Disconnected | State::Connected => {}
            }
            frames(&mut link, Instant::ZERO);
            assert_eq!(link.state(), state);
            link.arrive(Rope::copied(frame), Instant::ZERO);
            let (act, next) = cell(state, event);
            let (expected, next): (&[u8], State) = match act {
                Act::Ua | Act::UaOrDm => (&[3, 0x73], next),
                Act::Dm => (&[3, 0x1f], next),
                Act::Set => (&[1, 0x3f], next),
                Act::Reject | Act::RejectAgain => (&[3, 0x87], next),
                Act::Transfer if event == Event::PollCommand => (&[3, 0x11], next),
                Act::SetIfWanted => (&[], State::Disconnected),
                _ => (&[], next),
            };
            let sent = frames(&mut link, Instant::ZERO);
            let label = alloc::format!("{event:?} in {state:?}: {sent:02x?}");
            assert_eq!(link.state(), next, "{label}");
            match sent.first() {
                Some(sent) if expected == [3, 0x87] => {
                    assert_eq!([sent[0], sent[1] & !0x10], [3, 0x87], "{label}")
                }
                Some(sent) => assert_eq!(sent, expected, "{label}"),
                None => assert!(expected.is_empty(), "{label}"),
            }
        }
    }
}

#[test]
fn the_window_limits_frames_and_data_carries_acknowledgements() {
    let mut link = connected(|config| config.window = 3);
    for number in 0..5 {
        link.request(Request::Data(vec![number].into())).expect("room");
    }
    assert_eq!(frames(&mut link, Instant::ZERO), [vec![1, 0, 0], vec![1, 2, 1], vec![1, 4, 2]]);
    link.arrive(Rope::copied(&[3, 0x40, 9]), Instant::ZERO);
    // The received frame acknowledges two frames, and the next frame that this end sends acknowledges it.
    assert_eq!(frames(&mut link, Instant::ZERO), [vec![1, 0x26, 3], vec![1, 0x28, 4]]);
    assert_eq!(indications(&mut link), [Indication::Data(vec![9].into())]);
}

#[test]
fn after_t2_an_acknowledgement_is_sent_alone() {
    let mut link = connected(|_| {});
    link.arrive(Rope::copied(&[3, 0, 9]), Instant::ZERO);
    assert_eq!(frames(&mut link, Instant::ZERO), [[0; 0]; 0]);
    let due = link.deadline();
    assert_ne!(due, Instant::NEVER, "T2 runs");
    assert_eq!(due, Instant::ZERO + 20 * MS);
    link.settle(due);
    assert_eq!(frames(&mut link, due), [[3, 0x21]]);
}

#[test]
fn a_gap_causes_one_reject_and_is_filled() {
    let mut link = connected(|_| {});
    for control in [0x02, 0x04, 0x06] {
        link.arrive(Rope::copied(&[3, control, 9]), Instant::ZERO);
    }
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x09]]);
    link.arrive(Rope::copied(&[3, 0, 9]), Instant::ZERO);
    assert_eq!(indications(&mut link).len(), 1);
    // A new gap causes a new REJ.
    link.arrive(Rope::copied(&[3, 0x06, 9]), Instant::ZERO);
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x29]]);
}

#[test]
fn a_reject_causes_retransmission_without_copying() {
    let mut link = connected(|_| {});
    let payload = kiban_base::Bytes::from(vec![7; 100]);
    for _ in 0..3 {
        link.request(Request::Data(payload.clone().into())).expect("room");
    }
    assert_eq!(frames(&mut link, Instant::ZERO).len(), 3);
    link.arrive(Rope::copied(&[1, 0x29]), Instant::ZERO);
    let mut again: Vec<Rope> = core::iter::from_fn(|| link.poll_down(Instant::ZERO)).collect();
    assert_eq!(again.len(), 2);
    again[0].skip(2);
    assert_eq!(again.remove(0).into_bytes().as_ptr(), payload.as_ptr());
    assert_eq!(link.counters().retransmits, 2);
}

#[test]
fn the_peer_is_polled_after_t1_and_the_link_reset_after_n2() {
    let mut link = connected(|config| config.attempts_max = 3);
    link.request(Request::Data(vec![5].into())).expect("room");
    assert_eq!(frames(&mut link, Instant::ZERO), [vec![1, 0, 5]]);
    for expected in [[1, 0x11], [1, 0x11], [1, 0x11], [1, 0x3f], [1, 0x3f], [1, 0x3f]] {
        let due = link.deadline();
        assert_ne!(due, Instant::NEVER, "T1 runs");
        link.settle(due);
        assert_eq!(frames(&mut link, due), [expected], "{:?}", link.state());
    }
    assert_eq!(indications(&mut link), [Indication::Reset]);
    let due = link.deadline();
    assert_ne!(due, Instant::NEVER, "T1 runs");
    link.settle(due);
    assert_eq!(indications(&mut link), [Indication::Disconnected(Reason::NoAnswer)]);
    assert_eq!(link.deadline(), Instant::NEVER);
}

#[test]
fn a_lost_last_frame_is_retransmitted_after_the_poll() {
    let mut link = connected(|_| {});
    link.request(Request::Data(vec![5].into())).expect("room");
    frames(&mut link, Instant::ZERO);
    let due = link.deadline();
    assert_ne!(due, Instant::NEVER, "T1 runs");
    link.settle(due);
    assert_eq!(frames(&mut link, due), [[1, 0x11]]);
    link.arrive(Rope::copied(&[1, 0x11]), due);
    assert_eq!(frames(&mut link, due), [vec![1, 0, 5]]);
    link.arrive(Rope::copied(&[1, 0x21]), due);
    assert_eq!(link.room(), 256);
}

#[test]
fn a_busy_host_stops_the_peer_and_rejects_what_it_dropped() {
    let mut link = connected(|config| config.up_frames_max = 2);
    for control in [0x00, 0x02, 0x04] {
        link.arrive(Rope::copied(&[3, control, 9]), Instant::ZERO);
    }
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x45]]);
    assert_eq!(link.counters().dropped_while_busy, 1);
    assert_eq!(indications(&mut link).len(), 2);
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x49]]);
    // The host can also request the busy condition.
    link.request(Request::Busy(true)).expect("always");
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x45]]);
    link.request(Request::Busy(false)).expect("always");
    assert_eq!(frames(&mut link, Instant::ZERO), [[3, 0x41]]);
}

#[test]
fn a_busy_peer_is_polled_after_t1_and_receives_no_data() {
    let mut link = connected(|_| {});
    link.arrive(Rope::copied(&[1, 0x05]), Instant::ZERO);
    link.request(Request::Data(vec![5].into())).expect("room");
    assert_eq!(frames(&mut link, Instant::ZERO), [[0; 0]; 0]);
    let mut due = Instant::ZERO;
    for _ in 0..30 {
        due = link.deadline();
        assert_ne!(due, Instant::NEVER, "T1 runs");
        link.settle(due);
        assert_eq!(frames(&mut link, due), [[1, 0x11]]);
        link.arrive(Rope::copied(&[1, 0x15]), due);
    }
    link.arrive(Rope::copied(&[1, 0x01]), due);
    assert_eq!(frames(&mut link, due), [vec![1, 0, 5]]);
}

#[test]
fn a_frame_reject_states_the_error() {
    let long = [&[3, 0][..], &[0; 11]].concat();
    let rows: [(&[u8], &[u8]); 6] = [
        (&[3, 0xef], &[3, 0x87, 0xef, 0x00, 1]),
        (&[3, 0x01, 5], &[3, 0x87, 0x01, 0x00, 3]),
        (&long, &[3, 0x87, 0x00, 0x00, 4]),
        (&[3, 0x61], &[3, 0x87, 0x61, 0x00, 8]),
        // A command is received as a response, so the FRMR has the C/R bit set.
        (&[1, 0x00, 1], &[3, 0x87, 0x00, 0x10, 1]),
        (&[3, 0x71], &[3, 0x97, 0x71, 0x00, 8]),
    ];
    for (frame, answer) in rows {
        let mut link = connected(|config| config.information_bytes_max = 10);
        link.arrive(Rope::copied(frame), Instant::ZERO);
        assert_eq!(frames(&mut link, Instant::ZERO), [answer]);
        // The peer sets the link up again with SABM.
        link.arrive(Rope::copied(&[3, 0x3f]), Instant::ZERO);
        assert_eq!(indications(&mut link), [Indication::Reset]);
        assert_eq!((link.state(), frames(&mut link, Instant::ZERO)), (State::Connected, vec![vec![3, 0x73]]));
    }
}

#[test]
fn colliding_unnumbered_commands_are_answered() {
    let (mut dte, mut dce) = (link(Role::Dte), link(Role::Dce));
    let meet = |dte: &mut Link, dce: &mut Link| {
        for _ in 0..3 {
            let (to_dce, to_dte) = (frames(dte, Instant::ZERO), frames(dce, Instant::ZERO));
            to_dce.into_iter().for_each(|frame| dce.arrive(frame.into(), Instant::ZERO));
            to_dte.into_iter().for_each(|frame| dte.arrive(frame.into(), Instant::ZERO));
        }
    };
    for link in [&mut dte, &mut dce] {
        link.request(Request::Connect).expect("it is down");
    }
    meet(&mut dte, &mut dce);
    assert_eq!([dte.state(), dce.state()], [State::Connected; 2]);
    for link in [&mut dte, &mut dce] {
        assert_eq!(indications(link), [Indication::Connected]);
        link.request(Request::Disconnect).expect("it is up");
    }
    meet(&mut dte, &mut dce);
    assert_eq!([dte.state(), dce.state()], [State::Disconnected; 2]);
}

#[test]
fn an_invalid_request_changes_nothing() {
    let mut link = connected(|config| (config.queue_frames_max, config.information_bytes_max) = (1, 4));
    assert_eq!(link.request(Request::Connect), Err(Misuse::State));
    assert_eq!(link.request(Request::Data(vec![0; 5].into())), Err(Misuse::TooLong));
    link.request(Request::Data(vec![0; 4].into())).expect("room");
    assert_eq!((link.room(), link.request(Request::Data(vec![0].into()))), (0, Err(Misuse::Full)));
    let mut down = Link::new(Config::new(Role::Dce));
    assert_eq!(down.request(Request::Data(Rope::new())), Err(Misuse::State));
    assert_eq!(down.request(Request::Disconnect), Err(Misuse::State));
}

/// One direction of a line: the frames in transit with their arrival times. Some frames are lost, and some
/// are duplicated.
struct Line {
    flying: VecDeque<(Instant, Rope)>,
    free_at: Instant,
    chance: SimRng,
    impairment: u32,
}

impl Line {
    fn carry(&mut self, link: &mut Link, now: Instant) {
        while self.free_at <= now
            && let Some(frame) = link.poll_down(now)
        {
            // The line has 2 Mbit/s.
            let time = Duration::from_nanos(500 * lapb::line_bits(frame.len()) as u64);
            self.free_at = now.max(self.free_at) + time;
            let there = self.free_at + 5 * MS;
            let dice = self.chance.below(1000);
            if dice < u64::from(self.impairment) {
                continue;
            }
            self.flying.push_back((there, frame.clone()));
            if dice < u64::from(self.impairment) * 2 {
                self.flying.push_back((there, frame));
            }
        }
    }

    fn deliver(&mut self, link: &mut Link, now: Instant) {
        while self.flying.front().is_some_and(|(there, _)| *there <= now) {
            let (_, frame) = self.flying.pop_front().expect("there is one");
            link.arrive(frame, now);
        }
    }

    fn next(&self) -> Instant {
        self.flying.front().map_or(Instant::NEVER, |(there, _)| *there)
    }
}

/// Runs two links over a lossy line and checks that packets arrive once and in order.
fn run_lossy(seed: u64, modulo: Modulo, window: u8, impairment: u32, count: usize) {
    let config = |role| Config {
        modulo,
        window,
        reply_timeout: 100 * MS,
        acknowledge_delay: 3 * MS,
        attempts_max: 50,
        queue_frames_max: 20,
        up_frames_max: 5,
        ..Config::new(role)
    };
    let mut links = [Link::new(config(Role::Dte)), Link::new(config(Role::Dce))];
    let chance = |number| SimRng::from_seed(seed * 2 + number);
    let mut lines = [0, 1].map(|number| Line {
        flying: VecDeque::new(),
        free_at: Instant::ZERO,
        chance: chance(number),
        impairment,
    });
    let mut hosts = SimRng::from_seed(seed + 99);
    let message = |side: usize, number: usize| vec![(number * 7 + side) as u8; number * 31 % 300];
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    links[0].request(Request::Connect).expect("it is down");
    let mut now = Instant::ZERO;
    for _ in 0..1_000_000 {
        for side in 0..2 {
            while sent[side] < count && links[side].room() > 0 {
                links[side].request(Request::Data(message(side, sent[side]).into())).expect("room");
                sent[side] += 1;
            }
            // The host stops taking indications from time to time.
            while hosts.below(4) > 0
                && let Some(indication) = links[side].poll_up()
            {
                match indication {
                    Indication::Data(packet) => {
                        assert_eq!(
                            packet.to_vec(),
                            message(1 - side, got[side]),
                            "number {} of {side}",
                            got[side]
                        );
                        got[side] += 1;
                    }
                    Indication::Connected => {}
                    other => panic!("{other:?} at {now:?}"),
                }
            }
        }
        if got == [count; 2] {
            return;
        }
        // If a UA were lost after its sender had begun to send data, the link would be reset, as the standard
        // requires. So frames are lost only once both links are up.
        let is_up = links.iter().all(|link| link.state() == State::Connected);
        for side in 0..2 {
            lines[side].impairment = if is_up { impairment } else { 0 };
            lines[side].carry(&mut links[side], now);
        }
        let mut next = now + 10 * MS;
        for side in 0..2 {
            next = next.min(lines[side].next()).min(links[side].deadline());
            if lines[side].free_at > now {
                next = next.min(lines[side].free_at);
            }
        }
        now = now.max(next);
        for side in 0..2 {
            lines[side].deliver(&mut links[1 - side], now);
            if links[side].deadline() <= now {
                links[side].settle(now);
            }
        }
    }
    panic!("{got:?} of {count} after {now:?}: {links:?}");
}

#[test]
fn a_lossy_line_carries_every_packet_once_and_in_order() {
    for seed in 0..20 {
        run_lossy(seed, Modulo::Eight, 7, 50, 500);
        run_lossy(seed, Modulo::OneTwentyEight, 100, 50, 500);
    }
}

/// A minimal DCE, written without this crate's code. It has one outstanding frame, which it retransmits every
/// 200 ms, and it sends an RR for every I frame.
#[derive(Default)]
struct Plain {
    v_s: u8,
    v_r: u8,
    under_way: Option<(Vec<u8>, u32)>,
    got: Vec<Vec<u8>>,
    out: Vec<Vec<u8>>,
}

impl Plain {
    fn on_frame(&mut self, frame: &[u8]) {
        let (is_command, control) = (frame[0] == 1, frame[1]);
        let poll = control & 0x10;
        if control & 3 == 3 {
            assert_eq!((is_command, control), (true, 0x3f), "nothing but SABM");
            *self =
                Plain { got: core::mem::take(&mut self.got), out: vec![vec![1, 0x73]], ..Plain::default() };
            return;
        }
        if control >> 5 == (self.v_s + 1) & 7 && self.under_way.take().is_some() {
            self.v_s = (self.v_s + 1) & 7;
        }
        let is_information = control & 1 == 0;
        if is_information && control >> 1 & 7 == self.v_r {
            self.v_r = (self.v_r + 1) & 7;
            self.got.push(frame[2..].to_vec());
        }
        if is_information || is_command && poll != 0 {
            self.out.push(vec![1, self.v_r << 5 | poll | 1]);
        }
    }

    fn tick(&mut self, todo: &mut VecDeque<Vec<u8>>) {
        if self.under_way.is_none() {
            self.under_way = todo.pop_front().map(|packet| (packet, 0));
        }
        if let Some((packet, ticks)) = &mut self.under_way {
            if ticks.is_multiple_of(20) {
                self.out.push([&[3, self.v_r << 5 | self.v_s << 1], &packet[..]].concat());
            }
            *ticks += 1;
        }
    }
}

#[test]
fn an_independent_simple_peer_interoperates() {
    for seed in 0..30 {
        let mut link = connected(|config| config.reply_timeout = 100 * MS);
        let (mut plain, mut chance, mut now) = (Plain::default(), SimRng::from_seed(seed), Instant::ZERO);
        let packet = |side: u8, number: u8| vec![side, number, 3];
        let (mut number, mut got) = (0, Vec::new());
        let mut todo: VecDeque<Vec<u8>> = (0..50).map(|number| packet(1, number)).collect();
        let mut pass = |frames: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            let times = |dice| if dice < 10 { dice as usize % 3 } else { 1 };
            frames.into_iter().flat_map(|frame| vec![frame; times(chance.below(50))]).collect()
        };
        for _ in 0..20_000 {
            while number < 50 && link.request(Request::Data(packet(0, number).into())).is_ok() {
                number += 1;
            }
            pass(frames(&mut link, now)).iter().for_each(|frame| plain.on_frame(frame));
            plain.tick(&mut todo);
            for frame in pass(core::mem::take(&mut plain.out)) {
                link.arrive(frame.into(), now);
            }
            got.extend(indications(&mut link));
            now += 10 * MS;
            link.settle(now);
        }
        assert_eq!(plain.got, (0..50).map(|number| packet(0, number)).collect::<Vec<_>>(), "seed {seed}");
        let got: Vec<Vec<u8>> = got
            .into_iter()
            .map(|indication| match indication {
                Indication::Data(packet) => packet.to_vec(),
                other => panic!("{other:?} with seed {seed}"),
            })
            .collect();
        assert_eq!(got, (0..50).map(|number| packet(1, number)).collect::<Vec<_>>(), "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_window_and_any_loss_rate_carry_every_packet_once(
        seed in any::<u32>(), extended in any::<bool>(), window in 1..8u8, impairment in 0..200u32,
    ) {
        let modulo = if extended { Modulo::OneTwentyEight } else { Modulo::Eight };
        run_lossy(u64::from(seed), modulo, window, impairment, 100);
    }

    /// No sequence of frames causes a panic, and the number of pending responses is limited.
    #[test]
    fn any_frame_is_accepted_or_rejected(
        inputs in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..6), 0..3u8), 0..200),
    ) {
        let mut link = connected(|config| config.listens = true);
        let mut now = Instant::ZERO;
        for (mut frame, kind) in inputs {
            if let Some(address) = frame.first_mut() {
                *address = *address & 2 | 1;
            }
            match kind {
                0 => now += 700 * MS,
                1 => drop(link.request(Request::Data(Rope::copied(&frame)))),
                _ => link.arrive(frame.into(), now),
            }
            link.settle(now);
            prop_assert!(frames(&mut link, now).len() <= PENDING_FRAMES_MAX + 10);
            prop_assert!(link.deadline() > now);
            indications(&mut link);
        }
    }
}
