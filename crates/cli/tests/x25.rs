//! `kiban x25` as a user runs it: calls on TCP streams, serial lines, Ethernets and XOT; a switch; a PAD.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.args(arguments);
    command
}

/// Runs kiban with this standard input.
fn kiban(arguments: &[&str], input: &[u8]) -> Output {
    feed(command(arguments), input)
}

fn feed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writes = std::thread::spawn(move || {
        // The program may have failed already.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writes.join().expect("no panic");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A service, and what it says.
struct Server {
    child: Child,
    told: BufReader<std::process::ChildStderr>,
    stdin: Option<ChildStdin>,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        Server::spawn(command(arguments))
    }

    /// Starts a service, and waits for its first line.
    fn spawn(mut command: Command) -> Server {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let told = BufReader::new(child.stderr.take().expect("piped"));
        let stdin = child.stdin.take();
        let mut server = Server { child, told, stdin };
        let line = server.says();
        assert!(line.contains("press ctrl-c"), "{line}");
        server
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a line");
        line
    }

    /// Reads lines until one contains these words.
    fn until(&mut self, words: &str) -> String {
        loop {
            let line = self.says();
            assert!(!line.is_empty(), "it ended before it said '{words}'");
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for the end of a service that ends by itself, and returns its output.
    fn output(mut self) -> String {
        drop(self.stdin.take());
        let mut text = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an address at which nothing listens. The host is one of this process alone (127.64.0.0/10), so
/// that no connection and no other test takes the port.
fn free() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    ([127, 64 | high & 63, middle, low], NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Makes a call with `--wait`ing for the echo of data, and checks it.
fn check_echo(arguments: &[&str], bytes: usize) {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let (mut stdin, mut stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let sent = pattern(bytes);
    let input = sent.clone();
    let writes = std::thread::spawn(move || {
        // If the program has failed, the test fails below.
        let _ = stdin.write_all(&input);
        stdin
    });
    let mut got = vec![0; bytes];
    let read = stdout.read_exact(&mut got);
    // The end of the input clears the call.
    drop(writes.join().expect("no panic"));
    let output = child.wait_with_output().expect("it ends");
    assert!(read.is_ok() && output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert!(got == sent, "{arguments:?}: the echo differs");
}

#[test]
fn a_call_over_a_tcp_line_carries_a_file() {
    let at = free().to_string();
    let listens = ["x25", "listen", "--line", &format!("tcp-listen:{at}"), "--role", "dce", "--once"];
    let mut listener = Server::start(&listens);
    let line = format!("tcp:{at}");
    let sent = pattern(100_000);
    let output = kiban(&["x25", "call", "--line", &line, "45678901", "--calling", "12"], &sent);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("connected to 45678901"), "{output:?}");
    assert!(listener.until("call from").contains("call from 12 to 45678901"));
    let mut got = Vec::new();
    listener.child.stdout.take().expect("piped").read_to_end(&mut got).expect("it ends");
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
}

#[test]
fn calls_over_xot_are_echoed_and_given_to_a_command() {
    let at = free().to_string();
    let _echo = Server::start(&["x25", "listen", "--xot", &at, "--echo"]);
    check_echo(&["x25", "call", "--xot", &at, "1"], 50_000);
    check_echo(&["x25", "call", "--xot", &at, "1", "--packet-bytes", "1024", "--window", "7"], 300_000);
    let wide =
        ["x25", "call", "--xot", &at, "1", "--modulo", "128", "--window", "100", "--packet-bytes", "4096"];
    check_echo(&wide, 300_000);

    let at = free().to_string();
    let script = "read line; echo \"$X25_CALLING $X25_CALLED $X25_USER_DATA $line\"";
    let listens = ["x25", "listen", "--xot", &at, "--called", "45*", "--", "sh", "-c", script];
    let _server = Server::start(&listens);
    let call = ["x25", "call", "--xot", &at, "--calling", "99", "--user-data", "c0ffee", "--wait", "4567"];
    let output = kiban(&call, b"hello\n");
    assert_eq!(text(&output.stdout), "99 4567 c0ffee hello\n", "{}", text(&output.stderr));
    let output = kiban(&["x25", "call", "--xot", &at, "9999"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not obtainable"), "{}", text(&output.stderr));
}

/// Two pseudo-terminals, joined as by a null modem. The program prints their names.
const NULL_MODEM: &str = "
import os, select, sys
ends = [os.openpty() for _ in range(2)]
print(*(os.ttyname(slave) for _, slave in ends), flush=True)
masters = [master for master, _ in ends]
while True:
    for ready in select.select(masters + [0], [], [])[0]:
        if ready == 0:
            sys.exit()
        data = os.read(ready, 4096)
        while data:
            data = data[os.write(masters[1 - masters.index(ready)], data):]
";

#[test]
fn a_serial_line_carries_calls() {
    let mut modem = Command::new("python3")
        .args(["-c", NULL_MODEM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut names = String::new();
    BufReader::new(modem.stdout.take().expect("piped")).read_line(&mut names).expect("two names");
    let [near, far] = names.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{names}") };
    let line = format!("serial:{far},115200");
    let mut echo = Server::start(&["x25", "listen", "--line", &line, "--role", "dce", "--echo"]);
    let line = format!("serial:{near},115200");
    check_echo(&["x25", "call", "--line", &line, "--packet-bytes", "256", "--window", "7", "4567"], 20_000);
    assert!(echo.until("call from").contains("to 4567"));
    // The line comes up again for the next program.
    check_echo(&["x25", "call", "--line", &line, "4567"], 2_000);
    drop(modem.stdin.take());
    modem.wait().expect("it ends with its input");
}

/// Two network namespaces with a cable between them; `None` without the privilege.
struct Cable([String; 2]);

impl Cable {
    fn new() -> Option<Cable> {
        let names = ["n", "f"].map(|side| format!("kiban-x25-{}-{side}", std::process::id()));
        let cable = Cable(names.clone());
        let [near, far] = &names;
        if !ip(&["netns", "add", near]) {
            println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
            return None;
        }
        let made = ip(&["netns", "add", far])
            && ip(&["-n", near, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", far])
            && names.iter().all(|side| ip(&["-n", side, "link", "set", "wire", "up"]));
        assert!(made, "who may make a namespace may make a cable in it");
        Some(cable)
    }

    fn inside(&self, side: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[side], env!("CARGO_BIN_EXE_kiban")]).args(arguments);
        command
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn an_ethernet_carries_calls_in_the_format_of_lapbether() {
    let Some(cable) = Cable::new() else { return };
    let listens = ["x25", "listen", "--line", "ether:wire", "--role", "dce", "--once"];
    let listener = Server::spawn(cable.inside(1, &listens));
    let call = ["x25", "call", "--line", "ether:wire", "--packet-bytes", "1024", "--window", "7", "4567"];
    let sent = "a line of text\n".repeat(4000);
    let output = feed(cable.inside(0, &call), sent.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(listener.output() == sent, "the text differs");
}

/// A file in a temporary directory, removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, contents: &str) -> File {
        let path = std::env::temp_dir().join(format!("kiban-x25-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, contents).expect("there is disk space");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_switch_joins_lines_xot_and_tpkt() {
    let [line, xot, tpkt, echo, place] = std::array::from_fn(|_| free().to_string());
    let _osi = Server::start(&["osi", "echo", "--listen", &tpkt]);
    let far = File::new(
        "far",
        &format!(
            "[[line]]\nname = \"trunk\"\naddress = \"tcp-listen:{line}\"\nrole = \"dce\"\n\
             packet-bytes = 256\nwindow = 7\n\
             [[route]]\ncalled = \"45*\"\nfrom = \"trunk\"\nto = \"tpkt:{tpkt}\"\n\
             [[route]]\ncalled = \"*\"\nto = \"xot:{echo}\"\ncalled-as = \"77\"\n"
        ),
    );
    let near = File::new(
        "near",
        &format!(
            "[xot]\nlisten = \"{xot}\"\n\
             [[line]]\nname = \"trunk\"\naddress = \"tcp:{line}\"\nwindow = 7\npacket-bytes = 256\n\
             [[route]]\ncalled = \"*\"\nto = \"trunk\"\n\
             [[place]]\nlisten = \"{place}\"\ncalled = \"4567\"\n"
        ),
    );
    let mut far = Server::start(&["x25", "switch", far.path()]);
    let mut near = Server::start(&["x25", "switch", near.path()]);
    near.until("trunk: up");
    far.until("trunk: up");

    // A program calls through both switches, and its address is translated.
    let mut server = Server::start(&["x25", "listen", "--xot", &echo, "--echo"]);
    check_echo(&["x25", "call", "--xot", &xot, "--calling", "5", "88"], 20_000);
    assert!(server.until("call from").contains("call from 5 to 77"));
    assert!(near.until("circuit 1").contains("calls 88, connected to trunk"));
    assert!(near.until("circuit 1: ended").contains("20000 bytes to the called side"));

    // An association crosses TPKT, the trunk, and TPKT again.
    let arguments = ["osi", "echo", &place, "--quiet", "--json", "--count", "3", "--bytes", "100000"];
    let output = kiban(&arguments, b"");
    assert!(output.status.success(), "{output:?}");
    assert!(far.until("calls 4567").contains("connected to tpkt:"));
}

#[test]
fn a_pad_talks_to_a_host_over_xot() {
    let at = free().to_string();
    let script = "while read -r line; do echo \"host: $line\"; case $line in bye*) exit;; esac; done";
    let _host =
        Server::start(&["x25", "listen", "--xot", &at, "--called", "user-data:01", "--", "sh", "-c", script]);
    // The shell reads lines that end with a line feed, which parameter 13 adds.
    let input = b"stat\nset 13:2\npar? 1,13\n45678901Dme\nhello\nbye\n";
    let output = kiban(&["x25", "pad", "--xot", &at, "--wait"], input);
    let shown = text(&output.stdout);
    for words in ["FREE", "PAR1:1,13:2", "COM", "host: hello", "host: bye", "CLR DTE C:0"] {
        assert!(shown.contains(words), "{words}: {shown} {}", text(&output.stderr));
    }
    assert!(output.status.success());
    // The host clears when it is invited to.
    let output = kiban(&["x25", "pad", "--xot", &at, "--wait"], b"45678901Dme\nhello\n\x10iclr\n");
    assert!(text(&output.stdout).contains("CLR DTE C:0"), "{output:?}");
    // X-OFF at the end of a script stops nothing.
    let output = kiban(&["x25", "pad", "--xot", &at], b"45678901Dme\nhi\x13\n");
    assert!(output.status.success(), "{output:?}");
    // A call that is refused.
    let output = kiban(&["x25", "pad", "--xot", &at, "nonsense"], b"");
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("not an address"), "{output:?}");
    let closed = free().to_string();
    let output = kiban(&["x25", "pad", "--xot", &closed, "45"], b"");
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("refused"), "{output:?}");
}

#[test]
fn usage_errors_name_a_remedy() {
    let absent = File::new("wrong", "[[line]]\nname = \"a\"\naddress = \"modem:1\"\n");
    for (arguments, code, words) in [
        (&["x25", "call", "4567"][..], 2, "--line"),
        (&["x25", "call", "--line", "modem:1", "4567"], 2, "serial:"),
        (&["x25", "call", "--xot", "h", "45x"], 2, "decimal digits"),
        (&["x25", "call", "--xot", "h", "--window", "8", "45"], 1, "modulo 128"),
        (&["x25", "call", "--xot", "h", "--user-data", "0", "45"], 2, "hexadecimal"),
        (&["x25", "call", "--line", "serial:/nowhere", "--patience", "1", "45"], 1, "/nowhere"),
        (&["x25", "call", "--line", "ether:nowhere", "--patience", "1", "45"], 1, "no such interface"),
        (&["x25", "call", "--line", "ether:nowhere", "--patience", "1", "45"], 1, "; waiting for it"),
        (&["x25", "call", "--xot", "h", "--facilities", "031202", "45"], 2, "is incomplete"),
        (&["x25", "call", "--xot", "h", "--line", "ether:e", "45"], 2, "cannot be used with"),
        (&["x25", "listen", "--xot", "192.0.2.1:1998"], 1, "this host does not have the address"),
        (&["x25", "switch", "/nowhere"], 1, "/nowhere"),
        (&["x25", "switch", "--check", absent.path()], 1, ":3: 'modem:1'"),
    ] {
        let output = kiban(arguments, b"");
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(code) && told.contains(words), "{arguments:?}: {told}");
    }
}
