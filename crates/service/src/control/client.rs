//! The client of a board's control socket.
//!
//! Trust            commands run by root also query boards of other users, so an answer may contain anything.
//!                  [`names::call`] checks the socket and its directory.
//! Deadline         [`TIMEOUT`] covers a request and its whole answer, even if the bytes arrive slowly.
//!                  [`ControlClient::wait`] and [`ControlClient::capture`] have no timeout.
//! Limits           [`ANSWER_BYTES_MAX`] is more than the status of the largest board needs. Answers from
//!                  other users' boards are limited to [`OTHERS_BYTES_MAX`], because parsed values may take
//!                  a hundred times as much memory as their text.
//! Text             the answer is shown on terminals, so every string in it is made
//!                  [printable](kiban_os::text). Only the texts of done and refused requests may span several
//!                  lines; each line is made printable separately.

use super::messages::{Question, Reply};
use kiban_base::Instant;
use kiban_os::Clock;
use kiban_os::text::{printable, printable_lines};
use kiban_os::unix::{Peer, names};
use kiban_os::wait::timespec;
use kiban_streams::is_name;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketType};
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Size limit of an answer, in bytes. A status takes a few hundred bytes for each of up to 262144 circuits.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Size limit of an answer from another user's board, in bytes: enough for about ten thousand circuits.
const OTHERS_BYTES_MAX: usize = 4 << 20;
/// Bytes per receive call.
const PIECE_BYTES: usize = 64 << 10;

/// A connection to a board.
pub struct ControlClient {
    peer: Arc<Peer>,
    name: String,
    clock: Clock,
    /// Received bytes that are not yet a complete answer.
    received: Vec<u8>,
    answer_bytes_max: usize,
}

/// Ends a capture.
pub struct CaptureEnd(Arc<Peer>);

impl CaptureEnd {
    /// Asks the board to end the capture. If the board has exited, the capture has already ended.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(&*self.0, Shutdown::Write);
    }
}

/// Returns the names of boards that this user can query.
pub fn boards() -> Vec<String> {
    kiban_streams::boards("sock")
}

impl ControlClient {
    /// Connects to a board; without a name, connects to the only one that is running.
    ///
    /// # Errors
    /// If no board is running, or several are and no name is given; or if this user may not query the board.
    pub fn call(name: Option<&str>) -> Result<ControlClient, String> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => match &boards()[..] {
                [one] => one.clone(),
                [] => {
                    return Err(format!(
                        "no board is running: start one with kiban up board.toml{}",
                        names::left_out()
                    ));
                }
                many => return Err(format!("several boards are running; name one of {}", many.join(", "))),
            },
        };
        if !is_name(&name) {
            return Err(format!("invalid board name {name:?}: use 1 to 32 letters, digits, - and _"));
        }
        let mut why = None;
        for folder in names::folders_of_boards() {
            let path: PathBuf = folder.join(format!("{name}.sock"));
            match names::call(&path, SocketType::STREAM, false) {
                Ok(peer) => return Ok(ControlClient::over(peer, name)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    why = Some(format!("board {name} does not answer: too many clients are waiting"));
                }
                Err(error) => why = Some(format!("board {name}: {error}")),
            }
        }
        Err(why.unwrap_or_else(|| match &boards()[..] {
            [] => format!("no board {name} is running, and no other board either{}", names::left_out()),
            others => {
                format!(
                    "no board {name} is running; running boards: {}{}",
                    others.join(", "),
                    names::left_out()
                )
            }
        }))
    }

    fn over(peer: Peer, name: String) -> ControlClient {
        let own = rustix::process::geteuid();
        let is_own = rustix::net::sockopt::socket_peercred(&peer).is_ok_and(|board| board.uid == own);
        let answer_bytes_max = if is_own { ANSWER_BYTES_MAX } else { OTHERS_BYTES_MAX };
        ControlClient {
            peer: Arc::new(peer),
            name,
            clock: Clock::new(),
            received: Vec::new(),
            answer_bytes_max,
        }
    }

    /// Waits until a stopping board has exited.
    pub fn wait(mut self) {
        loop {
            // The board closes the connection when it exits, or when the client has been idle for too long.
            // In the second case, reconnect, unless another board with this name has since started.
            while self.receive(Instant::NEVER).is_ok_and(|count| count > 0) {
                // Ignore all data that the board sends here.
                self.received.clear();
            }
            let Ok(mut again) = ControlClient::call(Some(&self.name)) else { return };
            match again.ask(&Question::Status {}) {
                Ok(Reply::Status(status)) if status.state == "stopping" => self = again,
                _ => return,
            }
        }
    }

    /// Sends [`Question::Capture`] and returns when the capture has ended. Once the capture has started,
    /// calls `begun` with a value that can end it.
    ///
    /// # Errors
    /// Same as [`ControlClient::ask`]. A refused capture or an incomplete file is not an error but a
    /// [`Reply`].
    pub fn capture(
        mut self,
        question: &Question,
        begun: impl FnOnce(CaptureEnd) -> Result<(), String>,
    ) -> Result<Reply, String> {
        match self.ask(question)? {
            Reply::Done(_) => {}
            refused => return Ok(refused),
        }
        begun(CaptureEnd(self.peer.clone()))?;
        // A capture has no timeout.
        self.answer(Instant::NEVER).map_err(|why| self.silence(&why))
    }

    /// Returns the board's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// If the board does not answer within 10 s, or for a ping within 10 s after its own time. A refusal is
    /// not an error but a [`Reply`].
    pub fn ask(&mut self, question: &Question) -> Result<Reply, String> {
        let own = if let Question::Echo { wait, .. } = question { *wait } else { 0.0 };
        self.ask_within(question, TIMEOUT + Duration::try_from_secs_f64(own).unwrap_or_default())
    }

    fn ask_within(&mut self, question: &Question, time: Duration) -> Result<Reply, String> {
        let until = self.clock.now() + time;
        let asked = self.send(question, until).and_then(|()| self.answer(until));
        asked.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                self.silence(&format!("no complete answer within {} s", time.as_secs_f64()))
            }
            _ => self.silence(&error),
        })
    }

    fn silence(&self, why: &dyn Display) -> String {
        format!("board {} does not answer: {}", self.name, printable(&why.to_string()))
    }

    fn send(&mut self, question: &Question, until: Instant) -> io::Result<()> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        let mut left = &line[..];
        while !left.is_empty() {
            match rustix::net::send(&*self.peer, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => left = &left[count..],
                Err(Errno::AGAIN) => self.wait_for(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives the next answer.
    fn answer(&mut self, until: Instant) -> io::Result<Reply> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.received[seen..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=seen + end).collect();
                return read(&line).map_err(io::Error::from);
            }
            seen = self.received.len();
            if seen > self.answer_bytes_max {
                let most = self.answer_bytes_max;
                return Err(io::Error::other(format!("the answer is longer than {most} bytes")));
            }
            if self.receive(until)? == 0 {
                return Err(io::Error::other("it closed the connection"));
            }
        }
    }

    /// Receives bytes and returns their number; zero means that the board has closed the connection.
    fn receive(&mut self, until: Instant) -> io::Result<usize> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            // Check the deadline here, because bytes may always be available.
            if self.clock.now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.peer.receive(&mut piece) {
                Ok(count) => {
                    self.received.extend_from_slice(&piece[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_for(PollFlags::IN, until)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_for(&self, what: PollFlags, until: Instant) -> io::Result<()> {
        let left = (until != Instant::NEVER).then(|| until.since(self.clock.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        match poll(&mut [PollFd::new(&*self.peer, what)], left.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses an answer and makes every string in it printable.
fn read(line: &[u8]) -> serde_json::Result<Reply> {
    let mut answer: Value = serde_json::from_slice(line)?;
    if let Value::Object(answer) = &mut answer {
        for (kind, value) in answer {
            let has_lines = matches!(kind.as_str(), "done" | "refused");
            make_printable(value, has_lines);
        }
    }
    serde_json::from_value(answer)
}

fn make_printable(value: &mut Value, has_lines: bool) {
    match value {
        Value::String(text) => {
            let shown = if has_lines { printable_lines(text) } else { printable(text) };
            *text = shown.into_owned();
        }
        Value::Array(values) => values.iter_mut().for_each(|value| make_printable(value, has_lines)),
        Value::Object(entries) => {
            let shown = std::mem::take(entries).into_iter().map(|(key, mut value)| {
                make_printable(&mut value, has_lines);
                (printable(&key).into_owned(), value)
            });
            *entries = shown.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn pair() -> (ControlClient, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let peer = Peer::new(OwnedFd::from(ours)).expect("a socket");
        (ControlClient::over(peer, "lab".into()), theirs)
    }

    #[test]
    fn one_deadline_covers_the_whole_answer_of_a_slow_board() {
        let (mut caller, mut theirs) = pair();
        let dribble = std::thread::spawn(move || {
            theirs.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
            // Send a space every millisecond until the client disconnects.
            while theirs.write_all(b" ").is_ok() {
                let _ = theirs.read(&mut [0; 64]);
            }
        });
        let error =
            caller.ask_within(&Question::Status {}, Duration::from_millis(300)).expect_err("no answer");
        assert_eq!(error, "board lab does not answer: no complete answer within 0.3 s");
        drop(caller);
        dribble.join().expect("the client has closed");
    }

    #[test]
    fn a_silent_board_ends_the_request_with_a_timeout_error() {
        let (mut caller, _theirs) = pair();
        let long = Question::Loopback { port: "x".repeat(8 << 20), vc: "0.100".into(), segment: false };
        for question in [Question::Status {}, long] {
            let error = caller.ask_within(&question, Duration::from_millis(1)).expect_err("no answer");
            assert_eq!(error, "board lab does not answer: no complete answer within 0.001 s");
        }
    }

    #[test]
    fn answers_are_split_from_the_stream_wherever_it_is_cut() {
        let (mut caller, mut theirs) = pair();
        theirs.write_all(b"{\"done\":\"one\\n\\ttwo\"}\n{\"refu").expect("room");
        assert_eq!(caller.ask(&Question::Reload {}), Ok(Reply::Done("one\n\ttwo".into())));
        theirs.write_all(b"sed\":\"no\"}\n").expect("room");
        assert_eq!(caller.ask(&Question::Reload {}), Ok(Reply::Refused("no".into())));
        drop(theirs);
        let error = caller.ask(&Question::Reload {}).expect_err("the board has closed");
        assert!(error.starts_with("board lab does not answer: "), "{error}");
    }
}
