//! Accepts connections, and starts a circuit for each.

use super::circuit::{self, Circuit};
use super::event::{CircuitEvent, Event};
use super::route::{Route, Via};
use super::settings::Settings;
use crate::socket;
use crate::x25::BoxedStream;
use kiban_os::Clock;
use kiban_osi::x25::{Call, FastSelect};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A relay, with the state that its listeners share.
pub struct Relay {
    settings: Settings,
    permits: Semaphore,
    clock: Clock,
    count: AtomicU64,
    say: Box<dyn Fn(CircuitEvent) + Send + Sync>,
}

impl Relay {
    /// Creates a relay without listeners; `say` receives its events.
    pub fn new(settings: Settings, say: impl Fn(CircuitEvent) + Send + Sync + 'static) -> Arc<Relay> {
        let permits = Semaphore::new(settings.circuits_max);
        Arc::new(Relay {
            settings,
            permits,
            clock: Clock::new(),
            count: AtomicU64::new(0),
            say: Box::new(say),
        })
    }

    /// Accepts XOT connections forever, and carries each call to the target of the first matching route.
    pub async fn from_xot(self: Arc<Self>, listener: TcpListener, routes: Vec<Route>) {
        let routes = Arc::new(routes);
        self.each(listener, move |relay, socket, peer| {
            let routes = routes.clone();
            async move { relay.called(Box::new(socket), peer.to_string(), &routes).await }
        })
        .await;
    }

    /// Carries the call that comes on a stream in the format of XOT.
    pub async fn from_stream(self: Arc<Self>, stream: BoxedStream, routes: &[Route]) {
        self.called(stream, "this host".into(), routes).await;
    }

    /// Accepts TCP connections forever, and makes a call for each of them through the router at `host`.
    pub async fn to_xot(self: Arc<Self>, listener: TcpListener, host: String, port: u16, call: Call) {
        let to = format!("{host}:{port}");
        let connect = move || {
            let host = host.clone();
            async move { Ok(Box::new(socket::connect(&host, port).await?) as BoxedStream) }
        };
        self.to_stream(listener, to, connect, call).await;
    }

    /// Accepts TCP connections forever, and makes a call for each of them on a stream that `connect` opens to
    /// what `to` names.
    pub async fn to_stream<F>(
        self: Arc<Self>,
        listener: TcpListener,
        to: String,
        connect: impl Fn() -> F,
        call: Call,
    ) where
        F: Future<Output = io::Result<BoxedStream>> + Send + 'static,
    {
        let to = Arc::new((to, call));
        self.each(listener, move |relay, socket, peer| {
            let (to, connects) = (to.clone(), connect());
            async move { relay.calls(socket, peer, connects, &to.0, &to.1).await }
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
                // When the relay is full, a new connection is closed at once.
                if let Ok(_permit) = relay.permits.try_acquire() {
                    work.await;
                }
            });
        }
    }

    fn say(&self, circuit: u64, event: Event) {
        (self.say)(CircuitEvent { circuit, event });
    }

    fn refuse(&self, circuit: u64, from: String, called: String, why: impl Into<String>) {
        self.say(circuit, Event::Refused { from, called, why: why.into() });
    }

    /// Returns a new circuit number.
    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Handles a circuit from XOT to TCP.
    async fn called(&self, mut xot: BoxedStream, peer: String, routes: &[Route]) {
        let number = self.number();
        let mut circuit = Circuit::called(&self.settings, self.clock);
        let call = match circuit.wait_for_call(&mut xot).await {
            Ok(call) => call,
            Err(why) => return self.refuse(number, peer, String::new(), why),
        };
        let called = call.addresses.called.to_string();
        let Some(route) = routes.iter().find(|route| route.called.has(&call, route.via)) else {
            circuit.refuse(&mut xot, circuit::NOT_OBTAINABLE).await;
            return self.refuse(number, peer, called, "no route for this call");
        };
        let to = format!("{}:{}", route.host, route.port);
        let connects =
            tokio::time::timeout(self.settings.state_timeout, socket::connect(&route.host, route.port));
        let mut socket = match connects.await {
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
        if route.via == Via::Xot {
            // The target answers the call itself.
            let Some(received) = circuit.received() else {
                return self.refuse(number, peer, called, "too much data before the call was answered");
            };
            self.say(number, Event::Open { from: peer, called, to });
            let carried = async {
                socket.write_all(&received).await?;
                tokio::io::copy_bidirectional(&mut xot, &mut socket).await
            };
            let (why, (out, back)) = match carried.await {
                Ok(bytes) => ("the XOT connection was closed".into(), bytes),
                Err(error) => (error.to_string(), (0, 0)),
            };
            let out = out + received.len() as u64;
            return self.say(number, Event::Closed { bytes_to_tcp: out, bytes_to_x25: back, why });
        }
        if circuit.accept().is_err() {
            let why = if call.facilities.fast_select == FastSelect::Restricted {
                "fast select with restricted response: the call cannot be accepted"
            } else {
                "the call ended before it was accepted"
            };
            circuit.refuse(&mut xot, circuit::OUT_OF_ORDER).await;
            return self.refuse(number, peer, called, why);
        }
        self.carry(number, circuit, xot, socket, Event::Open { from: peer, called, to }).await;
    }

    /// Handles a circuit from TCP to XOT.
    async fn calls(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        connects: impl Future<Output = io::Result<BoxedStream>>,
        to: &str,
        call: &Call,
    ) {
        let (number, peer, to) = (self.number(), peer.to_string(), to.to_owned());
        let called = call.addresses.called.to_string();
        let mut circuit = Circuit::calling(&self.settings, self.clock, call.clone());
        let mut xot = match tokio::time::timeout(self.settings.state_timeout, connects).await {
            Ok(Ok(xot)) => xot,
            Ok(Err(error)) => return self.refuse(number, peer, called, format!("{to}: {error}")),
            Err(_) => return self.refuse(number, peer, called, format!("{to} does not answer")),
        };
        if let Err(why) = circuit.call(&mut xot).await {
            return self.refuse(number, peer, called, format!("{to}: {why}"));
        }
        self.carry(number, circuit, xot, socket, Event::Open { from: peer, called, to }).await;
    }

    async fn carry(
        &self,
        number: u64,
        mut circuit: Circuit,
        xot: BoxedStream,
        mut tcp: TcpStream,
        open: Event,
    ) {
        self.say(number, open);
        let why = circuit.carry(xot, &mut tcp).await;
        let (bytes_to_tcp, bytes_to_x25) = circuit.bytes();
        self.say(number, Event::Closed { bytes_to_tcp, bytes_to_x25, why });
    }
}
