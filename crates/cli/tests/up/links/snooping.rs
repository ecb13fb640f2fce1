//! A board behind a bridge of the kernel with IGMP and MLD snooping, which sends queries.
//!
//! Requires  iproute2 (`ip`, `bridge`).

use crate::common::{Board, LONG, TestDir, enter, ip, run, text};
use kiban_streams::datagrams::DatagramSocket;
use serde_json::Value;

const PORT: &str =
    "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"tap:kiban0\"\naddress = \"fd00:9::2/64\"\n";

/// Attaches the board to a bridge that queries every second; queries are to be answered within a second.
fn attach_to_bridge(version: &str) {
    let times = "mcast_startup_query_interval 100 mcast_query_interval 100 mcast_query_response_interval 100";
    ip(&format!("link add br0 type bridge mcast_snooping 1 mcast_querier 1 {version} {times}"));
    ip("link set kiban0 master br0");
    ip("link set br0 up");
}

/// Waits until the bridge knows this number of groups of the board that begin with `start`.
fn wait_for(start: &str, count: usize) {
    let (clock, start) = (kiban_os::Clock::new(), format!("port kiban0 grp {start}"));
    loop {
        let groups = text(&run("bridge", &["mdb", "show", "dev", "br0"]));
        if groups.lines().filter(|line| line.contains(&start)).count() == count {
            return;
        }
        assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "{count} of {start}: {groups}");
        std::thread::yield_now();
    }
}

/// Waits until the board has answered queries of `protocol`.
fn wait_for_answers(board: &Board<'_>, protocol: &str) {
    let count = |status: &Value, name: &str| {
        let name = format!("{protocol}_{name}");
        status["ports"][0]["counters"]["ethernet"][name].as_u64().expect("a counter")
    };
    let before = count(&board.status(), "reports_out");
    let status = board.until("answers to queries", |status| {
        count(status, "queries_in") >= 3 && count(status, "reports_out") > before
    });
    assert_eq!(count(&status, "malformed"), 0, "{status}");
}

#[test]
fn a_snooping_bridge_learns_the_groups_of_a_board_in_both_versions() {
    for version in ["2", "1"] {
        if !enter() {
            return;
        }
        let dir = TestDir::new(&format!("snooping-{version}"));
        let board = dir.up(PORT);
        attach_to_bridge(&format!("mcast_mld_version {version}"));
        // The solicited-node groups of the link-local and of the configured address.
        wait_for("ff02::1:ff", 2);
        wait_for_answers(&board, "mld");
    }
}

#[test]
fn a_snooping_bridge_learns_the_ipv4_groups_of_sockets_in_both_versions() {
    for version in ["3", "2"] {
        if !enter() {
            return;
        }
        let dir = TestDir::new(&format!("snooping-igmp-{version}"));
        let port = PORT.replace("fd00:9::2/64", "10.9.0.2/24");
        let board = dir.up(&format!("{port}[[service]]\nkind = \"sockets\"\n"));
        attach_to_bridge(&format!("mcast_igmp_version {version}"));
        let socket =
            DatagramSocket::bind_at(&dir.0.join("kiban/lab.sockets"), "0.0.0.0:5000".parse().expect("one"))
                .expect("the board has it");
        let group = "239.1.2.3".parse().expect("an address");
        socket.join(group).expect("it is a group");
        wait_for("239.1.2.3", 1);
        wait_for_answers(&board, "igmp");
        socket.leave(group).expect("it is a member");
        wait_for("239.1.2.3", 0);
    }
}
