//! An RTP sender on the UDP of the host or of a running board.
//!
//! Ports     RTP to the given port, RTCP to the next one (RFC 3550 §11). Reports are accepted only from the
//!           receiver's address.
//! End       after the goodbyes, the sender waits for the receiver's own, which has its last report.

use super::measured::Sent;
use super::socket::Socket;
use super::stream::{Sender, Stream};
use kiban_base::Instant;
use kiban_measure::Came;
use kiban_measure::pause::readable;
use kiban_os::Clock;
use kiban_os::clock::unix_nanos;
use kiban_os::random;
use kiban_tcpip::rtp::Config;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The seconds from 1900, where NTP begins, to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// How long to wait for the receiver's last report.
const LAST_REPORT: Duration = Duration::from_secs(5);

/// What to send.
#[derive(Clone, PartialEq, Debug)]
pub struct SendRequest {
    /// The receiver's address and port for RTP.
    pub to: SocketAddr,
    /// The running board whose UDP is used; `None` for the host's.
    pub board: Option<String>,
    /// The streams, which are alike.
    pub stream: Stream,
    /// The number of streams.
    pub streams: usize,
    /// How long to send.
    pub length: Duration,
    /// The canonical name.
    pub cname: String,
}

/// Returns the NTP timestamp of a clock's time zero.
pub(super) fn ntp_at_zero(clock: Clock) -> u64 {
    // The shortest of several readings: between the two clocks, the thread may lose its processor.
    let reading = |_| {
        let before = clock.now();
        let unix = unix_nanos();
        let after = clock.now();
        (after.since(before), unix.saturating_sub(before.as_nanos()))
    };
    let (_, nanos) = (0..8).map(reading).min().expect("eight readings");
    let fraction = (u128::from(nanos % 1_000_000_000) << 32) / 1_000_000_000;
    (nanos / 1_000_000_000 + NTP_TO_UNIX) << 32 | fraction as u64
}

/// Draws a random number.
pub(super) fn draw() -> io::Result<u64> {
    random::bytes().map(u64::from_ne_bytes)
}

/// Draws a number from 0 to 1.
pub(super) fn unit() -> f64 {
    // Without random numbers, reports may be sent at the same time as those of others.
    draw().map_or(0.5, |number| number as f64 / u64::MAX as f64)
}

/// Sends streams, and returns what the receiver has reported.
///
/// # Errors
/// A system call failed. A receiver that is not there is no error, because UDP does not notice.
pub fn send(request: &SendRequest) -> io::Result<Sent> {
    let clock = Clock::new();
    let any: SocketAddr = if request.to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let bind = || Socket::bind(request.board.as_deref(), any);
    let (data, control) = (bind()?, bind()?);
    let to_control = SocketAddr::new(request.to.ip(), request.to.port().wrapping_add(1));
    let stream = &request.stream;
    let packets = (request.length.as_nanos() / stream.interval.as_nanos().max(1)) as u64;
    let begin = clock.now();
    let mut senders = Vec::new();
    for number in 0..request.streams {
        let random = draw()?;
        let ssrc = (draw()? >> 32) as u32;
        let config = Config {
            ssrc,
            cname: request.cname.clone().into_bytes(),
            ntp_at_zero: ntp_at_zero(clock),
            ..Config::default()
        };
        let session = Sender::session(stream, request.streams, config, random, begin);
        // Spread the streams over the interval, so that they do not send in bursts.
        let offset = stream.interval.mul_f64(number as f64 / request.streams as f64);
        senders.push((ssrc, Sender::new(stream, session, begin + offset, packets)));
    }
    loop {
        let now = clock.now();
        let mut next: Option<Instant> = None;
        for (_, sender) in &mut senders {
            while sender.due().is_some_and(|due| due <= now) {
                let Some(packet) = sender.packet(now) else { break };
                data.send_to(&packet, request.to)?;
            }
            if let Some(report) = sender.session.poll(unit, now) {
                control.send_to(&report, to_control)?;
            }
            let due = sender.due().map(|due| due.min(sender.session.deadline()));
            next = [next, due].into_iter().flatten().min();
        }
        hear(&control, request.to, &mut senders, clock)?;
        let Some(next) = next else { break };
        readable(&control, next.since(clock.now()))?;
    }
    for (_, sender) in &mut senders {
        if let Some(goodbye) = sender.session.leave(unit(), clock.now()) {
            control.send_to(&goodbye, to_control)?;
        }
    }
    let until = clock.now() + LAST_REPORT;
    let is_heard = |(_, sender): &(u32, Sender)| sender.session.sources().any(|view| view.has_left);
    while clock.now() < until && !senders.iter().all(is_heard) {
        readable(&control, until.since(clock.now()))?;
        hear(&control, request.to, &mut senders, clock)?;
    }
    Ok(Sent::of(&senders, stream.clock_hz))
}

/// Passes the receiver's reports to all sessions.
///
/// # Errors
/// The board has exited.
fn hear(
    control: &Socket,
    receiver: SocketAddr,
    senders: &mut [(u32, Sender)],
    clock: Clock,
) -> io::Result<()> {
    let mut room = [0; 2048];
    while let Some(Came { octets, from, .. }) = control.receive(&mut room)? {
        if from.ip() == receiver.ip() {
            // A malformed report is counted by the session.
            for (_, sender) in &mut *senders {
                let _ = sender.session.on_rtcp(&room[..octets], clock.now());
            }
        }
    }
    Ok(())
}
