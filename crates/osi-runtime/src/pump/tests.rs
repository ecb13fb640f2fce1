//! Tests of the pump between two endpoints that both send, over a small pipe, over TCP, and over TLS.

use super::end::End;
use super::turns::pump;
use crate::secure::{self, Identity};
use bytes::Bytes;
use kiban_base::{Instant, Rope, RopeQueue, SimRng};
use kiban_os::Clock;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// An endpoint that sends random data, and stores the data that it receives.
struct Talker {
    chance: SimRng,
    unsent: usize,
    outgoing: RopeQueue,
    received: Vec<u8>,
    expected: usize,
    ended: bool,
}

impl Talker {
    fn new(seed: u64, unsent: usize, expected: usize) -> Talker {
        let chance = SimRng::from_seed(seed);
        Talker { chance, unsent, outgoing: RopeQueue::new(), received: Vec::new(), expected, ended: false }
    }

    /// Returns all data sent by the endpoint with this seed.
    fn speech(seed: u64, bytes: usize) -> Vec<u8> {
        let mut talker = Talker::new(seed, bytes, 0);
        let mut said = Vec::new();
        while talker.unsent > 0 {
            talker.work(Instant::ZERO);
            said.extend(talker.outgoing.runs().flatten());
            talker.outgoing.clear();
        }
        said
    }
}

impl End for Talker {
    fn arrive(&mut self, bytes: Bytes, _now: Instant) {
        self.received.extend_from_slice(&bytes);
    }

    fn ended(&mut self, how: io::Result<()>, _now: Instant) {
        how.expect("the connection is intact");
        self.ended = true;
    }

    fn work(&mut self, _now: Instant) {
        while self.unsent > 0 && self.outgoing.len() < 10_000 {
            let bytes = self.chance.below(3000).min(self.unsent as u64 - 1) as usize + 1;
            let noise: Vec<u8> = (0..bytes).map(|_| self.chance.draw() as u8).collect();
            let mut rope = Rope::from(noise);
            rope.prepend(&[self.chance.draw() as u8; 4][..4.min(self.unsent - bytes)]);
            self.unsent -= rope.len();
            self.outgoing.push(rope);
        }
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn is_over(&self) -> bool {
        self.ended || self.unsent == 0 && self.received.len() >= self.expected
    }
}

async fn both_talk(
    mut here: impl AsyncRead + AsyncWrite + Unpin,
    mut there: impl AsyncRead + AsyncWrite + Unpin,
) {
    let bytes = 300_000;
    let (clock, bell) = (Clock::new(), Notify::new());
    let (mut one, mut two) = (Talker::new(1, bytes, bytes), Talker::new(2, bytes, bytes));
    let (first, second) =
        tokio::join!(pump(&mut one, &mut here, &bell, &clock), pump(&mut two, &mut there, &bell, &clock));
    first.expect("the first end pumps");
    second.expect("the second end pumps");
    assert_eq!(one.received, Talker::speech(2, bytes));
    assert_eq!(two.received, Talker::speech(1, bytes));
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.expect("it listens"), server.expect("it connects").0)
}

#[tokio::test]
async fn data_goes_both_ways_at_once() {
    let (here, there) = tokio::io::duplex(1000);
    both_talk(here, there).await;
    let (here, there) = sockets().await;
    both_talk(here, there).await;
}

#[tokio::test]
async fn data_goes_both_ways_through_mutual_tls() {
    let folder = std::env::temp_dir().join(format!("kiban-pump-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for certificates");
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let identity = Identity { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&identity.certificate, cert.pem()).expect("written");
    std::fs::write(&identity.key, signing_key.serialize_pem()).expect("written");

    let acceptor = secure::acceptor(&identity, Some(&identity.certificate)).expect("a server's settings");
    let connector =
        secure::connector(Some(&identity.certificate), Some(&identity)).expect("a client's settings");
    let (here, there) = sockets().await;
    let name = secure::server_name("localhost").expect("a name");
    let (client, server) = tokio::join!(connector.connect(name, here), acceptor.accept(there));
    both_talk(client.expect("trusted"), server.expect("trusted")).await;

    // A server refuses a client without a certificate, and a client rejects a certificate issued for another
    // name.
    let nameless = secure::connector(Some(&identity.certificate), None).expect("settings");
    let (here, there) = sockets().await;
    let name = secure::server_name("localhost").expect("a name");
    let (_client, server) = tokio::join!(nameless.connect(name, here), acceptor.accept(there));
    assert!(server.is_err());
    let (here, there) = sockets().await;
    let name = secure::server_name("elsewhere.example").expect("a name");
    let (client, _server) = tokio::join!(connector.connect(name, here), acceptor.accept(there));
    assert!(client.is_err());
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test]
async fn an_end_learns_that_its_peer_has_closed() {
    let (mut here, there) = sockets().await;
    let mut end = Talker::new(3, 0, usize::MAX);
    drop(there);
    pump(&mut end, &mut here, &Notify::new(), &Clock::new()).await.expect("a close is no error");
    assert!(end.ended);
}

/// An endpoint whose deadline has always passed, as after slow work.
#[derive(Default)]
struct Late {
    turns: usize,
    received: usize,
    outgoing: RopeQueue,
}

impl End for Late {
    fn arrive(&mut self, bytes: Bytes, _now: Instant) {
        self.received += bytes.len();
    }

    fn ended(&mut self, _how: io::Result<()>, _now: Instant) {}

    fn work(&mut self, _now: Instant) {
        self.turns += 1;
    }

    fn outgoing(&mut self) -> &mut RopeQueue {
        &mut self.outgoing
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn deadline(&self) -> Instant {
        Instant::ZERO
    }

    fn is_over(&self) -> bool {
        self.turns == 2
    }
}

#[tokio::test]
async fn bytes_that_have_arrived_count_before_a_deadline_that_has_passed() {
    for _ in 0..64 {
        let (mut here, mut there) = tokio::io::duplex(1000);
        there.write_all(b"in time").await.expect("there is room");
        let mut end = Late::default();
        pump(&mut end, &mut here, &Notify::new(), &Clock::new()).await.expect("no error");
        assert_eq!(end.received, 7);
    }
}
