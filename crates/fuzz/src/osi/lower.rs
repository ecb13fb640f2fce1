//! OSI: the decoders of the lower layers, and two systems with transport and session layers, into whose
//! connection an attacker inserts bytes.

use crate::features::Features;
use crate::input::Input;
use kiban_base::{Instant, Rope};
use kiban_osi::session::{self, Session};
use kiban_osi::transport::{self, Transport};
use kiban_osi::wire::cotp as units;
use kiban_osi::wire::session::{Tsdu, with_give_tokens};
use kiban_osi::wire::tpkt as packets;
use kiban_osi::{AcceptedSelectors, Selector, network};
use std::collections::VecDeque;
use std::time::Duration;

const QUEUED_MAX: usize = 400;

pub(crate) fn tpkt(bytes: &[u8], features: &mut Features<'_>) {
    match packets::Header::read(bytes) {
        Ok((header, used)) => {
            let mut again = [0; packets::HEADER_BYTES];
            assert_eq!((header.write(&mut again), header.length()), (used, used));
            assert_eq!(packets::Header::read(&again), Ok((header, used)));
            features.show(header.payload_bytes.ilog2());
        }
        Err(rule) => features.show(rule.name()),
    }
}

pub(crate) fn cotp(bytes: &[u8], features: &mut Features<'_>) {
    match units::Tpdu::read(bytes) {
        Ok((tpdu, used)) => {
            assert!(used <= bytes.len());
            let mut again = vec![0xa5; tpdu.length()];
            assert_eq!(tpdu.write(&mut again), again.len());
            assert_eq!(units::Tpdu::read(&again), Ok((tpdu.clone(), again.len())));
            if let Some(end) = units::data_end(bytes) {
                assert_eq!(tpdu, units::Tpdu::Data { end });
            }
            if let units::Tpdu::ConnectRequest(connect) = &tpdu {
                features.show((connect.offers_class_0(), connect.tpdu_size.and_then(units::size_bytes)));
            }
            features.show(std::mem::discriminant(&tpdu));
        }
        Err(rule) => features.show(rule.name()),
    }
}

pub(crate) fn cotp_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![13, 0xe0, 0, 0, 0x7a, 0x21, 0, 0xc2, 2, 1, 3, 0xc0, 1, 11],
        vec![9, 0xd0, 0x7a, 0x21, 0x7a, 0x22, 0, 0xc0, 1, 11],
        vec![6, 0x80, 0, 1, 0, 2, 128],
        vec![4, 0x70, 0, 0, 0],
        vec![2, 0xf0, 0x80, 1],
    ]
}

/// Decodes session protocol data units; the first byte chooses where the input is split.
pub(crate) fn spdus(bytes: &[u8], features: &mut Features<'_>) {
    let Some((&border, bytes)) = bytes.split_first() else { return };
    let (front, back) = bytes.split_at(usize::from(border).min(bytes.len()));
    let mut rope = Rope::from(front.to_vec());
    rope.append(back.to_vec().into());
    let read = Tsdu::read(rope);
    assert_eq!(read, Tsdu::read(bytes.to_vec().into()), "borders between pieces mean nothing");
    match read {
        Ok(tsdu) => {
            features.show((std::mem::discriminant(&tsdu.first), tsdu.then.is_some()));
            if matches!(tsdu.first, kiban_osi::wire::session::Spdu::Other(_)) {
                return;
            }
            let joined = tsdu.first.needs_give_tokens();
            let mut again = tsdu.first.clone().into_rope();
            if joined {
                again = with_give_tokens(again);
            }
            assert_eq!(Tsdu::read(again), Ok(Tsdu { first: tsdu.first, then: None }));
        }
        Err(rule) => features.show(rule.name()),
    }
}

const CONNECT: &[u8] = &[
    13, 30, 1, 4, 10, 2, 1, 2, 5, 12, 19, 1, 0, 22, 1, 3, 23, 1, b'1', 26, 1, 8, 20, 2, 4, 42, 51, 0, 193, 2,
    1, 2,
];

pub(crate) fn spdus_seeds() -> Vec<Vec<u8>> {
    let units: [&[u8]; 8] = [
        CONNECT,
        &[14, 12, 5, 6, 19, 1, 0, 22, 1, 2, 20, 2, 0, 2],
        &[1, 0, 1, 0, 7, 7],
        &[1, 0, 49, 6, 15, 1, 1, 42, 1, b'5'],
        &[1, 0, 53, 9, 26, 1, 0, 27, 1, 1, 42, 1, b'7'],
        &[25, 3, 17, 1, 5],
        &[12, 9, 17, 1, 1, 22, 1, 2, 50, 1, 129],
        &[1, 3, 16, 1, 4, 1, 3, 25, 1, 1, 9],
    ];
    units.iter().map(|unit| [&[3][..], unit].concat()).collect()
}

/// The transport and session layers of one system.
struct LowerStack {
    transport: Transport,
    session: Session,
    called: bool,
    out: VecDeque<network::Request>,
}

impl LowerStack {
    fn new(tpdu_bytes_max: usize, tsdu_bytes_max: u16, versions: u8) -> LowerStack {
        let attached = AcceptedSelectors::Only(vec![Selector::NONE, Selector::from("t")]);
        let versions = session::Versions(1 + versions % 3);
        LowerStack {
            transport: Transport::new(transport::Config {
                tpdu_bytes_max,
                tsdu_bytes_max: 100_000,
                accepted_selectors: attached,
                ..transport::Config::default()
            }),
            session: Session::new(session::Config {
                tsdu_in_bytes_max: tsdu_bytes_max,
                ssdu_bytes_max: 50_000,
                user_data_bytes_max: 50_000,
                versions,
                ..session::Config::default()
            }),
            called: false,
            out: VecDeque::new(),
        }
    }

    /// Passes outputs between the two machines until neither has any left.
    fn settle(&mut self, now: Instant, features: &mut Features<'_>) {
        loop {
            let mut quiet = true;
            while let Some(indication) = self.transport.poll_up() {
                quiet = false;
                features.show(("transport", std::mem::discriminant(&indication)));
                self.session.arrive(indication, now);
            }
            while let Some(request) = self.session.poll_down() {
                quiet = false;
                // The transport connection may have ended already, without the session layer having been
                // notified.
                let _ = self.transport.request(request, now);
            }
            while let Some(request) = self.transport.poll_down() {
                quiet = false;
                self.out.push_back(request);
            }
            while let Some(indication) = self.session.poll_up() {
                quiet = false;
                features.show(("session", std::mem::discriminant(&indication)));
            }
            if quiet {
                return;
            }
        }
    }

    fn hear(&mut self, request: network::Request, now: Instant) {
        self.transport.arrive(
            match request {
                network::Request::Connect | network::Request::Accept => network::Indication::Connected,
                network::Request::Data(nsdu) => network::Indication::Data(nsdu),
                network::Request::Disconnect { reason } => {
                    network::Indication::Disconnected { origin: network::Origin::User, reason }
                }
            },
            now,
        );
    }
}

fn request(input: &mut Input<'_>) -> session::Request {
    use session::{Answer, Request, Resynchronisation, TokenSettings, Tokens, Units};
    let (kind, serial, settings) =
        (input.byte(), u32::from(input.byte() % 16), TokenSettings::of_octet(input.byte()));
    let length = usize::from(input.short()) >> (kind >> 5);
    let user_data = Rope::from(vec![kind; length]);
    let units = session::OFFERED.without(Units(u16::from(kind) << 3 & !Units::DUPLEX.0));
    match kind % 16 {
        0 => Request::Connect(Box::new(session::Connect {
            called: Selector::from(if kind & 64 == 0 { "" } else { "s" }),
            units,
            tokens: settings,
            user_data,
            ..session::Connect::default()
        })),
        1 => Request::ConnectResponse(Answer::Accepted(Box::new(session::Accept {
            units,
            tokens: settings,
            user_data,
            ..session::Accept::default()
        }))),
        2 => Request::ConnectResponse(Answer::Refused(Box::new(session::Refuse {
            id: session::ConnectionId::default(),
            reason: session::RefuseReason::of_code(serial as u8),
            user_data,
        }))),
        3 => Request::TypedData(user_data),
        4 => Request::GiveTokens { tokens: Tokens::MINOR, user_data },
        5 => Request::PleaseTokens { tokens: Tokens(settings.octet()), user_data },
        6 | 7 => Request::SyncMinor { explicit: kind & 64 == 0, user_data },
        8 => Request::SyncMinorResponse { serial, user_data },
        9 => {
            let kind = Resynchronisation::of_octet(kind >> 4 & 3).unwrap_or(Resynchronisation::Set);
            Request::Resynchronise { kind, serial: Some(serial), tokens: settings, user_data }
        }
        10 => Request::ResynchroniseResponse { serial: None, tokens: settings, user_data },
        11 => Request::Release { user_data },
        12 => Request::ReleaseResponse { accepted: kind & 64 == 0, user_data },
        13 => Request::Abort { user_data },
        _ => Request::Data(user_data),
    }
}

/// Two connected stacks, while an attacker inserts bytes and the users make arbitrary calls at arbitrary
/// times.
pub(crate) fn run(bytes: &[u8], features: &mut Features<'_>) {
    let mut input = Input::new(bytes);
    let sizes = [0, 1024, 5000];
    let mut ends = [(); 2].map(|()| {
        let choice = input.byte();
        LowerStack::new(128 << (choice % 10), sizes[usize::from(choice / 10 % 3)], choice / 30)
    });
    let mut now = Instant::from_nanos(1);
    while !input.is_empty() {
        let act = input.byte();
        let side = usize::from(act & 1);
        match act >> 1 & 7 {
            0..=2 => {
                let request = request(&mut input);
                let end = &mut ends[side];
                // Only side 0 connects, and only once; side 1 accepts.
                if matches!(request, session::Request::Connect(_)) && (side == 1 || end.called) {
                    continue;
                }
                let before = (end.session.serial_next(), end.session.is_open(), end.session.is_idle());
                match end.session.request(request, now) {
                    Ok(()) => end.called |= side == 0,
                    Err(misuse) => {
                        let after = (end.session.serial_next(), end.session.is_open(), end.session.is_idle());
                        assert_eq!(before, after, "{misuse:?} changes nothing");
                        assert_eq!(end.session.poll_down(), None);
                        features.show(("misuse", misuse as u8));
                    }
                }
            }
            3..=5 => {
                for _ in 0..=act >> 4 {
                    let Some(request) = ends[side].out.pop_front() else { break };
                    ends[1 - side].hear(request, now);
                }
            }
            6 => {
                let count = usize::from(input.byte() % 64);
                let nsdu = input.take(count).to_vec();
                if act & 16 == 0 {
                    ends[side].transport.arrive(network::Indication::Data(nsdu.into()), now);
                } else {
                    ends[side].session.arrive(transport::Indication::Data(nsdu.into()), now);
                }
            }
            _ => {
                now += Duration::from_secs(u64::from(input.byte()));
                ends[side].transport.settle(now);
                ends[side].session.settle(now);
            }
        }
        for end in &mut ends {
            end.settle(now, features);
        }
        if ends.iter().any(|end| end.out.len() > QUEUED_MAX) {
            break;
        }
    }
    // At the end everything must terminate: users abort, all deadlines pass, and no work is left.
    for _ in 0..4 {
        for side in 0..2 {
            let _ = ends[side].session.request(session::Request::Abort { user_data: Rope::new() }, now);
            ends[side].settle(now, features);
            while let Some(request) = ends[side].out.pop_front() {
                ends[1 - side].hear(request, now);
            }
            ends[1 - side].settle(now, features);
        }
        now += Duration::from_secs(1000);
        for end in &mut ends {
            end.transport.settle(now);
            end.session.settle(now);
            end.settle(now, features);
        }
    }
    for end in &ends {
        assert!(end.session.is_idle() && end.transport.is_idle(), "{:?} {:?}", end.session, end.transport);
        end.session.counters().each(&mut |name, value| features.show((name, value.min(3))));
        end.transport.counters().each(&mut |name, value| features.show((name, value.min(3))));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // The caller connects, the network delivers, and the callee answers. Random calls follow.
    let mut open = vec![9, 9, 0, 0x80, 0, 0, 0, 20];
    for _ in 0..3 {
        open.extend([0xf6, 0xf7]);
    }
    open.extend([1, 0x81, 0, 0, 0, 20, 0xf6, 0xf7]);
    let then: [&[u8]; 8] = [
        &[0, 0x8e, 0, 0, 1, 0, 0xf6],
        &[0, 6, 0, 0, 0, 9, 0xf6, 1, 8, 1, 0, 0, 0, 0xf7],
        &[
            0, 9, 1, 0, 0, 0, 1, 0x19, 1, 0, 0, 0, 0xf6, 0xf7, 0, 10, 0, 0, 0, 0, 1, 10, 0, 0, 0, 0, 0xf6,
            0xf7,
        ],
        &[0, 11, 0, 0, 0, 5, 0xf6, 1, 12, 0, 0, 0, 0, 0xf7, 0xf6],
        &[0, 13, 0, 0, 0, 5, 0xf6, 0xf7],
        &[0, 4, 0, 0, 0, 0, 0xf6, 1, 6, 0, 0, 0, 0, 0xf7],
        &[0x0c, 7, 2, 0xf0, 0x80, 1, 0, 1, 0],
        &[0x1c, 6, 25, 3, 17, 1, 3, 0],
    ];
    then.iter().map(|then| [&open[..], then].concat()).collect()
}
