//! Echoes: a responder that returns every value, and a client that measures the round-trip time.
//!
//! Responder        accepts any association and any contexts in BER, returns the values of each P-DATA, and
//!                  accepts releases. It reports each association once, when it has ended.
//! Client           sends octet strings, one after the other, and compares the echoes with them.
//! Limits           a maximum number of associations; further connections are closed at once. As long as a
//!                  peer does not receive its echoes, the responder does not read from it.
//! Not implemented  synchronisation points, tokens and typed data, which are ignored.

use super::association::{Acceptance, Association, Event, Failure, IncomingConnection, Listener};
use kiban_os::Clock;
use kiban_osi::wire::ber::{Asn1, OctetString, Oid};
use kiban_osi::wire::presentation::Pdv;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The application context name. OIDs below 2.999 are reserved for examples (X.660), so this one cannot
/// conflict with a real protocol.
pub const APPLICATION: Oid = Oid::of("2.999.7.1");
/// The abstract syntax of the client's values: octet strings (ISO 8571's unstructured binary).
pub const OCTET_STRINGS: Oid = Oid::of("1.0.8571.2.4");

/// The report on an association that has ended.
#[derive(Clone, Debug)]
pub struct EchoReport {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The application context name, if the peer requested an association.
    pub application: Option<Oid>,
    /// The number of P-DATA echoed.
    pub values: u64,
    /// The number of bytes in the echoed values.
    pub bytes: u64,
    /// The failure that ended the association; `None` after an orderly release.
    pub failure: Option<Failure>,
}

/// Serves associations forever.
pub async fn serve(
    listener: Listener,
    associations_max: usize,
    say: impl Fn(EchoReport) + Send + Sync + 'static,
) {
    let (permits, say) = (Arc::new(Semaphore::new(associations_max)), Arc::new(say));
    loop {
        let arrival = listener.next().await;
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let say = say.clone();
        tokio::spawn(async move {
            say(answer(arrival).await);
            drop(permit);
        });
    }
}

/// Serves one association until it ends.
async fn answer(arrival: IncomingConnection) -> EchoReport {
    let mut report =
        EchoReport { peer: arrival.peer(), application: None, values: 0, bytes: 0, failure: None };
    report.failure = echo(arrival, &mut report).await.err();
    report
}

async fn echo(arrival: IncomingConnection, report: &mut EchoReport) -> Result<(), Failure> {
    let request = arrival.request().await?;
    report.application = Some(request.associate().application_context);
    let association = request.accept(Acceptance::default())?;
    loop {
        match association.receive().await? {
            Event::Data(values) => {
                report.values += 1;
                report.bytes += values.iter().map(|pdv| pdv.octets().len() as u64).sum::<u64>();
                association.send(values).await?;
            }
            Event::ReleaseRequested { .. } => {
                association.answer_release(Vec::new())?;
                association.closed().await;
                return Ok(());
            }
            Event::Released { .. } => return Ok(()),
            Event::Beside(_) => {}
        }
    }
}

/// Sends a number of values of a given length, one after the other; returns the round-trip time of each in
/// ns.
///
/// # Errors
/// The failure that ended the association; [`io::ErrorKind::InvalidData`] if an echo differs from the value
/// sent.
pub async fn round_trips(
    association: &Association,
    context: i64,
    bytes: usize,
    count: u64,
    mut progress: impl FnMut(u64),
) -> Result<Vec<f64>, Failure> {
    let clock = Clock::new();
    let value = OctetString::from(vec![0x55; bytes]).to_rope();
    let mut nanos = Vec::new();
    for done in 0..count {
        let begin = clock.now();
        association.send(vec![Pdv::single(context, value.clone())]).await?;
        loop {
            match association.receive().await? {
                Event::Data(echoes) => {
                    let [echo] = &echoes[..] else { return Err(io::ErrorKind::InvalidData.into()) };
                    if *echo.octets() != value {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    break;
                }
                Event::ReleaseRequested { .. } | Event::Released { .. } => return Err(Failure::Over),
                Event::Beside(_) => {}
            }
        }
        nanos.push(clock.now().since(begin).as_nanos() as f64);
        progress(done + 1);
    }
    Ok(nanos)
}
