//! Runs a trial of any pattern.

use super::evidence::{Evidence, Pattern};
use super::path::Path;
use super::setup::Setup;
use super::{stream, transactions};
use crate::engine::Failure;
use crate::remote::client::Client;
use kiban_measure::Frame;
use kiban_os::Clock;

/// Runs one trial. If `captured`, the whole trial is captured on this host, and the packets are returned.
///
/// # Errors
/// Returns [`Failure`] with the cause.
pub(in crate::net) fn run(
    client: &mut Client,
    path: &Path,
    setup: &Setup,
    clock: Clock,
    captured: bool,
) -> Result<(Evidence, Vec<Frame>), Failure> {
    match setup.pattern {
        Pattern::Stream => stream::run(client, path, setup, clock, captured),
        Pattern::StreamBack => stream::run_back(client, path, setup, clock, captured),
        Pattern::WriteWriteRead | Pattern::WriteRead => {
            transactions::run(client, path, setup, clock, captured)
        }
        Pattern::WriteWriteReadBack | Pattern::WriteReadBack => {
            transactions::run_back(client, path, setup, clock, captured)
        }
    }
}
