//! A test case: an unmodified program, how to start it, and how to check its result.

use crate::proof::Proof;
use crate::run::{End, Running, after, free_port, is_installed};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the devices present themselves (`KIBAN_TRANSPORT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Ib,
    Roce,
    Efe,
    Iwarp,
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Ib => "ib",
            Transport::Roce => "roce",
            Transport::Efe => "efe",
            Transport::Iwarp => "iwarp",
        }
    }
}

/// How a case is started. In commands, `{port}` is a free port, `{folder}` is a directory for files,
/// `{here}` is the directory of this test's files, and `{host}` is the address of the first device, for
/// programs that use libfabric, which skips the loopback interface.
#[derive(Clone)]
pub(crate) enum How {
    /// One command.
    Alone(String),
    /// A server, a client that is started once the server listens, and whether the server exits after one
    /// client.
    Pair { server: String, client: String, ends: bool },
}

/// A case.
#[derive(Clone)]
pub(crate) struct Case {
    /// Its heading on the page.
    pub(crate) group: &'static str,
    /// The Debian package of the program.
    pub(crate) package: &'static str,
    pub(crate) transport: Transport,
    pub(crate) how: How,
    pub(crate) proof: Proof,
    /// A generous time limit.
    pub(crate) seconds: u64,
    /// The reason why the program does not work, if that is known. A case with a reason must fail.
    pub(crate) missing: Option<&'static str>,
    /// The command to show on the page, if the real one is too long.
    pub(crate) shown: Option<&'static str>,
    /// Exit codes that do not count as failure, because the output is checked.
    pub(crate) codes: &'static [i32],
    /// The port at which the server listens, if its command does not say `{port}`.
    pub(crate) port: Option<u16>,
}

/// The output of a case's processes.
#[derive(Default)]
pub(crate) struct CaseOutput {
    /// The output of the server; empty if there is none.
    pub(crate) server: String,
    /// The output of the client, or of the only process.
    pub(crate) client: String,
    /// The case's folder.
    pub(crate) folder: PathBuf,
}

/// The files and addresses that a case uses.
pub(crate) struct Place<'a> {
    pub(crate) libraries: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) here: &'a Path,
    /// The address of the first device.
    pub(crate) host: &'a str,
}

impl Case {
    /// Returns the program in the command, without environment settings.
    pub(crate) fn program(&self) -> &str {
        let (How::Alone(command) | How::Pair { client: command, .. }) = &self.how;
        command.split_whitespace().find(|word| !word.contains('=')).unwrap_or("")
    }

    /// Returns the command as shown on the page and in errors.
    pub(crate) fn title(&self) -> String {
        match (&self.shown, &self.how) {
            (Some(shown), _) => (*shown).to_owned(),
            (None, How::Alone(command) | How::Pair { client: command, .. }) => command
                .replace(" -p {port}", "")
                .replace(" -P {port}", "")
                .replace(" -lp {port}", "")
                .replace("{host}", "ADDRESS"),
        }
    }

    /// Returns the required packages that are not installed.
    pub(crate) fn lacks(&self) -> Vec<&'static str> {
        let is_there = |name: &str| name.starts_with("{here}") || is_installed(name);
        // Packages that contain the programs started by the scripts in this directory.
        let needs = match self.package {
            "openmpi-bin" => vec![
                ("openmpi-bin", "mpirun"),
                ("python3-mpi4py", "/usr/lib/python3/dist-packages/mpi4py/__init__.py"),
                ("iproute2", "ip"),
            ],
            "perftest" => vec![("perftest", "ib_write_bw"), ("iproute2", "ip")],
            "rdmacm-utils" if self.program().starts_with("{here}") => {
                vec![("rdmacm-utils", "mckey"), ("iproute2", "ip")]
            }
            "libibverbs-dev" => vec![("libibverbs-dev", "/usr/include/infiniband/verbs.h"), ("gcc", "cc")],
            package => vec![(package, self.program())],
        };
        needs.into_iter().filter(|(_, name)| !is_there(name)).map(|(package, _)| package).collect()
    }

    /// Runs the case. Returns a remark for the page, or the error.
    pub(crate) fn run(&self, place: &Place) -> Result<String, String> {
        let mut output = CaseOutput::default();
        self.run_with_output(place, &mut output).map_err(|error| {
            let mut text = format!("{} ({}): {error}", self.title(), self.transport.name());
            for (who, output) in [("server", &output.server), ("client", &output.client)] {
                let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
                for line in &lines[lines.len().saturating_sub(12)..] {
                    text += &format!("\n    {who}: {line}");
                }
            }
            text
        })
    }

    fn run_with_output(&self, place: &Place, output: &mut CaseOutput) -> Result<String, String> {
        output.folder = place.folder.to_owned();
        let port = self.port.unwrap_or_else(free_port);
        let words = |command: &str| -> Vec<String> {
            let folders = [("{folder}", place.folder), ("{here}", place.here)];
            command
                .split_whitespace()
                .map(|word| {
                    let word = word.replace("{port}", &port.to_string()).replace("{host}", place.host);
                    folders.iter().fold(word, |word, (name, folder)| {
                        word.replace(name, folder.to_str().expect("a plain path"))
                    })
                })
                .collect()
        };
        let libraries = place.libraries.to_str().expect("a plain path");
        // The environment settings that `kiban verbs` makes.
        let settings = [
            ("LD_LIBRARY_PATH", libraries),
            ("LD_PRELOAD", "libkiban_paths.so:libibverbs.so.1"),
            ("KIBAN_TRANSPORT", self.transport.name()),
        ];
        let deadline = after(Duration::from_secs(self.seconds));
        match &self.how {
            How::Alone(command) => {
                let mut only = Running::start(&words(command), &settings)?;
                let end = only.end(deadline);
                output.client = std::mem::take(&mut only.output);
                self.ended_well("it", end)?;
            }
            How::Pair { server, client, ends } => {
                let mut server = Running::start(&words(server), &settings)?;
                let ready = server.until_listening(port, deadline);
                if let Err(error) = ready {
                    output.server = std::mem::take(&mut server.output);
                    return Err(format!("the server {error}"));
                }
                let mut client = Running::start(&words(client), &settings)?;
                let client_end = client.end(deadline);
                output.client = std::mem::take(&mut client.output);
                // The server may print its last output while it exits.
                let server_end =
                    if *ends && client_end != End::Late { Some(server.end(deadline)) } else { None };
                if server_end.is_none() {
                    server.end(after(Duration::ZERO));
                }
                output.server = std::mem::take(&mut server.output);
                self.ended_well("the client", client_end)?;
                if let Some(end) = server_end {
                    self.ended_well("the server", end)?;
                }
            }
        }
        self.proof.check(output)
    }

    fn ended_well(&self, who: &str, end: End) -> Result<(), String> {
        match end {
            End::Code(code) if self.codes.contains(&code) => Ok(()),
            End::Code(code) => Err(format!("{who} ended with code {code}")),
            End::Signal(signal) => Err(format!("{who} was ended by signal {signal}")),
            End::Late => Err(format!("{who} did not end in time")),
        }
    }
}
