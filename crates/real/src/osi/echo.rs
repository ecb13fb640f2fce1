//! Echoes: an end that answers every value with itself, and one that measures how long that takes.
//!
//! Responder  takes any association with any contexts in BER, answers P-DATA with the same values, grants releases. One line is
//!            said of each association, when it has ended.
//! Client     sends octet strings, one after the other, and compares what comes back.
//! Limits     so many associations at once; more are closed as they come. A peer that does not receive its echoes is not read from.
//! Left out   synchronisation points, tokens and typed data, which are passed over.

use super::association::{Acceptance, Arrival, Association, Event, Failure, Listener};
use crate::Clock;
use kiban_wire::ber::{Asn1, OctetString, Oid};
use kiban_wire::presentation::Pdv;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What the two ends want to do with each other. Below 2.999 are numbers for examples (X.660), which nobody else relies on.
pub const APPLICATION: Oid = Oid::of("2.999.7.1");
/// Of what the client's values are: octet strings (ISO 8571's unstructured binary).
pub const OCTET_STRINGS: Oid = Oid::of("1.0.8571.2.4");

/// What there is to say of an association that has ended.
#[derive(Clone, Debug)]
pub struct Told {
    /// Where the peer is.
    pub peer: SocketAddr,
    /// What it wanted to do, if it asked for an association.
    pub application: Option<Oid>,
    /// How many P-DATA were echoed.
    pub values: u64,
    /// And how many bytes of values.
    pub bytes: u64,
    /// How it ended: `None` in order.
    pub failure: Option<Failure>,
}

/// Answers for ever.
pub async fn serve(listener: Listener, associations_max: usize, say: impl Fn(Told) + Send + Sync + 'static) {
    let (places, say) = (Arc::new(Semaphore::new(associations_max)), Arc::new(say));
    loop {
        let arrival = listener.next().await;
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let say = say.clone();
        tokio::spawn(async move {
            say(answer(arrival).await);
            drop(place);
        });
    }
}

/// Answers one association until its end.
async fn answer(arrival: Arrival) -> Told {
    let mut told = Told { peer: arrival.peer(), application: None, values: 0, bytes: 0, failure: None };
    told.failure = echo(arrival, &mut told).await.err();
    told
}

async fn echo(arrival: Arrival, told: &mut Told) -> Result<(), Failure> {
    let asked = arrival.asked().await?;
    told.application = Some(asked.associate().application_context);
    let association = asked.accept(Acceptance::default())?;
    loop {
        match association.receive().await? {
            Event::Data(values) => {
                told.values += 1;
                told.bytes += values.iter().map(|pdv| pdv.octets().len() as u64).sum::<u64>();
                association.send(values).await?;
            }
            Event::ReleaseAsked { .. } => {
                association.answer_release(Vec::new())?;
                association.closed().await;
                return Ok(());
            }
            Event::Released { .. } => return Ok(()),
            Event::Beside(_) => {}
        }
    }
}

/// Sends so many values of so many bytes, one after the other: how many nanoseconds each took to come back.
///
/// # Errors
/// How the association ended; [`io::ErrorKind::InvalidData`] for an echo that is not the same.
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
                Event::ReleaseAsked { .. } | Event::Released { .. } => return Err(Failure::Over),
                Event::Beside(_) => {}
            }
        }
        nanos.push(clock.now().since(begin).as_nanos() as f64);
        progress(done + 1);
    }
    Ok(nanos)
}
