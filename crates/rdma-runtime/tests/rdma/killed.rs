//! A peer's process is killed during a long transfer, or while idle: the survivor gets an error within a
//! second.

use crate::pair::{LONG, Side, Watch, remote_of, role, spawn, words_of};
use kiban_rdma_runtime::{Access, Address, Connect, QpState, Status, Wr};
use std::time::Duration;

/// Length of one message in bytes, far longer than any buffer on the path.
const LENGTH: usize = 1 << 30;
/// Number of bytes that must have been transferred before the kill.
const MIDDLE_BYTES: u64 = 16 << 20;

/// The activity during which the peer is killed. Long messages follow each other, so that one is always in
/// progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Midst {
    PeerWrites,
    PeerIsWritten,
    PeerIsRead,
    PeerReads,
    Nothing,
}

const ALL: [Midst; 5] =
    [Midst::PeerWrites, Midst::PeerIsWritten, Midst::PeerIsRead, Midst::PeerReads, Midst::Nothing];

impl Midst {
    fn length(self) -> usize {
        if self == Midst::Nothing { 64 } else { LENGTH }
    }
}

/// Runs the peer: connects, and transfers data until it is killed.
fn be_killed(midst: Midst, address: Address) -> ! {
    let one = Side::tcp();
    let mr = one.pd.reg_mr(midst.length(), Access::ALL).expect("room");
    let options = Connect { private_data: words_of(&mr), ..Connect::default() };
    let connection = one.qp.connect(address, &options, LONG).expect("connected");
    let remote = remote_of(connection.private_data());
    loop {
        match midst {
            Midst::PeerWrites => one.qp.post_send(Wr::write(1, mr.all(), remote)).expect("room"),
            Midst::PeerReads => one.qp.post_send(Wr::read(1, mr.all(), remote)).expect("room"),
            // The NIC's helper thread makes all further progress.
            _ => std::thread::park(),
        }
        one.done();
    }
}

/// Kills a peer; returns the time until the survivor got all its errors.
fn time_until_a_killed_peer_is_reported(story: &str, midst: Midst) -> Duration {
    let side = Side::tcp();
    let listener = side.listen(&Connect::default());
    side.qp.post_recv(7, &[]).expect("room");
    let mut peer = spawn(&[], story, &format!("{midst:?} {}", listener.address()));
    let mr = side.pd.reg_mr(midst.length(), Access::ALL).expect("room");
    let options = Connect { private_data: words_of(&mr), ..Connect::default() };
    let (connection, private_data) = side.accept(&listener, &options);
    let remote = remote_of(&private_data);
    let posted = match midst {
        Midst::PeerIsWritten => Some(Wr::write(1, mr.all(), remote)),
        Midst::PeerIsRead => Some(Wr::read(1, mr.all(), remote)),
        _ => None,
    };
    let ours = posted.is_some();
    if let Some(wr) = posted {
        side.qp.post_send(wr).expect("room");
    }
    let moved = || {
        let counters = side.context.counters();
        counters.placed_bytes + counters.direct_bytes + counters.payload_out_bytes
    };
    let begun = Watch::start();
    while midst != Midst::Nothing && moved() < MIDDLE_BYTES {
        assert!(begun.elapsed() < LONG, "{midst:?}: nothing comes");
        side.context.progress();
    }
    peer.kill();
    let killed = Watch::start();
    let mut statuses: Vec<(u64, Status)> = Vec::new();
    for _ in 0..1 + usize::from(ours) {
        let done = side.cq.wait(LONG).expect("told");
        statuses.push((done.id, done.status));
    }
    connection.wait_disconnected(LONG).expect("over");
    let took = killed.elapsed();
    assert!(statuses.contains(&(7, Status::Flushed)), "{midst:?}: {statuses:?}");
    if ours {
        let (_, status) = statuses.iter().find(|(id, _)| *id == 1).expect("the work's own");
        assert!(matches!(status, Status::Lost | Status::Flushed), "{midst:?}: {statuses:?}");
    }
    assert_eq!(side.qp.state(), QpState::Error, "{midst:?}");
    // The survivor can reuse the memory, and its queue pair can be connected again.
    mr.deregister().expect("nothing holds it");
    drop(connection);
    side.qp.reset().expect("over");
    assert_eq!((side.context.in_use().2, side.context.in_use().3), (0, 0), "{midst:?}");
    took
}

#[test]
fn a_killed_peer_is_reported_within_a_second_whatever_was_in_progress() {
    let story = "killed::a_killed_peer_is_reported_within_a_second_whatever_was_in_progress";
    if let Some(role) = role() {
        let (name, address) = role.split_once(' ').expect("what and where");
        let midst = ALL.into_iter().find(|midst| format!("{midst:?}") == name).expect("a role");
        be_killed(midst, address.parse().expect("an address"));
    }
    for midst in ALL {
        // A busy machine may delay a report, so one of several must be in time.
        let mut times = (0..5).map(|_| time_until_a_killed_peer_is_reported(story, midst));
        assert!(times.any(|time| time < Duration::from_secs(1)), "{midst:?}");
    }
}
