//! Tests interoperability with josistack, an independent OSI stack in Java. Each connects to the other, and
//! values are echoed.
//!
//! Peer      `scripts/josistack/run` fetches josistack once, and runs a program on it that either echoes
//!           values, or sends values for kiban to echo.
//! Limits    the limits are those of josistack 1.3.3. It supports only the contexts of ACSE and MMS, and
//!           requires a CONNECT that proposes only version 2. It has no orderly release: it ends a connection
//!           with a DR, and answers FINISH with a DR.

use kiban_osi::presentation::PAbort;
use kiban_osi::session::{AbortReason, Versions};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::presentation::Pdv;
use kiban_osi::{Selector, Selectors, transport};
use kiban_osi_runtime::association::{Acceptance, Association, Event, Failure, Listener, Parameters};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const MMS: Oid = Oid::of("1.0.9506.2.3");
const MMS_SYNTAX: Oid = Oid::of("1.0.9506.2.1");
/// Time limit for each of the peer's steps.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lengths of the values in octets.
const SIZES: [usize; 7] = [0, 1, 100, 127, 128, 3_000, 65_000];

/// josistack in a child process, and its output.
struct Peer(Child, BufReader<ChildStdout>);

impl Peer {
    fn start(words: &[&str]) -> Peer {
        let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/josistack/run"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/josistack/run");
        let told = BufReader::new(child.stdout.take().expect("piped"));
        let mut peer = Peer(child, told);
        assert_eq!(peer.says(), "here", "josistack cannot be had: scripts/josistack/run says why");
        peer
    }

    /// Returns the peer's next output line; empty if the peer has exited.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Encodes a value of this many octets as the peer does: as an OCTET STRING, with a length field of three
/// octets if the value has 128 octets or more.
fn value(count: usize) -> Vec<u8> {
    let octets = (0..count).map(|at| (at * 7) as u8);
    let header = match count {
        0..128 => vec![4, count as u8],
        _ => [&[4, 0x83][..], &(count as u32).to_be_bytes()[1..]].concat(),
    };
    header.into_iter().chain(octets).collect()
}

/// Returns whether the association ended with a DR or with the end of the TCP connection.
fn is_disconnected(failure: &Failure) -> bool {
    match failure {
        Failure::Disconnected(_) => true,
        Failure::Broken(PAbort::Session(reason)) => *reason == AbortReason::TransportDisconnect,
        _ => false,
    }
}

#[tokio::test]
async fn josistack_associates_and_receives_its_values_back() {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(address, StackConfig::default(), None, PATIENCE).expect("a free port");
    let port = listener.address().expect("it is bound").port().to_string();
    // Columns: the TPDU size (65531, 128 or 2048 octets), and the calling and called selectors in hex.
    let associations = [["16", "0000", "0001"], ["7", "", "00000001"], ["11", "6b", "6b6962616e"]];
    let mut peer = Peer::start(&[&["client", &port], associations.as_flattened()].concat());
    for _ in associations {
        let arrival = tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it connects");
        let request = arrival.expect("a connection").request().await.expect("it asks");
        let associate = request.associate();
        assert_eq!(associate.application_context, MMS);
        let user_information = associate.user_information.clone();
        assert_eq!(user_information[0].octets().to_vec(), value(5));
        let wanted = Acceptance { user_information, ..Acceptance::default() };
        let association = request.accept(wanted).expect("granted");
        assert_eq!(association.context(MMS_SYNTAX), Some(3));
        for count in SIZES {
            let Ok(Event::Data(values)) = association.receive().await else { panic!("no value of {count}") };
            assert_eq!(values, [Pdv::single(3, value(count))]);
            association.send(values).await.expect("it listens");
        }
        let end = association.receive().await.expect_err("it disconnects");
        assert!(is_disconnected(&end), "{end:?}");
        assert_eq!(peer.says(), "associated");
        for count in SIZES {
            assert_eq!(peer.says(), format!("echoed {count}"));
        }
        assert_eq!(peer.says(), "disconnected");
    }
    assert_eq!(peer.says(), "");
    assert!(peer.0.wait().expect("it was started").success());
}

#[tokio::test]
async fn our_association_with_josistack_returns_our_values() {
    let mut peer = Peer::start(&["server"]);
    let line = peer.says();
    let port = line.strip_prefix("listening at ").and_then(|port| port.parse().ok());
    let port = port.unwrap_or_else(|| panic!("{line:?}"));
    for (tpdu_bytes, calling, called, releases) in
        [(65531, &b"\0\0"[..], &b"\0\x01"[..], true), (128, b"", b"\0\0\0\x01", false)]
    {
        let mut parameters = Parameters::new(MMS, &[MMS_SYNTAX]);
        let context = parameters.context(MMS_SYNTAX).expect("it is asked for");
        parameters.stack.session.versions = Versions::V2;
        parameters.stack.transport =
            transport::Config { tpdu_bytes_max: tpdu_bytes, ..transport::Config::default() };
        let selectors = |transport: &[u8]| Selectors {
            presentation: Selector::from(&b"\0\0\0\x01"[..]),
            session: Selector::from(&b"\0\x01"[..]),
            transport: Selector::from(transport),
        };
        (parameters.calling, parameters.called) = (selectors(calling), selectors(called));
        parameters.user_information = vec![Pdv::single(context, value(5))];
        let association = Association::connect("127.0.0.1", port, parameters).await.expect("granted");
        assert_eq!(peer.says(), "asked with 7");
        let answer = association.answer().expect("it has answered");
        assert_eq!(answer.user_information[0].octets().to_vec(), value(7));
        for count in SIZES {
            let values = vec![Pdv::single(context, value(count))];
            association.send(values.clone()).await.expect("it listens");
            assert_eq!(association.receive().await.expect("an echo"), Event::Data(values));
            assert_eq!(peer.says(), format!("echoed {}", value(count).len()));
        }
        if releases {
            let end = association.release(Vec::new()).await.expect_err("it has no release");
            assert!(is_disconnected(&end), "{end:?}");
        } else {
            association.abort(Vec::new());
            association.closed().await;
        }
        // Either the peer has read FINISH and reports an unknown SPDU, or it has detected the end of the
        // connection.
        assert_eq!(peer.says().starts_with("failed: "), releases);
    }
}
