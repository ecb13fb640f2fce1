//! Unix sockets on which services accept clients.

use kiban_os::unix::names;
use std::io;
use std::path::Path;

/// Watches the socket of a new client. Refuses the client if `here`, the current number of clients, has
/// reached `most`.
///
/// # Errors
/// The reason for the refusal, for the client and the log.
pub(super) fn admit(
    callers: &str,
    here: usize,
    most: usize,
    watch: impl FnOnce() -> io::Result<()>,
) -> Result<(), String> {
    if here >= most {
        return Err(format!("too many {callers}: the limit of {most} is reached"));
    }
    watch().map_err(|error| format!("the board cannot watch the socket: {error}"))
}

/// Creates and checks the directory for a Unix socket if it is the default directory. Any other directory is
/// its owner's responsibility.
pub(super) fn make_folder(path: &Path) -> Result<(), String> {
    if path.parent() == Some(&names::own_path()) {
        names::own_folder().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_caller_gets_the_actual_cause() {
        let full = || Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        assert_eq!(admit("clients", 255, 256, || Ok(())), Ok(()));
        let why = admit("clients", 256, 256, || panic!("it has no entry")).expect_err("full");
        assert_eq!(why, "too many clients: the limit of 256 is reached");
        let why = admit("clients", 3, 256, full).expect_err("no watch");
        assert!(why.starts_with("the board cannot watch the socket: No space left"), "{why}");
        assert!(!why.contains("256"), "{why}");
    }
}
