//! The board as a service: its configuration, messages, reloads and shutdown.

use crate::common::{ECHO, PORT, TestDir, connect, echo, enter, ip, run, spawn, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[test]
fn every_command_takes_its_boards_name_in_the_same_way() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("which");
    let mut board = dir.up(&format!("{PORT}{ECHO}"));
    for arguments in [
        &["status", "--board", "lab"][..],
        &["status", "lab"],
        &["top", "--board", "lab"],
        &["reload", "--board", "lab"],
        &["capture", "--board", "lab", "lan", "lan.pcap", "--seconds", "10ms"],
    ] {
        let output = dir.kiban(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    }
    let output = dir.kiban(&["status", "--board", "moon"]);
    assert!(text(&output).contains("no board moon is running; running boards: lab"), "{}", text(&output));
    assert_eq!(dir.kiban(&["status", "lab", "--board", "lab"]).status.code(), Some(2));
    for name in ["", "../lab", "a/b"] {
        assert!(text(&dir.kiban(&["status", name])).contains("invalid board name"));
    }
    assert!(dir.kiban(&["down", "--board", "lab"]).status.success());
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
}

#[test]
fn relative_directories_are_relative_to_the_configuration() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("relative");
    std::fs::create_dir_all(dir.0.join("site/www")).expect("room");
    std::fs::write(dir.0.join("site/www/page"), "found").expect("room");
    let http = "[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"www\"\n";
    let config = format!("{PORT}{ECHO}{http}[sandbox]\nwrite = \"www\"\n");
    let good = dir.write("site/board.toml", &config).display().to_string();
    // Start in a different working directory, relative to which the path would not be found.
    let board = dir.up_by(&config, |command| {
        let mut words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        words.pop();
        let mut other = Command::new(command.get_program());
        other.args(words).arg(&good).current_dir("/").env("XDG_RUNTIME_DIR", &dir.0);
        other.env("NOTIFY_SOCKET", dir.0.join("notify.sock"));
        spawn(other)
    });
    assert_eq!(text(&run("curl", &["-sSf", "http://10.9.0.2/page"])), "found");
    assert!(dir.kiban(&["reload", "lab"]).status.success());
    let file = dir.0.join("site/www/lan.pcap").display().to_string();
    assert!(dir.kiban(&["capture", "lan", "--board", "lab", &file, "--seconds", "10ms"]).status.success());
    drop(board);
    // The error names the missing directory.
    std::fs::remove_dir_all(dir.0.join("site/www")).expect("it is ours");
    let told = text(&dir.kiban(&["up", "--check", &good]));
    assert!(told.contains(&format!("{}/site/www is not a directory", dir.0.display())), "{told}");
    // If the configuration is read from a pipe, relative paths have no base directory.
    std::fs::create_dir(dir.0.join("www")).expect("room");
    let shell = format!("cat {good} | {} up --check /dev/stdin", crate::common::KIBAN);
    let output = Command::new("sh").args(["-c", &shell]).current_dir(&dir.0).output().expect("sh is there");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_configuration_is_checked_without_side_effects() {
    let dir = TestDir::new("check");
    let good = dir.write("good.toml", &format!("{PORT}{ECHO}"));
    let output = dir.kiban(&["up", "--check", &good.display().to_string()]);
    assert_eq!(
        (output.status.code(), text(&output).as_str()),
        (Some(0), "board lab: ports: 1, services: 1; configuration is valid\n")
    );
    let bad = dir.write("bad.toml", &format!("{PORT}{}", ECHO.replace("echo", "ecco")));
    let output = dir.kiban(&["up", "--check", &bad.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(told.ends_with("bad.toml: line 8: kind: unknown value `ecco`: did you mean `echo`?\n"), "{told}");
    let http =
        format!("[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{}\"\n", dir.0.display());
    let exposed = dir.write("exposed.toml", &format!("{PORT}{http}"));
    let told = text(&dir.kiban(&["up", "--check", &exposed.display().to_string()]));
    assert!(
        told.contains("service http: the configuration ")
            && told.contains("exposed.toml is inside the served directory"),
        "{told}"
    );
    // Commands run by any user find root's boards in /run/kiban.
    if std::fs::read_dir("/run/kiban").is_ok_and(|mut boards| boards.next().is_some()) {
        println!("skipped in part: a board runs on this machine already (/run/kiban)");
        return;
    }
    let output = dir.kiban(&["status"]);
    assert_eq!(
        (output.status.code(), text(&output).as_str()),
        (Some(1), "kiban: no board is running: start one with kiban up board.toml\n")
    );
}

#[test]
fn files_of_200_mb_arrive_intact_and_are_counted() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("http");
    let root = dir.0.join("www");
    std::fs::create_dir_all(root.join("sub")).expect("room");
    let bytes: Vec<u8> = (0..200_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(root.join("big.bin"), &bytes).expect("room");
    std::fs::write(root.join("sub/index.html"), "<p>hello").expect("room");
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).expect("a link");
    let http =
        format!("[[service]]\nkind = \"http\"\nlisten = \"10.9.0.2:80\"\nroot = \"{}\"\n", root.display());
    let config = format!("{PORT}{ECHO}{http}[metrics]\nlisten = \"127.0.0.1:9464\"\n");
    let mut board = dir.up(&config);
    // Make three transfers at the same time.
    let fetched: Vec<Child> = (0..3)
        .map(|number| {
            let command =
                format!("curl -sSf http://10.9.0.2/big.bin | cmp - {}", root.join("big.bin").display());
            let _ = number;
            Command::new("sh").args(["-c", &command]).stderr(Stdio::piped()).spawn().expect("a shell")
        })
        .collect();
    for child in fetched {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}\n{}", text(&output), dir.log());
    }
    let part = run("curl", &["-sSf", "-r", "1000000-1999999", "http://10.9.0.2/big.bin"]);
    assert!(part.stdout == bytes[1_000_000..2_000_000]);
    let page = run("curl", &["-sSfL", "http://10.9.0.2/sub"]);
    assert_eq!(text(&page), "<p>hello");
    for way in ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "out", "nothing"] {
        let url = format!("http://10.9.0.2/{way}");
        let output = run("curl", &["-s", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}", &url]);
        assert_eq!(text(&output), "404", "{way}");
    }
    let status = board.status();
    assert_eq!(
        (status["state"].as_str(), status["ports"][0]["state"].as_str()),
        (Some("running"), Some("up"))
    );
    let service = &status["services"][1];
    assert_eq!((service["name"].as_str(), service["counters"]["errors"].as_u64()), (Some("http"), Some(4)));
    assert!(service["counters"]["bytes_out"].as_u64() > Some(600 << 20), "{service}");
    assert!(text(&dir.kiban(&["status", "lab"])).contains("listening"));
    let scraped = run("curl", &["-sSf", "http://127.0.0.1:9464/metrics"]);
    let figures = String::from_utf8(scraped.stdout).expect("text");
    assert_eq!(figure(&figures, "kiban_link_up", "port=\"lan\""), 1.0);
    assert_eq!(
        figure(&figures, "kiban_service_requests_total", "service=\"http\""),
        service["counters"]["requests"].as_f64().expect("a number")
    );
    assert!(figure(&figures, "kiban_link_out_bytes_total", "port=\"lan\"") > (600 << 20) as f64);
    let output = dir.kiban(&["down"]);
    assert_eq!(text(&output), "board lab is stopping\n");
    assert_eq!(board.wait(), Some(0));
    assert!(!dir.0.join("kiban/lab.sock").exists());
}

/// Returns the value of a metric from text in the Prometheus format. Also checks the format: before the
/// values of each name there are one HELP and one TYPE line, and all values are numbers.
fn figure(text: &str, name: &str, label: &str) -> f64 {
    let (mut typed, mut seen, mut found) = (String::new(), std::collections::BTreeSet::new(), None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(["gauge", "counter"].contains(&kind) && seen.insert(name.to_owned()), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            typed = name.to_owned();
        } else if !line.starts_with("# HELP ") {
            let (its, rest) = line.split_once('{').expect("labels");
            let (labels, value) = rest.rsplit_once("} ").expect("a value");
            assert!(
                its == typed
                    && its
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{line}"
            );
            let value: f64 = value.parse().expect("a number");
            if its == name && labels.contains(label) {
                assert!(found.replace(value).is_none(), "{line} twice");
            }
        }
    }
    found.unwrap_or_else(|| panic!("no {name} with {label}:\n{text}"))
}

#[test]
fn a_session_survives_a_reload_and_changes_that_need_a_restart_are_refused() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("reload");
    let board = dir.up(&format!("{PORT}{ECHO}"));
    let mut session = connect("10.9.0.2:7");
    echo(&mut session, b"before");
    let discard = "[[service]]\nkind = \"discard\"\nlisten = \"10.9.0.2:9\"\n";
    dir.write("board.toml", &format!("{PORT}{ECHO}{discard}"));
    let output = dir.kiban(&["reload", "lab"]);
    assert_eq!(text(&output), "services: 1 kept, 1 new, 0 closed\n");
    echo(&mut session, b"after");
    drop(connect("10.9.0.2:9"));
    let route = "[[route]]\nto = \"10.20.0.0/16\"\nvia = \"10.9.0.1\"\n";
    for (route, told) in [(route, "1 new, 0 gone"), ("", "0 new, 1 gone")] {
        dir.write("board.toml", &format!("{PORT}{ECHO}{discard}{route}"));
        let told = format!("services: 2 kept, 0 new, 0 closed; routes: {told}\n");
        assert_eq!(text(&dir.kiban(&["reload", "lab"])), told);
    }
    dir.write("board.toml", &format!("{PORT}mtu = 1400\n{ECHO}"));
    let output = dir.kiban(&["reload", "lab"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("mtu of port lan has changed, which requires a restart"),
        "{}",
        text(&output)
    );
    dir.write("board.toml", "nonsense");
    board.signal("-HUP");
    board.expect("RELOADING=1");
    board.expect("READY=1");
    echo(&mut session, b"still there");
    // Removing a service does not end the sessions that it has.
    dir.write("board.toml", PORT);
    assert_eq!(text(&dir.kiban(&["reload", "lab"])), "services: 0 kept, 0 new, 2 closed\n");
    echo(&mut session, b"to the end");
    assert!(TcpStream::connect("10.9.0.2:7").is_err());
    let status = board.status();
    assert_eq!(
        (status["services"][0]["state"].as_str(), status["reloads"].as_u64()),
        (Some("ending"), Some(4))
    );
    session.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(session.read(&mut [0; 8]).expect("its end"), 0);
    board.until("the service has gone", |status| status["services"] == serde_json::json!([]));
}

#[test]
fn sigterm_lets_transfers_finish_and_aborts_idle_sessions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("term");
    let source = "[[service]]\nkind = \"source\"\nlisten = \"10.9.0.2:19\"\nbytes = \"50MB\"\n";
    let mut board = dir.up(&format!("drain = \"6s\"\n{PORT}{ECHO}{source}"));
    let mut silent = connect("10.9.0.2:7");
    echo(&mut silent, b"hello");
    let mut transfer = connect("10.9.0.2:19");
    let mut buffer = vec![0; 1 << 16];
    let mut heard = transfer.read(&mut buffer).expect("it sends");
    board.signal("-TERM");
    board.expect("STOPPING=1");
    board.until("it stops", |status| status["state"] == "stopping");
    assert!(TcpStream::connect("10.9.0.2:19").is_err(), "it listens no more");
    while let count @ 1.. = transfer.read(&mut buffer).expect("it goes on sending") {
        heard += count;
    }
    assert_eq!(heard, 50_000_000);
    assert!(silent.read(&mut buffer).is_err(), "it is cut");
    assert_eq!(board.wait(), Some(0));
    assert!(dir.log().contains("stopped cut=1"), "{}", dir.log());
}

#[test]
fn a_removed_link_is_created_again() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("link");
    let board = dir.up(&format!("{PORT}{ECHO}"));
    echo(&mut connect("10.9.0.2:7"), b"before");
    assert!(run("ip", &["link", "del", "kiban0"]).status.success());
    board.until("it is noticed", |status| status["ports"][0]["losses"] == 1);
    board.until("it is made again", |status| status["ports"][0]["state"] == "up");
    echo(&mut connect("10.9.0.2:7"), b"after");
    assert!(dir.log().contains("link lost"), "{}", dir.log());
}

#[test]
fn a_missing_link_is_an_error_unless_it_is_optional() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("retry");
    let port = PORT.replace("tap:kiban0", "packet:veth1").replace("host_address = \"10.9.0.1/24\"\n", "");
    let file = dir.write("board.toml", &format!("{port}{ECHO}"));
    let output = dir.kiban(&["up", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("port lan: ") && text(&output).contains("no such interface"),
        "{}",
        text(&output)
    );
    let board = dir.up(&format!("{port}retry = true\n{ECHO}"));
    assert_eq!(board.status()["ports"][0]["state"], "down");
    for command in [
        "link add veth0 type veth peer name veth1",
        "addr add 10.9.0.1/24 dev veth0",
        "link set veth0 up",
        "link set veth1 up",
    ] {
        let output = run("ip", &command.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{command}: {}", text(&output));
    }
    board.until("it has come", |status| status["ports"][0]["state"] == "up");
    echo(&mut connect("10.9.0.2:7"), b"hello");
}

#[test]
fn bytes_and_half_closes_are_forwarded_in_both_directions() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("forward");
    let kernel = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = kernel.local_addr().expect("bound").port();
    let there = format!(
        "[[service]]\nkind = \"forward\"\nname = \"in\"\nlisten = \"10.9.0.2:80\"\nto = \"kernel:127.0.0.1:{port}\"\n"
    );
    // A connection through the board to this host's own address on the link.
    let back = "[[service]]\nkind = \"forward\"\nname = \"out\"\nlisten = \"kernel:127.0.0.1:8080\"\nto = \"10.9.0.1:7000\"\n";
    let nobody = "[[service]]\nkind = \"forward\"\nname = \"nobody\"\nlisten = \"10.9.0.2:81\"\nto = \"kernel:127.0.0.1:1\"\n";
    let board = dir.up(&format!("{PORT}{there}{back}{nobody}"));
    let far = TcpListener::bind("10.9.0.1:7000").expect("the board has set the address");
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for (address, listener) in [("10.9.0.2:80", &kernel), ("127.0.0.1:8080", &far)] {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client connects");
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).expect("all of it");
                // The other direction is still open.
                stream.write_all(&heard[..heard.len() / 2]).expect("the peer reads it");
                heard
            });
            let mut client = connect(address);
            client.write_all(&bytes).expect("the peer reads it");
            client.shutdown(Shutdown::Write).expect("a socket");
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).expect("all of it");
            assert!(heard == bytes[..bytes.len() / 2], "{address}: {} bytes came", heard.len());
            assert!(server.join().expect("content") == bytes, "{address}");
        });
    }
    // A reset is passed on, and a connection to a closed port is reset.
    assert!(TcpStream::connect("10.9.0.2:81").and_then(|mut stream| stream.read(&mut [0; 8])).is_err());
    let status = board.until("all have ended", |status| {
        let sessions = status["services"]
            .as_array()
            .map(|all| all.iter().map(|one| one["sessions"].as_u64().unwrap_or(1)).sum::<u64>());
        sessions == Some(0)
    });
    let counters = |number: usize, name: &str| status["services"][number]["counters"][name].as_u64();
    assert_eq!((counters(0, "ended"), counters(1, "ended")), (Some(1), Some(1)), "{status}");
    assert_eq!(counters(2, "errors"), Some(1), "{status}");
}

#[test]
fn a_slow_reader_stops_the_sender_and_connections_are_limited() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("crowd");
    let kernel = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = kernel.local_addr().expect("bound").port();
    let slow = format!(
        "[[service]]\nkind = \"forward\"\nlisten = \"10.9.0.2:80\"\nto = \"kernel:127.0.0.1:{port}\"\n"
    );
    let echo_few = ECHO.replace("listen", "sessions = 10\nlisten");
    let board = dir.up(&format!("{PORT}{echo_few}{slow}"));
    // The peer does not read, so writes block once the buffers are full.
    let writer = connect("10.9.0.2:80");
    let (mut reader, _) = kernel.accept().expect("the board has connected");
    writer.set_nonblocking(true).expect("a socket");
    let piece = vec![5; 1 << 16];
    let (written, before) = (std::cell::Cell::new(0_u64), std::cell::Cell::new(0));
    board.until("it stands still", |status| {
        while let Ok(count) = (&writer).write(&piece) {
            written.set(written.get() + count as u64);
        }
        let moved = status["services"][1]["counters"]["bytes_in"].as_u64().unwrap_or(0);
        moved > 0 && moved == before.replace(moved)
    });
    let written = written.get();
    assert!(written < 64 << 20, "{written} bytes are somewhere");
    let status = board.status();
    let memory = &status["memory"]["receive_bytes"];
    assert!(memory["used"].as_u64() < memory["capacity"].as_u64(), "{memory}");
    writer.shutdown(Shutdown::Write).expect("a socket");
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 16];
    while let count @ 1.. = reader.read(&mut buffer).expect("it comes") {
        heard += count as u64;
    }
    assert_eq!(heard, written);
    // Open many connections, of which ten get a slot. Some of the others are reset before their connect has
    // returned.
    let crowd: Vec<_> = (0..30).map(|_| TcpStream::connect("10.9.0.2:7")).collect();
    let status = board.until("all have been seen", |status| {
        let counters = &status["services"][0]["counters"];
        counters["accepted"].as_u64().unwrap_or(0) + counters["refused"].as_u64().unwrap_or(0) == 30
    });
    assert_eq!(
        (status["services"][0]["sessions"].as_u64(), status["services"][0]["counters"]["refused"].as_u64()),
        (Some(10), Some(20))
    );
    drop(crowd);
    board.until("places are free again", |status| status["services"][0]["sessions"] == 0);
    echo(&mut connect("10.9.0.2:7"), b"hello");
}

#[test]
fn without_privileges_the_error_names_the_missing_capability() {
    let dir = TestDir::new("nobody");
    let file = dir.write("board.toml", PORT);
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    let program = dir.0.join("kiban");
    crate::common::copy_program(&program);
    [dir.0.as_path(), &program, &file].into_iter().for_each(open);
    let is_root = run("id", &["-u"]).stdout == b"0\n";
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    let output = command
        .arg("up")
        .arg(&file)
        .env_remove("XDG_RUNTIME_DIR")
        .current_dir("/")
        .output()
        .expect("it runs");
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for words in ["port lan: cannot ", "CAP_NET_ADMIN", "udp-cells:"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn unusable_host_addresses_are_reported_with_a_remedy() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("addresses");
    ip("link set lo up");
    let link = |link: &str| PORT.replace("tap:kiban0", link).replace("host_address = \"10.9.0.1/24\"\n", "");
    let udp = link("udp-packets:127.0.0.1:7000-127.0.0.1:7001");
    let metrics = |at: &str| format!("{udp}[metrics]\nlisten = \"{at}\"\n");
    let forward = "[[service]]\nkind = \"forward\"\nlisten = \"kernel:127.0.0.1:80\"\nto = \"10.9.0.2:7\"\n";
    let _taken = TcpListener::bind("127.0.0.1:9100").expect("loopback");
    let (low, other) = ("CAP_NET_BIND_SERVICE", "this host's addresses are 127.0.0.1; use 0.0.0.0 for all");
    for (config, words) in [
        (
            link("udp-packets:127.0.0.1:80-127.0.0.1:7001"),
            ["port lan: cannot use UDP address 127.0.0.1:80", low],
        ),
        (
            link("udp-cells:192.0.2.1:7000-127.0.0.1:7001") + "[[port.pvc]]\nvc = \"0.100\"\n",
            ["192.0.2.1:7000", other],
        ),
        (link("tcp-packets:listen:127.0.0.1:80"), ["cannot listen", low]),
        (link("tcp-packets:listen:192.0.2.1:7000"), ["cannot listen", other]),
        (metrics("127.0.0.1:80"), ["metrics.listen: cannot listen on 127.0.0.1:80", low]),
        (metrics("192.0.2.1:9100"), ["metrics.listen: cannot listen on 192.0.2.1:9100", other]),
        (metrics("127.0.0.1:9100"), ["127.0.0.1:9100", "another program uses this port; choose another"]),
        (format!("{udp}{forward}"), ["kernel:127.0.0.1:80", low]),
    ] {
        let (file, program) = (dir.write("board.toml", &config), dir.0.join("kiban"));
        crate::common::copy_program(&program);
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_bind_service", "--inh-caps=-all"]).arg(&program);
        let output = command.arg("up").arg(&file).env("XDG_RUNTIME_DIR", &dir.0).output().expect("it runs");
        let told = text(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(words.iter().all(|words| told.contains(words)), "{words:?}: {told}");
        // The metrics port is opened before any link.
        assert!(!config.contains("metrics") || !told.contains("link up"), "{told}");
    }
}

/// Returns a SYN to the board's echo service from a host that never replies.
fn syn(number: u32) -> Vec<u8> {
    use kiban_base::{checksum, numbers::protocol};
    use kiban_tcpip::wire::{ipv4, tcp};
    let (source, target) = ([10, 8, (number >> 8) as u8 | 1, number as u8].into(), [10, 8, 0, 2].into());
    let header = tcp::Header {
        source_port: 1024 + (number >> 4) as u16,
        target_port: 7,
        sequence: tcp::Sequence(number.wrapping_mul(2_654_435_761)),
        acknowledgment: tcp::Sequence(0),
        flags: tcp::Flags::SYN,
        window: 1000,
        urgent: 0,
        options: tcp::Options::default(),
    };
    let mut packet = vec![0; 40];
    let (ip, segment) = packet.split_at_mut(20);
    header.write(segment);
    tcp::fill(segment, checksum::pseudo_ipv4(source, target, protocol::TCP, segment.len()));
    let header = ipv4::Header {
        traffic_class: 0,
        total_bytes: 40,
        identification: number as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        time_to_live: 64,
        protocol: protocol::TCP,
        source,
        target,
        options: &[],
    };
    header.write(ip);
    ipv4::fill(ip);
    packet
}

#[test]
fn a_flood_of_requests_leaks_nothing_and_keeps_no_client_out() {
    if !enter() {
        return;
    }
    let dir = TestDir::new("flood");
    let flood = std::net::UdpSocket::bind("127.0.0.1:7001").expect("loopback");
    let wan = "[[port]]\nname = \"wan\"\nlink = \"udp-packets:127.0.0.1:7000-127.0.0.1:7001\"\naddress = \"10.8.0.2/16\"\nmtu = 1400\n";
    let board = dir.up(&format!("{PORT}{wan}{}", ECHO.replace("10.9.0.2", "0.0.0.0")));
    let mut session = connect("10.9.0.2:7");
    let sent = std::cell::Cell::new(0);
    let status = board.until("requests have come beyond the backlog", |status| {
        for _ in 0..2000 {
            // Ignore datagrams that the system drops.
            let _ = flood.send_to(&syn(sent.get()), "127.0.0.1:7000");
            sent.set(sent.get() + 1);
        }
        status["counters"]["tcp"]["syn_cookies_sent"].as_u64() > Some(5000)
    });
    echo(&mut session, b"as if nothing were");
    echo(&mut connect("10.9.0.2:7"), b"who comes now");
    let sessions: u64 =
        status["sessions"].as_object().expect("by state").values().filter_map(Value::as_u64).sum();
    // The number of half-open connections is limited to the backlog; the other sessions belong to the test
    // itself.
    assert!(sessions <= 140, "{}", status["sessions"]);
    assert_eq!(status["services"][0]["counters"]["accepted"].as_u64(), Some(1), "{status}");
}

#[test]
fn the_kernel_uses_atm_through_the_host_side_of_a_port() {
    if !enter() {
        return;
    }
    let (near, far) = (TestDir::new("atm-near"), TestDir::new("atm-far"));
    let port = |link: &str, address: &str, host: &str, contract: &str| {
        format!(
            "name = \"lab\"\n[[port]]\nname = \"atm\"\nlink = \"udp-cells:{link}\"\naddress = \"{address}/24\"\n{host}\
             [[port.pvc]]\nvc = \"0.100\"\n{contract}"
        )
    };
    let (a, b) = ("127.0.0.1:7000", "127.0.0.1:7001");
    let source = "[[service]]\nkind = \"source\"\nlisten = \"10.1.0.2:19\"\nbytes = \"5MB\"\n";
    let served = port(&format!("{b}-{a}"), "10.1.0.2", "", "pcr = 100000\n") + source;
    let far_board = far.up(&served);
    let near_board = near.up(&port(&format!("{a}-{b}"), "10.1.0.1", "host = \"tun:khost\"\n", ""));
    // InATMARP discovers the peer's address on the circuit.
    near_board.until("the peer is known", |status| status["circuits"][0]["peer"] == "10.1.0.2");
    let clock = kiban_os::Clock::new();
    let mut heard = Vec::new();
    connect("10.1.0.2:19").read_to_end(&mut heard).expect("all of it");
    assert_eq!(heard.len(), 5_000_000);
    // Check the shaping: 100,000 cells/s, each with 48 bytes of payload. (A burst within the tolerance takes
    // less than a second.)
    let seconds = clock.now().as_secs_f64();
    assert!(seconds > 5e6 / 4.8e6, "{seconds} s");
    let status = near_board.status();
    let counters = |port: usize| &status["ports"][port]["link_counters"];
    assert_eq!(status["ports"][1]["name"], "atm.host");
    assert!(counters(0)["units_in"].as_u64() > Some(5_000_000 / 48), "{status}");
    assert!(counters(1)["bytes_out"].as_u64() > Some(5_000_000), "{status}");
    assert_eq!(far_board.status()["circuits"][0]["state"], "known");
}
