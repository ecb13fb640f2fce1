//! The number of files that this process may open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, as far as the system allows. Returns the limit.
pub fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    current()
}

/// Returns the limit of open files; `u64::MAX` if there is none.
pub fn current() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
