//! Whether a device on the path resets connections.
//!
//! Method    a connection with an exchange, a pause, another exchange, and bulk data in both directions.
//! Forged    this end received a reset, the server's end of the connection did not fail or was reset as well,
//!           and the kernels of both hosts have sent no reset meanwhile (OutRsts of `nstat`). So somebody
//!           between them has sent it.
//! Innocent  a server that ends (then the control connection ends, too), a limit of the server (it says so),
//!           and a connection that stalls: it times out, which is reported, but is no reset. If a host has
//!           sent any reset meanwhile, on whatever connection, none is called forged.

use super::finding::{Cause, Finding};
use crate::engine::Failure;
use crate::net::trial::task::broken;
use crate::remote::client::Client;
use crate::remote::protocol::Work;
use kiban_base::Instant;
use kiban_measure::Settings;
use kiban_measure::pause::pace;
use kiban_os::Clock;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The bytes of a message and of a reply.
pub(super) const MESSAGE_BYTES: usize = 1000;
/// The exchanges that follow the pause, 1 MB in each direction.
const BULK: usize = 1000;
/// How long the exchanges may take beside the pause.
const TIME: Duration = Duration::from_secs(10);

/// What happened to a connection.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResetReport {
    /// The pause, s.
    pub idle_seconds: f64,
    /// The bytes that arrived here before the connection ended.
    pub bytes: u64,
    /// Where it failed: `begin`, `after the pause` or `bulk`; `None` if it did not.
    pub failed: Option<&'static str>,
    /// The error.
    pub error: Option<String>,
    /// Resets that this host and the server's host have sent meanwhile.
    pub resets_sent: [u64; 2],
}

/// Tests a connection.
pub(super) fn check(
    client: &mut Client,
    clock: Clock,
    idle: Duration,
) -> Result<(ResetReport, Option<Finding>), Failure> {
    let work = Work::Reply { message_bytes: MESSAGE_BYTES as u32, reply_bytes: MESSAGE_BYTES as u32 };
    let settings = Settings { no_delay: true, ..Settings::default() };
    let most = Duration::from_secs(client.welcome().trial_seconds_max.into());
    if idle + TIME > most {
        return Err(Failure::Impossible(format!(
            "a pause of {} s is too long: the server allows trials of {} s (--trial), of which {} are needed for \
             exchanges",
            idle.as_secs(),
            most.as_secs(),
            TIME.as_secs()
        )));
    }
    let mut data = client.begin(&settings, work, idle + TIME)?;
    let mut bytes = 0;
    let mut part = "begin";
    let done = exercise(&mut data.stream, clock, idle, &mut part, &mut bytes);
    let resets_here = client.tcp().counters().since(&data.before).get("OutRsts");
    drop(data);
    let (there, resets_there) = match client.end() {
        Ok(outcome) => (There::Open, outcome.counters.get("OutRsts")),
        Err(Failure::Lost(why)) if done.is_err() && why.starts_with("at the server: ") => {
            (if why.contains("reset") { There::Reset } else { There::Failed }, 0)
        }
        Err(failure) => return Err(failure),
    };
    let is_reset = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
    let report = ResetReport {
        idle_seconds: idle.as_secs_f64(),
        bytes,
        failed: done.is_err().then_some(part),
        error: done.err().map(|error| broken(&error).to_string()),
        resets_sent: [resets_here, resets_there],
    };
    let finding = if is_reset { finding(&report, there) } else { None };
    Ok((report, finding))
}

/// The state of the server's end when this end had failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum There {
    Open,
    Reset,
    Failed,
}

fn finding(report: &ResetReport, there: There) -> Option<Finding> {
    let part = report.failed?;
    // A kernel that sent a reset may have sent this one.
    if report.resets_sent != [0, 0] {
        return None;
    }
    let there = match there {
        There::Open => "the server's end did not fail, and its kernel has sent no reset",
        There::Reset => "the server's end received a reset as well, and this kernel has sent none",
        There::Failed => return None,
    };
    Some(Finding {
        cause: Cause::ForgedReset,
        direction: "between the hosts",
        because: format!(
            "a connection was reset by a device in between ({part}, after {} bytes): {there}",
            report.bytes
        ),
        advice: "find the firewall or proxy that resets connections: look for limits of idle time, of bytes, and \
                 of content in its rules; tcpdump at both ends shows a reset that only one of them received",
    })
}

/// Uses the connection; `part` and `bytes` say how far it came.
fn exercise<S>(
    stream: &mut S,
    clock: Clock,
    idle: Duration,
    part: &mut &'static str,
    bytes: &mut u64,
) -> io::Result<()>
where
    S: Read + Write,
{
    let message = [0x5a; MESSAGE_BYTES];
    let mut exchange = |bytes: &mut u64| {
        let mut reply = [0; MESSAGE_BYTES];
        stream.write_all(&message)?;
        stream.read_exact(&mut reply)?;
        *bytes += MESSAGE_BYTES as u64;
        io::Result::Ok(())
    };
    exchange(bytes)?;
    *part = "after the pause";
    let until: Instant = clock.now() + idle;
    while clock.now() < until {
        pace(until.since(clock.now()));
    }
    exchange(bytes)?;
    *part = "bulk";
    let end = clock.now() + TIME / 2;
    for _ in 0..BULK {
        if clock.now() >= end {
            break;
        }
        exchange(bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_that_a_kernel_has_sent_is_not_forged() {
        let report = ResetReport {
            idle_seconds: 1.0,
            bytes: 5000,
            failed: Some("bulk"),
            error: Some("connection reset".to_owned()),
            resets_sent: [0, 0],
        };
        let open = finding(&report, There::Open).expect("nobody else can have sent it");
        assert!(open.because.contains("did not fail"), "{}", open.because);
        assert!(finding(&report, There::Reset).is_some_and(|finding| finding.because.contains("as well")));
        assert_eq!(finding(&report, There::Failed), None);
        assert_eq!(finding(&ResetReport { resets_sent: [0, 1], ..report.clone() }, There::Open), None);
        assert_eq!(finding(&ResetReport { failed: None, ..report }, There::Open), None);
    }
}
