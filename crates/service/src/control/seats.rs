//! Seats for callers: so many at a time, and who says nothing makes way for who comes.
//!
//! Who       first the one that has not asked anything for the longest time; then the one that has asked
//!           before and is silent, or does not read its answer, for the longest time. Who is being answered
//!           stays.
//! Patience  what a caller may take is said with each wait for it.

use kiban_os::lock;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The seats.
pub(super) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    number: u64,
    seats: Vec<Seat>,
}

struct Seat {
    number: u64,
    has_asked: bool,
    /// Since when it is waited for its caller; none: it is being answered.
    waits_since: Option<Instant>,
    /// Gone with the seat: who has it hears that.
    _told: oneshot::Sender<()>,
}

/// A seat that somebody has.
pub(super) struct Place {
    seats: Arc<Seats>,
    number: u64,
    gone: oneshot::Receiver<()>,
}

impl Seats {
    pub(super) fn new(most: usize) -> Arc<Seats> {
        Arc::new(Seats { most, taken: Mutex::default() })
    }

    /// A seat for who comes; none when all the others are being answered.
    pub(super) fn take(self: &Arc<Seats>) -> Option<Place> {
        let mut taken = lock(&self.taken);
        if taken.seats.len() >= self.most {
            let silent = taken.seats.iter().enumerate();
            let silent = silent.filter_map(|(at, seat)| Some((seat.has_asked, seat.waits_since?, at)));
            let (_, _, at) = silent.min()?;
            taken.seats.swap_remove(at);
        }
        taken.number += 1;
        let number = taken.number;
        let (told, gone) = oneshot::channel();
        let waits_since = Some(Instant::now());
        taken.seats.push(Seat { number, has_asked: false, waits_since, _told: told });
        Some(Place { seats: self.clone(), number, gone })
    }
}

impl Place {
    /// Waits for an action of the client.
    ///
    /// # Errors
    /// It takes longer than it may, or has made way; its own.
    pub(super) async fn wait_for<T>(
        &mut self,
        patience: Duration,
        caller: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        self.set(Some(Instant::now()));
        let done = tokio::select! {
            _ = &mut self.gone => Err(io::Error::other("disconnected for another client")),
            done = timeout(patience, caller) => done.unwrap_or_else(|_| {
                let seconds = patience.as_secs();
                let message = format!("no request, or answer not read, within {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }),
        };
        self.set(None);
        done
    }

    fn set(&self, waits_since: Option<Instant>) {
        let mut taken = lock(&self.seats.taken);
        if let Some(seat) = taken.seats.iter_mut().find(|seat| seat.number == self.number) {
            seat.has_asked |= waits_since.is_none();
            seat.waits_since = waits_since;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.taken);
        taken.seats.retain(|seat| seat.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the one in a seat has been told to go.
    fn has_gone(place: &Place) -> bool {
        let taken = lock(&place.seats.taken);
        !taken.seats.iter().any(|seat| seat.number == place.number)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_has_asked_nothing_makes_way_first_and_who_is_answered_stays() {
        let long = Duration::from_secs(60);
        let seats = Seats::new(3);
        let mut answered = seats.take().expect("a seat");
        answered.wait_for(long, async { Ok(()) }).await.expect("it has asked");
        let mut between = seats.take().expect("a seat");
        between.wait_for(long, async { Ok(()) }).await.expect("it has asked");
        between.set(Some(Instant::now()));
        let mut silent = seats.take().expect("a seat");
        // Neither the first nor the one that waits for the longest time, but the one that has never asked.
        let mut other = seats.take().expect("somebody makes way");
        assert!(has_gone(&silent) && !has_gone(&between) && !has_gone(&answered));
        let told = silent.wait_for(long, std::future::pending::<io::Result<()>>()).await;
        assert!(told.is_err());
        other.wait_for(long, async { Ok(()) }).await.expect("it has asked");
        // Now nobody but the one between two questions can.
        let last = seats.take().expect("somebody makes way");
        assert!(has_gone(&between) && !has_gone(&other));
        last.set(None);
        assert!(seats.take().is_none(), "all are being answered");
        drop(last);
        assert!(seats.take().is_some(), "a seat is free");
    }
}
