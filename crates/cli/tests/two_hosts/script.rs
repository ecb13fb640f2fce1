//! Python scripts of `tests/request` that run beside a test, and a long path, which is one of them.

use super::{FAR, Network, ip};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A script that runs until its standard input ends.
pub(crate) struct Script(Child);

impl Script {
    /// Starts a script of `request/` in a namespace; returns `None` without Python.
    pub(crate) fn start(side: &str, name: &str, arguments: &[&str]) -> Option<Script> {
        let path = format!("{}/tests/request/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", side, "python3", &path]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        let told = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        let script = Script(child);
        if told.is_ok() && line == "ready\n" {
            return Some(script);
        }
        println!("skipped: {name} needs Python and /dev/net/tun");
        None
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Creates two hosts whose packets take this many milliseconds in each direction; `None` without the right to
/// do so, or without Python. The script has to end before the namespaces.
pub(crate) fn delayed(letter: char, milliseconds: u32) -> Option<(Script, Network)> {
    let name = |side| format!("kiban-{}-{letter}{side}", std::process::id());
    let network = Network { near: name('n'), far: name('f') };
    if !ip(&["netns", "add", &network.near]) {
        println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
        return None;
    }
    assert!(ip(&["netns", "add", &network.far]), "the first namespace was made");
    let path = Script::start(&network.near, "delay.py", &[&milliseconds.to_string(), &network.far])?;
    for (side, address) in [(&network.near, "10.77.31.1"), (&network.far, FAR)] {
        let made = ip(&["-n", side, "address", "add", &format!("{address}/24"), "dev", "wire"])
            && ip(&["-n", side, "link", "set", "wire", "up"])
            && ip(&["-n", side, "link", "set", "lo", "up"]);
        assert!(made, "who may make a namespace may use a device in it");
    }
    Some((path, network))
}
