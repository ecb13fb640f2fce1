//! Runs the examples as a reader would: with both ends in one process, over each lower layer, and as two
//! processes.
//!
//! Each example asserts its own results, so the test only checks that it succeeds. `cargo test` also builds
//! the examples.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const ALL: [&str; 5] = ["rdma_write", "rdma_read", "send_recv", "rdma_kv", "rping"];

fn example(name: &str) -> Command {
    let own = std::env::current_exe().expect("this program has a place");
    let folder: PathBuf = own.ancestors().nth(2).expect("target/PROFILE/deps/PROGRAM").join("examples");
    let program = folder.join(name);
    assert!(
        program.is_file(),
        "{} is missing: cargo build -p kiban-rdma-runtime --examples",
        program.display()
    );
    Command::new(program)
}

#[track_caller]
fn succeeds(name: &str, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = example(name).args(words).output().expect("it starts");
    let output = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{name} {words:?}: {status}\n{output}{}", String::from_utf8_lossy(&stderr));
    output
}

/// A server process, and the address that it printed. It is killed at the end of the test if it does not exit
/// by itself.
struct Server(Child, String);

impl Server {
    fn start(name: &str, words: &[&str]) -> Server {
        let mut child =
            example(name).arg("serve").args(words).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::with_capacity(1, stdout).read_line(&mut line).expect("it says where it serves");
        let at = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{name}: {line}"));
        Server(child, at.to_owned())
    }

    #[track_caller]
    fn ends_well(mut self) {
        let status = self.0.wait().expect("it was started");
        assert!(status.success(), "the server: {status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loopback addresses that no other test uses.
fn own_addresses(which: u32) -> [String; 2] {
    let process = std::process::id() % 250;
    [format!("127.78.{process}.{}", 10 * which), format!("127.78.{process}.{}", 10 * which + 1)]
}

#[test]
fn each_example_runs_in_one_process_over_each_lower_layer() {
    for (number, name) in ALL.into_iter().enumerate() {
        let [at, _] = own_addresses(number as u32 + 1);
        for over in ["tcp".to_owned(), format!("efe:{at}")] {
            assert!(succeeds(name, &["--over", &over]).contains("client: "), "{name} over {over}");
        }
    }
    assert!(succeeds("vi_pingpong", &[]).contains("fetched, not sent"));
}

#[test]
fn each_example_runs_in_two_processes() {
    for (number, name) in ALL.into_iter().enumerate() {
        let server = Server::start(name, &["127.0.0.1:0"]);
        succeeds(name, &["connect", &server.1]);
        server.ends_well();

        let [one, two] = own_addresses(number as u32 + 11);
        let server = Server::start(name, &[&format!("{one}:0"), "--over", &format!("efe:{one}")]);
        succeeds(name, &["connect", &server.1, "--over", &format!("efe:{two}")]);
        server.ends_well();
    }
}

#[test]
fn what_one_process_puts_another_gets() {
    let server = Server::start("rdma_kv", &["127.0.0.1:0"]);
    let ask = |words: &[&str]| succeeds("rdma_kv", &[&["connect", &server.1], words].concat());
    assert_eq!(ask(&["get", "colour"]), "not found\n");
    for (value, version) in [("green", 1), ("blue", 2)] {
        assert_eq!(ask(&["put", "colour", value]), "stored\n");
        assert_eq!(ask(&["get", "colour"]), format!("{value} (version {version})\n"));
    }
    ask(&["stop"]);
    server.ends_well();
}

#[test]
fn help_is_printed_on_request() {
    for name in ALL {
        assert!(succeeds(name, &["--help"]).contains("connect ADDRESS"));
        let output = example(name).args(["--over", "pigeons"]).output().expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains("use tcp, tcp:ADDRESS"), "{message}");
    }
}

#[test]
fn an_association_echoes_in_one_process_and_between_two() {
    assert!(succeeds("acse", &[]).ends_with("client: another\nclient: released\n"));
    let server = Server::start("acse", &["127.0.0.1:0"]);
    assert_eq!(succeeds("acse", &["connect", &server.1, "word"]), "client: word\nclient: released\n");
    server.ends_well();
}

#[test]
fn files_go_to_a_filestore_and_back_in_one_process_and_between_two() {
    let expected = |user: &str| {
        format!(
            "client: let in as {user}\nclient: there is example.txt\none line\nand another\n\
             client: removed, and out again\n"
        )
    };
    assert_eq!(succeeds("ftam", &[]), expected("ann"));
    let folder = std::env::temp_dir().join(format!("kiban-examples-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let server = Server::start("ftam", &["127.0.0.1:0", folder.to_str().expect("text")]);
    let client = example("ftam").args(["connect", &server.1, "ann", "secret"]).output();
    let outsider = example("ftam").args(["connect", &server.1, "ann", "guess"]).output();
    drop(server);
    let left = std::fs::read_dir(&folder).expect("it is there").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name != ".kiban-ftam").collect();
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!(String::from_utf8_lossy(&client.expect("it starts").stdout), expected("ann"));
    assert!(left.is_empty(), "{left:?}");
    let outsider = outsider.expect("it starts");
    let message = String::from_utf8_lossy(&outsider.stderr);
    assert!(!outsider.status.success() && message.contains("password"), "{message}");
}
