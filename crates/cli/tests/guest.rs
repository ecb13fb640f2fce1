//! Tests `kiban net`: the network of programs in namespaces of their own.
//!
//! Setting   a network namespace stands for this host: its loopback interface also has the addresses
//!           192.0.2.1 and fd00:1::1, at which servers run (`guest/peers.py`). The guest reaches them through
//!           the board.
//! Requires  iproute2, iputils-ping, Python, util-linux; and a system on which users may create namespaces.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What each script begins with: `$1` is kiban and `$2` the program for both ends.
const PRELUDE: &str = r#"
set -eu
ip link set lo up
ip address add 192.0.2.1/24 dev lo
ip address add fd00:1::1/128 dev lo
kiban=$1 peers=$2
mkfifo "$3/ready"
python3 "$peers" host > "$3/ready" & host=$!
trap 'kill $host ${guest-} ${board-} 2>/dev/null || true' EXIT
read -r ready < "$3/ready"
# Checks that a command fails, or exits with a status. A plain `!` is exempt from `set -e`.
fails() { if "$@"; then echo "should fail: $*"; exit 1; fi; }
status() { want=$1; shift; got=0; "$@" || got=$?; [ "$got" = "$want" ] || { echo "status $got: $*"; exit 1; }; }
# Returns once a process listens at a TCP port.
listens() { until grep -q "$(printf ':%04X 0*:0000 0A' "$1")" /proc/net/tcp; do kill -0 "$2"; done; }
"#;

/// A directory that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a script in a namespace that stands for this host. Returns its output and what it said.
fn run(name: &str, script: &str) -> (String, String) {
    let folder = Folder(std::env::temp_dir().join(format!("kiban-guest-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/peers.py");
    let output = Command::new("timeout")
        .args(["-k", "5", "300", "unshare"])
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "sh",
            "-c",
            &format!("{PRELUDE}{script}"),
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_kiban"))
        .args([&peers, &folder.0])
        .env("XDG_RUNTIME_DIR", &folder.0)
        .env_remove("KIBAN_LOG")
        .output()
        .expect("timeout and unshare run: apt install util-linux");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    (out, err)
}

#[test]
fn a_program_reaches_what_its_user_reaches_and_nothing_else() {
    let (out, err) = run("guest", r#""$kiban" net --dns 192.0.2.1 -- python3 "$peers" guest"#);
    assert_eq!((out.as_str(), err.as_str()), ("guest: passed\n", ""));
    // At the MTU of Ethernet, TCP's segments cross the device whole, and datagrams in fragments.
    let script = r#""$kiban" net --dns 192.0.2.1 --mtu 1500 -- python3 "$peers" guest"#;
    assert_eq!(run("mtu", script).0, "guest: passed\n");
}

#[test]
fn the_commands_status_is_returned_and_its_network_is_its_own() {
    let script = r#"
status 7 "$kiban" net -- sh -c 'exit 7'
status 127 "$kiban" net -- /nowhere
status 143 "$kiban" net -- sh -c 'kill -TERM $$'
"$kiban" net --interface net0 --address 10.1.0.9/16 --gateway 10.1.0.1 --no-ipv6 --mtu 9000 -- ip -o address > "$3/seen"
grep -q 'net0 *inet 10.1.0.9/16' "$3/seen"
fails grep -q 'fd6b\|192.0.2.1' "$3/seen"
"$kiban" net --interface net0 --mtu 9000 -- sh -c 'cat /sys/class/net/net0/mtu 2>/dev/null || ip -o link show net0; ip route show default'
"#;
    let (out, _) = run("status", script);
    assert!(out.contains("9000") && out.contains("default via 10.0.2.2 dev net0"), "{out}");
}

#[test]
fn the_hosts_loopback_is_reached_only_if_asked() {
    run("loopback", r#""$kiban" net --host-loopback -- python3 "$peers" loopback"#);
}

#[test]
fn a_port_of_the_host_is_forwarded_to_the_guest() {
    // The guest ends as soon as it has written its answer, which must still arrive.
    let script = r#"
"$kiban" net -t 127.0.0.1:9000:8080 -- python3 "$peers" serve & guest=$!
listens 9000 $guest
# The guest may not listen yet; then the connection is refused.
until python3 "$peers" call 9000 2>/dev/null; do kill -0 $guest; done
wait $guest
"#;
    run("forward", script);
}

#[test]
fn pings_need_permission_and_say_how_to_get_it() {
    let script = r#"
# In a new network namespace, the range is empty.
fails "$kiban" net -- ping -c 1 -W 1 192.0.2.1 > /dev/null 2>"$3/said"
grep -q 'sysctl -w net.ipv4.ping_group_range' "$3/said"
echo '0 0' > /proc/sys/net/ipv4/ping_group_range
"$kiban" net -- sh -c 'ping -c 2 -i 0.01 192.0.2.1; ping -c 1 fd00:1::1; ping -c 1 10.0.2.2'
"#;
    let (out, _) = run("ping", script);
    assert_eq!(out.matches(" 0% packet loss").count(), 3, "{out}");
}

#[test]
fn the_network_of_a_process_gets_an_interface_until_the_process_ends() {
    let script = r#"
unshare --user --map-root-user --net sleep 1000 & guest=$!
until [ "$(readlink /proc/$guest/ns/net)" != "$(readlink /proc/self/ns/net)" ] && [ "$(cat /proc/$guest/comm)" = sleep ]; do kill -0 $guest; done
"$kiban" net $guest & board=$!
inside() { nsenter --preserve-credentials --user --net --target $guest "$@"; }
until inside ip -o address show eth0 2>/dev/null | grep -q 10.0.2.15; do kill -0 $board; done
inside python3 "$peers" few
"$kiban" status net-$board | grep -q net
kill $guest
wait $board
"#;
    run("process", script);
}

#[test]
fn wrong_arguments_are_explained() {
    let rows: [(&[&str], &str); 4] = [
        (&["--gateway", "10.9.9.9", "--", "true"], "must be another address in the network of --address"),
        (&["-t", "x", "--", "true"], "write [ADDRESS:]PORT[:GUEST-PORT]"),
        (&["1999999999"], "cannot use the network of process 1999999999"),
        (&["--mtu", "100", "--", "true"], "1280..=65520"),
    ];
    for (arguments, message) in rows {
        let output = Command::new(env!("CARGO_BIN_EXE_kiban")).arg("net").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{arguments:?}: {said}");
    }
}
