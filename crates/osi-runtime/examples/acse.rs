//! A custom protocol on top of ACSE: the initiator requests an association, sends values, receives their
//! echoes, and releases the association.
//!
//! `cargo run --release -p kiban-osi-runtime --example acse` runs both sides in one process. To run two
//! processes:
//!
//! ```text
//! acse serve ADDRESS:PORT         answers one association; with port 0, chooses a free port and prints it
//! acse connect HOST:PORT [WORD ...]
//! ```
//!
//! The example shows what an application protocol has to define: an application context, the abstract syntax
//! of its values, and which value is the answer to which. MMS, X.400 and X.500 define the same things, but
//! with more values.

use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::{Asn1, OctetString, Oid};
use kiban_osi::wire::presentation::Pdv;
use kiban_osi_runtime::association::{Acceptance, Association, Event, Listener, Parameters};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

/// The application context name. OIDs below 2.999 are for examples (X.660); a real protocol must register its
/// own OID.
const APPLICATION: Oid = Oid::of("2.999.7.1");
/// The abstract syntax of the values: octet strings, as named by ISO 8571.
const OCTET_STRINGS: Oid = Oid::of("1.0.8571.2.4");
/// Time limit for each answer from the peer.
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = listen("127.0.0.1:0".parse()?)?;
            let address = listener.address()?;
            tokio::try_join!(serve(&listener), connect(address, &["a value", "another"]))?;
            Ok(())
        }
        ["serve", address] => {
            let listener = listen(address.parse()?)?;
            println!("listening on {}", listener.address()?);
            serve(&listener).await
        }
        ["connect", address, ref words @ ..] => connect(address.parse()?, words).await,
        _ => {
            println!("acse; acse serve ADDRESS:PORT; acse connect ADDRESS:PORT [WORD ...]");
            Ok(())
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<Listener> {
    Listener::bind(address, StackConfig::default(), None, PATIENCE)
}

/// Accepts one association and echoes its values.
async fn serve(listener: &Listener) -> Outcome {
    let request = listener.accept().await?.request().await?;
    println!("server: request for {}", request.associate().application_context);
    let association = request.accept(Acceptance::default())?;
    loop {
        match association.receive().await? {
            Event::Data(values) => association.send(values).await?,
            Event::ReleaseRequested { .. } => {
                association.answer_release(Vec::new())?;
                association.closed().await;
                return Ok(());
            }
            _ => {}
        }
    }
}

/// Requests an association, and has each word echoed.
async fn connect(address: SocketAddr, words: &[&str]) -> Outcome {
    let parameters = Parameters::new(APPLICATION, &[OCTET_STRINGS]);
    let association = Association::connect(&address.ip().to_string(), address.port(), parameters).await?;
    let context = association.context(OCTET_STRINGS).ok_or("the peer does not take octet strings")?;
    for word in words {
        let value = OctetString::from(word.as_bytes().to_vec());
        association.send(vec![Pdv::single(context, value.to_rope())]).await?;
        let Event::Data(values) = association.receive().await? else {
            return Err("received something other than data".into());
        };
        let bytes = values.first().ok_or("received no value")?.octets().to_vec();
        let (echo, _) = OctetString::read(&bytes).map_err(|rule| format!("no octet string: {rule:?}"))?;
        assert_eq!(echo, value, "an echo is the same");
        println!("client: {}", String::from_utf8_lossy(word.as_bytes()));
    }
    association.release(Vec::new()).await?;
    association.closed().await;
    println!("client: released");
    Ok(())
}
