//! Two programs of different users on one host, which may not connect their queue pairs out of band.
//!
//! Needs   root, to start a program as another user; the package ibverbs-utils.

#[path = "common/libraries.rs"]
mod libraries;

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MESSAGE: &str = "belongs to another user";

/// A running program, which is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // This fails if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that every user may read, removed at the end of the test.
struct Readable(PathBuf);

impl Readable {
    fn new() -> Readable {
        let folder = std::env::temp_dir().join(format!("kiban-users-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new directory");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is ours");
        Readable(folder)
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(command: &[&str], libraries: &Path) -> Child {
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).env("LD_LIBRARY_PATH", libraries).env_remove("KIBAN_TRANSPORT");
    program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it is installed")
}

#[test]
fn queue_pairs_of_two_users_fail_with_a_message_at_both_ends() {
    let user = libraries::stdout_of(Command::new("id").arg("-u"));
    if user.trim() != "0" {
        return println!("skipped: only root can start a program as another user");
    }
    // The other user may be unable to enter the directory of the checkout.
    let libraries = Readable::new();
    libraries::stdout_of(
        Command::new("cp").arg("-a").arg(libraries::linked("users").join(".")).arg(&libraries.0),
    );
    // Either end may be the one that connects, depending on random numbers.
    for _ in 0..3 {
        fails_with_a_message_at_both_ends(&libraries.0);
    }
}

fn fails_with_a_message_at_both_ends(libraries: &Path) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("it is bound").port().to_string();
    drop(free);
    let pingpong = ["ibv_rc_pingpong", "-g", "0", "-p", &port];
    let mut server = Running(start(&pingpong, libraries));
    let as_nobody =
        [&["timeout", "60", "setpriv", "--reuid", "65534", "--clear-groups"], &pingpong[..], &["127.0.0.1"]]
            .concat();
    // The client does not wait for its server.
    let client = loop {
        let client = start(&as_nobody, libraries).wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&client.stderr).into_owned();
        if !words.contains("Couldn't connect") {
            break words;
        }
    };
    assert!(client.contains(MESSAGE), "{client}");
    let lines = BufReader::new(server.0.stderr.take().expect("a pipe")).lines();
    let told = lines.map_while(Result::ok).any(|line| line.contains(MESSAGE));
    assert!(told, "the server wrote no message");
}
