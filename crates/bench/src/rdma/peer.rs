//! The other end of a comparison: another process that executes commands, one after another.
//!
//! Protocol  a request is a line (`raw-sink 65536 blocking`), and the reply is a line with the address to
//!           connect to. The command ends when the connection ends. The process exits at the end of its
//!           standard input.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The environment variable that makes the program act as a peer. Its value is the peer's address.
pub(crate) const ROLE: &str = "KIBAN_BENCH_RDMA_PEER";

/// A peer, and the pipes to it.
pub(crate) struct Peer {
    process: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a peer on the CPU of this thread, which uses the loopback.
    pub(super) fn start() -> Peer {
        Peer::start_at(Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a peer on the CPU and in the network namespace of this thread, which listens at an address.
    pub(crate) fn start_at(address: IpAddr) -> Peer {
        let own = std::env::current_exe().expect("the program knows its own file");
        let mut process = Command::new(own)
            .env(ROLE, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts again");
        let words = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        Peer { process, words, answers }
    }

    /// Sends a command that has no reply.
    pub(crate) fn tell(&mut self, words: &str) {
        let stream = self.words.as_mut().expect("open until the end");
        writeln!(stream, "{words}").expect("the peer listens");
    }

    /// Returns the next reply.
    pub(crate) fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the peer answers");
        assert!(!answer.is_empty(), "the peer has ended");
        answer.trim().to_owned()
    }

    /// Returns the CPU time that the peer's current threads have used, nanoseconds.
    pub(crate) fn cpu_nanos(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("it is there");
        // Fields of schedstat: CPU time, time in the run queue, time slices. A thread may exit between the
        // two reads.
        let used = |path: std::path::PathBuf| {
            std::fs::read_to_string(path.join("schedstat"))
                .ok()?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        };
        tasks.flatten().filter_map(|task| used(task.path())).sum()
    }

    pub(crate) fn ask(&mut self, words: &str) -> String {
        self.tell(words);
        self.hear()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.words = None;
        // The process has exited or is exiting, so ignore errors.
        let _ = self.process.wait();
    }
}

/// Writes a reply.
pub(crate) fn answer(words: impl std::fmt::Display) {
    println!("{words}");
    let _ = std::io::stdout().flush();
}

/// Returns the next command; `None` when the benchmark has ended.
pub(crate) fn next_word() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line)
}

/// Returns the address that this process uses as a peer.
pub(crate) fn own_address() -> IpAddr {
    let address = std::env::var(ROLE).ok().and_then(|address| address.parse().ok());
    address.expect("the benchmark says which address")
}
