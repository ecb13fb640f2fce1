//! What the stories share: a side of a connection, and this very program in another process.

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

/// Longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Says how long something took.
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

/// What a process of its own is to do; its argument stands beside it.
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

    /// A listener on the loopback.
    pub(crate) fn listen(&self, options: &Connect) -> Listener {
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        self.context.listen(Address::Ip(at), options).expect("an address")
    }

    /// Accepts the next: what it said.
    pub(crate) fn accept(&self, listener: &Listener, options: &Connect) -> (Connection, Vec<u8>) {
        let request = listener.request(LONG).expect("a request");
        let said = request.private_data().to_vec();
        (request.accept(&self.qp, options).expect("it waits"), said)
    }

    /// The next completion, a success.
    pub(crate) fn done(&self) -> Completion {
        let done = self.cq.wait(LONG).expect("a completion");
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }
}

/// Memory as peers are told of it.
pub(crate) fn words_of(mr: &Mr) -> Vec<u8> {
    [&mr.rkey().to_be_bytes()[..], &mr.address().to_be_bytes()].concat()
}

pub(crate) fn remote_of(words: &[u8]) -> Remote {
    let (rkey, address) = words.split_first_chunk::<4>().expect("a key");
    let address = address.first_chunk::<8>().expect("an address");
    Remote { rkey: u32::from_be_bytes(*rkey), address: u64::from_be_bytes(*address) }
}

/// A process that dies with its story.
pub(crate) struct Peer(pub(crate) Child);

impl Peer {
    /// SIGKILL: it says nothing any more; its system closes its sockets.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it lives");
    }

    /// It has come to its end, and all was well there.
    pub(crate) fn succeeds(mut self) {
        let mut said = String::new();
        self.0.stdout.take().expect("it was asked for").read_to_string(&mut said).expect("words");
        let status = self.0.wait().expect("it was started");
        // A story that is not found succeeds too.
        assert!(status.success() && said.contains("1 passed"), "a process of this story: {status}: {said}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The role that this process has been given.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This very program, playing one story in a role; `before` stands before it on the command line.
pub(crate) fn spawn(before: &[&str], story: &str, role: &str) -> Peer {
    let own = std::env::current_exe().expect("a test is a program");
    let mut words = before.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
    words.push(own.into());
    let mut child = Command::new(&words[0]);
    child.args(&words[1..]).args([story, "--exact", "--nocapture", "--test-threads=1"]);
    child.env(ROLE, role).stdout(Stdio::piped());
    Peer(child.spawn().expect("a test can be started"))
}

/// Plays a story in a process of its own, whose memory and files are nobody else's: whether this is the other
/// one, which only waits for it.
pub(crate) fn is_told_elsewhere(story: &str) -> bool {
    if role().is_some() {
        return false;
    }
    spawn(&[], story, "alone").succeeds();
    true
}

/// Memory of this process that is not swapped out.
pub(crate) fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says");
    let kilobytes: usize = line.trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes * 1024
}
