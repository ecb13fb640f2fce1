//! The arguments of `kiban ftam`, and its subcommands.

use super::arguments::{Append, Chattr, Get, Ls, Mkdir, Mv, Put, Rm, Stat};
use super::serve;
use crate::osi::peer::runtime;
use clap::{Args, Subcommand};
use std::process::ExitCode;

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
            \n\nA directory must be empty.")]
    Rm(Rm),
    /// Rename a file on the same host.
    #[command(after_help = "Example:\
            \n  kiban ftam mv ftam://collector@exchange.example/today.cdr old/today.cdr\
            \n\nNAME is a path without a host, relative to the home directory. An existing file is not replaced.")]
    Mv(Mv),
    /// Create a directory.
    #[command(after_help = "Example:\n  kiban ftam mkdir ftam://collector@exchange.example/old")]
    Mkdir(Mkdir),
    /// Change a file's attributes.
    #[command(after_help = "Example:\
            \n  kiban ftam chattr --storage-account billing ftam://collector@exchange.example/today.cdr")]
    Chattr(Chattr),
    /// Serve a directory as a filestore until ctrl-c.
    Serve(Box<serve::Serve>),
    /// Set a user's password in a users file; the file is created if it does not exist.
    Passwd(serve::Passwd),
}

impl Ftam {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        // `serve` runs its associations on its own threads, so one thread is enough here.
        runtime(false)?.block_on(async {
            match self.what {
                What::Get(get) => get.run().await,
                What::Put(put) => put.run().await,
                What::Append(append) => append.run().await,
                What::Ls(ls) => ls.run().await,
                What::Stat(stat) => stat.run().await,
                What::Rm(many) => many.remove().await,
                What::Mv(mv) => mv.run().await,
                What::Mkdir(one) => one.make_directory().await,
                What::Chattr(chattr) => chattr.run().await,
                What::Serve(serve) => serve.run().await,
                What::Passwd(passwd) => passwd.run(),
            }
        })
    }
}
