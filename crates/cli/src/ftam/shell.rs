//! `kiban ftam shell`: the client commands at a prompt, over one association.
//!
//! Purpose    looking around at a peer, without writing its address and the password again for each command.
//! Names      remote names are relative to the current remote directory, and local names to the current local
//!            directory. `/` begins at the user's home directory.
//! Input      lines are edited and kept in a history on a terminal; otherwise they are read as a script, and
//!            a failed line makes the exit status 1.
//! Limits     the association is kept between commands with the same local directory; others use one more.

use super::address::{Remote, with_base};
use super::link::{Peer, PersistentClient};
use super::listing::stat;
use super::local::{absolute, create_directories, parent, xdg_file};
use super::options::Association;
use crate::output::{note, print};
use clap::Args;
use clap::error::ErrorKind;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Args)]
pub(super) struct Shell {
    #[command(flatten)]
    association: Association,
    /// Host and first directory.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

/// A client command that has been parsed and is about to run.
pub(super) type Running = Pin<Box<dyn Future<Output = Result<ExitCode, String>>>>;

/// Parses the words of a client command, which uses this peer.
pub(super) type Parse = fn(&[String], &Arc<Peer>) -> Result<Running, clap::Error>;

/// Commands that are not possible in a shell.
pub(super) const NOT_IN_A_SHELL: [&str; 6] = ["shell", "serve", "passwd", "hosts", "mirror", "collect"];

/// Commands of the shell itself.
const HELP: &str = "cd [DIR], pwd       change, print the remote directory
lcd [DIR], lpwd     change, print the local directory
exit                end (also ctrl-d)
";

impl Shell {
    /// Runs lines until the input ends; `parse` knows the client commands.
    pub(super) async fn run(mut self, parse: Parse) -> Result<ExitCode, String> {
        let peer = self.association.peer(&mut [&mut self.remote])?;
        let peer = Arc::into_inner(peer).ok_or("a shell cannot start a shell")?;
        let peer = Arc::new(peer.keeping());
        let mut session = Session { peer, directory: self.remote, json: self.association.json, parse };
        // A wrong address or password is reported before the first prompt.
        let first = session.directory.clone();
        session.enter(first).await?;
        let failed = |error: ReadlineError| format!("cannot read lines: {error}");
        let mut editor = DefaultEditor::new().map_err(failed)?;
        let history = history_file();
        if let Some(history) = &history {
            // There is no history yet at the first time.
            let _ = editor.load_history(history);
        }
        let is_script = !std::io::stdin().is_terminal();
        let mut code = ExitCode::SUCCESS;
        loop {
            let prompt = format!("{}> ", session.directory);
            let line = match tokio::task::block_in_place(|| editor.readline(&prompt)) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(failed(error)),
            };
            if let (false, Some(history)) = (is_script || line.trim().is_empty(), &history) {
                let _ = editor.add_history_entry(line.as_str());
                // A shell without a history is still useful.
                let _ = create_directories(&parent(history)).map(|()| editor.append_history(history));
            }
            match session.line(&line).await {
                Ok(Next::Go(ExitCode::SUCCESS)) => {}
                Ok(Next::Go(_)) => code = if is_script { ExitCode::FAILURE } else { code },
                Ok(Next::End) => break,
                Err(failure) => {
                    note!("kiban: {failure}");
                    code = if is_script { ExitCode::FAILURE } else { code };
                }
            }
        }
        session.peer.close().await;
        Ok(code)
    }
}

struct Session {
    peer: Arc<Peer>,
    directory: Remote,
    /// Whether each client command prints JSON.
    json: bool,
    parse: Parse,
}

/// What follows a line.
enum Next {
    Go(ExitCode),
    End,
}

impl Session {
    async fn line(&mut self, line: &str) -> Result<Next, String> {
        let mut words = words(line)?;
        let done = Next::Go(ExitCode::SUCCESS);
        let Some(verb) = words.first().cloned() else { return Ok(done) };
        let argument = words.get(1).cloned();
        match verb.as_str() {
            _ if verb.starts_with('#') => {}
            "exit" | "quit" | "bye" => return Ok(Next::End),
            "pwd" => print(&format!("{}\n", self.directory))?,
            "lpwd" => print(&format!("{}\n", absolute(Path::new("."))?.display()))?,
            "cd" => {
                let to = argument.unwrap_or_else(|| "/".into());
                let to = with_base(&self.directory, || to.parse::<Remote>())?;
                self.enter(to).await?;
            }
            "lcd" => {
                let to = argument.or_else(|| std::env::var("HOME").ok()).ok_or("name a directory")?;
                std::env::set_current_dir(&to).map_err(|error| format!("{to}: {error}"))?;
            }
            verb if NOT_IN_A_SHELL.contains(&verb) => {
                return Err(format!("{verb} is not possible in a shell: use kiban ftam {verb}"));
            }
            _ => {
                if verb == "help" {
                    print(HELP)?;
                } else if self.json && !words.iter().any(|word| word == "--json") {
                    words.insert(1, "--json".into());
                }
                let parse = |words: &[String]| with_base(&self.directory, || (self.parse)(words, &self.peer));
                let parsed = parse(&words).or_else(|error| match error.kind() {
                    // The last name is the current directory if it is left out.
                    ErrorKind::MissingRequiredArgument if ["get", "ls", "put"].contains(&verb.as_str()) => {
                        words.push("./".into());
                        parse(&words).map_err(|_| error)
                    }
                    _ => Err(error),
                });
                match parsed {
                    Ok(running) => return running.await.map(Next::Go),
                    Err(error) => {
                        let is_help = !error.use_stderr();
                        let _ = error.print();
                        return Ok(Next::Go(if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) }));
                    }
                }
            }
        }
        Ok(done)
    }

    /// Changes the remote directory.
    async fn enter(&mut self, to: Remote) -> Result<(), String> {
        let mut link = PersistentClient::new(&self.peer, &absolute(Path::new("."))?);
        // ISODE uses "." as the name of the user's home directory.
        let asked = if to.path.is_empty() { to.with_path(".".into()) } else { to.clone() };
        let told = stat(&mut link, &asked, &mut 1).await;
        link.close().await;
        match told {
            Ok(told) if told.is_directory == Some(false) => Err(format!("{to}: not a directory")),
            // A peer may refuse the attributes of a home directory, but let files in it be used.
            Err(failure) if !to.path.is_empty() => Err(failure),
            Err(failure) if !self.peer.is_connected() => Err(failure),
            _ => {
                self.directory = to;
                Ok(())
            }
        }
    }
}

/// Splits a line into words, as a shell does: quotes and `\` make spaces ordinary.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().push(letters.next().ok_or("a \\ at the end of the line")?);
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

fn history_file() -> Option<PathBuf> {
    xdg_file("XDG_STATE_HOME", ".local/state", "ftam-history")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        for (line, expected) in [
            ("  get  a b ", &["get", "a", "b"][..]),
            ("put 'a b' \"c \\\" d\" e\\ f ''", &["put", "a b", "c \" d", "e f", ""]),
            ("", &[]),
        ] {
            assert_eq!(
                words(line).as_deref(),
                Ok(&expected.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..])
            );
        }
        assert!(words("ls 'a").is_err() && words("ls \\").is_err());
    }
}
