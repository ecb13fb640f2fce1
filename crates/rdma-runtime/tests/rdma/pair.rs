//! Code shared by the tests: one side of a connection, and this test program as another process.

use kiban_base::Instant;
use kiban_os::Clock;
use kiban_rdma_runtime::{
    Address, Completion, Connect, Connection, Context, Cq, Listener, Lower, Mr, Pd, Qp, QpOptions, Remote,
    Status,
};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A timeout longer than any step takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Measures how long something takes.
pub(crate) struct Watch {
    clock: Clock,
    begun: Instant,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        let clock = Clock::new();
        Watch { begun: clock.now(), clock }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.begun)
    }
}

/// The environment variable that contains a child process's role and its argument.
const ROLE: &str = "KIBAN_TEST_ROLE";

/// One side of a connection.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
}

impl Side {
    pub(crate) fn new(context: Context) -> Side {
        let pd = context.alloc_pd().expect("room");
        let cq = context.create_cq(1024).expect("room");
        let qp = pd.create_qp(&cq, &cq, QpOptions::default()).expect("room");
        Side { context, pd, cq, qp }
    }

    pub(crate) fn tcp() -> Side {
        Side::new(Context::open(&Lower::Tcp { from: None }).expect("sockets"))
    }

    /// Listens on the loopback.
    pub(crate) fn listen(&self, options: &Connect) -> Listener {
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        self.context.listen(Address::Ip(at), options).expect("an address")
    }

    /// Accepts the next request; returns the connection and the request's private data.
    pub(crate) fn accept(&self, listener: &Listener, options: &Connect) -> (Connection, Vec<u8>) {
        let request = listener.request(LONG).expect("a request");
        let private_data = request.private_data().to_vec();
        (request.accept(&self.qp, options).expect("it waits"), private_data)
    }

    /// Waits for the next completion, which must be a success.
    pub(crate) fn done(&self) -> Completion {
        let done = self.cq.wait(LONG).expect("a completion");
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }
}

/// Encodes the key and address of memory for a peer.
pub(crate) fn words_of(mr: &Mr) -> Vec<u8> {
    [&mr.rkey().to_be_bytes()[..], &mr.address().to_be_bytes()].concat()
}

pub(crate) fn remote_of(words: &[u8]) -> Remote {
    let (rkey, address) = words.split_first_chunk::<4>().expect("a key");
    let address = address.first_chunk::<8>().expect("an address");
    Remote { rkey: u32::from_be_bytes(*rkey), address: u64::from_be_bytes(*address) }
}

/// A child process that is killed when the test ends.
pub(crate) struct Peer(pub(crate) Child);

impl Peer {
    /// Sends SIGKILL, and waits until the process is gone: it sends nothing more, and the system has closed
    /// its sockets. Before that, the system frees its memory, which takes long on a busy machine.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it lives");
        self.0.wait().expect("it was started");
    }

    /// Waits for the process, which must exit successfully.
    pub(crate) fn succeeds(mut self) {
        let mut output = String::new();
        self.0.stdout.take().expect("it was asked for").read_to_string(&mut output).expect("words");
        let status = self.0.wait().expect("it was started");
        // The test program also succeeds if it has no test with this name.
        assert!(status.success() && output.contains("1 passed"), "child process: {status}: {output}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the role of this process, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs one test of this program in a child process that plays a role. `before` precedes the program on the
/// command line.
pub(crate) fn spawn(before: &[&str], story: &str, role: &str) -> Peer {
    let own = std::env::current_exe().expect("a test is a program");
    let mut words = before.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
    words.push(own.into());
    let mut child = Command::new(&words[0]);
    child.args(&words[1..]).args([story, "--exact", "--nocapture", "--test-threads=1"]);
    child.env(ROLE, role).stdout(Stdio::piped());
    Peer(child.spawn().expect("a test can be started"))
}

/// Runs a test in a child process of its own, so that it shares memory and files with no other test. Returns
/// true in the parent, which only waits, and false in the child.
pub(crate) fn is_told_elsewhere(story: &str) -> bool {
    if role().is_some() {
        return false;
    }
    spawn(&[], story, "alone").succeeds();
    true
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says");
    let kilobytes: usize = line.trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes * 1024
}
