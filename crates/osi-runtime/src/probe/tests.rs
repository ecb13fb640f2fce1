//! Tests of the probe with different peers: one that supports everything, and some that do not.

use super::*;
use crate::association::{Association, Listener, Parameters, Tls};
use crate::echo;
use crate::secure::{self, Identity};
use kiban_osi::AcceptedSelectors;
use kiban_osi::Selectors;
use kiban_osi::session::Versions;
use kiban_osi::stack::layers::StackConfig;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn target(port: u16) -> Target {
    let timeout = Duration::from_secs(10);
    let (called, caller) = (Selectors::default(), Caller::default());
    Target { host: "127.0.0.1".into(), port, tls: None, called, versions: None, caller, timeout }
}

/// Starts an echo responder with these layers; returns its port.
fn echo(stack: StackConfig) -> u16 {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(address, stack, None, Duration::from_secs(10)).expect("a port is free");
    let port = listener.address().expect("it is bound").port();
    tokio::spawn(echo::serve(listener, 10, |_| {}));
    port
}

#[track_caller]
fn check(report: &Report, layer: &str, question: &str, verdict: Verdict, words: &str) {
    let finding =
        report.findings.iter().find(|finding| finding.layer == layer && finding.question.contains(question));
    let finding = finding.unwrap_or_else(|| panic!("{layer}, {question}: {report:#?}"));
    assert!(finding.verdict == verdict && finding.answer.contains(words), "{finding:?}");
}

#[tokio::test]
async fn a_peer_with_all_layers_is_recognised() {
    let report = probe(&target(echo(StackConfig::default()))).await;
    assert!(report.tpkt);
    check(&report, "transport", "class 0", Verdict::Yes, "selected");
    check(&report, "transport", "class 2", Verdict::No, "class 0 selected instead");
    check(&report, "transport", "class 4", Verdict::No, "DR");
    check(&report, "transport", "TPDU sizes", Verdict::Yes, "128, 256, 512, 1024, 2048, 4096, 8192");
    check(&report, "transport", "preferred", Verdict::Yes, "5120 returned");
    check(&report, "transport", "TSEL", Verdict::No, "any selector is accepted");
    check(&report, "session", "version 1", Verdict::Yes, "accepted");
    check(&report, "session", "version 2", Verdict::Yes, "accepted");
    check(&report, "session", "typed data", Verdict::Yes, "resynchronise");
    check(&report, "presentation", "MMS", Verdict::Yes, "ACSE: yes, MMS: yes");
    check(&report, "ACSE", "FTAM", Verdict::Yes, "accepted");
    check(&report, "FTAM", "F-INITIALIZE", Verdict::No, "no answer");
}

/// Starts a relay to an echo responder that closes a connection whose CONNECT proposes both session versions,
/// as josistack and libiec61850 do; returns its port.
async fn one_version(stack: StackConfig) -> u16 {
    let echo = echo(stack);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", echo)).await.expect("it listens");
                let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
                loop {
                    tokio::select! {
                        read = client.read(&mut up) => match read {
                            // The version number's parameter: both versions.
                            Ok(count) if count > 0 && !up[..count].windows(3).any(|it| it == [0x16, 1, 3]) => {
                                server.write_all(&up[..count]).await.expect("it reads");
                            }
                            _ => return,
                        },
                        read = server.read(&mut down) => match read {
                            Ok(count) if count > 0 => {
                                let _ = client.write_all(&down[..count]).await;
                            }
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_peer_that_accepts_a_single_session_version_is_recognised() {
    for (versions, name) in [(Versions::V1, "version 1"), (Versions::V2, "version 2")] {
        let mut stack = StackConfig::default();
        stack.session.versions = versions;
        let port = one_version(stack.clone()).await;
        let report = probe(&target(port)).await;
        check(&report, "session", "CONNECT", Verdict::Yes, "--session-version");
        check(&report, "session", name, Verdict::Yes, "accepted");
        check(&report, "session", "typed data", Verdict::Yes, "resynchronise");
        check(&report, "ACSE", "MMS", Verdict::Yes, "accepted");
        let report = probe(&Target { versions: Some(versions), ..target(port) }).await;
        check(&report, "session", "CONNECT", Verdict::Yes, "answered");
        // The library associates with such a peer if it is told the version.
        let mut parameters = Parameters::new(echo::APPLICATION, &[echo::OCTET_STRINGS]);
        assert!(Association::connect("127.0.0.1", port, parameters.clone()).await.is_err());
        parameters.stack.session.versions = versions;
        Association::connect("127.0.0.1", port, parameters).await.expect("granted");
    }
}

#[tokio::test]
async fn a_peer_that_requires_selectors_is_recognised_layer_by_layer() {
    let mut stack = StackConfig::default();
    stack.transport.accepted_selectors = AcceptedSelectors::Only(vec![b"\0\x01"[..].into()]);
    stack.session.attached = AcceptedSelectors::Only(vec!["ssel".into()]);
    let mut target = target(echo(stack));
    let report = probe(&target).await;
    assert!(report.tpkt);
    check(&report, "transport", "TSEL", Verdict::Yes, "accepted: 0x0001");
    target.called.transport = b"\0\x01"[..].into();
    check(&probe(&target).await, "session", "version 1", Verdict::No, "give one with --ssel");
    target.called.session = "ssel".into();
    check(&probe(&target).await, "session", "version 1", Verdict::Yes, "accepted");
}

#[tokio::test]
async fn other_protocols_and_silent_peers_are_reported() {
    let refused = probe(&target(1)).await;
    assert!(!refused.tpkt);
    check(&refused, "TCP", "connection", Verdict::No, "refused");

    let cc = b"\x03\0\0\x0b\x06\xd0\0\x01\0\x02\0";
    let data = |tsdu: &[u8]| [&[3, 0, 0, 7 + tsdu.len() as u8, 2, 0xf0, 0x80], tsdu].concat();
    for (says, tpkt, words) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false, "HTTP/1.1"),
        (Vec::new(), false, "closed the connection"),
        (b"\x03\0".to_vec(), false, "in the middle of a TPKT"),
        (b"\x03\0\0\x07\xff\xff\xff".to_vec(), true, "not a valid TPDU"),
        (cc.to_vec(), true, "closed the connection"),
        ([&cc[..], &data(b"nonsense")].concat(), true, "not a valid SPDU"),
        ([&cc[..], &data(&[14, 0])].concat(), true, "no result for contexts"),
        ([&cc[..], &data(&[12, 3, 50, 1, 2])].concat(), true, "refused by a layer above it"),
        ([&cc[..], &data(&[25, 0])].concat(), true, "aborted by"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let peer = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.expect("it comes");
                let says = says.clone();
                tokio::spawn(async move {
                    // The peer sends all of its bytes, reads everything, and closes.
                    let _ = socket.write_all(&says).await;
                    let _ = socket.shutdown().await;
                    let _ = socket.read_to_end(&mut Vec::new()).await;
                });
            }
        });
        let report = probe(&target(port)).await;
        peer.abort();
        let said = report.findings.iter().any(|finding| finding.answer.contains(words));
        assert!(report.tpkt == tpkt && said, "{words}: {report:#?}");
    }
}

#[tokio::test]
async fn a_silent_peer_costs_one_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let report = probe(&Target { timeout: Duration::from_millis(50), ..target(port) }).await;
    assert!(!report.tpkt);
    check(&report, "TPKT", "RFC 1006", Verdict::No, "no answer");
}

#[tokio::test]
async fn the_probe_works_through_tls() {
    let folder = std::env::temp_dir().join(format!("kiban-probe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for certificates");
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    let identity = Identity { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&identity.certificate, cert.pem()).expect("written");
    std::fs::write(&identity.key, signing_key.serialize_pem()).expect("written");
    let acceptor = secure::acceptor(&identity, None).expect("a server's settings");
    let connector = secure::connector(Some(&identity.certificate), None).expect("a client's settings");
    std::fs::remove_dir_all(&folder).expect("removed");

    let patience = Duration::from_secs(10);
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(address, StackConfig::default(), Some(acceptor), patience);
    let listener = listener.expect("a port is free");
    let port = listener.address().expect("it is bound").port();
    tokio::spawn(echo::serve(listener, 10, |_| {}));
    let tls = Tls { connector, name: secure::server_name("127.0.0.1").expect("a name") };

    let parameters =
        Parameters { tls: Some(tls.clone()), ..Parameters::new(echo::APPLICATION, &[echo::OCTET_STRINGS]) };
    let association = Association::connect("127.0.0.1", port, parameters).await.expect("granted");
    let context = association.context(echo::OCTET_STRINGS).expect("it is taken");
    let nanos = echo::round_trips(&association, context, 100_000, 3, |_| {}).await.expect("they come back");
    assert_eq!(nanos.len(), 3);
    association.release(Vec::new()).await.expect("granted");

    let report = probe(&Target { tls: Some(tls.clone()), ..target(port) }).await;
    assert!(report.tpkt);
    check(&report, "TLS", "handshake", Verdict::Yes, "TLS 1.3");
    check(&report, "ACSE", "MMS", Verdict::Yes, "accepted");
    // If the probe does not use TLS on the TLS port, the answer is not a TPKT.
    let report = probe(&target(port)).await;
    assert!(!report.tpkt);
    check(&report, "TPKT", "RFC 1006", Verdict::No, "");
    // Here, the probe uses TLS on a port without TLS.
    let report = probe(&Target { tls: Some(tls), ..target(echo(StackConfig::default())) }).await;
    assert!(!report.tpkt);
    check(&report, "TLS", "handshake", Verdict::No, "");
}
