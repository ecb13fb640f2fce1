//! A program that uses a running board's OSI stack contains no session layer. This test is such a program: it
//! attaches to `kiban up`, opens an association with an FTAM server through the board, and transfers a file.
//! Then it checks that its own executable does not contain the session machine.

#[path = "up/common.rs"]
#[expect(dead_code, reason = "the tests of boards use the rest")]
mod common;

use common::{PORT, TestDir, enter, text};
use kiban_base::RopeQueue;
use kiban_osi::Selector;
use kiban_osi::ftam::filestore::Path;
use kiban_osi::ftam::filestore::memory::MemoryDisk;
use kiban_osi::ftam::initiator::{self, Event, Initiator, Job, Outcome};
use kiban_osi::ftam::{ABSTRACT_SYNTAXES, Config, Machine, Role};
use kiban_osi::hif::UserSide;
use kiban_osi::wire::ftam::{BinaryParameters, Document};
use kiban_osi::wire::hif::Open;
use kiban_tokio::{Attachment, Settings, Stream};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An initiator whose protocol machines run on a board.
struct User {
    initiator: Initiator,
    disk: MemoryDisk,
    side: UserSide,
    stream: Stream,
}

impl User {
    fn new(stream: Stream) -> User {
        let abstract_syntaxes = ABSTRACT_SYNTAXES.to_vec();
        let mut machine = Machine::user_side(Config { role: Role::Initiator, abstract_syntaxes });
        let config = initiator::Config {
            user: Some("ann".into()),
            password: Some("secret".into()),
            ..Default::default()
        };
        let mut initiator = Initiator::new(config);
        initiator.connect(&mut machine).expect("it has no association");
        let (called, calling) = (Selector::NONE, Selector::NONE);
        let open =
            Open { role: Role::Initiator, tpdu_bytes_max: 65_531, tsdu_bytes_max: 1 << 20, called, calling };
        User { initiator, disk: MemoryDisk::new(), side: UserSide::new(machine, open), stream }
    }

    /// Moves bytes until the initiator reports an event.
    async fn event(&mut self) -> Event {
        loop {
            let room = self.side.room();
            self.initiator.work(self.side.machine(), &mut self.disk, room);
            self.side.settle();
            if let Some(event) = self.initiator.event() {
                return event;
            }
            if !self.side.outgoing().is_empty() {
                let bytes = taken(self.side.outgoing());
                self.stream.write_all(&bytes).await.expect("the board reads it");
                continue;
            }
            let mut bytes = vec![0; 1 << 16];
            let count = self.stream.read(&mut bytes).await.expect("the board answers");
            assert!(count > 0, "the board has closed the stream");
            bytes.truncate(count);
            self.side.arrive(bytes.into());
        }
    }
}

fn taken(queue: &mut RopeQueue) -> Vec<u8> {
    let bytes = queue.runs().flatten().copied().collect();
    queue.clear();
    bytes
}

/// Returns whether an executable has a symbol of the session machine. Names of functions contain the path of
/// their module, in both of the compiler's manglings.
fn has_session_layer(executable: &str) -> bool {
    let bytes = std::fs::read(executable).expect("it can be read");
    [&b"9kiban_osi7session7machine"[..], &b"kiban_osi7session3act"[..]]
        .iter()
        .any(|name| bytes.windows(name.len()).any(|run| run == *name))
}

#[test]
fn the_client_of_a_board_transfers_a_file_without_a_session_layer() {
    // The search finds the session machine in the program that has all layers.
    assert!(has_session_layer(common::KIBAN), "the search is wrong, or the program has no symbols");
    assert!(!has_session_layer("/proc/self/exe"), "this program contains the session layer");
    if !enter() {
        return;
    }
    let dir = TestDir::new("osi-user");
    let _board = dir.up(&format!("{PORT}[[service]]\nkind = \"osi\"\n"));
    std::fs::create_dir_all(dir.0.join("root")).expect("there is disk space");
    let mut passwd = dir.command(&["ftam", "passwd", "users.toml", "ann"]);
    let made = passwd.env("KIBAN_FTAM_PASSWORD", "secret").output().expect("it was built");
    assert!(made.status.success(), "{}", text(&made));
    let users = std::fs::read_to_string(dir.0.join("users.toml")).expect("it is there");
    let all =
        |line: &str| if line.starts_with("rights") { "rights = \"all\"".into() } else { line.to_owned() };
    dir.write("users.toml", &users.lines().map(all).collect::<Vec<_>>().join("\n"));
    let serve = ["ftam", "serve", "--listen", "10.9.0.1:4102", "--root", "root", "--users", "users.toml"];
    let mut server = dir.command(&serve).stderr(Stdio::piped()).spawn().expect("it was built");
    let mut said = BufReader::new(server.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("serving FTAM")), "the server ends");
    let file: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let transfer = async {
        let settings = Settings { streams: 1, ..Settings::default() };
        let board = Attachment::attach_at(&dir.0.join("kiban/lab.osi"), settings).await.expect("it is there");
        let peer = "10.9.0.1:4102".parse().expect("an address");
        let mut user = User::new(board.connect(peer).await.expect("there is a listener"));
        let local = Path::read("file").expect("a name");
        user.disk.put(&local, &file);
        assert_eq!(user.event().await, Event::Connected);
        let document = Document::UnstructuredBinary(BinaryParameters::NONE);
        let job = Job::Put { local, remote: "file".into(), document };
        user.initiator.start(job, user.side.machine(), &mut user.disk).expect("it is idle");
        assert_eq!(user.event().await, Event::Ended(Ok(Outcome::Done)));
    };
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), transfer).await });
    server.kill().expect("it is a child of this process");
    server.wait().expect("it is a child of this process");
    ended.expect("in time");
    assert!(std::fs::read(dir.0.join("root/file")).expect("it arrived") == file);
}
