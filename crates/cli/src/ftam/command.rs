//! The arguments of `kiban ftam`, and its subcommands.

use super::arguments::{Append, Chattr, Get, Ls, Mkdir, Mv, Put, Rm, Stat};
use super::collect::Collect;
use super::hosts::ListHosts;
use super::link::Peer;
use super::mirror::Mirror;
use super::options::Association;
use super::serve;
use super::shell::{NOT_IN_A_SHELL, Running, Shell};
use crate::osi::peer::runtime;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;
use std::sync::Arc;

/// Transfer files by FTAM (ISO 8571), and serve them.
///
/// FTAM is OSI's file service, used by telephone exchanges, mediation systems and control systems. Here it
/// runs over TCP (RFC 1006), optionally with TLS. Remote names are ftam://USER@HOST:PORT/PATH; the default
/// port is 102. The password is read from --password-file or KIBAN_FTAM_PASSWORD, or prompted for.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban ftam passwd users.toml collector              add a user; prompts for the password\
        \n  kiban ftam serve --listen 127.0.0.1:4102 --root /srv/cdr --users users.toml\
        \n  kiban ftam ls ftam://collector@127.0.0.1:4102/\
        \n  kiban ftam put today.cdr ftam://collector@127.0.0.1:4102/today.cdr\
        \n  kiban ftam get ftam://collector@127.0.0.1:4102/today.cdr .\
        \n  kiban ftam get --resume ftam://exchange.example/huge .       resume an interrupted transfer\
        \n\nExit status: 0 if everything succeeded, 1 otherwise, 2 for invalid arguments.")]
pub(crate) struct Ftam {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Download files.
    #[command(after_help = "Examples:\
            \n  kiban ftam get ftam://collector@exchange.example/today.cdr .\
            \n  kiban ftam get -r ftam://collector@exchange.example/calls .\
            \n  kiban ftam get --resume ftam://collector@exchange.example/huge .")]
    Get(Get),
    /// Upload files; an existing file is replaced once the new one is complete.
    #[command(after_help = "Examples:\
            \n  kiban ftam put today.cdr ftam://collector@exchange.example/today.cdr\
            \n  kiban ftam put --type text notes.txt ftam://collector@exchange.example/\
            \n  kiban ftam put -r calls ftam://collector@exchange.example/calls")]
    Put(Put),
    /// Make a directory the same as another one: transfer files that are missing or newer.
    #[command(after_help = "Examples:\
            \n  kiban ftam mirror ftam://collector@exchange.example/calls calls\
            \n  kiban ftam mirror --delete --dry-run calls ftam://collector@exchange.example/calls\
            \n  kiban ftam mirror -j 4 --include '*.cdr' --exclude old exchange:calls calls")]
    Mirror(Mirror),
    /// Move files from a peer to a local directory, once or on a schedule.
    #[command(after_help = "Examples:\
            \n  kiban ftam collect --every 5m 'exchange:closed-*.cdr' /var/spool/cdr\
            \n  kiban ftam collect -j 4 --min-age 15m 'ftam://collector@exchange.example/calls/*.cdr' cdr\
            \n\nEach file appears in LOCAL once and complete, and is then deleted at the peer, even if the\
            \nprogram is killed. Its journal is in LOCAL/.kiban-collect.")]
    Collect(Collect),
    /// Append a file's contents to a remote file.
    #[command(after_help = "Example:\
            \n  kiban ftam append --type text more.txt ftam://collector@exchange.example/notes.txt")]
    Append(Append),
    /// List a directory.
    #[command(after_help = "Examples:\
            \n  kiban ftam ls ftam://collector@exchange.example/\
            \n  kiban ftam ls -r --json ftam://collector@exchange.example/calls")]
    Ls(Ls),
    /// Show a file's attributes.
    #[command(after_help = "Example:\n  kiban ftam stat ftam://collector@exchange.example/today.cdr")]
    Stat(Stat),
    /// Delete files.
    #[command(after_help = "Example:\
            \n  kiban ftam rm ftam://collector@exchange.example/today.cdr ftam://collector@exchange.example/old.cdr\
            \n\nWithout --recursive, a directory must be empty.")]
    Rm(Rm),
    /// Rename a file on the same host.
    #[command(after_help = "Example:\
            \n  kiban ftam mv ftam://collector@exchange.example/today.cdr old/today.cdr\
            \n\nNAME is a path without a host, relative to the home directory; in a shell, to\
            \nthe current directory. An existing file is not replaced.")]
    Mv(Mv),
    /// Create a directory.
    #[command(after_help = "Example:\n  kiban ftam mkdir ftam://collector@exchange.example/old")]
    Mkdir(Mkdir),
    /// Change a file's attributes.
    #[command(after_help = "Example:\
            \n  kiban ftam chattr --storage-account billing ftam://collector@exchange.example/today.cdr")]
    Chattr(Chattr),
    /// Use the client commands at a prompt, over one association.
    #[command(after_help = "Examples:\
            \n  kiban ftam shell exchange:calls\
            \n  echo 'get *.cdr' | kiban ftam shell ftam://collector@exchange.example/calls")]
    Shell(Shell),
    /// List the hosts of the hosts file.
    #[command(after_help = "Example of ~/.config/kiban/ftam.toml:\
            \n  [hosts.exchange]\
            \n  address = \"10.0.0.7:102\"\
            \n  user = \"collector\"\
            \n  password-command = \"pass show exchange\"\
            \n  tsel = \"0x0103\"\
            \n\nThen 'kiban ftam ls exchange:calls' lists a directory of this host.")]
    Hosts(ListHosts),
    /// Serve a directory as a filestore until ctrl-c.
    Serve(Box<serve::Serve>),
    /// Set a user's password in a users file; the file is created if it does not exist.
    Passwd(serve::Passwd),
}

/// A line of the shell.
#[derive(Parser)]
#[command(name = "", no_binary_name = true, disable_version_flag = true)]
struct Line {
    #[command(subcommand)]
    what: What,
}

/// Parses a line of the shell, whose command uses the shell's peer.
fn line(words: &[String], peer: &Arc<Peer>) -> Result<Running, clap::Error> {
    let hidden = |parser: clap::Command, verb| parser.mut_subcommand(verb, |verb| verb.hide(true));
    let mut parser = NOT_IN_A_SHELL.into_iter().fold(Line::command(), hidden);
    let mut matches = parser.try_get_matches_from_mut(words)?;
    let mut what = Line::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut parser))?.what;
    if let Some(association) = what.association() {
        association.shared = Some(peer.clone());
    }
    Ok(Box::pin(what.run()))
}

impl What {
    /// Returns whether the command waits for several files of the disk at the same time.
    fn is_parallel(&self) -> bool {
        match self {
            What::Get(get) => get.parallel.jobs > 1,
            What::Put(put) => put.parallel.jobs > 1,
            What::Mirror(mirror) => mirror.is_parallel(),
            What::Collect(collect) => collect.is_parallel(),
            // The peer's answers are noticed while the shell waits for a line.
            What::Shell(_) => true,
            _ => false,
        }
    }

    /// Returns the association's settings of a client command.
    fn association(&mut self) -> Option<&mut Association> {
        Some(match self {
            What::Get(get) => &mut get.transfer.association,
            What::Put(put) => &mut put.transfer.association,
            What::Append(append) => &mut append.transfer.association,
            What::Ls(ls) => &mut ls.association,
            What::Stat(stat) => &mut stat.association,
            What::Rm(rm) => &mut rm.association,
            What::Mv(mv) => &mut mv.association,
            What::Mkdir(mkdir) => &mut mkdir.association,
            What::Chattr(chattr) => &mut chattr.association,
            _ => return None,
        })
    }

    async fn run(self) -> Result<ExitCode, String> {
        match self {
            What::Get(get) => get.run().await,
            What::Put(put) => put.run().await,
            What::Mirror(mirror) => mirror.run().await,
            What::Collect(collect) => collect.run().await,
            What::Append(append) => append.run().await,
            What::Ls(ls) => ls.run().await,
            What::Stat(stat) => stat.run().await,
            What::Rm(many) => many.remove().await,
            What::Mv(mv) => mv.run().await,
            What::Mkdir(one) => one.make_directory().await,
            What::Chattr(chattr) => chattr.run().await,
            What::Shell(shell) => shell.run(line).await,
            What::Hosts(hosts) => hosts.run(),
            What::Serve(serve) => serve.run().await,
            What::Passwd(passwd) => passwd.run(),
        }
    }
}

impl Ftam {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        // `serve` runs its associations on its own threads, so one thread is enough for it.
        runtime(self.what.is_parallel())?.block_on(self.what.run())
    }
}
