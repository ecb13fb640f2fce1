//! FTAM over TCP sockets, compared with the sockets alone.
//!
//! Claim     a file passes through seven layers at the speed of copying, and an association is established
//!           without noticeable delay.
//! Sides     putting and getting an FTAM-3 file between two in-memory directories is compared with a bare
//!           stream of the same length, in writes of the data element's size. ACSE associations are compared
//!           with a bare connection with the same number of round trips.
//! Fair      on both sides of a comparison, each end is a thread of this process. The bare stream's bytes
//!           come from memory and are discarded; FTAM reads them from a file and writes them to another. A
//!           transfer is measured from the request to its confirmation, including opening, closing and the
//!           final rename. The reader of the bare stream confirms with a byte.
//! Logins    one thread opens and releases FTAM associations, several at a time. In a second server, the same
//!           password has a hash that costs next to nothing to verify; the difference is Argon2id's cost.
//! Policy    data must reach the disk before a put is confirmed (by `fsync` at the end); this costs little in
//!           an in-memory file system.
//! Files     many small files are transferred between two directories on a disk (below TMPDIR), over four
//!           associations, without records of interrupted transfers. The other side is four threads that
//!           write, fsync and rename the same number of files. As in `kiban ftam get -j 4`, the initiator
//!           syncs the directory once, at the end.
//! Groups    `KIBAN_BENCH_ROWS=transfers,associations,files` selects groups of rows.
//! Target    a fixed rate, or 0.6 of the bare stream's rate on this machine if that is lower. The bare stream
//!           is therefore measured first.

use crate::rows::wanted;
use kiban_lab::{Bench, Options, Target, Trial, Unit};
use kiban_os::clock::thread_cpu_nanos;
use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::initiator::{self, Job};
use kiban_osi::stack::layers::StackConfig;
use kiban_osi::wire::ber::Oid;
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_osi_runtime::association::{Acceptance, Association, Event, Listener, Parameters};
use kiban_osi_runtime::ftam::authentication::AuthService;
use kiban_osi_runtime::ftam::client::{Client, ClientConfig};
use kiban_osi_runtime::ftam::disk::Settings;
use kiban_osi_runtime::ftam::serve::{Service, ServiceConfig};
use kiban_osi_runtime::ftam::users::{Attempts, BackoffConfig, Grants, Users, write_user};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(20);
/// The parent of the directories: an in-memory file system, if there is one.
const MEMORY: &str = "/dev/shm";
/// The bare stream's memory is page-aligned, like FTAM's, because aligned memory is copied faster, on some
/// processors much faster.
const PAGE_BYTES: usize = 4096;
const NAME: &str = "file";
const USER: &str = "eve";
const PASSWORD: &str = "secret";
/// One row: the length in bytes and the target.
struct Row {
    fdata_bytes: usize,
    tpdu_bytes: usize,
    gbytes_per_second: f64,
}
const ROWS: [Row; 3] = [
    Row { fdata_bytes: 2015, tpdu_bytes: 2048, gbytes_per_second: 0.4 },
    Row { fdata_bytes: 16 << 10, tpdu_bytes: 2048, gbytes_per_second: 0.7 },
    Row { fdata_bytes: 16 << 10, tpdu_bytes: 8192, gbytes_per_second: 1.0 },
];

pub(crate) fn run(options: &Options) {
    let mut bench = Bench::new("osi", options.clone());
    bench.options_mut().foreign_cores_max = 0.5;
    let bytes = if options.quick { 16 << 20 } else { 1 << 30 };
    let runtime = thread_of_its_own();
    let dir = TestDir::new(bytes);
    for row in ROWS.iter().filter(|_| wanted("transfers")) {
        transfers(&mut bench, &runtime, &dir, bytes, row);
    }
    if wanted("associations") {
        associations(&mut bench, &runtime);
        logins(&mut bench, &runtime, &dir);
    }
    if wanted("files") {
        small_files(&mut bench, if options.quick { 100 } else { 2000 });
    }
    bench.finish();
}

/// Returns a runtime that has one thread.
fn thread_of_its_own() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("the system has threads to spare")
}

/// Returns a runtime on the caller's thread.
fn current_thread() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("event polling is available")
}

/// Two directories: the filestore's, and the initiator's, which contains the file.
struct TestDir(PathBuf);

impl TestDir {
    fn new(bytes: usize) -> TestDir {
        let memory = std::path::Path::new(MEMORY);
        TestDir::below(if memory.is_dir() { memory.into() } else { std::env::temp_dir() }, bytes)
    }

    fn below(above: PathBuf, bytes: usize) -> TestDir {
        let dir = TestDir(above.join(format!("kiban-bench-osi-{}", std::process::id())));
        for directory in ["root", "here"] {
            std::fs::create_dir_all(dir.0.join(directory)).expect("a directory can be made");
        }
        std::fs::write(dir.0.join("here").join(NAME), crate::noise::noise(7, bytes))
            .expect("there is room for the file");
        write_user(&dir.0.join("users"), USER, PASSWORD.as_bytes(), &Grants::default())
            .expect("a users file can be written");
        let text = std::fs::read_to_string(dir.0.join("users")).expect("it was written");
        let (before, _) = text.split_once("rights").expect("a user has rights");
        std::fs::write(dir.0.join("users"), format!("{before}rights = \"all\"\n"))
            .expect("it can be written");
        dir
    }

    /// Serves the filestore until the runtime is dropped; returns the address.
    fn serve(&self, runtime: &Runtime, row: &Row) -> SocketAddr {
        let mut config = ServiceConfig::new(self.0.join("root"));
        config.responder.fdata_bytes = row.fdata_bytes;
        config.stack.transport.tpdu_bytes_max = row.tpdu_bytes;
        let users = Users::read(&self.0.join("users")).expect("it was written");
        let gate = AuthService::new(users, Attempts::new(BackoffConfig::default()));
        let service = Service::new(config, Arc::new(gate)).expect("the directory is there");
        runtime.block_on(async {
            let listener =
                tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            tokio::spawn(async move { service.serve(listener, std::future::pending()).await });
            address
        })
    }

    fn connect(&self, runtime: &Runtime, address: SocketAddr, row: &Row) -> Client {
        runtime.block_on(Client::connect(&self.config(address, row))).expect("the service listens")
    }

    fn config(&self, address: SocketAddr, row: &Row) -> ClientConfig {
        let mut stack = StackConfig::default();
        stack.transport.tpdu_bytes_max = row.tpdu_bytes;
        ClientConfig {
            host: address.ip().to_string(),
            port: address.port(),
            local: self.0.join("here"),
            disk: Settings::default(),
            initiator: initiator::Config {
                user: Some(USER.into()),
                password: Some(PASSWORD.into()),
                fdata_bytes: row.fdata_bytes,
                ..initiator::Config::default()
            },
            stack,
            board: None,
            tls: None,
            timeout: PATIENCE,
            idle_timeout: Duration::from_secs(900),
            timing: false,
        }
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn transfers(bench: &mut Bench, runtime: &Runtime, dir: &TestDir, bytes: usize, row: &Row) {
    let about = format!("F-DATA {}, TPDU {}", row.fdata_bytes, row.tpdu_bytes);
    let raw = |trial: &mut Trial| stream(trial, bytes, row.fdata_bytes) / 1e9;
    let alone = bench.single(
        &format!("a bare stream with writes of {}", row.fdata_bytes),
        Unit::GbytePerSecond,
        ("raw TCP", raw),
        Target::None,
    );
    let of_raw = (0.6 * alone.sides[0].figures.median * 1e3).round() / 1e3;
    let target = Target::at_least(row.gbytes_per_second.min(of_raw));
    let address = dir.serve(runtime, row);
    let client = std::cell::RefCell::new(dir.connect(runtime, address, row));
    let local = |name: &str| Path::read(name).expect("a name");
    let document = Document::UnstructuredBinary(BinaryParameters::NONE);
    let jobs = [
        ("put", Job::Put { local: local(NAME), remote: NAME.into(), document: document.clone() }),
        ("get", Job::Get { local: local("back"), remote: NAME.into(), document: Some(document) }),
    ];
    for (what, job) in jobs {
        bench.compare(
            &format!("{what}, {about}"),
            Unit::GbytePerSecond,
            ("FTAM", |trial: &mut Trial| {
                let span = trial.measure_once(|| {
                    let done = runtime.block_on(client.borrow_mut().run(job.clone(), None));
                    done.expect("the transfer succeeds");
                    bytes as f64
                });
                span.per_second() / 1e9
            }),
            ("raw TCP", raw),
            target,
        );
    }
    let client = client.into_inner();
    runtime.block_on(client.close());
    let (there, back) = (dir.0.join("root").join(NAME), dir.0.join("here").join("back"));
    assert!(std::fs::read(&there).expect("it was put") == std::fs::read(&back).expect("it was fetched"));
    for file in [there, back] {
        std::fs::remove_file(file).expect("it can be removed");
    }
}

/// Sends bytes from one thread to another; returns bytes per second.
fn stream(trial: &mut Trial, bytes: usize, write_bytes: usize) -> f64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let reader = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the writer connects");
        let mut room = vec![0; (256 << 10) + PAGE_BYTES];
        let border = room.as_ptr().align_offset(PAGE_BYTES);
        let mut taken = 0;
        while taken < bytes {
            taken += socket.read(&mut room[border..]).expect("the writer writes");
        }
        socket.write_all(&[1]).expect("the writer waits for it");
    });
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_nodelay(true).expect("a socket");
    let block = crate::noise::noise(8, write_bytes);
    let span = trial.measure_once(|| {
        let mut sent = 0;
        while sent < bytes {
            let count = block.len().min(bytes - sent);
            socket.write_all(&block[..count]).expect("the reader reads");
            sent += count;
        }
        socket.read_exact(&mut [0]).expect("the reader has taken all");
        bytes as f64
    });
    reader.join().expect("it ended well");
    span.per_second()
}

/// The number of parallel associations, and of threads that they are compared with.
const PARALLEL: usize = 4;

fn small_files(bench: &mut Bench, files: usize) {
    let dir = TestDir::below(std::env::temp_dir(), 0);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime =
        builder.worker_threads(PARALLEL).enable_all().build().expect("the system has threads to spare");
    let row = &ROWS[2];
    let address = dir.serve(&runtime, row);
    let mut config = dir.config(address, row);
    config.disk.syncs_names = false;
    let here = dir.0.join("here");
    for number in 0..files {
        std::fs::write(here.join(format!("line{number}")), format!("line {number}\n"))
            .expect("there is room");
    }
    let clients = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..PARALLEL {
            clients.push(Client::connect(&config).await.expect("the service listens"));
        }
        clients
    });
    let clients: Arc<[tokio::sync::Mutex<Client>]> =
        clients.into_iter().map(tokio::sync::Mutex::new).collect();
    let local = |name: String| Path::read(&name).expect("a name");
    let document = || Document::UnstructuredBinary(BinaryParameters::NONE);
    let job = move |is_put: bool, number: usize| match is_put {
        true => {
            let remote = format!("there{number}");
            Job::Put { local: local(format!("line{number}")), remote, document: document() }
        }
        false => {
            let remote = format!("there{number}");
            Job::Get { local: local(format!("back{number}")), remote, document: Some(document()) }
        }
    };
    for (what, is_put) in [("put", true), ("get", false)] {
        let transfer = |trial: &mut Trial| {
            let span = trial.measure_once(|| {
                runtime.block_on(async {
                    let mut set = tokio::task::JoinSet::new();
                    for worker in 0..PARALLEL {
                        let clients = clients.clone();
                        set.spawn(async move {
                            let mut client = clients[worker].lock().await;
                            for number in (worker..files).step_by(PARALLEL) {
                                client
                                    .run_unrecorded(job(is_put, number))
                                    .await
                                    .expect("the transfer succeeds");
                            }
                        });
                    }
                    set.join_all().await;
                });
                std::fs::File::open(&here).and_then(|here| here.sync_all()).expect("a directory");
                files as f64
            });
            span.per_second()
        };
        let copies = dir.0.join("copies");
        std::fs::create_dir_all(&copies).expect("a directory can be made");
        bench.compare(
            &format!("{what} of {files} files of one line, {PARALLEL} associations"),
            Unit::PerSecond,
            ("FTAM", transfer),
            ("write, fsync, rename", |trial: &mut Trial| {
                let span = trial.measure_once(|| {
                    write_files(&copies, files);
                    files as f64
                });
                span.per_second()
            }),
            // At most 1.5 times as long.
            Target::ratio_at_least(1.0 / 1.5),
        );
    }
}

/// Writes small files in several threads; each has its name when its contents are on the disk.
fn write_files(directory: &std::path::Path, files: usize) {
    thread::scope(|scope| {
        for worker in 0..PARALLEL {
            scope.spawn(move || {
                for number in (worker..files).step_by(PARALLEL) {
                    let new = directory.join(format!("new{number}"));
                    let mut file = std::fs::File::create(&new).expect("there is room");
                    file.write_all(format!("line {number}\n").as_bytes()).expect("there is room");
                    file.sync_all().expect("the disk works");
                    std::fs::rename(&new, directory.join(format!("line{number}"))).expect("ours");
                }
            });
        }
    });
}

/// The hash of [`PASSWORD`] with the least memory and time that Argon2id allows, or nearly so.
const CHEAP_HASH: &str =
    "$argon2id$v=19$m=64,t=1,p=1$TX6uyyoJO4x3ko+c7G4y6A$079RHsn2BDcZEGLqLsknW6Rjof/r4JKIliRu+piOASI";

/// Serves the filestore twice: with a password whose verification costs next to nothing, and with one that is
/// hashed as usual. Returns the settings of clients for both.
fn cheap_and_usual(runtime: &Runtime, dir: &TestDir) -> [ClientConfig; 2] {
    let row = &ROWS[2];
    let usual = dir.config(dir.serve(runtime, row), row);
    let users = std::fs::read_to_string(dir.0.join("users")).expect("it was written");
    let cheap = users.lines().map(|line| match line.starts_with("password") {
        true => format!("password = \"{CHEAP_HASH}\"\n"),
        false => format!("{line}\n"),
    });
    std::fs::write(dir.0.join("users"), cheap.collect::<String>()).expect("it can be written");
    [dir.config(dir.serve(runtime, row), row), usual]
}

/// Opens and releases [`PARALLEL`] FTAM associations at the same time; returns how many were opened.
fn login(alone: &Runtime, config: &ClientConfig) -> usize {
    alone.block_on(async {
        let mut set = tokio::task::JoinSet::new();
        for _ in 0..PARALLEL {
            let config = config.clone();
            set.spawn(async move {
                match Client::connect(&config).await {
                    Ok(client) => {
                        client.close().await;
                        true
                    }
                    Err(_) => false,
                }
            });
        }
        set.join_all().await.into_iter().filter(|&is_opened| is_opened).count()
    })
}

/// The initiator runs in the benchmark's thread, the responder in others.
fn logins(bench: &mut Bench, runtime: &Runtime, dir: &TestDir) {
    let alone = current_thread();
    let [cheap, usual] = cheap_and_usual(runtime, dir);
    let span = |config: &ClientConfig, trial: &mut Trial| {
        trial.measure(|| {
            assert_eq!(login(&alone, config), PARALLEL, "the service refuses associations");
            PARALLEL as f64
        })
    };
    for (what, config, target) in [
        ("without the cost of the password", &cheap, Target::at_least(1000.0)),
        ("with a password (Argon2id, 19 MiB, 2 passes)", &usual, Target::None),
    ] {
        bench.single(
            &format!("FTAM associations opened and released, {PARALLEL} at a time, {what}"),
            Unit::PerSecond,
            ("FTAM", |trial: &mut Trial| span(config, trial).per_second()),
            target,
        );
    }
    for (what, config) in [("without the cost of the password", &cheap), ("with a password", &usual)] {
        for side in ["initiator", "responder"] {
            let cost = |trial: &mut Trial| {
                let before = thread_cpu_nanos();
                let span = span(config, trial);
                let here = thread_cpu_nanos() - before;
                let nanos = if side == "initiator" { here } else { span.cpu_nanos.saturating_sub(here) };
                nanos as f64 / span.work / 1e3
            };
            bench.single(
                &format!("CPU time of the {side} per FTAM association, {what}"),
                Unit::Microseconds,
                ("FTAM", cost),
                Target::None,
            );
        }
    }
    processes(bench, &alone, &cheap);
}

/// Lists a directory with `kiban ftam ls`, one process for each list, and with one association for each list
/// in this process. The difference is what the start of a process costs.
fn processes(bench: &mut Bench, alone: &Runtime, config: &ClientConfig) {
    let kiban = std::env::current_exe().unwrap_or_default().with_file_name("kiban");
    if !kiban.is_file() {
        return println!("osi: no process is started, because {} has not been built", kiban.display());
    }
    let remote = format!("ftam://{USER}@127.0.0.1:{}/", config.port);
    let millis = |span: kiban_lab::Span| span.nanos_each() / 1e6;
    bench.compare(
        "listing an empty directory, an association for each list",
        Unit::Milliseconds,
        ("a process for each", |trial: &mut Trial| {
            millis(trial.measure(|| {
                let mut command = Command::new(&kiban);
                command.args(["ftam", "ls", &remote]).env("KIBAN_FTAM_PASSWORD", PASSWORD);
                let output = command.output().expect("it was built");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                1.0
            }))
        }),
        ("one process", |trial: &mut Trial| {
            millis(trial.measure(|| {
                alone.block_on(async {
                    let mut client = Client::connect(config).await.expect("it listens");
                    client.run(Job::List { remote: "/".into() }, None).await.expect("it is a directory");
                    client.close().await;
                });
                1.0
            }))
        }),
        Target::None,
    );
}

/// The number of messages that the responder sends in an association: CC, ACCEPT, DISCONNECT.
const ANSWERS: usize = 3;

fn associations(bench: &mut Bench, runtime: &Runtime) {
    let alone = current_thread();
    let there = runtime.block_on(async { answer_associations() });
    let here = alone.block_on(async { answer_associations() });
    let one = |address: SocketAddr| {
        alone.block_on(async {
            let parameters = Parameters::new(APPLICATION, &[VALUES]);
            let association = Association::connect("127.0.0.1", address.port(), parameters).await;
            association.expect("it listens").release(Vec::new()).await.expect("it is released");
        });
    };
    bench.single(
        "an association opened and released, both ends in one thread",
        Unit::Microseconds,
        ("ACSE", |trial: &mut Trial| {
            trial
                .measure(|| {
                    one(here);
                    1.0
                })
                .nanos_each()
                / 1e3
        }),
        Target::at_most(200.0),
    );
    let bare = answer_bytes();
    bench.compare(
        "an association opened and released, its ends in two threads",
        Unit::Microseconds,
        ("ACSE", |trial: &mut Trial| {
            trial
                .measure(|| {
                    one(there);
                    1.0
                })
                .nanos_each()
                / 1e3
        }),
        ("connect, 3 trips of a byte, close", |trial: &mut Trial| {
            trial
                .measure(|| {
                    let mut socket = TcpStream::connect(bare).expect("it listens");
                    socket.set_nodelay(true).expect("a socket");
                    for _ in 0..ANSWERS {
                        socket.write_all(&[1]).expect("it reads");
                        socket.read_exact(&mut [0]).expect("it answers");
                    }
                    1.0
                })
                .nanos_each()
                / 1e3
        }),
        Target::None,
    );
}

const APPLICATION: Oid = Oid::of("2.999.7.1");
const VALUES: Oid = Oid::of("1.0.8571.2.4");

/// Accepts associations and their releases in a task; returns the address.
fn answer_associations() -> SocketAddr {
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = Listener::bind(loopback, StackConfig::default(), None, PATIENCE).expect("a port is free");
    let address = listener.address().expect("it is bound");
    tokio::spawn(async move {
        while let Ok(arrival) = listener.accept().await {
            tokio::spawn(async move {
                let asked = arrival.request().await.expect("the benchmark asks");
                let association = asked.accept(Acceptance::default()).expect("it can be had");
                while let Ok(event) = association.receive().await {
                    if let Event::ReleaseRequested { .. } = event {
                        association.answer_release(Vec::new()).expect("it was asked for");
                        return association.closed().await;
                    }
                }
            });
        }
    });
    address
}

/// Replies to every byte with a byte, in a thread; returns the address.
fn answer_bytes() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            socket.set_nodelay(true).expect("a socket");
            while socket.read_exact(&mut [0]).is_ok() && socket.write_all(&[1]).is_ok() {}
        }
    });
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn associations_are_opened_with_both_hashes_and_refused_with_a_wrong_password() {
        let dir = TestDir::below(std::env::temp_dir(), 0);
        let (runtime, alone) = (thread_of_its_own(), current_thread());
        let configs = cheap_and_usual(&runtime, &dir);
        assert_eq!(configs.each_ref().map(|config| login(&alone, config)), [PARALLEL; 2]);
        for mut config in configs {
            config.initiator.password = Some("wrong".into());
            assert_eq!(login(&alone, &config), 0);
        }
    }
}
