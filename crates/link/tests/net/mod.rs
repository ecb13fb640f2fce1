//! A network namespace for a test: the calling thread's own, and that of threads and programs it starts. It
//! goes with them.

/// Moves the calling thread into a namespace of its own with the loopback up; false, with a line that says
/// so, where that is not allowed.
pub(crate) fn enter() -> bool {
    match kiban_os::interface::enter_new_namespace() {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}
