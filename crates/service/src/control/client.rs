//! Who asks a board.

use super::{Question, Reply, folders};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a board.
pub struct Caller {
    stream: BufReader<UnixStream>,
    name: String,
}

/// Ends a record.
pub struct CaptureEnd(UnixStream);

impl CaptureEnd {
    /// Has the board end it. A board that has gone has ended it.
    pub fn end(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// The names of boards that this user can ask.
pub fn boards() -> Vec<String> {
    kiban_real::streams::boards("sock")
}

/// Where this user may not even look.
fn hidden() -> String {
    let refused = |folder: &PathBuf| {
        std::fs::read_dir(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    match folders().into_iter().find(refused) {
        Some(folder) => format!(" that is this user's; for those in {} ask as root (sudo)", folder.display()),
        None => String::new(),
    }
}

impl Caller {
    /// Calls a board; without a name the only one that runs.
    ///
    /// # Errors
    /// There is none, or several; it may not be asked by this user.
    pub fn call(name: Option<&str>) -> Result<Caller, String> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => match &boards()[..] {
                [one] => one.clone(),
                [] => return Err(format!("no board runs{}: kiban up board.toml begins one", hidden())),
                many => return Err(format!("several boards run, name one: {}", many.join(", "))),
            },
        };
        let mut why = None;
        for folder in folders() {
            let path: PathBuf = folder.join(format!("{name}.sock"));
            match UnixStream::connect(&path) {
                Ok(stream) => {
                    let say = |error: std::io::Error| format!("board {name}: {error}");
                    stream.set_read_timeout(Some(TIMEOUT)).map_err(say)?;
                    stream.set_write_timeout(Some(TIMEOUT)).map_err(say)?;
                    return Ok(Caller { stream: BufReader::new(stream), name });
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    why = Some(format!("board {name} is another user's: {}: {error}", path.display()));
                }
                Err(_) => {}
            }
        }
        Err(why.unwrap_or_else(|| match &boards()[..] {
            [] => format!("no board {name} runs, nor any other{}", hidden()),
            others => format!("no board {name} runs; these do: {}", others.join(", ")),
        }))
    }

    /// Waits until a board that stops has gone.
    pub fn wait(mut self) {
        loop {
            let _ = self.stream.get_ref().set_read_timeout(None);
            // The board hangs up when it has stopped, or after a silence: then it is asked again, unless another has begun meanwhile.
            let _ = self.stream.read_to_end(&mut Vec::new());
            let Ok(mut again) = Caller::call(Some(&self.name)) else { return };
            match again.ask(&Question::Status {}) {
                Ok(Reply::Status(status)) if status.state == "stopping" => self = again,
                _ => return,
            }
        }
    }

    /// Has a record made ([`Question::Capture`]): `begun` is called when it is being made, and is given what ends it. This comes back when it
    /// has ended.
    ///
    /// # Errors
    /// Those of [`Caller::ask`]; what was refused, or is not whole, is a [`Reply`].
    pub fn capture(
        mut self,
        question: &Question,
        begun: impl FnOnce(CaptureEnd) -> Result<(), String>,
    ) -> Result<Reply, String> {
        match self.ask(question)? {
            Reply::Done(_) => {}
            refused => return Ok(refused),
        }
        let say = |error: std::io::Error| format!("board {}: {error}", self.name);
        // It takes as long as it takes.
        self.stream.get_ref().set_read_timeout(None).map_err(say)?;
        begun(CaptureEnd(self.stream.get_ref().try_clone().map_err(say)?))?;
        self.answer()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks.
    ///
    /// # Errors
    /// It does not answer; what it refused is a [`Reply`].
    pub fn ask(&mut self, question: &Question) -> Result<Reply, String> {
        let say = |error: &dyn std::fmt::Display| format!("board {} does not answer: {error}", self.name);
        let mut line = serde_json::to_string(question).map_err(|error| say(&error))?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| say(&error))?;
        self.answer()
    }

    /// What the board says next.
    fn answer(&mut self) -> Result<Reply, String> {
        let say = |error: &dyn std::fmt::Display| format!("board {} does not answer: {error}", self.name);
        let mut answer = String::new();
        match self.stream.read_line(&mut answer) {
            Ok(0) => Err(say(&"it has gone")),
            Ok(_) => serde_json::from_str(&answer).map_err(|error| say(&error)),
            Err(error) => Err(say(&error)),
        }
    }
}
