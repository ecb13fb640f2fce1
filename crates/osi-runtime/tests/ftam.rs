//! Tests of a filestore server against hostile peers: incomplete connections, another user's dockets, and
//! symbolic links that are exchanged while paths are being resolved.

use kiban_os::lock;
use kiban_osi::ftam::filestore::DiskError;
use kiban_osi::ftam::initiator::{self, Job, docket_of};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_osi_runtime::ftam::authentication::AuthService;
use kiban_osi_runtime::ftam::client::{Client, ClientConfig};
use kiban_osi_runtime::ftam::disk::{Durability, Settings, Syncs};
use kiban_osi_runtime::ftam::serve::{Service, ServiceConfig};
use kiban_osi_runtime::ftam::users::{Attempts, BackoffConfig, Grants, Users, write_user};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(60);
const BINARY: Document = Document::UnstructuredBinary(BinaryParameters::NONE);

/// A directory with a filestore in `root`, and the users `ann` and `eve`, who have all rights.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kiban-served-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let place = Place(std::env::temp_dir().join(name));
        for directory in ["root", "ann", "eve"] {
            fs::create_dir_all(place.0.join(directory)).unwrap();
        }
        let users = place.0.join("users");
        for user in ["ann", "eve"] {
            write_user(&users, user, user.as_bytes(), &Grants::default()).unwrap();
        }
        let text = fs::read_to_string(&users).unwrap();
        let lines =
            text.lines().map(|line| if line.starts_with("rights") { "rights = \"all\"" } else { line });
        fs::write(&users, lines.collect::<Vec<_>>().join("\n")).unwrap();
        place
    }

    /// Serves the filestore as long as the runtime runs; returns the port.
    fn serve(&self, runtime: &Runtime, change: impl Fn(&mut ServiceConfig)) -> u16 {
        let mut config = ServiceConfig::new(self.0.join("root"));
        config.disk.durability = Durability::Never;
        change(&mut config);
        let users = Users::read(&self.0.join("users")).unwrap();
        let auth = AuthService::new(users, Attempts::new(BackoffConfig::default()));
        let service = Service::new(config, Arc::new(auth)).unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(async move { service.serve(listener, std::future::pending()).await });
            port
        })
    }

    async fn connect(&self, user: &str, port: u16) -> Client {
        let config = ClientConfig {
            host: "127.0.0.1".into(),
            port,
            local: self.0.join(user),
            disk: Settings::default(),
            initiator: initiator::Config {
                user: Some(user.into()),
                password: Some(user.into()),
                checkpoint_bytes: 100_000,
                ..initiator::Config::default()
            },
            stack: StackConfig::default(),
            board: None,
            tls: None,
            timeout: PATIENCE,
            idle_timeout: Duration::from_secs(900),
            timing: false,
        };
        Client::connect(&config).await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The names in a directory that its last sync has made durable.
type Durable = Arc<Mutex<BTreeSet<String>>>;

/// Syncs directories, calling `before` for each sync. A name is durable if it was in the directory when the
/// sync began.
fn observed(before: impl Fn() -> Result<(), DiskError> + Send + Sync + 'static) -> (Syncs, Durable) {
    let durable = Durable::default();
    let seen = durable.clone();
    let turn = Mutex::new(());
    let syncs = Syncs::with(move |directory| {
        // One at a time, so that the last one has seen the latest names.
        let _turn = lock(&turn);
        let entries = rustix::fs::Dir::read_from(directory).unwrap();
        let names: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        before()?;
        *lock(&seen) = names;
        Ok(())
    });
    (syncs, durable)
}

fn put(remote: &str) -> Job {
    let name = |text| kiban_osi::ftam::filestore::Path::read(text).unwrap();
    Job::Put { local: name("here"), remote: remote.into(), document: BINARY }
}

#[test]
fn half_open_connections_end_at_their_deadline_even_if_bytes_trickle() {
    let place = Place::new();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |config| {
        config.stack.transport.connect_timeout = Some(Duration::from_millis(300));
        config.stack.session.connect_timeout = Some(Duration::from_millis(300));
    });
    let request = [3, 0, 0, 11, 6, 0xe0, 0, 0, 0, 1, 0];
    let half = [&request[..], &[3, 0, 3, 0xe8, 2, 0xf0, 0x80, 13, 0xff]].concat();
    let says: [&[u8]; 5] = [&[], &[3], &request[..7], &request, &half];
    let sockets: Vec<TcpStream> = says
        .iter()
        .map(|says| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.write_all(says).unwrap();
            socket
        })
        .collect();
    for (mut socket, says) in sockets.into_iter().zip(says) {
        let mut answer = Vec::new();
        // The connection may be reset if the service has not read all the data.
        let _ = socket.read_to_end(&mut answer);
        assert_eq!(answer.is_empty(), says.len() < request.len(), "{says:?}: {answer:?}");
    }
    // Bytes arrive one at a time, each within the time limit, but the whole message takes too long.
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(&request).unwrap();
    let mut answer = [0; 11];
    socket.read_exact(&mut answer).unwrap();
    socket.write_all(&[3, 0, 0xff, 0xff, 2, 0xf0, 0]).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let bytes = (0..3000).take_while(|_| {
        let sent = socket.write_all(&[7]);
        let waits = socket.read(&mut answer).map_err(|error| error.kind());
        sent.is_ok() && waits == Err(std::io::ErrorKind::WouldBlock)
    });
    assert!(bytes.count() < 2999, "the connection was never closed");
}

/// Relays a connection to `port`, and closes it after this many bytes towards the service.
async fn cutter(port: u16, bytes_max: usize) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (mut from, mut back) = client.split();
        let (mut answers, mut to) = server.split();
        let up = async {
            let (mut rest, mut buffer) = (bytes_max, vec![0; 4096]);
            while rest > 0 {
                let count = from.read(&mut buffer).await.unwrap();
                to.write_all(&buffer[..count]).await.unwrap();
                rest = rest.saturating_sub(count.max(1));
            }
        };
        tokio::select! {
            () = up => {}
            _ = tokio::io::copy(&mut answers, &mut back) => {}
        }
    });
    at
}

#[test]
fn a_stolen_docket_does_not_work_for_another_user() {
    let place = Place::new();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |_| {});
    let contents: Vec<u8> = (0..1_000_000u32).map(|number| (number >> 3) as u8).collect();
    fs::write(place.0.join("ann/here"), &contents).unwrap();
    fs::write(place.0.join("root/there"), "old").unwrap();
    runtime.block_on(async {
        let cut = cutter(port, 600_000).await;
        let mut ann = place.connect("ann", cut).await;
        let failure = ann.run(put("there"), Some(7)).await.unwrap_err();
        assert_eq!(failure.docket, Some(docket_of(7)));
        ann.close().await;
        // The user eve receives copies of all of ann's dockets.
        let notes = "eve/.kiban-ftam/dockets";
        fs::create_dir_all(place.0.join(notes)).unwrap();
        fs::copy(place.0.join("ann/here"), place.0.join("eve/here")).unwrap();
        let note = format!(".kiban-ftam/dockets/{}", docket_of(7));
        fs::copy(place.0.join("ann").join(&note), place.0.join("eve").join(&note)).unwrap();
        let times = fs::metadata(place.0.join("ann/here")).unwrap().modified().unwrap();
        fs::File::options().write(true).open(place.0.join("eve/here")).unwrap().set_modified(times).unwrap();
        let mut eve = place.connect("eve", port).await;
        let failure = eve.recover(docket_of(7)).await.unwrap_err();
        let said: Vec<i64> = failure.diagnostics.iter().map(|item| item.error_identifier).collect();
        assert!(failure.local == Some(DiskError::Changed) || said == [6004], "{failure:?}");
        eve.close().await;
        assert_eq!(fs::read(place.0.join("root/there")).unwrap(), b"old");
        let mut ann = place.connect("ann", port).await;
        ann.recover(docket_of(7)).await.unwrap();
        ann.close().await;
        assert!(fs::read(place.0.join("root/there")).unwrap() == contents);
    });
}

#[test]
fn without_space_for_a_docket_a_transfer_works_but_cannot_be_resumed() {
    let place = Place::new();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |config| config.responder.user_dockets_max = 1);
    let contents = vec![7; 1_000_000];
    fs::write(place.0.join("ann/here"), &contents).unwrap();
    fs::copy(place.0.join("ann/here"), place.0.join("eve/here")).unwrap();
    runtime.block_on(async {
        let mut offered = Vec::new();
        for (user, activity) in [("ann", 1), ("ann", 2), ("eve", 3), ("ann", 1)] {
            let mut client = place.connect(user, cutter(port, 600_000).await).await;
            let failure = client.run(put(&format!("there-{activity}")), Some(activity)).await.unwrap_err();
            offered.push(failure.docket.is_some());
            client.close().await;
        }
        assert_eq!(offered, [true, false, true, true]);
        let mut ann = place.connect("ann", port).await;
        ann.run(put("there-2"), Some(2)).await.unwrap();
        ann.recover(docket_of(1)).await.unwrap();
        ann.close().await;
    });
    for name in ["there-1", "there-2"] {
        assert!(fs::read(place.0.join("root").join(name)).unwrap() == contents, "{name}");
    }
}

#[test]
fn a_directory_swapped_with_a_link_leads_no_put_out() {
    let place = Place::new();
    let root = place.0.join("root");
    let outside = place.0.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, root.join("link")).unwrap();
    fs::write(place.0.join("ann/here"), "put").unwrap();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |_| {});
    let stop = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (directory, link) = (root.join("d"), root.join("link"));
            while !stop.load(Relaxed) {
                let _ = renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        runtime.block_on(async {
            let mut ann = place.connect("ann", port).await;
            // Continue until there was a race: the paths are resolved several times for each put, so on a
            // busy machine hundreds may be refused in a row.
            for number in 0..30_000 {
                if number >= 300 && done > 0 && refused > 0 {
                    break;
                }
                let name = ["d/secret", "d/new", "d/deep/new"][number % 3];
                match ann.run(put(name), None).await {
                    Ok(_) => done += 1,
                    Err(failure) => {
                        let said: Vec<i64> =
                            failure.diagnostics.iter().map(|item| item.error_identifier).collect();
                        // Each error says that the file or directory was not found, or follows from such an
                        // error.
                        assert!(
                            said.iter().all(|said| [8, 1016, 3000, 3004, 3006].contains(said)),
                            "{said:?}"
                        );
                        assert!(!said.is_empty(), "{failure:?}");
                        refused += 1;
                    }
                }
            }
            ann.close().await;
        });
        stop.store(true, Relaxed);
    });
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused: there was no race");
    let mut beside: Vec<_> =
        fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["secret"]);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[test]
fn a_put_a_renaming_and_a_deletion_are_confirmed_after_the_sync_of_the_directory() {
    const CLIENTS: usize = 4;
    const FILES: usize = 20;
    let (syncs, durable) = observed(|| Ok(()));
    let place = Place::new();
    fs::write(place.0.join("ann/here"), "line").unwrap();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |config| {
        config.disk.durability = Durability::default();
        config.syncs = syncs.clone();
    });
    let place = Arc::new(place);
    runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for worker in 0..CLIENTS {
            let (place, durable) = (place.clone(), durable.clone());
            let has = move |name: &str| lock(&durable).contains(name);
            clients.spawn(async move {
                let mut client = place.connect("ann", port).await;
                for number in 0..FILES {
                    let (name, other) = (format!("a-{worker}-{number}"), format!("b-{worker}-{number}"));
                    client.run(put(&name), None).await.unwrap();
                    assert!(has(&name), "{name} was confirmed before it was durable");
                    let rename = Job::Rename { remote: name.clone(), to: other.clone() };
                    client.run(rename, None).await.unwrap();
                    assert!(!has(&name) && has(&other), "{name} was renamed before that was durable");
                    client.run(Job::Remove { remote: other.clone() }, None).await.unwrap();
                    assert!(!has(&other), "{other} was deleted before that was durable");
                }
                client.close().await;
            });
        }
        clients.join_all().await;
    });
}

#[test]
fn no_put_is_confirmed_while_the_directory_is_being_synced() {
    let (began, begun) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let (syncs, durable) = observed(move || {
        began.send(()).unwrap();
        lock(&gate).recv().unwrap()
    });
    let place = Place::new();
    fs::write(place.0.join("ann/here"), "line").unwrap();
    fs::write(place.0.join("root/old"), "old").unwrap();
    let runtime = Runtime::new().unwrap();
    let port = place.serve(&runtime, |config| {
        config.disk.durability = Durability::default();
        config.syncs = syncs.clone();
    });
    runtime.block_on(async {
        let (mut ann, mut other) = (place.connect("ann", port).await, place.connect("ann", port).await);
        let waits = tokio::spawn(async move { (ann.run(put("first"), None).await, ann) });
        tokio::task::block_in_place(|| begun.recv().unwrap());
        // Other associations are served meanwhile.
        other.run(Job::Stat { remote: "old".into() }, None).await.unwrap();
        assert!(!waits.is_finished(), "it was confirmed before the sync ended");
        assert!(lock(&durable).is_empty());
        go.send(Ok(())).unwrap();
        let (first, mut ann) = waits.await.unwrap();
        first.unwrap();
        assert!(lock(&durable).contains("first"));
        // A failed sync is a failed put.
        go.send(Err(DiskError::Failed)).unwrap();
        let failure = ann.run(put("second"), None).await.unwrap_err();
        let said: Vec<i64> = failure.diagnostics.iter().map(|item| item.error_identifier).collect();
        assert!(!said.is_empty(), "{failure:?}");
        ann.close().await;
        other.close().await;
    });
}

#[test]
fn a_policy_without_syncs_needs_none() {
    let (syncs, durable) = observed(|| Ok(()));
    let place = Place::new();
    fs::write(place.0.join("ann/here"), "line").unwrap();
    let runtime = Runtime::new().unwrap();
    for (durability, is_durable) in
        [(Durability::Never, false), (Durability::AtEnd, true), (Durability::AtCheckpoints, true)]
    {
        lock(&durable).clear();
        let port = place.serve(&runtime, |config| {
            config.disk.durability = durability;
            config.syncs = syncs.clone();
        });
        runtime.block_on(async {
            let mut ann = place.connect("ann", port).await;
            ann.run(put("there"), None).await.unwrap();
            assert_eq!(lock(&durable).contains("there"), is_durable, "{durability:?}");
            ann.close().await;
        });
    }
}
