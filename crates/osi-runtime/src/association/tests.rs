//! Tests of associations with both ends in one process: the transfer of data in both directions, and all the
//! ways in which an association can end.

use super::event::Event;
use super::handle::Association;
use super::listener::{AssociateRequest, Listener};
use super::parameters::{Acceptance, AcceptedContexts, Failure, Parameters};
use kiban_osi::Selectors;
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::acse::{AssociateDiagnostic, AssociateResult, UserDiagnostic};
use kiban_osi::wire::ber::{Asn1, OctetString, Oid};
use kiban_osi::wire::presentation::Pdv;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const APPLICATION: Oid = Oid::of("1.3.9999.1.1");
const SYNTAX: Oid = Oid::of("1.3.9999.2.1");
const OTHER: Oid = Oid::of("1.3.9999.2.2");

fn listener() -> (Listener, u16) {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(address, StackConfig::default(), None, Duration::from_secs(20));
    let listener = listener.expect("a port is free");
    let port = listener.address().expect("it is bound").port();
    (listener, port)
}

async fn requested(listener: &Listener) -> AssociateRequest {
    listener.accept().await.expect("it comes").request().await.expect("it asks")
}

/// Returns both ends of an association; the second is the responder.
async fn pair() -> (Association, Association) {
    let (listener, port) = listener();
    let parameters = Parameters::new(APPLICATION, &[SYNTAX, OTHER]);
    let there = async {
        let wanted = Acceptance { contexts: AcceptedContexts::Only(vec![SYNTAX]), ..Acceptance::default() };
        requested(&listener).await.accept(wanted).expect("granted")
    };
    let (here, there) = tokio::join!(Association::connect("127.0.0.1", port, parameters), there);
    (here.expect("granted"), there)
}

fn value(context: i64, bytes: usize) -> Pdv {
    Pdv::single(context, OctetString::from(vec![7; bytes]).to_rope())
}

#[tokio::test]
async fn values_go_both_ways_and_the_release_is_orderly() {
    let (here, there) = pair().await;
    let context = here.context(SYNTAX).expect("it was wanted");
    assert_eq!((here.context(OTHER), there.context(SYNTAX)), (None, Some(context)));
    let answer = here.answer().expect("it was answered");
    assert_eq!(answer.application_context, Some(APPLICATION));

    for bytes in [0, 1, 127, 128, 65_000, 300_000] {
        let sent = vec![value(context, bytes), value(context, 3)];
        here.send(sent.clone()).await.expect("sent");
        assert_eq!(there.receive().await.expect("received"), Event::Data(sent.clone()));
        there.send(sent.clone()).await.expect("sent");
        assert_eq!(here.receive().await.expect("received"), Event::Data(sent));
    }
    let unknown = here.send(vec![value(99, 1)]).await;
    assert!(matches!(unknown, Err(Failure::InvalidRequest(_))), "{unknown:?}");

    let answers = async {
        let event = there.receive().await.expect("received");
        assert!(matches!(event, Event::ReleaseRequested { .. }), "{event:?}");
        there.answer_release(vec![value(context, 2)]).expect("answered");
    };
    let (released, ()) = tokio::join!(here.release(Vec::new()), answers);
    assert_eq!(released.expect("granted").len(), 1);
    here.closed().await;
    there.closed().await;
    assert!(here.send(vec![value(context, 1)]).await.is_err());
    assert!(here.receive().await.is_err() && there.receive().await.is_err());
}

#[tokio::test]
async fn both_ends_may_release_at_once() {
    let (here, there) = pair().await;
    let (one, two) = tokio::join!(here.release(Vec::new()), there.release(Vec::new()));
    one.expect("granted");
    two.expect("granted");
}

#[tokio::test]
async fn an_abort_and_a_drop_are_both_reported() {
    let (here, there) = pair().await;
    here.abort(Vec::new());
    let end = there.receive().await.expect_err("it has ended");
    assert!(matches!(end, Failure::Aborted(_)), "{end}");
    assert!(matches!(there.receive().await, Err(Failure::Aborted(_))));

    let (here, there) = pair().await;
    drop(there);
    let end = here.receive().await.expect_err("it has ended");
    assert!(matches!(end, Failure::Aborted(_)), "{end}");
    assert!(matches!(here.send(vec![value(1, 1)]).await, Err(Failure::Aborted(_))));
}

#[tokio::test]
async fn a_refusal_carries_its_reason() {
    let (listener, port) = listener();
    let refuses = async {
        let request = requested(&listener).await;
        assert_eq!(request.associate().presentation.called.bytes(), b"psel");
        let why = UserDiagnostic::CALLED_AP_TITLE_NOT_RECOGNIZED;
        request.refuse(AssociateResult::REJECTED_PERMANENT, why).await;
    };
    let called = Selectors { presentation: "psel".into(), session: "ssel".into(), transport: "tsel".into() };
    let parameters = Parameters { called, ..Parameters::new(APPLICATION, &[SYNTAX]) };
    let (refused, ()) = tokio::join!(Association::connect("127.0.0.1", port, parameters), refuses);
    let Err(Failure::Refused(answer)) = refused else { panic!("{refused:?}") };
    let why = AssociateDiagnostic::ServiceUser(UserDiagnostic::CALLED_AP_TITLE_NOT_RECOGNIZED);
    assert_eq!((answer.diagnostic, answer.result), (Some(why), AssociateResult::REJECTED_PERMANENT));
}

#[tokio::test]
async fn a_sender_waits_for_a_slow_receiver_and_nothing_is_lost() {
    let (here, there) = pair().await;
    let context = here.context(SYNTAX).expect("it was wanted");
    let (count, bytes) = (400, 60_000);
    let talks = async {
        for _ in 0..count {
            here.send(vec![value(context, bytes)]).await.expect("sent");
        }
    };
    let mut talks = std::pin::pin!(talks);
    // Sending stops when the buffers between the two ends are full, long before everything has been sent.
    tokio::select! {
        () = &mut talks => panic!("24 MB were accepted without a reader"),
        () = full(&here, &there) => {}
    }
    let listens = async {
        for _ in 0..count {
            assert_eq!(there.receive().await.expect("received"), Event::Data(vec![value(context, bytes)]));
        }
    };
    tokio::join!(talks, listens);
}

/// Waits until one end is no longer allowed to send and the other end no longer reads.
async fn full(here: &Association, there: &Association) {
    while !(here.shared.is_full() && there.shared.is_full()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn invalid_and_silent_peers_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    for (says, expected) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], "does not speak RFC 1006"),
        (b"", "refused or closed the transport connection"),
        (b"\x03\x00\x00\x0b\x06\x80\x00\x01\x00\x00\x03", "the selector is unknown (3)"),
        (b"\x03\x00\x00\x0f\x0a\x80\x00\x01\x00\x00\x81\xe0\x02no", "is congested (129), saying \"no\""),
    ] {
        let nonsense = async {
            let (mut socket, _) = listener.accept().await.expect("it comes");
            let mut request = [0; 11];
            socket.read_exact(&mut request).await.expect("a CR");
            socket.write_all(says).await.expect("said");
            socket
        };
        let parameters = Parameters::new(APPLICATION, &[SYNTAX]);
        let connects = async {
            let failure = Association::connect("127.0.0.1", port, parameters).await.expect_err("no OSI");
            assert!(failure.to_string().contains(expected), "{expected}: {failure}");
        };
        tokio::join!(connects, async { drop(nonsense.await) });
    }
    let parameters = Parameters { timeout: Duration::from_millis(50), ..Parameters::new(APPLICATION, &[]) };
    let silence = Association::connect("127.0.0.1", port, parameters).await;
    assert!(matches!(silence, Err(Failure::Timeout)), "{silence:?}");
}
