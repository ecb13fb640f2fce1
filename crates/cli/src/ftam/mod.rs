//! `kiban ftam`: files of equipment that speaks OSI, and a filestore for it.

mod address;
mod attributes;
mod jobs;
mod link;
mod options;
mod serve;

use crate::way::runtime;
use address::Remote;
use clap::{Args, Subcommand};
use options::{Association, Kind};
use std::path::PathBuf;
use std::process::ExitCode;

/// Transfer files by FTAM (ISO 8571), and serve them.
///
/// FTAM is OSI's file service: telephone exchanges, mediation and control systems speak it. Here it runs over TCP (RFC 1006),
/// with TLS if both ends have it. Remote names are ftam://USER@HOST:PORT/PATH; the port is 102 unless it is said. A password is
/// taken from --password-file, from KIBAN_FTAM_PASSWORD, or asked for.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kiban ftam passwd users.toml collector              a user; asks for the password\n  kiban ftam serve --listen 127.0.0.1:4102 --root /srv/cdr --users users.toml\n  kiban ftam ls ftam://collector@127.0.0.1:4102/\n  kiban ftam put today.cdr ftam://collector@127.0.0.1:4102/today.cdr\n  kiban ftam get ftam://collector@127.0.0.1:4102/today.cdr .\n  kiban ftam get --resume ftam://exchange.example/huge .       go on where the last attempt was cut\n\nExit status: 0, 1 when something could not be done, 2 for a mistake in the arguments."
)]
pub(crate) struct Ftam {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Fetch files.
    #[command(
        after_help = "Examples:\n  kiban ftam get ftam://collector@exchange.example/today.cdr .\n  kiban ftam get -r ftam://collector@exchange.example/calls .\n  kiban ftam get --resume ftam://collector@exchange.example/huge ."
    )]
    Get(Get),
    /// Put files; one that is there is replaced when the new one is whole.
    #[command(
        after_help = "Examples:\n  kiban ftam put today.cdr ftam://collector@exchange.example/today.cdr\n  kiban ftam put --type text notes.txt ftam://collector@exchange.example/\n  kiban ftam put -r calls ftam://collector@exchange.example/calls"
    )]
    Put(Put),
    /// Put a file's contents behind those of a remote one.
    #[command(
        after_help = "Example:\n  kiban ftam append --type text more.txt ftam://collector@exchange.example/notes.txt"
    )]
    Append(Append),
    /// List a directory.
    #[command(
        after_help = "Examples:\n  kiban ftam ls ftam://collector@exchange.example/\n  kiban ftam ls -r --json ftam://collector@exchange.example/calls"
    )]
    Ls(Ls),
    /// Show a file's attributes.
    #[command(after_help = "Example:\n  kiban ftam stat ftam://collector@exchange.example/today.cdr")]
    Stat(One),
    /// Delete files.
    #[command(
        after_help = "Example:\n  kiban ftam rm ftam://collector@exchange.example/today.cdr ftam://collector@exchange.example/old.cdr\n\nA directory must be empty."
    )]
    Rm(Many),
    /// Give a file another name, on the same host.
    #[command(
        after_help = "Example:\n  kiban ftam mv ftam://collector@exchange.example/today.cdr old/today.cdr\n\nThe new name stands without host, from the home on; nothing is replaced."
    )]
    Mv(Mv),
    /// Make a directory.
    #[command(after_help = "Example:\n  kiban ftam mkdir ftam://collector@exchange.example/old")]
    Mkdir(One),
    /// Change a file's attributes.
    #[command(
        after_help = "Example:\n  kiban ftam chattr --storage-account billing ftam://collector@exchange.example/today.cdr"
    )]
    Chattr(Chattr),
    /// Serve a directory as a filestore until ctrl-c.
    Serve(Box<serve::Serve>),
    /// Set a user's password in a users file; the file is made if there is none.
    Passwd(serve::Passwd),
}

/// What transfers share.
#[derive(Args, Clone)]
struct Transfer {
    #[command(flatten)]
    association: Association,
    /// What the file is taken as [default: as it is stored, binary for a new one].
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    kind: Option<Kind>,
    /// Go on with a transfer that was cut, if there is a note of it; else begin it.
    #[arg(long)]
    resume: bool,
    /// When the association is lost, connect again so many times and go on.
    #[arg(long, value_name = "TIMES", default_value_t = 3)]
    retries: u32,
}

#[derive(Args)]
struct Get {
    #[command(flatten)]
    transfer: Transfer,
    /// Directories with all that is in them.
    #[arg(long, short)]
    recursive: bool,
    /// What to fetch.
    #[arg(required = true, value_name = "REMOTE")]
    remotes: Vec<Remote>,
    /// Where to put it: a directory, or a name for a single file.
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
}

#[derive(Args)]
struct Put {
    #[command(flatten)]
    transfer: Transfer,
    /// Directories with all that is in them.
    #[arg(long, short)]
    recursive: bool,
    /// What to put.
    #[arg(required = true, value_name = "LOCAL")]
    locals: Vec<PathBuf>,
    /// Where to: a name that ends with a slash is a directory.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

#[derive(Args)]
struct Append {
    #[command(flatten)]
    transfer: Transfer,
    /// What to put behind.
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// Behind what.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

#[derive(Args)]
struct Ls {
    #[command(flatten)]
    association: Association,
    /// Directories below it, too.
    #[arg(long, short)]
    recursive: bool,
    /// The directory.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

#[derive(Args)]
struct One {
    #[command(flatten)]
    association: Association,
    /// Its name.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

#[derive(Args)]
struct Many {
    #[command(flatten)]
    association: Association,
    /// Their names.
    #[arg(required = true, value_name = "REMOTE")]
    remotes: Vec<Remote>,
}

#[derive(Args)]
struct Mv {
    #[command(flatten)]
    association: Association,
    /// Its name.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
    /// Its new name, without host.
    #[arg(value_name = "NAME")]
    to: String,
}

#[derive(Args)]
struct Chattr {
    #[command(flatten)]
    association: Association,
    /// Whom its storage is charged to.
    #[arg(long, value_name = "ACCOUNT")]
    storage_account: Option<String>,
    /// How large it may become, bytes.
    #[arg(long, value_name = "BYTES")]
    future_size: Option<i64>,
    /// Whether it can be had at once.
    #[arg(long, value_enum, value_name = "WHEN")]
    availability: Option<jobs::When>,
    /// Its legal qualification.
    #[arg(long, value_name = "TEXT")]
    legal: Option<String>,
    /// Its name.
    #[arg(value_name = "REMOTE")]
    remote: Remote,
}

impl Ftam {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        // Who serves drives associations in lanes of its own.
        runtime(false)?.block_on(async {
            match self.what {
                What::Get(get) => get.run().await,
                What::Put(put) => put.run().await,
                What::Append(append) => append.run().await,
                What::Ls(ls) => ls.run().await,
                What::Stat(one) => one.stat().await,
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
