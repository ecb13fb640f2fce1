//! A network namespace for a test. It applies to the calling thread and to the threads and programs that the
//! thread starts, and is removed when they end.

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
