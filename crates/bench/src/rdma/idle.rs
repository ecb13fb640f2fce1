//! The memory of idle queue pairs: the resident memory of two processes that hold the two ends of a thousand
//! connections.

use super::peer::{Peer, answer, next_word};
use super::setting::PATIENCE;
use kiban_lab::{Bench, Target, Trial, Unit};
use kiban_rdma_runtime::{Address, Connect, Context, Lower, QpOptions};
use std::net::{Ipv4Addr, SocketAddr};

const QUEUE_PAIRS: usize = 1000;

pub(super) fn run(bench: &mut Bench) {
    let files_max = std::fs::read_to_string("/proc/self/limits").ok().and_then(|limits| {
        let line = limits.lines().find(|line| line.starts_with("Max open files"))?.to_owned();
        line.split_whitespace().nth(3)?.parse::<usize>().ok()
    });
    if files_max.is_some_and(|most| most < QUEUE_PAIRS + 64) {
        println!(
            "rdma: {QUEUE_PAIRS} connections need more open files: run ulimit -n 4096 first (row skipped)"
        );
        return;
    }
    // CPU load does not affect memory use, so this row ignores the load from other processes.
    let kept = bench.options_mut().foreign_cores_max;
    bench.options_mut().foreign_cores_max = f64::INFINITY;
    bench.single(
        &format!("{QUEUE_PAIRS} idle queue pairs, resident memory of both ends"),
        Unit::Named("MB"),
        ("RDMA", |_: &mut Trial| {
            let (mut one, mut two) = (Peer::start(), Peer::start());
            let address = two.ask(&format!("idle-accept {QUEUE_PAIRS}"));
            one.tell(&format!("idle-connect {QUEUE_PAIRS} {address}"));
            let here: f64 = one.hear().parse().expect("bytes");
            let there: f64 = two.hear().parse().expect("bytes");
            one.tell("enough");
            two.tell("enough");
            (here + there) / 1e6
        }),
        Target::at_most(64.0),
    );
    bench.options_mut().foreign_cores_max = kept;
}

/// Returns the resident bytes of this process.
pub(crate) fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: usize = pages.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// Reports how much memory the process has gained, and keeps the connections open until the next message
/// arrives.
pub(crate) fn grown(before: usize) {
    answer(resident().saturating_sub(before));
    let _ = next_word();
}

pub(super) fn accept(count: usize) {
    let context = Context::open(&Lower::Tcp { from: None }).expect("sockets");
    let pd = context.alloc_pd().expect("room");
    let cq = context.create_cq(64).expect("room");
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let options = Connect::default();
    let listener = context.listen(at.into(), &options).expect("an address");
    let before = resident();
    answer(listener.address());
    let all: Vec<_> = (0..count)
        .map(|_| {
            let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
            listener.request(PATIENCE).expect("a request").accept(&qp, &options).expect("it waits")
        })
        .collect();
    grown(before);
    drop(all);
}

pub(super) fn connect(count: usize, address: &str) {
    let to: Address = address.parse().expect("an address");
    let context = Context::open(&Lower::Tcp { from: None }).expect("sockets");
    let pd = context.alloc_pd().expect("room");
    let cq = context.create_cq(64).expect("room");
    let before = resident();
    let all: Vec<_> = (0..count)
        .map(|_| {
            let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
            qp.connect(to, &Connect::default(), PATIENCE).expect("the peer accepts")
        })
        .collect();
    grown(before);
    drop(all);
}
