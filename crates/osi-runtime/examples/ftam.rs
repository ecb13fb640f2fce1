//! FTAM in a program: a server with a filestore in a directory, and a client that stores, lists, fetches and
//! removes a file there.
//!
//! `cargo run --release -p kiban-osi-runtime --example ftam` runs server and client in one process. They can
//! also run as two processes; the client works with any FTAM server, such as `kiban ftam serve`:
//!
//! ```text
//! ftam serve ADDRESS:PORT DIRECTORY        serves a filestore to the user `ann`, whose password is `secret`
//! ftam connect HOST:PORT USER PASSWORD     runs the client: puts and gets `example.txt` at that server
//! ```
//!
//! ```text
//!   Client::connect     F-INITIALIZE   identity and requested services
//!   Job::Put            F-CREATE, F-OPEN, F-WRITE, data, F-CLOSE, F-DESELECT
//!   Job::List           F-OPEN and F-READ of a directory (NBS-9)
//!   Job::Get            F-SELECT, F-OPEN, F-READ, data
//!   Job::Remove         F-SELECT, F-DELETE
//!   Client::close       F-TERMINATE
//! ```
//!
//! The client's local files are in one directory, the server's in another; no file name can lead outside
//! them.

use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::initiator::{self, Job, Outcome};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ftam::{Document, PathnameAttribute, ReadAttributes, TextParameters};
use kiban_osi_runtime::ftam::authentication::AuthService;
use kiban_osi_runtime::ftam::client::{Client, ClientConfig, FailureLine};
use kiban_osi_runtime::ftam::disk::Settings;
use kiban_osi_runtime::ftam::serve::{Service, ServiceConfig};
use kiban_osi_runtime::ftam::users::{Attempts, BackoffConfig, Users, hash};
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path as Directory, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// The document type for text, which each host stores with its own line ends.
const TEXT: Document = Document::UnstructuredText(TextParameters::NONE);
/// Timeout for establishing an association.
const PATIENCE: Duration = Duration::from_secs(10);

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let folder = Folder::new("filestore")?;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let service = service(&folder.0)?;
            let serve = async {
                // Runs until the sender sends a message or is dropped.
                service.serve(listener, async { _ = stopped.await }).await.expect("it uses no board");
                Ok(())
            };
            let connect = async {
                let done = connect(address, "ann", "secret").await;
                drop(stop);
                done
            };
            tokio::try_join!(serve, connect).map(|_| ())
        }
        ["serve", address, directory] => {
            let listener = TcpListener::bind(address).await?;
            let service = service(directory.as_ref())?;
            println!("listening on {}", listener.local_addr()?);
            Ok(service.serve(listener, std::future::pending()).await?)
        }
        ["connect", address, user, password] => connect(address.parse()?, user, password).await,
        _ => {
            println!("ftam; ftam serve ADDRESS:PORT DIRECTORY; ftam connect ADDRESS:PORT USER PASSWORD");
            Ok(())
        }
    }
}

/// Creates a filestore in this directory, for one user.
fn service(directory: &Directory) -> Result<Service, Failed> {
    // This is the format that `kiban ftam passwd` writes; a real service reads its users from a file.
    let users = format!("[users.ann]\npassword = \"{}\"\nrights = \"all\"\n", hash(b"secret")?);
    let auth = AuthService::new(Users::parse(&users, "users.toml")?, Attempts::new(BackoffConfig::default()));
    Ok(Service::new(ServiceConfig::new(directory.into()), Arc::new(auth))?)
}

/// Puts a file, finds it in the directory listing, fetches it, and removes it.
async fn connect(address: SocketAddr, user: &str, password: &str) -> Result<(), Failed> {
    let here = Folder::new("local")?;
    fs::write(here.0.join("note.txt"), "one line\nand another\n")?;
    let mut client = Client::connect(&ClientConfig {
        host: address.ip().to_string(),
        port: address.port(),
        local: here.0.clone(),
        disk: Settings::default(),
        initiator: initiator::Config {
            user: Some(user.into()),
            password: Some(password.into()),
            ..initiator::Config::default()
        },
        stack: StackConfig::default(),
        board: None,
        tls: None,
        timeout: PATIENCE,
        idle_timeout: Duration::from_secs(900),
        timing: false,
    })
    .await
    .map_err(|error| error.to_string())?;
    println!("client: let in as {user}");

    let remote = || String::from("example.txt");
    run(&mut client, Job::Put { local: local("note.txt")?, remote: remote(), document: TEXT }).await?;
    let Outcome::Entries(entries) = run(&mut client, Job::List { remote: ".".into() }).await? else {
        return Err("a list has entries".into());
    };
    println!("client: there is {}", entries.iter().map(name).collect::<Vec<_>>().join(", "));
    // Without a document type, the file is transferred as it is stored.
    run(&mut client, Job::Get { remote: remote(), local: local("back.txt")?, document: None }).await?;
    print!("{}", fs::read_to_string(here.0.join("back.txt"))?);
    run(&mut client, Job::Remove { remote: remote() }).await?;
    client.close().await;
    println!("client: removed, and out again");
    Ok(())
}

/// Runs a job. Only jobs that may be resumed over another association need an activity number, so these have
/// none.
async fn run(client: &mut Client, job: Job) -> Result<Outcome, Failed> {
    client.run(job, None).await.map_err(|failure| FailureLine(&failure).to_string().into())
}

fn local(name: &str) -> Result<Path, Failed> {
    Path::read(name).map_err(|bad| bad.to_string().into())
}

/// Returns the name of a directory entry, which may have several components.
fn name(entry: &ReadAttributes) -> String {
    match &entry.pathname {
        Some(PathnameAttribute::Incomplete(name) | PathnameAttribute::Complete(name)) => {
            name.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
        }
        None => "a file without a name".into(),
    }
}

/// A temporary directory, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Folder, Failed> {
        let path = std::env::temp_dir().join(format!("kiban-example-ftam-{}-{name}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the directory cannot be removed, it stays behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}
