//! Associates with a real MMS server, libiec61850, and asks it for its name and its domains.
//!
//! Peer    `scripts/mms/run` installs libiec61850 once, and serves a model with one logical device.
//! Limits  libiec61850 accepts a CONNECT that proposes session version 2 alone.

use kiban_osi::session::Versions;
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::presentation::Pdv;
use kiban_osi_runtime::association::{Association, Event, Parameters};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const MMS: Oid = Oid::of("1.0.9506.2.3");
const MMS_SYNTAX: Oid = Oid::of("1.0.9506.2.1");

/// ISO 9506-2 §8.1: an initiate-RequestPDU. PDUs of up to 65000 octets, 5 outstanding requests in each
/// direction, 10 levels of data; version 1, no conformance building blocks, all services that a client may
/// use.
const INITIATE: [u8; 40] = [
    0xa8, 38, 0x80, 3, 0, 0xfd, 0xe8, 0x81, 1, 5, 0x82, 1, 5, 0x83, 1, 10, // the proposed limits
    0xa4, 22, 0x80, 1, 1, 0x81, 3, 5, 0, 0, // the version and the parameter building blocks
    0x82, 12, 3, 0xee, 0x1c, 0, 0, 4, 8, 0, 0, 0x79, 0xef, 0x18, // the services
];
/// §10.4: a confirmed-RequestPDU with the service identify.
const IDENTIFY: [u8; 7] = [0xa0, 5, 2, 1, 1, 0x82, 0];
/// §10.3: a confirmed-RequestPDU with the service getNameList, for the domains of the server.
const DOMAINS: [u8; 16] = [0xa0, 14, 2, 1, 2, 0xa1, 9, 0xa0, 3, 0x80, 1, 9, 0xa1, 2, 0x80, 0];

/// The server in a child process, and its port.
struct Server(Child, u16);

impl Server {
    fn start() -> Server {
        let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mms/run"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/mms/run");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let said: Vec<String> = lines.take(2).map_while(Result::ok).collect();
        assert_eq!(said.first().map(|said| &**said), Some("here"), "scripts/mms/run says why");
        let port = said.get(1).and_then(|said| said.strip_prefix("listening at ")?.parse().ok());
        Server(child, port.unwrap_or_else(|| panic!("{said:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn parameters(versions: Versions) -> (Parameters, i64) {
    let mut parameters = Parameters::new(MMS, &[MMS_SYNTAX]);
    parameters.stack.session.versions = versions;
    let context = parameters.context(MMS_SYNTAX).expect("it is asked for");
    parameters.user_information = vec![Pdv::single(context, INITIATE.to_vec())];
    (parameters, context)
}

/// Sends a request, and returns the response's octets.
async fn ask(association: &Association, context: i64, request: &[u8]) -> Vec<u8> {
    association.send(vec![Pdv::single(context, request.to_vec())]).await.expect("it listens");
    match association.receive().await.expect("it answers") {
        Event::Data(values) => values[0].octets().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_real_mms_server_answers_with_its_name_and_its_domains() {
    let server = Server::start();
    let (both, _) = parameters(Versions::V1.or(Versions::V2));
    let refused = Association::connect("127.0.0.1", server.1, both).await;
    assert!(refused.is_err(), "it accepts both session versions at once: the page says that it does not");
    let (one, context) = parameters(Versions::V2);
    let association = Association::connect("127.0.0.1", server.1, one).await.expect("granted");
    let answer = association.answer().expect("it has answered").user_information[0].octets().to_vec();
    assert_eq!(answer[0], 0xa9, "an initiate-ResponsePDU: {answer:02x?}");
    let has = |octets: &[u8], text: &[u8]| octets.windows(text.len()).any(|part| part == text);
    let identified = ask(&association, context, &IDENTIFY).await;
    assert_eq!((identified[0], has(&identified, b"libiec61850")), (0xa1, true), "{identified:02x?}");
    let domains = ask(&association, context, &DOMAINS).await;
    assert_eq!((domains[0], has(&domains, b"kibanLD")), (0xa1, true), "{domains:02x?}");
    association.release(Vec::new()).await.expect("an orderly release");
}
