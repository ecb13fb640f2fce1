//! RDMA Read: a program fetches bytes from another program's memory, without involving that program.
//!
//! `cargo run --release -p kiban-rdma-runtime --example rdma_read` runs both ends in one process. To use two
//! hosts, run it with `serve 0.0.0.0:7471` on one and with `connect HOST:7471` on the other. The option
//! `--over efe:ADDRESS` replaces TCP with the EFE-like transport. See `--help`.
//!
//! The server registers an almanac and only waits: its NIC answers. The client reads two months at once, not
//! in calendar order, into two ranges of its own memory. Both completions arrive in one completion queue.

mod common;

use common::{Outcome, PATIENCE, run};
use kiban_rdma_runtime::{Access, Address, Connect, Context, Kind, Listener, QpOptions, Remote, Status, Wr};

const USAGE: &str = "\
rdma_read [--over LOWER]                   both ends here
rdma_read serve ADDRESS [--over LOWER]     the almanac
rdma_read connect ADDRESS [--over LOWER]   who looks something up
LOWER: tcp, tcp:ADDRESS, efe:ADDRESS, efe-raw:INTERFACE";

/// Bytes of an entry.
const ENTRY: usize = 16;
const ALMANAC: [&str; 12] = [
    "January   31",
    "February  28",
    "March     31",
    "April     30",
    "May       31",
    "June      30",
    "July      31",
    "August    31",
    "September 30",
    "October   31",
    "November  30",
    "December  31",
];

fn serve(context: &Context, listener: &Listener) -> Outcome {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
    let almanac = pd.reg_mr(ALMANAC.len() * ENTRY, Access { remote_read: true, ..Access::NONE })?;
    for (month, entry) in ALMANAC.iter().enumerate() {
        almanac.write(month * ENTRY, entry.as_bytes());
    }

    let request = listener.request(PATIENCE)?;
    let options = Connect { private_data: almanac.remote().to_bytes().into(), ..Connect::default() };
    let connection = request.accept(&qp, &options)?;
    connection.wait_disconnected(PATIENCE)?;

    println!("server: the NIC answered {} reads without involving this program", context.counters().reads_in);
    assert_eq!(context.counters().reads_in, 2);
    assert!(cq.poll().is_none());
    Ok(())
}

fn connect(context: &Context, server: Address, _: &[String]) -> Outcome {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16)?;
    let qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
    // Our own NIC stores the data that is read, so this needs local write access.
    let here = pd.reg_mr(2 * ENTRY, Access::LOCAL)?;

    let connection = qp.connect(server, &Connect::default(), PATIENCE)?;
    let almanac = Remote::from_bytes(connection.private_data())
        .ok_or("the server did not send the almanac's address")?;

    let months = [8, 1];
    for (place, month) in months.into_iter().enumerate() {
        let there = almanac.at((month * ENTRY) as u64);
        qp.post_send(Wr::read(month as u64, here.slice(place * ENTRY, ENTRY), there))?;
    }
    for (place, month) in months.into_iter().enumerate() {
        let done = cq.wait(PATIENCE)?;
        assert_eq!((done.id, done.status, done.kind), (month as u64, Status::Success, Kind::Read));
        let entry = here.to_vec(place * ENTRY, ENTRY);
        let entry = String::from_utf8_lossy(&entry).trim_end_matches('\0').to_owned();
        println!("client: {entry}");
        assert_eq!(entry, ALMANAC[month]);
    }
    connection.disconnect();
    connection.wait_disconnected(PATIENCE)?;
    Ok(())
}

fn main() -> Outcome {
    run(USAGE, serve, connect)
}
