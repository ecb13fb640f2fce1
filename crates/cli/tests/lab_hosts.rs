//! `kiban lab hosts` as a user runs it: this host, a router and other hosts in network namespaces. A program
//! that takes the place of ssh runs the command in the namespace of the host; one test uses OpenSSH.
//!
//! ```text
//! near ── wire ── router ── one link for each host
//! ```
//!
//! Recipes   a slow path is a token bucket (tbf); losses are every n-th packet (nft); a shared bottleneck is
//!           a bucket between this host and the router.
//! Skipped   without the right to create namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN), tbf or nft.

mod browser;
#[allow(dead_code, reason = "the network here has a router")]
mod two_hosts;

use browser::{browsed, is_sound};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use two_hosts::{Folder, kiban, run};

/// How often a measurement is repeated at most.
const ATTEMPTS: usize = 3;

/// A host, a router and other hosts behind it.
struct Star {
    near: String,
    router: String,
    hosts: Vec<String>,
}

fn ip(arguments: &str) -> bool {
    run(Command::new("ip").args(arguments.split_whitespace()))
}

/// Runs a shell command in a namespace.
fn shell(side: &str, script: &str) -> bool {
    run(Command::new("ip").args(["netns", "exec", side, "sh", "-c", script]))
}

impl Star {
    /// Creates the namespaces; without the necessary privileges, prints a message and returns `None`.
    fn new(letter: char, hosts: &[&str]) -> Option<Star> {
        let name = |side: &str| format!("kiban-{}-{letter}-{side}", std::process::id());
        let hosts = hosts.iter().map(|host| name(host)).collect();
        let star = Star { near: name("near"), router: name("router"), hosts };
        if !ip(&format!("netns add {}", star.near)) {
            println!("skipped: network namespaces need CAP_SYS_ADMIN and iproute2");
            return None;
        }
        let (near, router) = (&star.near, &star.router);
        let link = |side: &str, device: &str, address: &str, gateway: &str, subnet: &str| {
            ip(&format!("-n {router} link add {device} type veth peer name wire netns {side}"))
                && ip(&format!("-n {side} address add {address}/24 dev wire"))
                && ip(&format!("-n {router} address add {gateway}/24 dev {device}"))
                && ip(&format!("-n {side} link set lo up"))
                && ip(&format!("-n {side} link set wire up"))
                && ip(&format!("-n {router} link set {device} up"))
                && ip(&format!("-n {side} route add {subnet} via {gateway}"))
        };
        let all = "10.77.0.0/16";
        let made = ip(&format!("netns add {router}"))
            && shell(router, "echo 1 > /proc/sys/net/ipv4/ip_forward")
            && link(near, "near", "10.77.41.1", "10.77.41.254", all)
            && star.hosts.iter().enumerate().all(|(at, host)| {
                ip(&format!("netns add {host}"))
                    && link(host, &format!("to{at}"), &address(at), &format!("10.77.{}.254", 50 + at), all)
            });
        assert!(made, "who may make a namespace may make links in it");
        Some(star)
    }

    /// Limits the rate at which a side sends on a device, with a queue for a time.
    fn bucket(side: &str, device: &str, rate: &str, queue: &str) -> bool {
        let made = run(Command::new("tc")
            .args(["-n", side, "qdisc", "replace", "dev", device, "root", "tbf"])
            .args(["rate", rate, "burst", "16kb", "latency", queue]));
        if !made {
            println!("skipped: this kernel has no tbf");
        }
        made
    }

    /// Runs `kiban lab hosts` on a plan, with a program in the place of ssh.
    fn measure(&self, folder: &Folder, plan: &str, more: &[&str]) -> Output {
        std::fs::write(folder.path("plan.toml"), plan).expect("there is disk space");
        let ssh = fake_ssh(folder, &self.hosts);
        let mut command = kiban(Some(&self.near));
        command
            .args(["lab", "hosts", &folder.path("plan.toml"), "--json", "--quiet", "--ssh", &ssh])
            .args(more);
        command.env("TMPDIR", folder.path("tmp")).output().expect("the program was built")
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        for side in self.hosts.iter().chain([&self.near, &self.router]) {
            ip(&format!("netns delete {side}"));
        }
    }
}

fn address(host: usize) -> String {
    format!("10.77.{}.2", 50 + host)
}

/// Writes a program that runs a command in the namespace of a host, as ssh does on the host.
fn fake_ssh(folder: &Folder, hosts: &[String]) -> String {
    let cases: String = hosts
        .iter()
        .map(|host| {
            let name = host.rsplit('-').next().expect("it has parts");
            format!("eve@{name}) exec ip netns exec {host} sh -c \"$2\";;\n")
        })
        .collect();
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift\ncase $1 in\n{cases}\
         *) echo 'ssh: connect to host gone port 22: Connection refused' >&2; exit 255;;\nesac\n"
    );
    std::fs::create_dir_all(folder.path("tmp")).expect("there is disk space");
    program(folder, "ssh", &script)
}

/// Writes a script; returns its path.
fn program(folder: &Folder, name: &str, script: &str) -> String {
    let path = folder.path(name);
    std::fs::write(&path, script).expect("there is disk space");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    path
}

/// Returns the part of a plan for a host.
fn host(name: &str, number: usize, more: &str) -> String {
    format!("[[host]]\nname = \"{name}\"\nssh = \"eve@{name}\"\naddress = \"{}\"\n{more}\n", address(number))
}

fn own() -> String {
    format!("[all]\nkiban = \"{}\"\n", env!("CARGO_BIN_EXE_kiban"))
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the causes of a host.
fn causes(report: &Value, name: &str) -> Vec<String> {
    let hosts = report["hosts"].as_array().expect("a list");
    let host = hosts.iter().find(|host| host["name"] == name).unwrap_or_else(|| panic!("{name}: {report:#}"));
    let findings = host["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["cause"].as_str().expect("a name").to_owned()).collect()
}

/// Returns the advice of a finding of a host.
fn advice(report: &Value, name: &str, cause: &str) -> String {
    let hosts = report["hosts"].as_array().expect("a list").iter();
    let mut findings =
        hosts.filter(|host| host["name"] == name).flat_map(|host| host["findings"].as_array()).flatten();
    let finding = findings.find(|finding| finding["cause"] == cause).unwrap_or_else(|| panic!("{report:#}"));
    finding["advice"].as_str().expect("words").to_owned()
}

#[test]
fn each_host_has_the_verdict_of_its_own_path() {
    let names = ["good", "slow", "lossy", "limited"];
    let Some(star) = Star::new('v', &names) else { return };
    let folder = Folder::new("hosts");
    // The path to `good` loses packets as well, but only those for which its queue has no room.
    for (at, rate) in ["40mbit", "2mbit", "40mbit", "40mbit"].into_iter().enumerate() {
        if !Star::bucket(&star.hosts[at], "wire", rate, "20ms")
            || !Star::bucket(&star.router, &format!("to{at}"), rate, "20ms")
        {
            return;
        }
    }
    let rule = "table inet t { chain c { type filter hook prerouting priority 0; \
                meta l4proto udp numgen inc mod 50 == 0 drop; }; }";
    if !shell(&star.hosts[2], &format!("nft '{rule}'")) {
        println!("skipped: there is no nft");
        return;
    }
    // `together` makes the page as wide as it can be.
    let mut plan = format!("seconds = 2\ntogether = true\n{}", own());
    for (at, name) in names.into_iter().enumerate() {
        plan += &host(name, at, if name == "limited" { "rate = 2" } else { "" });
    }
    let page = folder.path("page.html");
    let output = star.measure(&folder, &plan, &["--html", &page]);
    assert!(output.status.success(), "{output:?}");
    let report = report(&output);
    let has = |name: &str, cause: &str| causes(&report, name).iter().any(|one| one == cause);
    // A busy machine may send too few probes to see a loss.
    let is_good = causes(&report, "good").iter().all(|cause| cause == "loss_not_measured");
    assert!(is_good, "{}", report["verdict"]);
    assert!(has("slow", "slow") && !has("slow", "loss"), "{}", report["verdict"]);
    assert!(has("lossy", "loss"), "{}", report["verdict"]);
    // A full link is no loss, and the commands of an advice need no server.
    let slow = advice(&report, "slow", "slow");
    assert!(slow.contains("a link or shaper of about") && !slow.contains("kiban lab"), "{slow}");
    let udp =
        format!("plan.toml --ssh {} --host lossy -- udp --interval 5ms --time 30s`", folder.path("ssh"));
    assert!(advice(&report, "lossy", "loss").contains(&udp), "{report:#}");
    assert!(has("limited", "server_limit") && !has("limited", "slow"), "{}", report["verdict"]);
    let text = std::fs::read_to_string(&page).expect("it was written");
    assert!(text.contains("loses packets") && text.matches("<figure ").count() == 2);
    if let Some(found) = browsed(Path::new(&page), "hosts-browser") {
        is_sound(&found);
    }
    // The servers have ended with the program in the place of ssh.
    for namespace in &star.hosts {
        let pids = Command::new("ip").args(["netns", "pids", namespace]).output().expect("iproute2");
        assert!(pids.stdout.is_empty(), "{namespace}: {pids:?}");
    }
}

#[test]
fn hosts_at_once_show_whether_they_share_a_bottleneck() {
    let Some(star) = Star::new('s', &["one", "two"]) else { return };
    let folder = Folder::new("share");
    let plan = format!("seconds = 2\ntogether = true\n{}{}{}", own(), host("one", 0, ""), host("two", 1, ""));
    // A busy machine can stand still during a part of a measurement, so that the rates say something else.
    let shows = |expected: &str| {
        (0..ATTEMPTS).find_map(|_| {
            let output = star.measure(&folder, &plan, &[]);
            assert!(output.status.success(), "{output:?}");
            let report = report(&output);
            let directions = report["together"]["directions"].as_array().expect("two");
            let is_shown = directions.iter().all(|way| way["sharing"] == expected);
            println!("{expected}: {directions:#?}");
            is_shown.then_some(report)
        })
    };
    // A bucket on the link that both paths use. Its queue lasts while a process waits for a processor.
    let bucket = |side: &str, device: &str| Star::bucket(side, device, "10mbit", "100ms");
    if !bucket(&star.near, "wire") || !bucket(&star.router, "near") {
        return;
    }
    let report = shows("bottleneck").expect("both directions share one");
    assert!(
        report["verdict"]
            .as_str()
            .is_some_and(|words| words.contains("all paths share a bottleneck of about"))
    );
    // A bucket of the same rate on each path of its own.
    for (side, device) in [(&star.near, "wire"), (&star.router, "near")] {
        assert!(run(Command::new("tc").args(["-n", side, "qdisc", "del", "dev", device, "root"])));
    }
    for at in 0..2 {
        assert!(bucket(&star.hosts[at], "wire"));
        assert!(bucket(&star.router, &format!("to{at}")));
    }
    assert!(shows("nothing").is_some(), "no direction shares one");
}

#[test]
fn hosts_behind_a_narrower_link_are_named_beside_the_bottleneck_of_all() {
    let Some(star) = Star::new('n', &["one", "two", "three"]) else { return };
    let folder = Folder::new("narrow");
    // All paths share 20 Mbit/s, and the last two hosts 12 of them, in both directions.
    for (side, device, end) in [(&star.near, "wire", "dst"), (&star.router, "near", "src")] {
        let class = |id: &str, parent: &str, rates: &str| {
            format!("tc class add dev {device} parent {parent} classid {id} htb {rates} && ")
        };
        let classes = class("1:1", "1:", "rate 20mbit")
            + &class("1:10", "1:1", "rate 5mbit ceil 20mbit")
            + &class("1:20", "1:1", "rate 5mbit ceil 12mbit");
        let queues: String = [10, 20]
            .map(|id| format!("tc qdisc add dev {device} parent 1:{id} bfifo limit 128kb && "))
            .concat();
        let filters = [1, 2].map(|at| {
            let filter = "protocol ip parent 1: prio 1 u32 match ip";
            format!("tc filter add dev {device} {filter} {end} {} flowid 1:20", address(at))
        });
        let made = format!(
            "tc qdisc add dev {device} root handle 1: htb default 10 && {classes}{queues}{}",
            filters.join(" && ")
        );
        if !shell(side, &made) {
            println!("skipped: this kernel has no htb or u32");
            return;
        }
    }
    let all: String = (0..).zip(["one", "two", "three"]).map(|(at, name)| host(name, at, "")).collect();
    let plan = format!("seconds = 2\ntogether = true\n{}{all}", own());
    // A busy machine can stand still during a part of a measurement, so that the rates say something else.
    let is_found = (0..ATTEMPTS).any(|_| {
        let output = star.measure(&folder, &plan, &[]);
        assert!(output.status.success(), "{output:?}");
        let report = report(&output);
        let directions = report["together"]["directions"].as_array().expect("two");
        println!("{}\n{directions:#?}", report["verdict"]);
        directions.iter().all(|way| {
            let groups = way["groups"].as_array().expect("a list");
            let mut hosts =
                groups.first().map_or(Vec::new(), |group| group["hosts"].as_array().expect("a list").clone());
            hosts.sort_by_key(Value::as_u64);
            way["sharing"] == "bottleneck" && groups.len() == 1 && hosts == [1, 2]
        })
    });
    assert!(is_found, "two and three share a narrower link in both directions");
}

/// The second host's server is a part of this test, which accepts a connection and does not answer.
#[test]
fn ctrl_c_keeps_what_was_measured_and_reports_the_rest_as_unfinished() {
    let folder = Folder::new("interrupted");
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let listening = serde_json::json!({
        "event": "listening",
        "address": silent.local_addr().expect("it is bound"),
        "kiban": env!("CARGO_PKG_VERSION"),
    });
    let two = program(&folder, "two", &format!("#!/bin/sh\necho '{listening}'\ncat > /dev/null\n"));
    let ssh =
        program(&folder, "ssh", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nexec sh -c \"$3\"\n");
    let host = |name: &str, kiban: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\nssh = \"{name}\"\naddress = \"127.0.0.1\"\nkiban = \"{kiban}\"\n"
        )
    };
    let own = env!("CARGO_BIN_EXE_kiban");
    let plan = format!(
        "seconds = 2\ntogether = true\n[all]\nrate = 10\n{}{}{}",
        host("one", own),
        host("two", &two),
        host("three", own)
    );
    std::fs::write(folder.path("plan.toml"), plan).expect("there is disk space");
    let page = folder.path("page.html");
    let mut command = kiban(None);
    command.args(["lab", "hosts", &folder.path("plan.toml"), "--json", "--ssh", &ssh, "--html", &page]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
    // Hosts are measured one after the other: `one` is done when `two` is connected to.
    let connected = silent.accept().expect("it is measured");
    assert!(run(Command::new("kill").args(["-INT", &child.id().to_string()])));
    let output = child.wait_with_output().expect("it was started");
    drop(connected);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report = report(&output);
    assert_eq!((&report["interrupted"], &report["hosts"][0]["name"]), (&true.into(), &"one".into()));
    let names: Vec<&str> = report["not_measured"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["two", "three", "all at once"]);
    assert!(report["verdict"].as_str().is_some_and(|words| words.starts_with("unfinished: ")), "{report}");
    assert!(std::fs::read_to_string(&page).expect("it was written").contains("Unfinished: "));
}

#[test]
fn hosts_that_cannot_be_measured_are_named_with_what_to_do() {
    let Some(star) = Star::new('e', &["missing", "old", "older"]) else { return };
    let folder = Folder::new("errors");
    let listening = r#"{"event":"listening","address":"[::]:1","kiban":"0.0.1"}"#;
    let old =
        program(&folder, "old", &format!("#!/bin/sh\necho welcome\necho '{listening}'\ncat > /dev/null\n"));
    let older = "#!/bin/sh\necho \"error: unexpected argument '--stdin' found\" >&2\nexit 2\n";
    let older = program(&folder, "older", older);
    let plan = format!(
        "{}{}{}{}",
        host("missing", 0, "kiban = \"/nonexistent/kiban\""),
        host("old", 1, &format!("kiban = \"{old}\"")),
        host("older", 2, &format!("kiban = \"{older}\"")),
        host("gone", 3, "")
    );
    let output = star.measure(&folder, &plan, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report(&output);
    for (name, expected) in [
        ("missing", "there is no /nonexistent/kiban on eve@missing: install kiban there"),
        ("old", "eve@old has kiban 0.0.1, and this host has"),
        ("older", "cannot be started over ssh: install version"),
        (
            "gone",
            "ssh to eve@gone failed: ssh: connect to host gone port 22: Connection refused; start an ssh",
        ),
    ] {
        let all = report["not_measured"].as_array().expect("a list");
        let why = all.iter().find(|one| one["name"] == name).and_then(|one| one["why"].as_str());
        assert!(why.is_some_and(|why| why.contains(expected)), "{name}: {why:?}");
    }
    // The name of a host that has another address, or none, here.
    let plan = format!("{}[[host]]\nssh = \"eve@missing\"\naddress = \"127.0.0.1\"\n", own());
    let output = star.measure(&folder, &plan, &[]);
    let report = report_of_refusal(&output);
    assert!(report.contains("if missing is reached at another address, set address"), "{report}");
}

fn report_of_refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    report(output)["not_measured"][0]["why"].as_str().expect("a reason").to_owned()
}

/// OpenSSH's server in the namespace of a host.
struct Sshd(Child);

impl Sshd {
    /// Starts a server that accepts the key in `folder`; returns `None` if it is not installed.
    fn start(folder: &Folder, namespace: &str, listen: &str) -> Option<Sshd> {
        let path = |name: &str| folder.path(name);
        for key in ["host_key", "id"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]).output();
            if !made.is_ok_and(|made| made.status.success()) {
                println!("skipped: there is no ssh-keygen");
                return None;
            }
        }
        std::fs::copy(path("id.pub"), path("authorized_keys")).expect("there is disk space");
        // Its directory for privilege separation.
        std::fs::create_dir_all("/run/sshd").expect("namespaces need root");
        let config = format!(
            "Port 22\nListenAddress {listen}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n",
            path("host_key"),
            path("authorized_keys")
        );
        std::fs::write(path("sshd_config"), config).expect("there is disk space");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "/usr/sbin/sshd", "-D", "-e", "-f", &path("sshd_config")]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("iproute2");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        if !lines.any(|line| line.contains("Server listening on")) {
            println!("skipped: there is no sshd");
            let _ = child.wait();
            return None;
        }
        std::thread::spawn(move || lines.for_each(drop));
        Some(Sshd(child))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_host_is_measured_over_openssh_and_a_foreign_host_key_is_named() {
    let Some(star) = Star::new('o', &["real"]) else { return };
    let folder = Folder::new("openssh");
    let Some(_sshd) = Sshd::start(&folder, &star.hosts[0], &address(0)) else { return };
    let known = folder.path("known_hosts");
    std::fs::write(
        folder.path("ssh_config"),
        format!("Host *\nUser root\nIdentityFile {}\nUserKnownHostsFile {known}\n", folder.path("id")),
    )
    .expect("there is disk space");
    std::fs::write(
        folder.path("plan.toml"),
        format!("seconds = 2\n{}[[host]]\nssh = \"{}\"\n", own(), address(0)),
    )
    .expect("there is disk space");
    let measure = |key: &str| {
        let line = if key.is_empty() { String::new() } else { format!("{} {key}", address(0)) };
        std::fs::write(&known, line).expect("there is disk space");
        let mut command = kiban(Some(&star.near));
        command.args(["lab", "hosts", &folder.path("plan.toml"), "--json", "--quiet"]);
        command.args(["--ssh", &format!("ssh -F {}", folder.path("ssh_config"))]);
        command.output().expect("the program was built")
    };
    let key = |name: &str| std::fs::read_to_string(folder.path(name)).expect("it was made");
    let output = measure(&key("host_key.pub"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&output)["hosts"][0]["name"], address(0));
    let why = report_of_refusal(&measure(&key("id.pub")));
    let remove = format!("`ssh-keygen -f {known} -R {}`", address(0));
    assert!(why.contains("is not the one in known_hosts") && why.contains(&remove), "{why}");
    let why = report_of_refusal(&measure(""));
    assert!(why.contains("is not in known_hosts: connect once with `ssh -F"), "{why}");
}

#[test]
fn another_measurement_of_a_host_needs_no_server_or_token_either() {
    let Some(star) = Star::new('w', &["one", "two"]) else { return };
    let folder = Folder::new("with");
    let plan = format!("{}{}{}", own(), host("one", 0, ""), host("two", 1, ""));
    std::fs::write(folder.path("plan.toml"), plan).expect("there is disk space");
    let ssh = fake_ssh(&folder, &star.hosts);
    let run = |name: &str| {
        let mut command = kiban(Some(&star.near));
        command.args(["lab", "hosts", &folder.path("plan.toml"), "--ssh", &ssh, "--host", name, "--"]);
        command.args(["udp", "--time", "1s", "--json"]).output().expect("the program was built")
    };
    let output = run("two");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&output)["address"], address(1), "{output:?}");
    let output = run("three");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("the plan has no host named three: its hosts are one, two"), "{errors}");
}

#[test]
fn with_copy_the_program_is_sent_and_removed() {
    let Some(star) = Star::new('c', &["bare"]) else { return };
    let folder = Folder::new("copy");
    let plan = format!("seconds = 2\n{}", host("bare", 0, "copy = true"));
    let output = star.measure(&folder, &plan, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&output)["hosts"][0]["name"], "bare");
    let left: Vec<_> = std::fs::read_dir(folder.path("tmp")).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The program in the place of ssh is killed after it has passed on a part of the copy.
#[test]
fn a_copy_that_is_cut_off_leaves_nothing() {
    let folder = Folder::new("cut");
    let link = folder.path("link");
    std::fs::create_dir_all(folder.path("tmp")).expect("there is disk space");
    // A pipe holds less than what is passed on, so the other end is copying when it is killed.
    let ssh = program(
        &folder,
        "ssh",
        &format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nmkfifo {link}\nsh -c \"$3\" < {link} &\n\
             exec 3> {link}\nhead -c 2000000 >&3\nkill -9 $!\necho 'Connection reset' >&2\nexit 255\n"
        ),
    );
    std::fs::write(folder.path("plan.toml"), "[[host]]\nssh = \"far\"\ncopy = true\n")
        .expect("there is disk space");
    let mut command = kiban(None);
    command.args([
        "lab",
        "hosts",
        &folder.path("plan.toml"),
        "--json",
        "--quiet",
        "--together",
        "--ssh",
        &ssh,
    ]);
    let output = command.env("TMPDIR", folder.path("tmp")).output().expect("the program was built");
    let why = report_of_refusal(&output);
    assert!(why.contains("Connection reset"), "{why}");
    let left: Vec<_> = std::fs::read_dir(folder.path("tmp")).expect("it is ours").collect();
    assert!(left.is_empty(), "{left:?}");
    // One host cannot share a bottleneck.
    let at_once = &report(&output)["not_measured"][1];
    assert_eq!(at_once["name"], "all at once");
    let why = at_once["why"].as_str().expect("a reason");
    assert!(why.contains("needs two hosts, and none could be measured"), "{why}");
}

#[test]
fn a_server_with_its_token_on_standard_input_ends_with_it() {
    let mut command = kiban(None);
    command.args(["lab", "serve", "--stdin", "--json", "--listen", "127.0.0.1:0"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built");
    let mut input = child.stdin.take().expect("piped");
    writeln!(input, "{}", two_hosts::TOKEN).expect("it reads");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it says where it listens");
    let event: Value = serde_json::from_str(&line).expect("an object");
    assert_eq!((&event["event"], &event["kiban"]), (&"listening".into(), &env!("CARGO_PKG_VERSION").into()));
    drop(input);
    assert!(child.wait().expect("it was started").success());
}
