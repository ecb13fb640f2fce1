//! Connections of whole NICs over RoCEv2: two NICs, their ports, and datagrams carried between them.

use crate::pair::attributes;
use kiban_base::{Instant, Region, RngKey, SharedBytes, SimRng};
use kiban_rdma::nic::{CmEvent, ConnectError, Nic, OpenError, RoceConfig, RocePort};
use kiban_rdma::rnic::{
    Access, Config, Data, Operation, QpState, ReceiveWork, SendWork, Sge, Status, TaggedAddress,
};
use kiban_rdma::roce::cm::{Cm, CmConfig, Connect};
use kiban_rdma::roce::{Endpoint, Path};
use kiban_rdma::wire::roce::cm::{Message, PortSpace, RejectReason, ServiceType};
use kiban_rdma::wire::roce::{BTH_BYTES, Deth, MAD_BYTES, PORT};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const SERVICE: u16 = 7471;
const DELAY: Duration = Duration::from_micros(10);
const BYTES: usize = 10_000;

struct Host {
    nic: Nic,
    port: RocePort,
    address: IpAddr,
    cq: u32,
    qp: u32,
    memory: Region,
    stag: u32,
}

impl Host {
    fn new(number: u8, config: &RoceConfig) -> Host {
        let key = |n: u64| RngKey::for_simulation(u64::from(number) * 2 + n);
        let mut nic = Nic::new(Config::default(), key(0));
        let pd = nic.core.create_pd().expect("room");
        let cq = nic.core.create_cq(64).expect("room");
        let qp = nic.core.create_qp(attributes(pd, cq)).expect("room");
        let memory = Region::new(0x1000, BYTES);
        let stag = nic.core.register(pd, memory.clone(), Access::ALL).expect("room");
        let address = Ipv4Addr::new(10, 0, 0, number).into();
        Host { nic, port: RocePort::new(config.clone(), key(1)), address, cq, qp, memory, stag }
    }

    fn connect(&mut self, to: &Host, private_data: &[u8], now: Instant) -> Result<u32, OpenError> {
        let route = (self.address, SocketAddr::new(to.address, SERVICE));
        self.nic.connect_roce(&mut self.port, route, self.qp, (4, 4), private_data, now)
    }

    fn events(&mut self) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.nic.poll()).collect()
    }

    fn sge(&self) -> Sge {
        Sge { stag: self.stag, address: self.memory.address(), length: BYTES as u32 }
    }

    fn post(&mut self, operation: Operation) {
        let work = SendWork::new(1, operation, Data::one(self.sge()));
        self.nic.core.post_send(self.qp, work).expect("room");
    }

    fn statuses(&mut self) -> Vec<Status> {
        std::iter::from_fn(|| self.nic.core.poll(self.cq).expect("a queue")).map(|done| done.status).collect()
    }

    fn state(&self) -> QpState {
        self.nic.core.query_qp(self.qp).expect("a queue pair").1
    }
}

/// Two hosts, and the datagrams between them.
struct Net {
    hosts: [Host; 2],
    now: Instant,
    flying: Vec<(usize, Path, Vec<u8>)>,
    /// The share of datagrams that is lost, percent.
    loss: u64,
    rng: SimRng,
}

impl Net {
    fn new() -> Net {
        Net::with([RoceConfig::default(), RoceConfig::default()])
    }

    fn with(configs: [RoceConfig; 2]) -> Net {
        let [one, two] = &configs;
        let mut hosts = [Host::new(1, one), Host::new(2, two)];
        hosts[1].port.listen(SERVICE).expect("free");
        Net { hosts, now: Instant::ZERO, flying: Vec::new(), loss: 0, rng: SimRng::from_seed(1) }
    }

    /// Delivers the datagrams in flight, and lets both NICs work. Returns whether they sent any.
    fn step(&mut self) -> bool {
        for (to, path, bytes) in std::mem::take(&mut self.flying) {
            let Host { nic, port, .. } = &mut self.hosts[to];
            nic.take_roce(port, path, &bytes, false, self.now);
        }
        for (from, Host { nic, port, .. }) in self.hosts.iter_mut().enumerate() {
            nic.settle(self.now);
            nic.pump_roce(port, self.now);
            let mut room = Vec::new();
            while let Some(departure) = nic.next_roce(port, self.now, (1, 1 << 16), &mut room) {
                let path = Path { local: departure.path.remote, remote: departure.path.local };
                if self.rng.below(100) >= self.loss {
                    self.flying.push((1 - from, path, room.clone()));
                }
            }
        }
        self.now += DELAY;
        !self.flying.is_empty()
    }

    /// Runs until no datagram is in flight and no timer is due within `limit`.
    fn run(&mut self, limit: Duration) {
        self.run_until(limit, |_| false);
    }

    /// Runs like [`Net::run`], or until `is_over`.
    fn run_until(&mut self, limit: Duration, is_over: impl Fn(&Net) -> bool) {
        let until = self.now + limit;
        while !is_over(self) {
            if self.step() {
                continue;
            }
            let deadlines = self.hosts.iter().map(|host| host.port.deadline().min(host.nic.deadline()));
            let next = deadlines.min().unwrap_or(Instant::NEVER);
            if next > until {
                return;
            }
            self.now = self.now.max(next);
        }
    }

    /// Connects the hosts. Returns their ends.
    fn connect(&mut self) -> [u32; 2] {
        let [one, two] = &mut self.hosts;
        let end = one.connect(two, b"question", self.now).expect("an idle queue pair");
        let patience = Duration::from_secs(20);
        self.run_until(patience, |net| net.hosts[1].nic.has_event());
        let [_, two] = &mut self.hosts;
        let [CmEvent::ConnectRequest(request)] = &two.events()[..] else { panic!("one request") };
        assert_eq!((request.listener, request.depths, request.extensions), (SERVICE.into(), (4, 4), true));
        assert_eq!((&request.private_data[..9], request.private_data.len()), (&b"question\0"[..], 56));
        let (qp, depths) = (two.qp, (2, 3));
        two.nic.accept_roce(&mut two.port, request.end, qp, depths, b"answer", self.now).expect("it waits");
        let theirs = request.end;
        self.run_until(patience, |net| net.hosts.iter().all(|host| host.nic.has_event()));
        let [one, two] = &mut self.hosts;
        let [CmEvent::Connected { end: connected, private_data }] = &one.events()[..] else {
            panic!("it is connected")
        };
        assert_eq!((*connected, &private_data[..7]), (end, &b"answer\0"[..]));
        assert!(matches!(two.events()[..], [CmEvent::Connected { .. }]));
        let depths = self.hosts.each_ref().map(|host| {
            let (.., traits) = host.nic.core.query_qp(host.qp).expect("a queue pair");
            (traits.ird, traits.ord)
        });
        assert_eq!(depths, [(3, 2), (2, 3)]);
        [end, theirs]
    }
}

#[test]
fn queue_pairs_connect_work_and_disconnect_although_datagrams_are_lost() {
    for loss in [0, 1, 3, 5, 10, 15, 20] {
        let mut net = Net::new();
        net.loss = loss;
        let ends = net.connect();
        let target = TaggedAddress { stag: net.hosts[1].stag, offset: net.hosts[1].memory.address() };
        let pattern: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 250) as u8).collect();
        net.hosts[0].memory.write(0x1000, SharedBytes::from(&pattern[..])).expect("within");
        net.hosts[0].post(Operation::write(target));
        net.run(Duration::from_secs(20));
        let done = std::iter::from_fn(|| net.hosts[0].nic.core.poll(net.hosts[0].cq).expect("a queue"));
        let done: Vec<_> = done.map(|done| (done.status, done.qp)).collect();
        assert_eq!(done, [(Status::Success, net.hosts[0].qp)], "{loss} % lost");
        assert!(net.hosts[1].memory.read(0x1000, BYTES).expect("within") == pattern);
        // The second host leaves in order: it has posted nothing.
        let qp = net.hosts[1].qp;
        net.hosts[1].nic.core.disconnect(qp).expect("connected");
        net.run(Duration::from_secs(60));
        for (host, end) in net.hosts.iter_mut().zip(ends) {
            assert_eq!(host.events(), [CmEvent::Gone { end }], "{loss} % lost");
            assert_eq!(host.state(), QpState::Error);
            assert_eq!(host.nic.core.event(), None, "an orderly end");
            host.nic.forget_roce(&mut host.port, end, net.now);
            assert_eq!((host.nic.ends(), host.nic.next_to_serve()), (0, None));
        }
        // After a reset, both queue pairs can be connected again.
        for host in &mut net.hosts {
            host.nic.reset(host.qp).expect("it has ended");
        }
        net.loss = 0;
        net.connect();
    }
}

#[test]
fn a_responder_that_posts_at_once_waits_for_the_initiator() {
    for seed in 0..50 {
        let mut net = Net::new();
        (net.loss, net.rng) = (20, SimRng::from_seed(seed));
        let [one, two] = &mut net.hosts;
        one.connect(two, b"", net.now).expect("an idle queue pair");
        let target = TaggedAddress { stag: one.stag, offset: one.memory.address() };
        net.run_until(Duration::from_secs(20), |net| net.hosts[1].nic.has_event());
        let now = net.now;
        let two = &mut net.hosts[1];
        let [CmEvent::ConnectRequest(request)] = &two.events()[..] else { panic!("one request") };
        let (qp, end) = (two.qp, request.end);
        two.nic.accept_roce(&mut two.port, end, qp, (4, 4), b"", now).expect("it waits");
        two.post(Operation::write(target));
        net.run(Duration::from_secs(20));
        let two = &mut net.hosts[1];
        assert_eq!(two.events(), [CmEvent::Connected { end, private_data: Vec::new() }], "seed {seed}");
        assert_eq!(two.statuses(), [Status::Success], "seed {seed}");
    }
}

#[test]
fn a_failed_queue_pair_ends_its_connection() {
    let mut net = Net::new();
    net.connect();
    let sge = net.hosts[1].sge();
    let (qp, work) = (net.hosts[1].qp, ReceiveWork { id: 5, sges: [sge].into_iter().collect() });
    net.hosts[1].nic.core.post_receive(qp, work).expect("room");
    let nowhere = TaggedAddress { stag: net.hosts[1].stag ^ 1, offset: 0 };
    net.hosts[0].post(Operation::write(nowhere));
    net.run(Duration::from_secs(60));
    assert_eq!(net.hosts[0].statuses(), [Status::RemoteAccess]);
    assert_eq!(net.hosts[1].statuses(), [Status::Flushed]);
    for host in &mut net.hosts {
        assert!(matches!(host.events()[..], [CmEvent::Gone { .. }]));
        assert_eq!(host.state(), QpState::Error);
    }
}

#[test]
fn an_end_that_is_forgotten_ends_the_peers() {
    let mut net = Net::new();
    let [end, theirs] = net.connect();
    let Host { nic, port, .. } = &mut net.hosts[0];
    nic.forget_roce(port, end, net.now);
    net.run(Duration::from_secs(60));
    assert_eq!(net.hosts[0].events(), []);
    assert_eq!(net.hosts[1].events(), [CmEvent::Gone { end: theirs }]);
}

#[test]
fn a_connection_fails_for_a_reason() {
    // The peer's program rejects.
    let mut net = Net::new();
    let [one, two] = &mut net.hosts;
    let end = one.connect(two, b"", net.now).expect("an idle queue pair");
    net.run(Duration::from_secs(1));
    let [_, two] = &mut net.hosts;
    let [CmEvent::ConnectRequest(request)] = &two.events()[..] else { panic!("one request") };
    two.nic.reject_roce(&mut two.port, request.end, b"no", net.now).expect("it waits");
    net.run(Duration::from_secs(1));
    let one = &mut net.hosts[0];
    let [CmEvent::Failed { end: failed, error: ConnectError::Rejected(data) }] = &one.events()[..] else {
        panic!("it is rejected")
    };
    assert_eq!((*failed, &data[..3]), (end, &b"no\0"[..]));

    // There is no listener, or the path MTU is too long for the peer.
    let long = RoceConfig { path_mtu: 4096, ..RoceConfig::default() };
    for (listens, configs, error) in [
        (false, [RoceConfig::default(), RoceConfig::default()], ConnectError::Unreachable),
        (true, [long, RoceConfig::default()], ConnectError::Lost),
    ] {
        let mut net = Net::with(configs);
        if !listens {
            net.hosts[1].port.unlisten_all();
        }
        let [one, two] = &mut net.hosts;
        let end = one.connect(two, b"", net.now).expect("an idle queue pair");
        net.run(Duration::from_secs(1));
        assert_eq!(net.hosts[0].events(), [CmEvent::Failed { end, error }]);
        assert_eq!(net.hosts[1].events(), []);
    }

    // The peer does not answer.
    let mut net = Net::new();
    net.loss = 100;
    let [one, two] = &mut net.hosts;
    let end = one.connect(two, b"", net.now).expect("an idle queue pair");
    net.run(Duration::from_secs(600));
    assert_eq!(net.hosts[0].events(), [CmEvent::Failed { end, error: ConnectError::Timeout }]);
}

/// These NICs connect reliable queue pairs only.
#[test]
fn requests_of_other_services_are_rejected() {
    for service in [ServiceType::Uc, ServiceType::Extended] {
        let mut net = Net::new();
        let [local, remote] = net.hosts.each_ref().map(|host| SocketAddr::new(host.address, PORT));
        let mut cm = Cm::new(CmConfig::default(), RngKey::for_simulation(9));
        let service_id = PortSpace::Tcp.service_id(SERVICE);
        let connect = Connect { service_id, service, ..Connect::default() };
        cm.connect(local.ip(), remote, &connect, net.now).expect("room");
        let mut request = Vec::new();
        let mad = cm.poll_transmit().expect("a request").mad;
        Endpoint::default().management(&Path { local, remote }, &mad, &mut request);
        net.flying.push((1, Path { local: remote, remote: local }, request));
        assert!(net.step(), "it answers");
        let mad = net.flying[0].2[BTH_BYTES + Deth::BYTES..].first_chunk::<MAD_BYTES>().expect("a MAD");
        let (_, Message::Rej(rej)) = Message::read(mad).expect("valid") else { panic!("a rejection") };
        assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_TYPE);
        assert_eq!(net.hosts[1].events(), []);
    }
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let mut net = Net::new();
    let [one, two] = &mut net.hosts;
    assert_eq!(one.connect(two, &[1; 57], net.now), Err(OpenError::RocePrivateData));
    one.connect(two, &[1; 56], net.now).expect("it fits");
    assert_eq!(one.connect(two, b"", net.now), Err(OpenError::InUse));
    net.run(Duration::from_secs(1));
    let [_, two] = &mut net.hosts;
    let [CmEvent::ConnectRequest(request)] = &two.events()[..] else { panic!("one request") };
    let (qp, port, nic) = (two.qp, &mut two.port, &mut two.nic);
    let accepted = nic.accept_roce(port, request.end, qp, (1, 1), &[1; 197], net.now);
    assert_eq!(accepted, Err(OpenError::RocePrivateData));
    nic.accept_roce(port, request.end, qp, (1, 1), &[1; 196], net.now).expect("it fits");
    let accepted = nic.accept_roce(port, request.end, qp, (1, 1), b"", net.now);
    assert_eq!(accepted, Err(OpenError::InUse));
    assert!(two.port.listen(SERVICE).is_err(), "it has a listener");
}
