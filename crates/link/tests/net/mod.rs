//! A network namespace for a test. It applies to the calling thread and to the threads and programs that the
//! thread starts, and is removed when they end.

use std::process::Command;

/// Moves the calling thread into a new namespace with the loopback up. Prints a line and returns false if
/// this is not permitted.
pub(crate) fn enter() -> bool {
    match kiban_os::interface::enter_new_namespace() {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

/// Runs ip(8).
pub(crate) fn ip(command: &str) {
    let output = Command::new("ip").args(command.split(' ')).output().expect("iproute2 is there");
    assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
}
