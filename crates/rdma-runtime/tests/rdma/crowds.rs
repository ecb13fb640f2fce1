//! Many connections: measures the cost of thousands that never send a request and of a thousand idle queue
//! pairs, and their effect on other peers.

use crate::pair::{LONG, Side, Watch, is_told_elsewhere, resident_bytes};
use kiban_rdma_runtime::tcp::TcpLink;
use kiban_rdma_runtime::{Address, Config, Connect, Context, Lower, QpOptions, Remote, Wr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The time within which a good peer is served.
const SOON: Duration = Duration::from_secs(1);
/// Maximum memory growth caused by many connections, in bytes.
const GROWTH_BYTES_MAX: usize = 64 << 20;

/// Raises the limit on open files to the maximum, and returns it.
fn files_max() -> usize {
    let was = getrlimit(Resource::Nofile);
    // An unprivileged process may raise its soft limit up to the hard limit, but not beyond.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: was.maximum, maximum: was.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}

/// Returns the time that a new peer needs to connect and to complete an empty write. A busy machine may delay
/// one peer, so up to five may try to complete it within a second.
fn time_for_a_good_peer(
    server: &Side,
    options: &Connect,
    listener: &kiban_rdma_runtime::Listener,
) -> Duration {
    let mut times = std::iter::repeat_with(|| time_for_one_peer(server, options, listener)).take(5);
    let first = times.next().expect("five");
    if first < SOON { first } else { times.find(|time| *time < SOON).unwrap_or(first) }
}

fn time_for_one_peer(server: &Side, options: &Connect, listener: &kiban_rdma_runtime::Listener) -> Duration {
    let begun = Watch::start();
    let one = Side::tcp();
    let qp = server.pd.create_qp(&server.cq, &server.cq, QpOptions::default()).expect("room");
    qp.post_recv(1, &[]).expect("room");
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.request(LONG).expect("a request").accept(&qp, options));
        let connected = one.qp.connect(listener.address(), options, LONG).expect("connected");
        let accepted = accepting.join().expect("accepted").expect("it waits");
        one.qp.post_send(Wr::send_inline(1, b"")).expect("room");
        one.done();
        server.done();
        drop((connected, accepted));
    });
    begun.elapsed()
}

#[test]
fn ten_thousand_silent_callers_block_no_others_and_are_dropped_in_time() {
    if is_told_elsewhere("crowds::ten_thousand_silent_callers_block_no_others_and_are_dropped_in_time") {
        return;
    }
    let config = Config { start_timeout: Duration::from_secs(4), ..Config::default() };
    let waiting_max = config.waiting_max;
    let context = Context::open_with(&Lower::Tcp { from: None }, config).expect("sockets");
    let server = Side::new(context);
    let options = Connect { backlog: 4096, ..Connect::default() };
    let listener = server.listen(&options);
    let Address::Ip(address) = listener.address() else { panic!("an IP address") };
    // The clients' files also count against this process's limit, and so do connections not yet accepted.
    let crowd = 10_000.min(files_max().saturating_sub(3 * waiting_max + 200));
    if crowd < 10_000 {
        eprintln!("a crowd of {crowd}: this system allows no more files");
    }
    let before = resident_bytes();
    let mut longest = Duration::ZERO;
    let mut strangers = Vec::new();
    for at in 0..crowd {
        // Make forty connections from each address, so that no per-source limit applies.
        let from = Ipv4Addr::from_bits(Ipv4Addr::new(127, 78, 0, 1).to_bits() + at as u32 / 40);
        strangers.push(TcpLink::connect(address, Some(IpAddr::V4(from))).expect("a socket"));
        if at % 1000 == 999 {
            longest = longest.max(time_for_a_good_peer(&server, &options, &listener));
        }
    }
    let last_came = Watch::start();
    let growth = resident_bytes().saturating_sub(before);
    longest = longest.max(time_for_a_good_peer(&server, &options, &listener));
    let (_, _, ends, lines) = server.context.in_use();
    assert!(ends <= waiting_max + 2 && lines <= waiting_max + 2, "{ends} ends, {lines} lines");
    assert!(ends > waiting_max / 2, "{ends} ends: the crowd came");
    assert!(longest < SOON, "{longest:?}");
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes");
    // Only the helper thread drives the NIC.
    while server.context.in_use().2 > 0 {
        assert!(last_came.elapsed() < LONG, "they are still there: {:?}", server.context.in_use());
        let nobody = listener.request(Duration::from_millis(100));
        assert!(nobody.is_err(), "none of them asked");
    }
    let (_, _, ends, lines) = server.context.in_use();
    assert_eq!((ends, lines), (0, 0));
    let longest = time_for_a_good_peer(&server, &options, &listener);
    assert!(longest < SOON, "{longest:?}");
}

#[test]
fn a_thousand_idle_queue_pairs_cost_little() {
    if is_told_elsewhere("crowds::a_thousand_idle_queue_pairs_cost_little") {
        return;
    }
    let count = 1000.min(files_max().saturating_sub(100) / 2);
    if count < 1000 {
        eprintln!("{count} queue pairs: this system allows no more files");
    }
    let (one, two) = (Side::tcp(), Side::tcp());
    let options = Connect { backlog: 4096, ..Connect::default() };
    let listener = two.listen(&options);
    let target = two.pd.reg_mr(count * 8, kiban_rdma_runtime::Access::ALL).expect("room");
    let before = resident_bytes();
    let (connected, accepted) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            (0..count)
                .map(|_| {
                    let qp = two.pd.create_qp(&two.cq, &two.cq, QpOptions::default()).expect("room");
                    listener.request(LONG).expect("a request").accept(&qp, &options).expect("it waits")
                })
                .collect::<Vec<_>>()
        });
        let connected: Vec<_> = (0..count)
            .map(|_| {
                let qp = one.pd.create_qp(&one.cq, &one.cq, QpOptions::default()).expect("room");
                let connection = qp.connect(listener.address(), &options, LONG).expect("connected");
                (qp, connection)
            })
            .collect();
        (connected, accepting.join().expect("accepted"))
    });
    // Each queue pair has been used once.
    for (at, (qp, _)) in connected.iter().enumerate() {
        let to = Remote { rkey: target.rkey(), address: target.address() + at as u64 * 8 };
        qp.post_send(Wr::write_inline(at as u64, &(at as u64).to_ne_bytes(), to)).expect("room");
        one.done();
    }
    let growth = resident_bytes().saturating_sub(before);
    println!("{} bytes for each of {} ends", growth / (2 * count), 2 * count);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes for {count} queue pairs and their peers");
    assert_eq!(one.context.in_use().2, count);
    drop((connected, accepted));
    assert_eq!((one.context.in_use().2, two.context.in_use().2), (0, 0));
}
