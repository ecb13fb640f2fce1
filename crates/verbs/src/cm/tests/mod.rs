//! Tests connections through the exported functions. Here, the engine creates the queue pairs. Queue pairs
//! created by the connection manager are tested with whole programs.

mod plain_peers;

use super::channel::*;
use super::connect::*;
use super::id::*;
use super::resolve::*;
use super::{address, below};
use crate::abi::*;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use kiban_rdma_runtime::verbs::{
    Channel, CqChannels, Data, Operation, QpAttributes, QueuePair, RequestError, SendWork, Service,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn errno() -> Option<c_int> {
    std::io::Error::last_os_error().raw_os_error()
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// An event, acknowledged when it is dropped.
struct Event(*mut rdma_cm_event);

impl Event {
    fn get(&self) -> &rdma_cm_event {
        // SAFETY: the event was delivered and not acknowledged.
        unsafe { &*self.0 }
    }

    fn kind(&self) -> (rdma_cm_event_type, c_int) {
        (self.get().event, self.get().status)
    }

    fn private_data(&self) -> Vec<u8> {
        // SAFETY: every event that the tests read here has connection parameters, whose private data stays
        // valid until the event is acknowledged.
        unsafe {
            let conn = &self.get().param.conn;
            super::channel::private_data(conn.private_data, conn.private_data_len)
        }
    }

    fn depths(&self) -> (u8, u8) {
        // SAFETY: every event that the tests read here has connection parameters.
        unsafe { (self.get().param.conn.responder_resources, self.get().param.conn.initiator_depth) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event was delivered and not acknowledged.
        assert_eq!(unsafe { rdma_ack_cm_event(self.0) }, 0);
    }
}

/// An event channel, destroyed when it is dropped.
struct Events(*mut rdma_event_channel);

impl Events {
    fn new() -> Events {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        Events(channel)
    }

    fn next(&self) -> Event {
        let mut event = null_mut();
        // SAFETY: the channel lives until `Events` is dropped, and `event` is a local variable.
        assert_eq!(unsafe { rdma_get_cm_event(self.0, &mut event) }, 0);
        Event(event)
    }

    #[track_caller]
    fn expect(&self, event: rdma_cm_event_type, status: c_int) -> Event {
        let found = self.next();
        assert_eq!(found.kind(), (event, status));
        found
    }

    /// Checks that no event is pending.
    fn expect_nothing(&self) {
        let mut event = null_mut();
        // SAFETY: the channel and its descriptor live until `Events` is dropped, and `event` is a local
        // variable.
        unsafe {
            let fd = (*self.0).fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            assert_eq!(rdma_get_cm_event(self.0, &mut event), -1, "nothing was expected");
            assert_eq!(errno(), Some(libc::EAGAIN));
            libc::fcntl(fd, libc::F_SETFL, flags);
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: the channel is not used after this.
        unsafe { rdma_destroy_event_channel(self.0) };
    }
}

/// An identifier, destroyed when it is dropped.
struct Ident(*mut rdma_cm_id);

impl Ident {
    fn new(events: Option<&Events>) -> Ident {
        let mut id = null_mut();
        let channel = events.map_or(null_mut(), |events| events.0);
        let context = 77 as *mut c_void;
        // SAFETY: `channel` is null or a live channel, and `id` is a local variable.
        assert_eq!(unsafe { rdma_create_id(channel, &mut id, context, RDMA_PS_TCP) }, 0);
        Ident(id)
    }

    fn bind(&self, to: SocketAddr) -> c_int {
        let mut to = address::written(to);
        // SAFETY: the identifier lives until `Ident` is dropped, and `to` is a local address.
        unsafe { rdma_bind_addr(self.0, (&raw mut to).cast()) }
    }

    fn listen(to: SocketAddr, events: Option<&Events>, backlog: c_int) -> Ident {
        let id = Ident::new(events);
        assert_eq!(id.bind(to), 0);
        // SAFETY: `id` is an identifier that the test has not destroyed.
        assert_eq!(unsafe { rdma_listen(id.0, backlog) }, 0);
        id
    }

    fn port(&self) -> u16 {
        // SAFETY: the identifier lives until `Ident` is dropped.
        u16::from_be(unsafe { rdma_get_src_port(self.0) })
    }

    fn resolve_addr(&self, to: SocketAddr) -> c_int {
        let mut to = address::written(to);
        // SAFETY: the identifier lives until `Ident` is dropped, and `to` is a local address.
        unsafe { rdma_resolve_addr(self.0, null_mut(), (&raw mut to).cast(), 1000) }
    }

    /// Returns an identifier with a resolved route.
    fn towards(to: SocketAddr, events: &Events) -> Ident {
        let id = Ident::new(Some(events));
        assert_eq!(id.resolve_addr(to), 0);
        events.expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
        // SAFETY: `id` is an identifier that the test has not destroyed.
        assert_eq!(unsafe { rdma_resolve_route(id.0, 1000) }, 0);
        events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
        id
    }

    fn connect(&self, param: &mut rdma_conn_param) -> c_int {
        // SAFETY: the identifier lives until `Ident` is dropped; the caller keeps the private data of `param`
        // alive.
        unsafe { rdma_connect(self.0, param) }
    }

    fn accept(&self, param: &mut rdma_conn_param) -> c_int {
        // SAFETY: the identifier lives until `Ident` is dropped; the caller keeps the private data of `param`
        // alive.
        unsafe { rdma_accept(self.0, param) }
    }

    fn disconnect(&self) -> c_int {
        // SAFETY: the identifier lives until `Ident` is dropped.
        unsafe { rdma_disconnect(self.0) }
    }

    fn reject(&self, says: &[u8]) -> c_int {
        // SAFETY: the identifier lives until `Ident` is dropped, and the private data is a slice of this
        // length.
        unsafe { rdma_reject(self.0, says.as_ptr().cast(), says.len() as u8) }
    }

    fn device(&self) -> std::net::IpAddr {
        // SAFETY: the identifier is bound to a device, whose context is never closed.
        unsafe { crate::context::address((*self.0).verbs) }.expect("a device")
    }
}

impl Drop for Ident {
    fn drop(&mut self) {
        // SAFETY: the identifier is not used after this.
        assert_eq!(unsafe { rdma_destroy_id(self.0) }, 0);
    }
}

/// A queue pair with its CQ and protection domain.
struct Queues {
    pd: u32,
    cq: u32,
    qp: u32,
    number: u32,
}

impl Queues {
    fn new(device: std::net::IpAddr) -> Queues {
        let engine = below::engine().expect("an engine");
        let async_events = Arc::new(Channel::new().expect("a file"));
        let pd = engine.alloc_pd().expect("a domain");
        let tells = CqChannels { completions: None, async_events: async_events.clone(), cookie: 0 };
        let cq = engine.create_cq(16, tells).expect("a queue");
        let attributes = QpAttributes {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            send_work_max: 4,
            receive_work_max: 4,
            send_sges_max: 1,
            receive_sges_max: 1,
            inline_bytes_max: 16,
            signal_all: true,
            waits_for_receives: false,
        };
        let made =
            QueuePair { address: device, service: Service::Connected, attributes, async_events, cookie: 0 };
        let (qp, number) = engine.create_qp(made).expect("a port").expect("a queue pair");
        Queues { pd, cq, qp, number }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let engine = below::engine().expect("an engine");
        engine.destroy_qp(self.qp).expect("it was there");
        engine.destroy_cq(self.cq).expect("it is not in use");
        engine.dealloc_pd(self.pd).expect("it is not in use");
    }
}

fn param(queues: &Queues, says: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: says.as_ptr().cast(),
        private_data_len: says.len() as u8,
        responder_resources: 5,
        initiator_depth: 3,
        retry_count: 7,
        qp_num: queues.number,
        ..rdma_conn_param::ZERO
    }
}

/// Returns the event that the connecting side gets when the connection is established.
fn answered() -> rdma_cm_event_type {
    if below::is_ib() { RDMA_CM_EVENT_CONNECT_RESPONSE } else { RDMA_CM_EVENT_ESTABLISHED }
}

/// Returns the status of a reject.
fn refusal(reason: c_int) -> c_int {
    if below::is_ib() { reason } else { -libc::ECONNREFUSED }
}

#[track_caller]
fn expect_over(events: &Events) {
    events.expect(RDMA_CM_EVENT_DISCONNECTED, 0);
    if below::is_ib() {
        events.expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
    }
}

/// Both sides of an established connection.
struct Pair {
    passive: (Ident, Queues),
    active: (Ident, Queues),
    _listener: Ident,
    active_events: Events,
    passive_events: Events,
}

fn pair() -> Pair {
    let (passive_events, active_events) = (Events::new(), Events::new());
    let listener = Ident::listen(at("127.0.0.1:0"), Some(&passive_events), 5);
    let (passive, active) = connect_to(&listener, &passive_events, &active_events);
    Pair { passive, active, _listener: listener, active_events, passive_events }
}

/// Makes a connection and returns both sides.
fn connect_to(
    listener: &Ident,
    passive_events: &Events,
    active_events: &Events,
) -> ((Ident, Queues), (Ident, Queues)) {
    let to = SocketAddr::new(at("127.0.0.1:0").ip(), listener.port());
    let active = Ident::towards(to, active_events);
    let queues = Queues::new(active.device());
    assert_eq!(active.connect(&mut param(&queues, b"hello")), 0);
    let request = passive_events.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    assert_eq!(request.get().listen_id, listener.0);
    assert_eq!(request.private_data(), b"hello");
    // The depths are swapped: the peer's responder resources are our initiator depth.
    assert_eq!(request.depths(), (3, 5));
    let passive = Ident(request.get().id);
    drop(request);
    // SAFETY: both identifiers exist, and the request has filled in the addresses of `passive`.
    unsafe {
        assert_eq!((*passive.0).context, 77 as *mut c_void);
        assert_eq!(address::read((&raw const (*passive.0).route.addr.src).cast()), Ok(to));
        assert_eq!(rdma_get_dst_port(passive.0), rdma_get_src_port(active.0));
        assert_eq!(((*passive.0).port_num, (*passive.0).route.num_paths), (1, 1));
    }
    let theirs = Queues::new(passive.device());
    let mut answer = param(&theirs, b"deliver_request");
    (answer.responder_resources, answer.initiator_depth) = (2, 4);
    assert_eq!(passive.accept(&mut answer), 0);
    passive_events.expect(RDMA_CM_EVENT_ESTABLISHED, 0);
    let answer = active_events.expect(answered(), 0);
    assert_eq!(answer.private_data(), b"deliver_request");
    // The reply contains the responder's depths, which may exceed those requested.
    assert_eq!(answer.depths(), (4, 3));
    drop(answer);
    if below::is_ib() {
        // SAFETY: `active` is an identifier that the test has not destroyed.
        assert_eq!(unsafe { rdma_establish(active.0) }, 0);
    }
    ((passive, theirs), (active, queues))
}

#[test]
fn each_side_gets_one_event_when_a_connection_ends() {
    for passive_ends in [false, true] {
        let pair = pair();
        let (first, second) =
            if passive_ends { (&pair.passive.0, &pair.active.0) } else { (&pair.active.0, &pair.passive.0) };
        assert_eq!(first.disconnect(), 0);
        expect_over(&pair.active_events);
        expect_over(&pair.passive_events);
        assert_eq!((second.disconnect(), first.disconnect()), (0, 0));
        pair.active_events.expect_nothing();
        pair.passive_events.expect_nothing();
    }
}

#[test]
fn a_failed_or_destroyed_queue_pair_ends_its_connection() {
    let pair = pair();
    below::engine().expect("an engine").modify_to_error(pair.active.1.qp).expect("it is there");
    expect_over(&pair.active_events);
    expect_over(&pair.passive_events);

    let Pair { active, passive, active_events, passive_events, _listener } = self::pair();
    drop(active.1);
    expect_over(&active_events);
    expect_over(&passive_events);
    drop((active.0, passive));
}

#[test]
fn destroying_an_identifier_ends_its_connection() {
    let Pair { active, passive, active_events, passive_events, _listener } = pair();
    drop(active.0);
    active_events.expect_nothing();
    expect_over(&passive_events);
    drop((passive, active.1));
}

#[test]
fn connecting_without_a_listener_is_rejected() {
    let events = Events::new();
    let listener = Ident::new(Some(&events));
    assert_eq!(listener.bind(at("127.0.0.1:0")), 0);
    // The port is bound, but there is no listener.
    let active = Ident::towards(SocketAddr::new(at("127.0.0.1:0").ip(), listener.port()), &events);
    let queues = Queues::new(active.device());
    assert_eq!(active.connect(&mut param(&queues, b"")), 0);
    events.expect(RDMA_CM_EVENT_REJECTED, refusal(8));
    events.expect_nothing();
}

#[test]
fn a_reject_carries_private_data() {
    let (theirs, ours) = (Events::new(), Events::new());
    let listener = Ident::listen(at("127.0.0.1:0"), Some(&theirs), 5);
    let to = SocketAddr::new(at("127.0.0.1:0").ip(), listener.port());
    let active = Ident::towards(to, &ours);
    let queues = Queues::new(active.device());
    assert_eq!(active.connect(&mut param(&queues, b"")), 0);
    let request = Ident(theirs.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0).get().id);
    assert_eq!(request.reject(b"not today"), 0);
    assert_eq!(ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28)).private_data(), b"not today");
    assert_eq!((request.reject(b""), errno()), (-1, Some(libc::EINVAL)));
    // Destroying an identifier without an answer rejects the request.
    let active = Ident::towards(to, &ours);
    let queues = Queues::new(active.device());
    assert_eq!(active.connect(&mut param(&queues, b"")), 0);
    drop(Ident(theirs.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0).get().id));
    ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28));
}

#[test]
fn backlog_limits_pending_requests() {
    let (theirs, ours) = (Events::new(), Events::new());
    let listener = Ident::listen(at("127.0.0.1:0"), Some(&theirs), 2);
    let to = SocketAddr::new(at("127.0.0.1:0").ip(), listener.port());
    let mut others = Vec::new();
    for _ in 0..3 {
        let active = Ident::towards(to, &ours);
        let queues = Queues::new(active.device());
        assert_eq!(active.connect(&mut param(&queues, b"")), 0);
        others.push((active, queues));
    }
    ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28));
    let taken: Vec<_> =
        (0..2).map(|_| Ident(theirs.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0).get().id)).collect();
    theirs.expect_nothing();
    // Destroying a listener rejects the requests that are still queued, and no others.
    let late = Ident::towards(to, &ours);
    let queues = Queues::new(late.device());
    assert_eq!(late.connect(&mut param(&queues, b"")), 0);
    let mut file = libc::pollfd { fd: file_of(&theirs), events: libc::POLLIN, revents: 0 };
    // SAFETY: `file` is one local `pollfd`, whose descriptor the channel keeps open.
    assert_eq!(unsafe { libc::poll(&raw mut file, 1, 10_000) }, 1);
    drop(listener);
    ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28));
    theirs.expect_nothing();
    drop(taken);
}

fn file_of(events: &Events) -> c_int {
    // SAFETY: the channel lives until `Events` is dropped.
    unsafe { (*events.0).fd }
}

#[test]
fn requests_at_a_wildcard_listener_use_the_device_of_their_local_address() {
    let (theirs, ours) = (Events::new(), Events::new());
    let listener = Ident::listen(at("[::]:0"), Some(&theirs), 5);
    // SAFETY: `listener` is an identifier that the test has not destroyed.
    assert!(unsafe { (*listener.0).verbs.is_null() });
    for device in crate::device::Device::all().expect("devices") {
        let active = Ident::towards(SocketAddr::new(device.address, listener.port()), &ours);
        // Loopback addresses are reached through the first device.
        let is_loopback = device.address.is_loopback();
        let through =
            if is_loopback { crate::device::Device::for_loopback(device.address) } else { Ok(device) };
        let through = through.expect("a device").address;
        assert_eq!(active.device(), through);
        let queues = Queues::new(active.device());
        assert_eq!(active.connect(&mut param(&queues, b"")), 0);
        let request = Ident(theirs.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0).get().id);
        assert_eq!(request.device(), through);
        assert_eq!(request.reject(b""), 0);
        ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28));
    }
}

#[test]
fn a_connect_shortly_before_the_listen_succeeds() {
    let (theirs, ours) = (Events::new(), Events::new());
    let listener = Ident::new(Some(&theirs));
    assert_eq!(listener.bind(at("127.0.0.1:0")), 0);
    let active = Ident::towards(SocketAddr::new(at("127.0.0.1:0").ip(), listener.port()), &ours);
    let queues = Queues::new(active.device());
    // The system refuses the first attempt at once.
    assert_eq!(active.connect(&mut param(&queues, b"")), 0);
    // SAFETY: `listener` is an identifier that the test has not destroyed.
    assert_eq!(unsafe { rdma_listen(listener.0, 1) }, 0);
    let request = Ident(theirs.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 0).get().id);
    assert_eq!(request.reject(b""), 0);
    ours.expect(RDMA_CM_EVENT_REJECTED, refusal(28));
}
