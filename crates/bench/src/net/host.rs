//! The namespaces in which the benchmark runs.
//!
//! The user is root there, as in the namespace of a rootless container. The address of an interface leads to
//! no other host; pasta needs one to start, and the veth of a guest leads to the host's end of it.

use std::process::Command;

/// Environment variable of a process that runs inside.
const INSIDE: &str = "KIBAN_BENCH_NET_INSIDE";

pub(super) enum Entered {
    /// This process runs inside.
    Inside,
    /// Another process has run inside and has ended.
    Ended,
    Failed(String),
}

/// Starts this program again in new namespaces, and waits for it. In that process, creates the interface.
pub(super) fn enter(quick: bool) -> Entered {
    if std::env::var_os(INSIDE).is_some() {
        let interface = "ip link add host0 type veth peer name away0 && ip link set away0 up \
            && ip address add 192.0.2.1/24 dev host0 && ip link set host0 up && ip link set lo up \
            && ip route add default via 192.0.2.254";
        let made = Command::new("sh").args(["-c", interface]).status();
        return match made {
            Ok(status) if status.success() => Entered::Inside,
            _ => Entered::Failed("the interfaces of the host cannot be created".into()),
        };
    }
    let namespaces = ["--user", "--map-root-user", "--net", "--mount"];
    let inside = |program: &std::ffi::OsStr| {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg(program).env(INSIDE, "1");
        command
    };
    match inside("true".as_ref()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return Entered::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => return Entered::Failed(format!("unshare: {error}")),
    }
    let Ok(own) = std::env::current_exe() else { return Entered::Failed("this program has no path".into()) };
    let mut command = inside(own.as_os_str());
    command.arg("net").args(quick.then_some("--quick"));
    match command.status() {
        Ok(status) if status.success() => Entered::Ended,
        Ok(status) => Entered::Failed(format!("the benchmark ended with {status}")),
        Err(error) => Entered::Failed(error.to_string()),
    }
}
