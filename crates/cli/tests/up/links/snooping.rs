//! A board behind a bridge of the kernel with IGMP and MLD snooping, which sends queries.
//!
//! Requires  iproute2 (`ip`, `bridge`).

use crate::common::{LONG, TestDir, enter, run, text};
use kiban_streams::datagrams::DatagramSocket;
use serde_json::Value;

const PORT: &str =
    "name = \"lab\"\n[[port]]\nname = \"lan\"\nlink = \"tap:kiban0\"\naddress = \"fd00:9::2/64\"\n";

fn ip(arguments: &str) {
    let output = run("ip", &arguments.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "ip {arguments}: {}", text(&output));
}

#[test]
fn a_snooping_bridge_learns_the_groups_of_a_board_in_both_versions() {
    for version in ["2", "1"] {
        if !enter() {
            return;
        }
        let dir = TestDir::new(&format!("snooping-{version}"));
        let board = dir.up(PORT);
        // A query every second, to be answered within a second.
        let times =
            "mcast_startup_query_interval 100 mcast_query_interval 100 mcast_query_response_interval 100";
        let kind = format!("mcast_snooping 1 mcast_querier 1 mcast_mld_version {version} {times}");
        ip(&format!("link add br0 type bridge {kind}"));
        ip("link set kiban0 master br0");
        ip("link set br0 up");
        let clock = kiban_os::Clock::new();
        loop {
            let groups = text(&run("bridge", &["mdb", "show", "dev", "br0"]));
            // The solicited-node groups of the link-local and of the configured address.
            let learned = |start: &str| groups.lines().filter(|line| line.contains(start)).count();
            if learned("port kiban0 grp ff02::1:ff") == 2 {
                break;
            }
            assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "version {version}: {groups}");
            std::thread::yield_now();
        }
        let count = |status: &Value, name: &str| {
            status["ports"][0]["counters"]["ethernet"][name].as_u64().expect("a counter")
        };
        let before = count(&board.status(), "mld_reports_out");
        let status = board.until("answers to queries", |status| {
            count(status, "mld_queries_in") >= 3 && count(status, "mld_reports_out") > before
        });
        assert_eq!(count(&status, "mld_malformed"), 0, "{status}");
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
        let times =
            "mcast_startup_query_interval 100 mcast_query_interval 100 mcast_query_response_interval 100";
        let kind = format!("mcast_snooping 1 mcast_querier 1 mcast_igmp_version {version} {times}");
        ip(&format!("link add br0 type bridge {kind}"));
        ip("link set kiban0 master br0");
        ip("link set br0 up");
        let socket =
            DatagramSocket::bind_at(&dir.0.join("kiban/lab.sockets"), "0.0.0.0:5000".parse().expect("one"))
                .expect("the board has it");
        let group = "239.1.2.3".parse().expect("an address");
        let wait_for = |count: usize| {
            let clock = kiban_os::Clock::new();
            loop {
                let groups = text(&run("bridge", &["mdb", "show", "dev", "br0"]));
                let learned = groups.lines().filter(|line| line.contains("port kiban0 grp 239.1.2.3"));
                if learned.count() == count {
                    return;
                }
                assert!(clock.now().as_secs_f64() < LONG.as_secs_f64(), "version {version}: {groups}");
                std::thread::yield_now();
            }
        };
        socket.join(group).expect("it is a group");
        wait_for(1);
        let count = |status: &Value, name: &str| {
            status["ports"][0]["counters"]["ethernet"][name].as_u64().expect("a counter")
        };
        let before = count(&board.status(), "igmp_reports_out");
        let status = board.until("answers to queries", |status| {
            count(status, "igmp_queries_in") >= 3 && count(status, "igmp_reports_out") > before
        });
        assert_eq!(count(&status, "igmp_malformed"), 0, "{status}");
        socket.leave(group).expect("it is a member");
        wait_for(0);
    }
}
