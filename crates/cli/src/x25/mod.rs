//! `kiban x25`: calls over X.25, on lines and over XOT; a PAD; a switch.

mod access;
mod call;
mod command;
mod listen;
mod pad;
mod switch;

pub(crate) use command::X25;

use crate::osi::peer::runtime;

/// Runs a command's future. At its end, does not wait for a read from standard input, which may never return.
fn drive<T>(threads: bool, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = runtime(threads)?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
