//! A measurement server on another host that lives as long as an ssh connection.
//!
//! ```text
//! this host: the program (with `copy`), the token      other host: `kiban lab serve --stdin --json`
//!            ── standard input of ssh ──────────────▶              its first line says where it listens
//!            a line every 10 s ─────────────────────▶
//!            end of file ───────────────────────────▶              it exits
//! ```
//!
//! Token     goes through standard input, so that no list of processes shows it.
//! End       whatever ends the connection also ends the server: this program or the network. If the
//!           other host does not see that the network is gone, the server misses the lines, and exits after a
//!           minute.
//! Copy      with `copy`, this program is sent first, to a temporary file that has no name any more when the
//!           copy begins. The kernel removes it, however the copy or the server ends.

use super::serve::LINE_INTERVAL;
use kiban_lab::net::admission::Token;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the other host may take until its server listens, without the time for a copy.
const START_TIME: Duration = Duration::from_secs(30);
/// How long a copy may take in addition.
const COPY_TIME: Duration = Duration::from_secs(300);
/// How long ssh may take to end.
const END_TIME: Duration = Duration::from_secs(5);
/// The maximum length of the error messages that are kept, bytes.
const ERRORS_MAX: u64 = 16 << 10;
/// The maximum length of what a server prints, bytes.
const LINES_MAX: u64 = 16 << 20;
/// The exit status of ssh if it failed itself (ssh(1)), and of a shell if a command cannot be run or is
/// missing (POSIX, Shell Command Language §2.8.2).
const SSH_FAILED: i32 = 255;
/// What ssh prints if no packets come back: texts of strerror(3), and of ssh's own timer.
const UNREACHABLE: [&str; 4] =
    ["No route to host", "Network is unreachable", "Connection timed out", "Operation timed out"];
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// How a server is started on another host.
#[derive(Clone, Debug)]
pub(super) struct Recipe<'a> {
    /// The program and first arguments of ssh.
    pub(super) ssh: &'a [String],
    /// Where ssh connects.
    pub(super) destination: &'a str,
    /// The path of kiban there.
    pub(super) kiban: &'a str,
    /// Whether this program is copied there for the measurement.
    pub(super) copy: bool,
    /// Further arguments of `kiban lab serve`.
    pub(super) options: Vec<String>,
}

/// A server on another host.
pub(super) struct RemoteServer {
    child: Child,
    /// Lines of its standard output.
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    writer: Option<JoinHandle<Option<ChildStdin>>>,
    /// Keeps standard input open, and sends lines, until it is dropped.
    lifeline: Option<Sender<()>>,
    copies: bool,
    kiban: String,
    destination: String,
    ssh: String,
    pub(super) token: Token,
}

/// The first event of a server.
#[derive(Deserialize)]
struct Listening {
    event: String,
    address: SocketAddr,
    kiban: String,
}

impl RemoteServer {
    /// Starts ssh, and sends the token.
    pub(super) fn start(recipe: &Recipe<'_>) -> Result<RemoteServer, String> {
        let token =
            Token::random().map_err(|error| format!("cannot get random numbers from the system: {error}"))?;
        let program = recipe.copy.then(own_program).transpose()?;
        let [ssh, first @ ..] = recipe.ssh else { return Err("--ssh names no program".to_owned()) };
        let mut command = Command::new(ssh);
        command.args(first);
        // Passwords cannot be asked for, because several hosts are started at the same time.
        command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"]);
        command.args(["--", recipe.destination, &remote_command(recipe, program.as_ref().map(Vec::len))]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The terminal's ctrl-c ends this program, which reports what was measured, and not ssh before that.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            format!("cannot run {ssh} ({error}): install OpenSSH, or name a program with --ssh")
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three are pipes")
        };
        let (send, lines) = channel();
        let read = move || {
            let told = BufReader::new(stdout.take(LINES_MAX)).lines();
            told.map_while(Result::ok).try_for_each(|line| send.send(line)).ok();
        };
        std::thread::spawn(read);
        let errors = std::thread::spawn(move || {
            let mut stderr = stderr;
            let mut kept = Vec::new();
            // The rest is read, too, so that the other end never waits.
            let _ = stderr.by_ref().take(ERRORS_MAX).read_to_end(&mut kept);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            String::from_utf8_lossy(&kept).into_owned()
        });
        let line = format!("{}\n", token.reveal());
        let writer = std::thread::spawn(move || {
            let mut stdin = stdin;
            let sent =
                stdin.write_all(&program.unwrap_or_default()).and_then(|()| stdin.write_all(line.as_bytes()));
            // If ssh has ended, its exit status and its error message say why.
            sent.is_ok().then_some(stdin)
        });
        Ok(RemoteServer {
            child,
            lines,
            errors: Some(errors),
            writer: Some(writer),
            lifeline: None,
            copies: recipe.copy,
            kiban: recipe.kiban.to_owned(),
            destination: recipe.destination.to_owned(),
            ssh: recipe.ssh.join(" "),
            token,
        })
    }

    /// Waits until the server listens; returns its port.
    pub(super) fn port(&mut self) -> Result<u16, String> {
        let time = if self.copies { START_TIME + COPY_TIME } else { START_TIME };
        loop {
            match self.lines.recv_timeout(time) {
                // A shell may print other lines first.
                Ok(line) => {
                    let Some(listening) = serde_json::from_str::<Listening>(&line)
                        .ok()
                        .filter(|listening| listening.event == "listening")
                    else {
                        continue;
                    };
                    let stdin = self.writer.take().and_then(|writer| writer.join().ok().flatten());
                    self.lifeline = stdin.map(lifeline);
                    let own = env!("CARGO_PKG_VERSION");
                    if listening.kiban != own {
                        return Err(format!(
                            "{} has kiban {}, and this host has {own}: install the same version there, or set \
                             copy = true in the plan",
                            self.destination, listening.kiban
                        ));
                    }
                    return Ok(listening.address.port());
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!(
                        "the server on {} did not start within {} s: try {} {} true",
                        self.destination,
                        time.as_secs(),
                        self.ssh,
                        self.destination
                    ));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.why_ended()),
            }
        }
    }

    /// Returns why ssh ended, and what to do.
    fn why_ended(&mut self) -> String {
        let code = self.child.wait().ok().and_then(|status| status.code());
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let lines: Vec<&str> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        explain(code, &lines, &self.ssh, &self.destination, &self.kiban)
    }
}

/// Sends lines to a server until the sender that it returns is dropped, and then ends its standard input.
fn lifeline(mut stdin: ChildStdin) -> Sender<()> {
    let (keep, kept) = channel::<()>();
    std::thread::spawn(move || {
        // If ssh has ended, a measurement says so.
        while stdin.write_all(b"\n").is_ok()
            && kept.recv_timeout(LINE_INTERVAL) == Err(RecvTimeoutError::Timeout)
        {}
    });
    keep
}

/// Explains the exit status and the messages of ssh.
fn explain(code: Option<i32>, lines: &[&str], ssh: &str, destination: &str, kiban: &str) -> String {
    let last = lines.last().map_or(String::new(), |line| format!(": {line}"));
    let all = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    // A configuration with StrictHostKeyChecking yes would refuse the key by hand, too.
    let by_hand = format!("{ssh} -o StrictHostKeyChecking=ask {destination} true");
    match code {
        Some(SSH_FAILED) if has("HOST IDENTIFICATION HAS CHANGED") => format!(
            "the host key of {destination} is not the one in known_hosts: if the host has a new key, remove the old one \
             with `{}`, connect once with `{by_hand}`, and check the fingerprint that it shows",
            removal(lines, destination)
        ),
        Some(SSH_FAILED) if has("Host key verification failed") => format!(
            "the host key of {destination} is not in known_hosts: connect once with `{by_hand}`, and check the \
             fingerprint that it shows"
        ),
        Some(SSH_FAILED) => {
            let advice = if has("Permission denied") {
                format!("make '{ssh} {destination} true' work without a password, with keys or an agent")
            } else if has("Could not resolve hostname") {
                "check the name (ssh = \"...\" in the plan)".to_owned()
            } else if has("Connection refused") {
                "start an ssh server there, or name its port (ssh = \"ssh://[USER@]HOST:PORT\")".to_owned()
            } else if UNREACHABLE.into_iter().any(has) {
                "check that the host is up, and that the route and the firewalls let ssh through".to_owned()
            } else {
                format!("'{ssh} {destination} true' has to work first")
            };
            format!("ssh to {destination} failed{last}; {advice}")
        }
        Some(NOT_FOUND) => format!(
            "there is no {kiban} on {destination}: install kiban there, name its path (kiban = \"...\"), or set copy \
             = true in the plan"
        ),
        Some(CANNOT_RUN) => format!(
            "{destination} cannot run {kiban}{last}: it needs the permission to execute, and the same processor \
             architecture"
        ),
        // What clap prints for an option that another version does not know.
        Some(2) if lines.iter().any(|line| line.contains("unexpected argument")) => format!(
            "the kiban on {destination} is another version, which cannot be started over ssh: install version {} \
             there, or set copy = true in the plan",
            env!("CARGO_PKG_VERSION")
        ),
        _ => format!("the server on {destination} ended{all}"),
    }
}

/// Returns the command that removes the old key of a host. ssh's messages contain the file, and the name of
/// the host there (sshconnect.c).
fn removal(lines: &[&str], destination: &str) -> String {
    let host = lines.iter().find_map(|line| {
        let (host, _) = line.strip_prefix("Host key for ")?.split_once(" has changed")?;
        Some(host)
    });
    let host = host.unwrap_or(destination.rsplit_once('@').map_or(destination, |(_, host)| host));
    let file = lines.iter().find_map(|line| {
        let (file, _) = line.strip_prefix("Offending ")?.split_once(" key in ")?.1.rsplit_once(':')?;
        Some(format!(" -f {}", quoted(file)))
    });
    format!("ssh-keygen{} -R {}", file.unwrap_or_default(), quoted(host))
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        if self.lifeline.take().is_none() {
            // The program or the token may still be on the way.
            let _ = self.child.kill();
        }
        let ended = || loop {
            match self.lines.recv_timeout(END_TIME) {
                Ok(_) => {}
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        };
        if !ended() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Returns the command that the other host's shell runs. With `copied`, it first reads a program of that
/// length.
fn remote_command(recipe: &Recipe<'_>, copied: Option<usize>) -> String {
    let options: String = recipe.options.iter().map(|option| format!(" {}", quoted(option))).collect();
    let arguments = format!("lab serve --stdin --json{options}");
    match copied {
        None => format!("exec {} {arguments}", quoted(recipe.kiban)),
        // The file has no name when the copy begins, so nothing is left if the link fails. A file that is
        // open for writing cannot be executed. `head` reads no more than the program, so that the token is
        // left for the server; it reads less if the link fails.
        Some(bytes) => format!(
            "f=$(mktemp) && chmod 700 \"$f\" && exec 3<> \"$f\" && rm -f \"$f\" && head -c {bytes} >&3 && \
             exec 4< /proc/$$/fd/3 3>&- && [ \"$(wc -c < /proc/$$/fd/4)\" -eq {bytes} ] && \
             exec /proc/$$/fd/4 {arguments}"
        ),
    }
}

/// Quotes a word for a POSIX shell, if it needs that.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    crate::output::quoted(word)
}

fn own_program() -> Result<Vec<u8>, String> {
    let read = std::env::current_exe().and_then(std::fs::read);
    read.map_err(|error| format!("cannot read this program to copy it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let recipe = Recipe {
            ssh: &[],
            destination: "h",
            kiban: "/opt/my kiban's/kiban",
            copy: false,
            options: vec!["--listen".to_owned(), "[::]:0".to_owned()],
        };
        assert_eq!(
            remote_command(&recipe, None),
            r"exec '/opt/my kiban'\''s/kiban' lab serve --stdin --json --listen '[::]:0'"
        );
        assert!(remote_command(&recipe, Some(42)).contains("head -c 42 >&3"));
        assert_eq!((quoted("kiban"), quoted("")), ("kiban".to_owned(), "''".to_owned()));
    }

    #[test]
    fn errors_say_what_to_do() {
        let refused = "ssh: connect to host h port 22: Connection refused";
        let changed =
            ["@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", "Host key verification failed."];
        for (code, lines, expected) in [
            (
                Some(255),
                &changed[..],
                "is not the one in known_hosts: if the host has a new key, remove the old one with `ssh-keygen -R h`, \
                 connect once with `ssh -o StrictHostKeyChecking=ask eve@h true`",
            ),
            (
                Some(255),
                &[
                    changed[0],
                    "Offending ED25519 key in /home/eve/.ssh/known_hosts:3",
                    "Host key for [192.0.2.7]:2201 has changed and you have requested strict checking.",
                    changed[1],
                ],
                "with `ssh-keygen -f /home/eve/.ssh/known_hosts -R '[192.0.2.7]:2201'`",
            ),
            (
                Some(255),
                &changed[1..],
                "is not in known_hosts: connect once with `ssh -o StrictHostKeyChecking=ask eve@h true`",
            ),
            (Some(255), &[refused][..], "port 22: Connection refused; start an ssh server there"),
            (
                Some(255),
                &["ssh: connect to host h port 22: No route to host"],
                "No route to host; check that the host is up",
            ),
            (
                Some(255),
                &["ssh: connect to host h port 22: Connection timed out"],
                "Connection timed out; check that the host is up",
            ),
            (
                Some(255),
                &["ssh: Could not resolve hostname h: Name or service not known"],
                "Name or service not known; check the name",
            ),
            (
                Some(255),
                &["eve@h: Permission denied (publickey)."],
                "(publickey).; make 'ssh eve@h true' work without a password, with keys or an agent",
            ),
            (
                Some(255),
                &["kex_exchange_identification: Connection closed by remote host"],
                "closed by remote host; 'ssh eve@h true' has to work first",
            ),
            (Some(127), &["sh: kiban: not found"], "there is no kiban on eve@h: install kiban there"),
            (Some(126), &["Exec format error"], "the same processor architecture"),
            (Some(2), &["error: unexpected argument '--stdin' found"], "install version"),
            (Some(1), &["kiban: cannot listen"], "the server on eve@h ended: kiban: cannot listen"),
            (None, &[], "the server on eve@h ended"),
        ] {
            let said = explain(code, lines, "ssh", "eve@h", "kiban");
            assert!(said.contains(expected), "{said}");
        }
    }
}
