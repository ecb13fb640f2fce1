//! Three lower layers that connect the two systems: TPKTs in a byte stream, X.25 on LAPB, and XOT.

use kiban_base::{Bytes, Instant, Rope};
use kiban_osi::ftam::Role;
use kiban_osi::lapb;
use kiban_osi::network::{Indication, Request};
use kiban_osi::stack::below::NetworkService;
use kiban_osi::stack::end::End;
use kiban_osi::stack::line;
use kiban_osi::stack::line::LineConfig;
use kiban_osi::stack::stream;
use kiban_osi::stack::stream::ConnectionAction;
use kiban_osi::transport::Network;
use kiban_osi::wire::tpkt;
use kiban_osi::x25::network::{self as circuit, is_for_transport};
use kiban_osi::x25::xot::{self, CHANNEL};
use kiban_osi::x25::{self, Call, Config, Sizes};

const T0: Instant = Instant::ZERO;

/// A lower layer that connects two systems.
pub(crate) trait LowerLayer {
    type Lower: NetworkService;
    const NETWORK: Network;

    fn lower(role: Role) -> Self::Lower;
    /// Prepares the called system.
    fn begin(_called: &mut End<Self::Lower>) {}
    /// Returns the output of a system, as frames or as pieces of a byte stream.
    fn leave(end: &mut End<Self::Lower>) -> Vec<Vec<u8>>;
    fn arrive(end: &mut End<Self::Lower>, frame: &[u8]);
}

/// TPKTs in a byte stream.
pub(crate) enum Stream {}

/// Bytes of the longest TCP segment.
const SEGMENT_BYTES: usize = 1460;

impl LowerLayer for Stream {
    type Lower = stream::Stream;
    const NETWORK: Network = Network::Tpkt;

    fn lower(_role: Role) -> stream::Stream {
        stream::Stream::new(tpkt::TPDU_BYTES_MAX)
    }

    fn begin(called: &mut End) {
        called.connected(T0, &mut ());
    }

    fn leave(end: &mut End) -> Vec<Vec<u8>> {
        if end.connection_action() == ConnectionAction::Connect {
            end.connected(T0, &mut ());
        }
        let bytes: Vec<u8> = end.outgoing().runs().flatten().copied().collect();
        end.outgoing().clear();
        bytes.chunks(SEGMENT_BYTES).map(<[u8]>::to_vec).collect()
    }

    fn arrive(end: &mut End, frame: &[u8]) {
        end.arrive(Bytes::copy_from_slice(frame), T0, &mut ());
    }
}

/// X.25 on LAPB.
pub(crate) enum Line {}

impl LowerLayer for Line {
    type Lower = line::Line;
    const NETWORK: Network = Network::X25;

    fn lower(role: Role) -> line::Line {
        line::Line::new(LineConfig::new(match role {
            Role::Initiator => lapb::Role::Dte,
            Role::Responder => lapb::Role::Dce,
        }))
    }

    fn leave(end: &mut End<line::Line>) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| end.poll_frame(T0)).map(|frame| frame.to_vec()).collect()
    }

    fn arrive(end: &mut End<line::Line>, frame: &[u8]) {
        end.arrive_frame(Rope::copied(frame), T0, &mut ());
    }
}

/// X.25 over TCP (XOT).
pub(crate) enum Xot {}

/// One circuit in XOT as a network connection.
pub(crate) struct Circuit {
    xot: xot::Xot,
    network: circuit::Network,
}

impl Circuit {
    fn ask(&mut self, request: Option<x25::Request>) {
        if let Some(request) = request {
            self.xot.request(request, T0).expect("it can be asked for");
        }
    }
}

impl NetworkService for Circuit {
    fn request(&mut self, request: Request, _now: Instant) {
        let request = self.network.request(request);
        self.ask(request);
        self.push(T0);
    }

    fn poll(&mut self, _now: Instant) -> Option<Indication> {
        while let Some(indication) = self.xot.poll_up() {
            if let x25::Indication::Incoming { call, .. } = &indication {
                assert!(is_for_transport(call));
            }
            let indication = self.network.arrive(indication);
            if indication.is_some() {
                return indication;
            }
        }
        None
    }

    fn push(&mut self, _now: Instant) -> bool {
        let clear = self.network.poll(self.xot.packet_layer().is_quiet(CHANNEL));
        let moved = clear.is_some();
        self.ask(clear);
        moved
    }

    fn waiting_bytes(&self) -> usize {
        0
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn settle(&mut self, _now: Instant) {}
}

impl LowerLayer for Xot {
    type Lower = Circuit;
    const NETWORK: Network = Network::X25;

    fn lower(role: Role) -> Circuit {
        let config = Config {
            default: Sizes::same(128, 2),
            outgoing_bytes_max: 1 << 20,
            ..Config::new(x25::Role::Dte)
        };
        match role {
            Role::Initiator => Circuit {
                xot: xot::Xot::calling(config),
                network: circuit::Network::calling(CHANNEL, Call::default()),
            },
            Role::Responder => {
                Circuit { xot: xot::Xot::called(config), network: circuit::Network::called(CHANNEL) }
            }
        }
    }

    fn leave(end: &mut End<Circuit>) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| end.below_mut().xot.poll_down()).map(|packet| packet.to_vec()).collect()
    }

    fn arrive(end: &mut End<Circuit>, frame: &[u8]) {
        end.below_mut().xot.arrive(Rope::copied(frame), T0);
        while end.step_up(T0, &mut ()) {}
        end.settle(T0, &mut ());
    }
}
