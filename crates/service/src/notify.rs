//! Notifications to the service manager (sd_notify(3)): ready, reloading, stopping, watchdog.

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Notifies the service manager, if there is one.
pub(crate) fn notify(what: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        // Errors are ignored, because the board works even if the notification fails.
        let _ = send(&path, what);
    }
}

fn send(path: &OsStr, what: &str) -> rustix::io::Result<()> {
    // A name that begins with @ refers to the abstract namespace.
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, what.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// Returns the interval of watchdog notifications: half of the service manager's timeout
/// (sd_watchdog_enabled(3)).
pub(crate) fn watchdog() -> Option<Duration> {
    let microseconds: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    if let Ok(pid) = std::env::var("WATCHDOG_PID")
        && pid.parse() != Ok(std::process::id())
    {
        return None;
    }
    (microseconds > 0).then(|| Duration::from_micros(microseconds / 2))
}
