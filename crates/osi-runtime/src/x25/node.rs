//! A node: a switch with its lines, its XOT connections and its routes.
//!
//! Purpose    a small X.25 exchange in one process: calls go between lines, XOT routers, systems that speak
//!            TPKT (through [`crate::relay`]), and programs of this process.
//! Method     one task owns the switch and passes on what lines and connections bring. Each line and each
//!            connection has a task, whose queues are bounded; the switch takes the next frame only when the
//!            queue in front of a line has room.
//! Programs   a [`Handle`] makes calls; calls for [`Target::Local`] come out of [`Node::run`]'s `local`.
//! Limits     `circuits_max` circuits, as many connections from XOT routers, of which one address may have
//!            half without a call, as many streams of programs, and as many connections being made. An XOT
//!            connection on which no call is made within `state_timeout` is closed. A quarter of the circuits
//!            may belong to equal calls that are not yet answered, because X.25 has no hop count.
//! Security   XOT has no authentication: a node's port should be reachable only by its routers. Routes
//!            decide what a call can reach, and `from` in a route restricts where calls come from.

use super::circuit::{READ_BYTES, received};
use super::input::{Input, layer};
use super::line::{LineSettings, LineTask};
use super::route::{Origin, SwitchRoute, Target};
use super::{BoxedStream, LineAddress};
use crate::relay::{self, Relay, Via};
use crate::socket;
use kiban_base::{Instant, Rope};
use kiban_os::Clock;
use kiban_osi::wire::x25::cause;
use kiban_osi::x25::switch::{CircuitId, Event, PortId, Switch, SwitchConfig};
use kiban_osi::x25::xot::Xot;
use kiban_osi::x25::{Call, Cause, Config, Interface, Role};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;

/// Clearing cause: not obtainable.
const NOT_OBTAINABLE: u8 = 0x0d;
/// Maximum number of inputs that wait for the node.
const INPUTS_WAITING_MAX: usize = 256;
/// Maximum number of packets that wait for an XOT connection.
const PACKETS_WAITING_MAX: usize = 16;
/// Size of the pipe between the node and a program, in bytes.
const PIPE_BYTES: usize = 32 << 10;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The lines, each with its name.
    pub lines: Vec<(String, LineSettings)>,
    /// The routes; the first that matches is used.
    pub routes: Vec<SwitchRoute>,
    /// Maximum number of circuits, and of XOT connections.
    pub circuits_max: usize,
    /// Maximum length of an M-bit sequence in bytes.
    pub unit_bytes_max: usize,
    /// Time limit for each state of an XOT connection, and for the last data before a clear.
    pub state_timeout: Duration,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings {
            lines: Vec::new(),
            routes: Vec::new(),
            circuits_max: 256,
            unit_bytes_max: 64 << 10,
            state_timeout: Duration::from_secs(30),
        }
    }
}

/// An event of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum NodeEvent {
    /// Calls can be made on a line.
    Up {
        /// The line.
        line: String,
    },
    /// A line is down.
    Down {
        /// The line.
        line: String,
        /// The reason.
        why: String,
    },
    /// A call was accepted.
    Open {
        /// The circuit.
        circuit: u64,
        /// Where the call comes from.
        from: String,
        /// The calling address.
        calling: String,
        /// The called address.
        called: String,
        /// Where it goes.
        to: String,
    },
    /// A call was refused.
    Refused {
        /// The circuit.
        circuit: u64,
        /// Where the call comes from.
        from: String,
        /// The calling address.
        calling: String,
        /// The called address.
        called: String,
        /// The reason.
        why: String,
    },
    /// A call has ended.
    Closed {
        /// The circuit.
        circuit: u64,
        /// Bytes sent by the calling side.
        bytes_to_called: u64,
        /// Bytes sent by the called side.
        bytes_to_calling: u64,
        /// Clearing cause.
        cause: u8,
        /// Diagnostic code.
        diagnostic: u8,
    },
}

/// Opens streams into a node, on which a program makes calls ([`super::Circuit::calling`]).
#[derive(Clone)]
pub struct Handle {
    node: mpsc::Sender<Input>,
}

impl Handle {
    /// Opens a stream for one call.
    ///
    /// # Errors
    /// `BrokenPipe` if the node has ended.
    pub async fn open(&self) -> io::Result<BoxedStream> {
        self.open_as(Origin::Local, "this program").await
    }

    /// Takes the links of all lines down, when everything sent on them is acknowledged. Wait for it with a
    /// time limit: a peer may be silent.
    pub async fn close(&self) {
        let (done, is_done) = oneshot::channel();
        if self.node.send(Input::Close(done)).await.is_ok() {
            // The node may have ended.
            let _ = is_done.await;
        }
    }

    async fn open_as(&self, origin: Origin, name: &str) -> io::Result<BoxedStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let accepted = Input::Accepted(Box::new(theirs), origin, name.into());
        self.node.send(accepted).await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(Box::new(ours))
    }
}

/// A circuit's description, for events.
struct Told {
    from: String,
    to: String,
    call: Call,
    is_open: bool,
    /// Why this node refused the call.
    why: Option<String>,
}

/// A node.
pub struct Node {
    settings: NodeSettings,
    switch: Switch,
    clock: Clock,
    inputs: mpsc::Receiver<Input>,
    input: mpsc::Sender<Input>,
    sent: Arc<Notify>,
    /// The queues in front of lines and connections.
    queues: HashMap<PortId, mpsc::Sender<Rope>>,
    origins: HashMap<PortId, (Origin, String)>,
    /// The last reason for which each line was reported down.
    failures: BTreeMap<PortId, String>,
    circuits: HashMap<CircuitId, Told>,
    /// The XOT connections and the streams of programs on which a peer makes a call, and the peer's address.
    accepted: HashMap<PortId, Option<IpAddr>>,
    /// Dropped when a connection is not needed any more.
    ends: HashMap<PortId, oneshot::Sender<()>>,
    /// The connections being made.
    connecting: HashMap<CircuitId, AbortHandle>,
    /// The program that waits for the end of all links, and whether it was requested.
    closing: Option<(oneshot::Sender<()>, bool)>,
    local: Option<mpsc::Sender<BoxedStream>>,
    relay: Arc<Relay>,
    say: Box<dyn Fn(NodeEvent) + Send>,
}

impl Node {
    /// Creates a node and starts the tasks of its lines; `local` receives the streams of calls for this
    /// process, and `say` the events. Call it in a tokio runtime.
    ///
    /// # Errors
    /// A line's listening address cannot be used; a line is configured twice; a route leads to a line that
    /// does not exist. A line that cannot be opened now is tried again later.
    pub fn new(
        settings: NodeSettings,
        local: Option<mpsc::Sender<BoxedStream>>,
        say: impl Fn(NodeEvent) + Send + 'static,
    ) -> Result<Node, String> {
        let (input, inputs) = mpsc::channel(INPUTS_WAITING_MAX);
        let config =
            SwitchConfig { circuits_max: settings.circuits_max, clear_timeout: settings.state_timeout };
        let relayed = relay::Settings {
            circuits_max: settings.circuits_max,
            state_timeout: settings.state_timeout,
            ..relay::Settings::default()
        };
        let mut node = Node {
            switch: Switch::new(config),
            clock: Clock::new(),
            inputs,
            input,
            sent: Arc::new(Notify::new()),
            queues: HashMap::new(),
            origins: HashMap::new(),
            failures: BTreeMap::new(),
            circuits: HashMap::new(),
            accepted: HashMap::new(),
            ends: HashMap::new(),
            connecting: HashMap::new(),
            closing: None,
            local,
            relay: Relay::new(relayed, |_| {}),
            say: Box::new(say),
            settings,
        };
        for (name, line) in node.settings.lines.clone() {
            node.add_line(name, &line)?;
        }
        for route in &node.settings.routes {
            let names = [Some(&route.to).and_then(target_line), route.from.as_ref().and_then(origin_line)];
            for name in names.into_iter().flatten() {
                if node.port_of(name).is_none() {
                    return Err(format!("a route names the line '{name}', which does not exist"));
                }
            }
        }
        Ok(node)
    }

    fn add_line(&mut self, name: String, line: &LineSettings) -> Result<(), String> {
        if self.port_of(&name).is_some() {
            return Err(format!("there are two lines called '{name}'"));
        }
        let listener = match line.address {
            LineAddress::Listen(at) => {
                let cannot = |error| format!("line {name}: cannot listen on {at}: {error}");
                Some(socket::listen(at).map_err(cannot)?)
            }
            _ => None,
        };
        let port = self.switch.add_interface(line.interface(self.settings.unit_bytes_max));
        self.origins.insert(port, (Origin::Line(name.clone()), name));
        let task = LineTask {
            port,
            address: line.address.clone(),
            node: self.input.clone(),
            sent: self.sent.clone(),
            listener,
        };
        tokio::spawn(task.run());
        Ok(())
    }

    /// Returns a handle for programs that make calls.
    pub fn handle(&self) -> Handle {
        Handle { node: self.input.clone() }
    }

    /// Accepts XOT connections on a listener.
    pub fn listen(&self, listener: TcpListener) {
        let node = self.input.clone();
        tokio::spawn(async move {
            while !node.is_closed() {
                let (stream, peer) = socket::next(&listener).await;
                let accepted = Input::Accepted(Box::new(stream), Origin::Xot, peer.to_string());
                if node.send(accepted).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Accepts TCP connections with TPKTs on a listener, and makes a call for each.
    pub fn place(&self, listener: TcpListener, call: Call) {
        let (relay, handle) = (self.relay.clone(), self.handle());
        let connect = move || {
            let handle = handle.clone();
            async move { handle.open_as(Origin::Local, "TPKT").await }
        };
        tokio::spawn(relay.to_stream(listener, "this node".into(), connect, call));
    }

    /// Carries calls forever.
    pub async fn run(mut self) {
        loop {
            let deadline = self.switch.deadline();
            let patience = deadline.since(self.clock.now());
            tokio::select! {
                input = self.inputs.recv() => match input {
                    Some(input) => self.on_input(input),
                    None => return,
                },
                () = self.sent.notified() => {}
                () = tokio::time::sleep(patience), if deadline != Instant::NEVER => {
                    self.switch.settle(self.clock.now());
                }
            }
            self.send();
            self.close();
        }
    }

    /// Continues the end of all links, if it was requested.
    fn close(&mut self) {
        let Some((_, is_stopping)) = self.closing else { return };
        let lines: Vec<PortId> = self.queues.keys().copied().collect();
        let every = |is: fn(&Interface) -> bool, node: &Node| {
            lines.iter().filter_map(|port| node.switch.interface(*port)).all(is)
        };
        let is_sent =
            lines.iter().all(|port| self.queues[port].capacity() == self.queues[port].max_capacity());
        if !is_stopping && is_sent && every(Interface::is_idle, self) {
            lines.iter().for_each(|port| self.switch.stop(*port));
            if let Some((_, is_stopping)) = &mut self.closing {
                *is_stopping = true;
            }
            self.send();
        } else if is_stopping
            && is_sent
            && every(Interface::is_down, self)
            && let Some((done, _)) = self.closing.take()
        {
            // The program may have stopped waiting.
            let _ = done.send(());
        }
    }

    fn on_input(&mut self, input: Input) {
        let now = self.clock.now();
        match input {
            Input::LineOpen(port, queue) => {
                self.queues.insert(port, queue);
                self.switch.start(port);
            }
            Input::LineGone(port, why) => {
                self.queues.remove(&port);
                self.switch.down(port, now);
                if let Some((_, line)) = self.origins.get(&port)
                    && self.failures.get(&port) != Some(&why)
                {
                    self.failures.insert(port, why.clone());
                    (self.say)(NodeEvent::Down { line: line.clone(), why });
                }
            }
            Input::Arrived(port, bytes) => self.switch.arrive(port, bytes, now),
            Input::Closed(port) => {
                self.accepted.remove(&port);
                self.forget(port, now);
            }
            Input::Accepted(stream, origin, name) => {
                // A connection beyond the limit is closed at once.
                let address = name.parse().ok().map(|peer: SocketAddr| peer.ip());
                if self.may_accept(address) {
                    let xot = Xot::called(self.xot_config());
                    let port = self.add_xot(xot, stream, origin, name);
                    self.accepted.insert(port, address);
                    let (input, patience) = (self.input.clone(), self.settings.state_timeout);
                    tokio::spawn(async move {
                        tokio::time::sleep(patience).await;
                        // The node may have ended.
                        let _ = input.send(Input::CallDue(port)).await;
                    });
                }
            }
            Input::Connected(circuit, connected, call) => {
                // The call may have ended in the meantime.
                self.connecting.remove(&circuit);
                match connected {
                    Ok(stream) => self.connect(circuit, stream, call, now),
                    Err(why) => self.refuse(circuit, cause::CLEAR_OUT_OF_ORDER, why, now),
                }
            }
            Input::Close(done) => self.closing = Some((done, false)),
            Input::CallDue(port) => {
                if self.switch.is_unused(port) {
                    self.forget(port, now);
                }
            }
        }
    }

    /// Sends what the switch has, and handles its events.
    fn send(&mut self) {
        let now = self.clock.now();
        loop {
            for (port, queue) in &self.queues {
                while let Ok(permit) = queue.try_reserve() {
                    let Some(bytes) = self.switch.poll_down(*port, now) else { break };
                    permit.send(bytes);
                }
            }
            let mut is_quiet = true;
            while let Some(event) = self.switch.poll() {
                is_quiet = false;
                self.on_event(event, now);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Incoming { circuit, port, call } => self.route(circuit, port, call, now),
            Event::Open { circuit } => {
                if let Some(told) = self.circuits.get_mut(&circuit) {
                    told.is_open = true;
                    (self.say)(NodeEvent::Open {
                        circuit,
                        from: told.from.clone(),
                        calling: told.call.addresses.calling.to_string(),
                        called: told.call.addresses.called.to_string(),
                        to: told.to.clone(),
                    });
                }
            }
            Event::Closed { circuit, was_open, cause, bytes: [bytes_to_called, bytes_to_calling] } => {
                if let Some(connects) = self.connecting.remove(&circuit) {
                    connects.abort();
                }
                let Some(told) = self.circuits.remove(&circuit) else { return };
                let Cause { cause, diagnostic } = cause;
                let diagnostic = diagnostic.unwrap_or(0);
                (self.say)(if was_open {
                    NodeEvent::Closed { circuit, bytes_to_called, bytes_to_calling, cause, diagnostic }
                } else {
                    let Told { from, to, call, why, .. } = told;
                    let (calling, called) =
                        (call.addresses.calling.to_string(), call.addresses.called.to_string());
                    let why = why.unwrap_or_else(|| {
                        format!("{to} cleared it: cause 0x{cause:02x}, diagnostic {diagnostic}")
                    });
                    NodeEvent::Refused { circuit, from, calling, called, why }
                });
            }
            Event::Up(port) => {
                self.failures.remove(&port);
                if let Some((_, line)) = self.origins.get(&port) {
                    (self.say)(NodeEvent::Up { line: line.clone() });
                }
            }
            Event::Down(port) => {
                // A failure of the line itself has been reported with its reason.
                if self.queues.contains_key(&port)
                    && let Some((_, line)) = self.origins.get(&port)
                {
                    let why = "the peer's link is down, or does not answer".to_owned();
                    if self.failures.get(&port) != Some(&why) {
                        self.failures.insert(port, why.clone());
                        (self.say)(NodeEvent::Down { line: line.clone(), why });
                    }
                }
            }
            Event::Finished(port) => self.forget(port, now),
        }
    }

    fn route(&mut self, circuit: CircuitId, port: PortId, call: Call, now: Instant) {
        let Some((origin, from)) = self.origins.get(&port).cloned() else { return };
        let route = self.settings.routes.iter().find(|route| route.has(&call, &origin)).cloned();
        let to = route.as_ref().map_or_else(String::new, |route| name_of(&route.to));
        // X.25 has no hop count: a call that returns to this node again and again is recognised by its
        // copies that are not yet answered. Equal calls of several users are as well, up to this number.
        let key = |call: &Call| (call.addresses, call.user_data.clone());
        let is_copy = |told: &&Told| !told.is_open && key(&told.call) == key(&call);
        let copies = self.circuits.values().filter(is_copy).count();
        let is_looping = copies >= (self.settings.circuits_max / 4).max(1);
        self.circuits.insert(circuit, Told { from, to, call: call.clone(), is_open: false, why: None });
        if is_looping {
            let why = "too many equal calls wait for an answer: do two routes lead to each other?";
            return self.refuse(circuit, cause::CLEAR_CONGESTION, why.into(), now);
        }
        let Some(route) = route else {
            return self.refuse(circuit, NOT_OBTAINABLE, "no route for this call".into(), now);
        };
        if target_line(&route.to).is_some_and(|to| origin_line(&origin) == Some(to)) && route.from.is_none() {
            let why = "the route leads back to the line of the call, and has no 'from'";
            return self.refuse(circuit, NOT_OBTAINABLE, why.into(), now);
        }
        let call = route.onward(&call);
        match route.to {
            Target::Line(name) => match self.port_of(&name) {
                Some(port) => self.switch.connect(circuit, port, call, now),
                None => self.refuse(circuit, cause::CLEAR_OUT_OF_ORDER, "no such line".into(), now),
            },
            Target::Xot { .. } if self.connecting.len() >= self.settings.circuits_max => {
                self.refuse(circuit, cause::CLEAR_CONGESTION, "too many connections".into(), now);
            }
            Target::Xot { host, port } => {
                let (input, patience) = (self.input.clone(), self.settings.state_timeout);
                let connects = tokio::spawn(async move {
                    let stream = match tokio::time::timeout(patience, socket::connect(&host, port)).await {
                        Ok(Ok(stream)) => Ok(Box::new(stream) as BoxedStream),
                        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
                        Err(_) => Err(format!("{host}:{port} does not answer")),
                    };
                    // The node may have ended.
                    let _ = input.send(Input::Connected(circuit, stream, call)).await;
                });
                self.connecting.insert(circuit, connects.abort_handle());
            }
            Target::Tpkt { host, port } => {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                let routes = [relay::Route { called: route.called, via: Via::Tpkt, host, port }];
                let relay = self.relay.clone();
                tokio::spawn(async move { relay.from_stream(Box::new(theirs), &routes).await });
                self.connect(circuit, Box::new(ours), call, now);
            }
            Target::Local => {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                let taken = self.local.as_ref().is_some_and(|local| local.try_send(Box::new(theirs)).is_ok());
                if taken {
                    self.connect(circuit, Box::new(ours), call, now);
                } else {
                    self.refuse(circuit, cause::CLEAR_NUMBER_BUSY, "the program is busy".into(), now);
                }
            }
        }
    }

    /// Makes a circuit's call on a stream, unless the call has ended in the meantime.
    fn connect(&mut self, circuit: CircuitId, stream: BoxedStream, call: Call, now: Instant) {
        let Some(to) = self.circuits.get(&circuit).map(|told| told.to.clone()) else { return };
        let port = self.add_xot(Xot::calling(self.xot_config()), stream, Origin::Xot, to);
        self.switch.connect(circuit, port, call, now);
        if self.switch.is_unused(port) {
            self.forget(port, now);
        }
    }

    fn refuse(&mut self, circuit: CircuitId, cause: u8, why: String, now: Instant) {
        if let Some(told) = self.circuits.get_mut(&circuit) {
            told.why = Some(why);
        }
        self.switch.refuse(circuit, cause, now);
    }

    fn xot_config(&self) -> Config {
        let mut config = layer(Role::Dte, self.settings.unit_bytes_max);
        config.timers.call = self.settings.state_timeout.max(config.timers.call);
        config.timers.clear = self.settings.state_timeout;
        config
    }

    /// Returns whether another stream is accepted: programs and routers have separate limits, and one address
    /// may have half of the routers' connections without a call.
    fn may_accept(&self, address: Option<IpAddr>) -> bool {
        let count = |is: &dyn Fn(PortId, Option<IpAddr>) -> bool| {
            self.accepted.iter().filter(|(port, of)| is(**port, **of)).count()
        };
        let limit = self.settings.circuits_max;
        count(&|_, of| of.is_some() == address.is_some()) < limit
            && (address.is_none()
                || count(&|port, of| of == address && self.switch.is_unused(port)) < limit.div_ceil(2))
    }

    fn add_xot(&mut self, xot: Xot, stream: BoxedStream, origin: Origin, name: String) -> PortId {
        let port = self.switch.add_xot(xot);
        let (queue, mut queued) = mpsc::channel::<Rope>(PACKETS_WAITING_MAX);
        self.queues.insert(port, queue);
        self.origins.insert(port, (origin, name));
        let (end, ended) = oneshot::channel::<()>();
        self.ends.insert(port, end);
        let (input, sent, patience) = (self.input.clone(), self.sent.clone(), self.settings.state_timeout);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(stream);
            let reads = async {
                let mut buffer = bytes::BytesMut::new();
                loop {
                    buffer.reserve(READ_BYTES);
                    match from.read_buf(&mut buffer).await {
                        Ok(count) if count > 0 => {
                            let arrived = Input::Arrived(port, received(&mut buffer));
                            if input.send(arrived).await.is_err() {
                                return;
                            }
                        }
                        _ => return,
                    }
                }
            };
            let writes = async {
                while let Some(packet) = queued.recv().await {
                    if to.write_all(&packet.to_vec()).await.is_err() {
                        return;
                    }
                    sent.notify_one();
                }
                // The peer may have closed the stream first.
                let _ = to.shutdown().await;
            };
            // After its call, a peer that does not read may not keep the connection.
            let late = async {
                // It is dropped, never used.
                let _ = ended.await;
                tokio::time::sleep(patience).await;
            };
            tokio::select! {
                () = reads => {}
                () = writes => {}
                () = late => {}
            }
            // The node may have ended.
            let _ = input.send(Input::Closed(port)).await;
        });
        port
    }

    /// Removes an XOT connection, whose task ends when it has sent what is queued.
    fn forget(&mut self, port: PortId, now: Instant) {
        self.queues.remove(&port);
        self.ends.remove(&port);
        self.switch.remove(port, now);
        self.origins.remove(&port);
    }

    fn port_of(&self, name: &str) -> Option<PortId> {
        let found = self.origins.iter().find(|(_, (origin, _))| origin_line(origin) == Some(name));
        found.map(|(port, _)| *port)
    }
}

fn origin_line(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Line(name) => Some(name),
        Origin::Xot | Origin::Local => None,
    }
}

fn target_line(target: &Target) -> Option<&str> {
    match target {
        Target::Line(name) => Some(name),
        Target::Xot { .. } | Target::Tpkt { .. } | Target::Local => None,
    }
}

fn name_of(target: &Target) -> String {
    match target {
        Target::Line(name) => name.clone(),
        Target::Xot { host, port } => format!("xot:{host}:{port}"),
        Target::Tpkt { host, port } => format!("tpkt:{host}:{port}"),
        Target::Local => "this program".into(),
    }
}
