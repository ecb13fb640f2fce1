//! Two hosts for tests of `kiban lab`: two network namespaces connected by a veth pair, with
//! `kiban lab serve` in one of them.

#[allow(dead_code, reason = "not every test that uses this module needs a script")]
pub(crate) mod script;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub(crate) const TOKEN: &str = "a token of these stories alone";

/// A temporary directory that contains the token; it is removed at the end of the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("kiban-lab-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("there is disk space");
        std::fs::write(folder.join("token"), TOKEN).expect("there is disk space");
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two network namespaces connected by a veth pair.
pub(crate) struct Network {
    pub(crate) near: String,
    pub(crate) far: String,
}

/// The address of the host in the second namespace.
pub(crate) const FAR: &str = "10.77.31.2";

impl Network {
    /// Creates a veth pair with this MTU. Without the necessary privileges, prints a message and returns
    /// `None`.
    pub(crate) fn new(letter: char, mtu: u32) -> Option<Network> {
        let name = |side| format!("kiban-{}-{letter}{side}", std::process::id());
        let network = Network { near: name('n'), far: name('f') };
        if !ip(&["netns", "add", &network.near]) {
            println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
            return None;
        }
        let (near, far) = (network.near.as_str(), network.far.as_str());
        let made = ip(&["netns", "add", far])
            && ip(&["-n", near, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", far])
            && [(near, "10.77.31.1/24"), (far, "10.77.31.2/24")].iter().all(|(side, address)| {
                ip(&["-n", side, "address", "add", address, "dev", "wire"])
                    && ip(&["-n", side, "link", "set", "wire", "mtu", &mtu.to_string(), "up"])
                    && ip(&["-n", side, "link", "set", "lo", "up"])
            });
        assert!(made, "who may make a namespace may make a wire in it");
        Some(network)
    }

    /// Limits the rate at one end of the veth pair with a token bucket; returns false if the kernel lacks
    /// tbf.
    #[allow(dead_code, reason = "not every test that uses this module limits the rate")]
    pub(crate) fn bucket(side: &str, rate: &str) -> bool {
        let bucket = ["qdisc", "add", "dev", "wire", "root", "tbf", "rate", rate, "burst", "32kb"];
        run(Command::new("tc").args(["-n", side]).args(bucket).args(["latency", "50ms"]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.near]);
        ip(&["netns", "delete", &self.far]);
    }
}

pub(crate) fn run(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a script of nft in a namespace; returns false if there is no nft.
#[allow(dead_code, reason = "not every test that uses this module filters packets")]
pub(crate) fn nft(side: &str, script: &str) -> bool {
    run(Command::new("ip").args(["netns", "exec", side, "nft", script]))
}

fn ip(arguments: &[&str]) -> bool {
    run(Command::new("ip").args(arguments))
}

pub(crate) fn kiban(namespace: Option<&str>) -> Command {
    let program = env!("CARGO_BIN_EXE_kiban");
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

/// A `kiban lab serve` process.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) at: String,
}

impl Server {
    pub(crate) fn start(namespace: Option<&str>, folder: &Folder, listen: &str, more: &[&str]) -> Server {
        let mut command = kiban(namespace);
        command.args(["lab", "serve", "--quiet", "--listen", listen, "--token-file", &folder.path("token")]);
        let mut child = command.args(more).stderr(Stdio::piped()).spawn().expect("the program was built");
        let mut line = String::new();
        let mut told = BufReader::new(child.stderr.take().expect("piped"));
        told.read_line(&mut line).expect("it says where it listens");
        let at = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next());
        let at = at.unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
