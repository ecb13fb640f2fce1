//! A relay between OSI over X.25 and OSI over TCP: calls in XOT (RFC 1613) on one side, TPKTs (RFC 1006) on the other.
//!
//! Goal      a system that knows X.25 alone and one that knows TCP alone have transport connections with each other; neither is
//!           changed.
//! From XOT  a call is matched with [`Route`]s by whom it calls, or by its user data; it is accepted when the TCP connection is there.
//! To XOT    a TCP connection makes a call through a router; what comes on it waits until the call is accepted.
//! Data      one network service data unit: a TPKT's payload here, an M-bit sequence there; no byte is copied or changed, but
//!           for the first unit each way (`sizes`): what silence about TPDU sizes means differs between the two.
//! Ends      a clear closes TCP when all is delivered; a close of TCP clears the call when all is acknowledged. A reset ends both, as
//!           class 0 demands (X.224 §6.15). Packets with Q are not transport's and are passed over.
//! Flow      what one side does not take is not read from the other: [`WAITING_BYTES_MAX`] wait each way, beside one unit.
//! Limits    so many circuits at once: more are closed as they come. [`Settings::patience`] for whatever is half open: a call
//!           that is not said, not accepted, not cleared; a TCP connection that is not made, or does not take the rest.
//! Left out  permanent circuits; X.25 over anything else than XOT; a transport entity of its own: both ends speak class 0.

mod circuit;
mod route;
mod sizes;
#[cfg(test)]
mod tests;

pub use route::{Called, Route};

use super::socket;
use crate::Clock;
use circuit::Circuit;
use kiban_stack::x25::{Call, FastSelect, Modulo};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How many bytes may wait for one side before the other is not read.
pub const WAITING_BYTES_MAX: usize = 128 << 10;

/// How circuits are to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Octets in a packet, where this end calls: 16 to 4096, a power of two.
    pub packet_bytes: u16,
    /// Packets of a window, where this end calls: to 7, or to 127 with modulo 128.
    pub window: u8,
    /// How packets are counted, where this end calls.
    pub modulo: Modulo,
    /// How long anything may be half open.
    pub patience: Duration,
    /// Circuits at once, of all listeners together.
    pub circuits_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            packet_bytes: 1024,
            window: 7,
            modulo: Modulo::Eight,
            patience: Duration::from_secs(30),
            circuits_max: 1000,
        }
    }
}

/// What is said of a circuit: once when it is there, once when it is no more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Said {
    /// Which: they are counted from 1.
    pub circuit: u64,
    /// What has happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happens to a circuit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// It connects two ends.
    Open {
        /// Who came.
        from: String,
        /// The address that is called, if there is one.
        called: String,
        /// Where it goes.
        to: String,
    },
    /// It does not.
    Refused {
        /// Who came.
        from: String,
        /// The address that is called, if that is known.
        called: String,
        /// Why.
        why: String,
    },
    /// It has ended.
    Closed {
        /// Bytes of units from X.25 to TCP.
        bytes_to_tcp: u64,
        /// And the other way.
        bytes_to_x25: u64,
        /// Why.
        why: String,
    },
}

/// A relay: what its listeners share.
pub struct Relay {
    settings: Settings,
    places: Semaphore,
    clock: Clock,
    count: AtomicU64,
    say: Box<dyn Fn(Said) + Send + Sync>,
}

impl Relay {
    /// One without listeners; it says what happens.
    pub fn new(settings: Settings, say: impl Fn(Said) + Send + Sync + 'static) -> Arc<Relay> {
        let places = Semaphore::new(settings.circuits_max);
        Arc::new(Relay {
            settings,
            places,
            clock: Clock::new(),
            count: AtomicU64::new(0),
            say: Box::new(say),
        })
    }

    /// Takes calls in XOT, for ever, and carries them to where the first route that fits says.
    pub async fn from_xot(self: Arc<Self>, listener: TcpListener, routes: Vec<Route>) {
        let routes = Arc::new(routes);
        self.each(listener, move |relay, socket, peer| {
            let routes = routes.clone();
            async move { relay.called(socket, peer, &routes).await }
        })
        .await;
    }

    /// Takes TCP connections, for ever, and makes a call for each of them through the router at `host`.
    pub async fn to_xot(self: Arc<Self>, listener: TcpListener, host: String, port: u16, call: Call) {
        let to = Arc::new((host, port, call));
        self.each(listener, move |relay, socket, peer| {
            let to = to.clone();
            async move { relay.calls(socket, peer, &to.0, to.1, &to.2).await }
        })
        .await;
    }

    async fn each<F>(
        self: Arc<Self>,
        listener: TcpListener,
        serve: impl Fn(Arc<Relay>, TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let (socket, peer) = socket::next(&listener).await;
            let relay = self.clone();
            let work = serve(self.clone(), socket, peer);
            tokio::spawn(async move {
                // Whoever comes when it is full is closed at once.
                if let Ok(_place) = relay.places.try_acquire() {
                    work.await;
                }
            });
        }
    }

    fn say(&self, circuit: u64, event: Event) {
        (self.say)(Said { circuit, event });
    }

    fn refuse(&self, circuit: u64, from: SocketAddr, called: String, why: impl Into<String>) {
        self.say(circuit, Event::Refused { from: from.to_string(), called, why: why.into() });
    }

    /// A circuit's number.
    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From XOT to TCP.
    async fn called(&self, mut xot: TcpStream, peer: SocketAddr, routes: &[Route]) {
        let number = self.number();
        let mut circuit = Circuit::called(&self.settings, self.clock);
        let call = match circuit.wait_for_call(&mut xot).await {
            Ok(call) => call,
            Err(why) => return self.refuse(number, peer, String::new(), why),
        };
        let called = call.addresses.called.to_string();
        let Some(route) = routes.iter().find(|route| route.called.has(&call)) else {
            circuit.refuse(&mut xot, circuit::NOT_OBTAINABLE).await;
            return self.refuse(number, peer, called, "no route is for this call");
        };
        let to = format!("{}:{}", route.host, route.port);
        let connects = tokio::time::timeout(self.settings.patience, socket::connect(&route.host, route.port));
        let socket = match connects.await {
            Ok(Ok(socket)) => socket,
            failure => {
                circuit.refuse(&mut xot, circuit::OUT_OF_ORDER).await;
                let why = match failure {
                    Ok(Err(error)) => format!("{to}: {error}"),
                    _ => format!("{to} does not answer"),
                };
                return self.refuse(number, peer, called, why);
            }
        };
        if circuit.accept().is_err() {
            let why = if call.facilities.fast_select == FastSelect::Restricted {
                "fast select lets nobody accept it"
            } else {
                "it was ended before it was accepted"
            };
            circuit.refuse(&mut xot, circuit::OUT_OF_ORDER).await;
            return self.refuse(number, peer, called, why);
        }
        self.carry(number, circuit, xot, socket, Event::Open { from: peer.to_string(), called, to }).await;
    }

    /// From TCP to XOT.
    async fn calls(&self, socket: TcpStream, peer: SocketAddr, host: &str, port: u16, call: &Call) {
        let number = self.number();
        let called = call.addresses.called.to_string();
        let to = format!("{host}:{port}");
        let mut circuit = Circuit::calling(&self.settings, self.clock, call.clone());
        let mut xot = match tokio::time::timeout(self.settings.patience, socket::connect(host, port)).await {
            Ok(Ok(xot)) => xot,
            Ok(Err(error)) => return self.refuse(number, peer, called, format!("{to}: {error}")),
            Err(_) => return self.refuse(number, peer, called, format!("{to} does not answer")),
        };
        if let Err(why) = circuit.call(&mut xot).await {
            return self.refuse(number, peer, called, format!("{to}: {why}"));
        }
        self.carry(number, circuit, xot, socket, Event::Open { from: peer.to_string(), called, to }).await;
    }

    async fn carry(
        &self,
        number: u64,
        mut circuit: Circuit,
        mut xot: TcpStream,
        mut tcp: TcpStream,
        open: Event,
    ) {
        self.say(number, open);
        let why = circuit.carry(&mut xot, &mut tcp).await;
        let (bytes_to_tcp, bytes_to_x25) = circuit.bytes();
        self.say(number, Event::Closed { bytes_to_tcp, bytes_to_x25, why });
    }
}
