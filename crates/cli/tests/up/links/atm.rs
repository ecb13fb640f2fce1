//! Two hosts connected by ATM. Each host runs a board, and the boards exchange cells in UDP datagrams. All
//! programs use the kernels' TCP.

use crate::common::{Board, Far, TestDir, connect, echo, enter};
use crate::links::iperf::rate;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;

/// Returns the configuration of a host's board, which sends cells over the veth to the other host's board,
/// and has a TUN device with the kernel's address.
fn host(own: u8, other: u8, options: &str, more: &str) -> String {
    format!(
        "name = \"lab\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:10.7.0.{own}:7000-10.7.0.{other}:7000{options}\"\n\
         address = \"10.1.0.{own}/24\"\nhost = \"tun:khost\"\n{more}[[port.pvc]]\nvc = \"0.100\"\n"
    )
}

/// Checks that the link was never lost and that no cell had errors.
fn is_sound(board: &Board<'_>) -> Value {
    let status = board.status();
    for port in status["ports"].as_array().expect("ports") {
        let count = |name: &str| port["link_counters"][name].as_u64();
        assert_eq!((port["state"].as_str(), port["losses"].as_u64()), (Some("up"), Some(0)), "{status}");
        assert_eq!((count("malformed"), count("wrong_sender")), (Some(0), Some(0)), "{status}");
    }
    status
}

#[test]
fn iperf3_fills_an_oc3c_between_two_hosts_in_both_directions() {
    if !enter() {
        return;
    }
    let far = Far::new();
    far.wire(1500);
    for options in ["", ",packed"] {
        let (near_place, far_place) = (TestDir::new("oc3c-near"), TestDir::new("oc3c-far"));
        let far_board = far_place.up_by(&host(2, 1, options, ""), |command| far.spawn(command));
        let near_board = near_place.up(&host(1, 2, options, ""));
        near_board.until("the peer is known", |status| status["circuits"][0]["peer"] == "10.1.0.2");
        for way in [&[][..], &["-R"], &["-P", "4"]] {
            // OC-3c carries 149.76 Mbit/s of cells. With packets of 9180 bytes, this leaves 134.3 Mbit/s for
            // TCP.
            let rate = rate(&[&["-c", "10.1.0.2"], way].concat(), 60e6, |command| far.spawn(command));
            assert!((60e6..136e6).contains(&rate), "{way:?}, udp-cells{options}: {rate} bit/s");
        }
        let (near, far) = (is_sound(&near_board), is_sound(&far_board));
        let cells =
            |status: &Value, name: &str| status["ports"][0]["link_counters"][name].as_u64().expect("a count");
        let (sent, came) = (cells(&near, "units_out"), cells(&far, "units_in"));
        // A busy machine may drop datagrams, but this must be rare here.
        assert!(came.abs_diff(sent) < sent / 100, "{options}: {came} of {sent} cells came");
    }
}

#[test]
fn a_kernel_session_survives_a_killed_board() {
    if !enter() {
        return;
    }
    let far = Far::new();
    far.wire(1500);
    let (near_place, far_place) = (TestDir::new("kill-near"), TestDir::new("kill-far"));
    let mut far_board = far_place.up_by(&host(2, 1, "", ""), |command| far.spawn(command));
    let near_board = near_place.up(&host(1, 2, "", ""));
    near_board.until("the peer is known", |status| status["circuits"][0]["peer"] == "10.1.0.2");
    let listener = far.run(|| TcpListener::bind("10.1.0.2:9").expect("the kernel has the address"));
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("a client connects").0;
        std::io::copy(&mut stream.try_clone().expect("a second handle"), &mut stream).expect("to its end")
    });
    let mut session = connect("10.1.0.2:9");
    echo(&mut session, b"before");
    for round in 0..2 {
        far_board.signal("-KILL");
        assert_eq!(far_board.wait(), None, "it has not ended by itself");
        // Send while the board is down: the kernel retransmits until the board is back.
        session.write_all(b"meanwhile").expect("the kernel keeps it");
        far_board = far_place.up_by(&host(2, 1, "", ""), |command| far.spawn(command));
        let mut heard = [0; 9];
        session.read_exact(&mut heard).expect("it comes back");
        assert_eq!(&heard, b"meanwhile", "{round}");
    }
    drop(session);
    assert_eq!(server.join().expect("content"), 6 + 2 * 9);
    is_sound(&near_board);
}
