//! Tests `kiban net`: the network of programs in namespaces of their own.
//!
//! Setting   a network namespace stands for this host: its loopback interface also has the addresses
//!           192.0.2.1 and fd00:1::1, at which servers run (`guest/peers.py`). The guest reaches them through
//!           the board.
//! Requires  iproute2, iputils-ping, isc-dhcp-client, Python, strace, util-linux; and a system on which users
//!           may create namespaces.

#[path = "guest/hostile.rs"]
mod hostile;

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
trap 'kill $host ${guest-} ${board-} ${other-} 2>/dev/null || true' EXIT
read -r ready < "$3/ready"
# Checks that a command fails, or exits with a status. A plain `!` is exempt from `set -e`.
fails() { if "$@"; then echo "should fail: $*"; exit 1; fi; }
status() { want=$1; shift; got=0; "$@" || got=$?; [ "$got" = "$want" ] || { echo "status $got: $*"; exit 1; }; }
# Returns once the board of the process kiban net works: the guest's interface is there a little earlier.
works() { until "$kiban" status net-$1 > /dev/null 2>&1; do kill -0 $1; done; }
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
    run_for(name, script, 300)
}

/// Does the same with a limit of time, in seconds.
fn run_for(name: &str, script: &str, seconds: u64) -> (String, String) {
    let folder = Folder(std::env::temp_dir().join(format!("kiban-guest-{name}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/peers.py");
    let output = Command::new("timeout")
        .args(["-k", "5", &seconds.to_string(), "unshare"])
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
    run("short", r#""$kiban" net --no-ipv6 --mtu 576 -- python3 "$peers" upload 192.0.2.1"#);
}

#[test]
fn a_guest_that_scans_addresses_can_still_connect() {
    // What is sent to 203.0.113.2 is lost.
    let script = r#"
ip link add silent type veth peer name other
ip address add 203.0.113.1/24 dev silent
ip link set silent up
ip link set other up
ip neighbour add 203.0.113.2 lladdr 02:00:00:00:00:01 dev silent
ulimit -n "$(ulimit -Hn)"
"$kiban" net -- python3 "$peers" scan 203.0.113.2
"#;
    run("scan", script);
}

#[test]
fn further_name_servers_are_asked_while_the_first_does_not_answer() {
    // 192.0.2.2 answers nothing, and the host at 192.0.2.3 refuses.
    let script = r#"
for servers in "--dns 192.0.2.2 --dns 192.0.2.1" "--dns 192.0.2.3 --dns 192.0.2.2 --dns fd00:1::1" "--dns 127.0.0.53"; do
    for gateway in 10.0.2.2 fd6b:6962:616e::2; do
        "$kiban" net $servers -- python3 "$peers" resolve $gateway
    done
done
"$kiban" net --dns 192.0.2.3 --dns 192.0.2.4 -- python3 "$peers" unserved 10.0.2.2
"#;
    run("servers", script);
}

#[test]
fn changes_of_the_hosts_name_servers_take_effect() {
    let script = r#"
mkdir "$3/etc"
cp -r /etc/. "$3/etc" 2> /dev/null || true
rm -f "$3/etc/resolv.conf"
echo nameserver 192.0.2.3 > "$3/etc/resolv.conf"
mount --bind "$3/etc" /etc
"$kiban" net -- sh -c '
    python3 "$1" unserved 10.0.2.2
    echo > "$2/ready"
    python3 "$1" resolve 10.0.2.2
    echo > "$2/ready"
    python3 "$1" unserved 10.0.2.2
    echo > "$2/ready"
    exec python3 "$1" resolve 10.0.2.2' sh "$peers" "$3" & guest=$!
# The file is replaced, as by NetworkManager.
read -r line < "$3/ready"
echo nameserver 127.0.0.53 > /etc/new
mv /etc/new /etc/resolv.conf
# It is written.
read -r line < "$3/ready"
echo nameserver 192.0.2.3 > /etc/resolv.conf
# It becomes a link. A file without servers has no effect.
read -r line < "$3/ready"
: > /etc/resolv.conf
mkdir /etc/run
echo nameserver fd00:1::1 > /etc/run/resolv.conf
ln -s run/resolv.conf /etc/new
mv /etc/new /etc/resolv.conf
wait $guest
"#;
    run("changes", script);
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
fn only_the_command_keeps_privileges() {
    let script = r#"
privileges() { grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs|Seccomp):' "/proc/$1/status" | tr '\n' ' '; }
before=$(privileges self)
"$kiban" net -t 9000:8080 -- sh -c 'echo > "$1/ready"; exec sleep 1000' sh "$3" & guest=$!
read -r line < "$3/ready"
# The board, the command, and the process that creates sockets.
set -- "$@" $(cat "/proc/$guest/task/$guest/children")
zero=0000000000000000
dropped="CapInh: $zero CapPrm: $zero CapEff: $zero CapAmb: $zero NoNewPrivs: 1 Seccomp: 2 "
for process in $guest $4 $6; do
    [ "$(privileges $process | tr '\t' ' ')" = "$dropped" ] || { echo "$process: $(privileges $process)"; exit 1; }
done
[ "$(privileges $5)" = "$before" ] || { echo "$5: $(privileges $5), before $before"; exit 1; }
# The first process still passes signals on, and ends a process that has been stopped.
kill -STOP $6
kill $guest
status 143 wait $guest
fails kill -0 $6 2> /dev/null
"#;
    run("privileges", script);
}

#[test]
fn a_network_starts_without_measuring_this_host() {
    // Buildah 1.28 waits for it for a second only, and measuring takes longer on a busy host. The threads
    // that measure are bound to processors.
    let script = r#"
strace -f -e trace=sched_setaffinity,exit_group -o "$3/calls" "$kiban" net -- true
grep -q exit_group "$3/calls"
fails grep -q sched_setaffinity "$3/calls"
"#;
    run("start", script);
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
fn callers_keep_their_addresses_and_those_on_loopback_reach_the_guests() {
    // A long range is open as a whole, on all addresses of both families.
    let script = r#"
"$kiban" net -t 10000-10999:7081-8080 -- python3 "$peers" see & guest=$!
for address in 192.0.2.1 fd00:1::1 127.0.0.1 ::1; do python3 "$peers" seen $address 10999; done
# Here, the guest serves only 127.0.0.1.
python3 "$peers" seen ::1 10998
kill $guest
wait $guest || true
# Here, the guest's loopback has no IPv6, as in Docker's namespaces.
"$kiban" net -t 10000-10999:7081-8080 -- sh -c 'echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6; exec python3 "$1" see' sh "$peers" & guest=$!
python3 "$peers" seen ::1 10999
# The guest would look for addresses of its own subnet on its own link.
ip address add 10.0.2.77/32 dev lo
ip address add fd6b:6962:616e::77/128 dev lo
for address in 10.0.2.77 fd6b:6962:616e::77; do python3 "$peers" seen $address 10999; done
kill $guest
"#;
    let seen = "192.0.2.1\nfd00:1::1\n127.0.0.1\n::1\n127.0.0.1\n127.0.0.1\n10.0.2.2\nfd6b:6962:616e::2\n";
    assert_eq!(run("callers", script).0, seen);
}

#[test]
fn a_command_begins_after_the_process_that_creates_sockets() {
    // Otherwise, that process would at times find a command that has ended, and report it.
    let script = r#"
for _ in 1 2 3 4 5; do "$kiban" net -t 9000:8080 -- true 2>> "$3/said"; done
cat "$3/said"
"#;
    assert_eq!(run("order", script).0, "");
}

#[test]
fn a_port_of_the_guests_loopback_is_forwarded_to_the_hosts() {
    let script = r#"
"$kiban" net -T 9100:8001 -T 9102-9103:8003-8004 -U 9101:8002 -- python3 "$peers" back
# The number of connections is limited.
ulimit -n 700
"$kiban" net -T 8001 -- python3 "$peers" flood 8001
"#;
    run("back", script);
}

#[test]
fn ports_that_lead_back_are_refused_and_left_out() {
    let script = r#"
status 1 "$kiban" net -t 9000:8080 -T 8080:9000 -- true 2> "$3/said"
grep -q "TCP port 9000 of this host leads to port 8080 of the guest, which is forwarded back" "$3/said"
# What is forwarded one way is not forwarded the other way, whether it is open there or leads there.
fails "$kiban" net -u 9000:8002 -U auto -- grep ":1F42 " /proc/net/udp
"$kiban" net -U auto -- grep -q ":1F42 " /proc/net/udp
"#;
    run("cycle", script);
}

#[test]
fn ports_are_forwarded_while_programs_listen() {
    let script = r#"
"$kiban" net -t auto -u auto -T auto -U auto -- sh -c '
    python3 "$1" try 127.0.0.1 8001
    python3 "$1" ask 127.0.0.1 8002
    python3 "$1" see & see=$!
    read -r line
    kill $see
    exec python3 "$1" tell' sh "$peers" < "$3/ready" & guest=$!
exec 5> "$3/ready"
python3 "$peers" seen ::1 8080
# The status lists those that are open now.
"$kiban" status net-$guest --json > "$3/status"
python3 -c 'import json, sys; assert {"8080", "8079-8080"} & set(json.load(sys.stdin)["services"][0]["guest"]["tcp"])' < "$3/status"
echo > "$3/ready"
while grep -q "$(printf ':%04X 0*:0000 0A' 8080)" /proc/net/tcp /proc/net/tcp6; do kill -0 $guest; done
python3 "$peers" ask 127.0.0.1 8081
kill $guest
# The number of ports is limited.
"$kiban" net -t auto -- python3 "$peers" many & guest=$!
count() { grep -c ':4[0-9A-F]* 0*:0000 0A' /proc/net/tcp6 || true; }
until [ "$(count)" -ge 1024 ]; do kill -0 $guest; done
[ "$(count)" = 1024 ]
kill $guest
"#;
    assert_eq!(run("auto", script).0, "?\n::1\n127.0.0.1\n");
}

#[test]
fn client_ports_of_udp_are_not_forwarded_at_any_time() {
    // The range of such ports is that of the start, although the board cannot read it later.
    let script = r#"
echo 20000 60999 > /proc/sys/net/ipv4/ip_local_port_range
python3 "$peers" tell 20001 & board=$!
"$kiban" net -U auto -- sh -c '
    echo > "$2/ready"
    python3 "$1" ask 127.0.0.1 8081
    grep ":4E21 " /proc/net/udp || true' sh "$peers" "$3" & guest=$!
read -r ready < "$3/ready"
python3 "$peers" tell & other=$!
wait $guest
"#;
    assert_eq!(run("clients", script).0, "127.0.0.1\n");
}

#[test]
fn all_free_ports_are_forwarded_if_files_suffice() {
    let script = r#"
files=$(ulimit -Hn)
if [ "$files" = unlimited ] || [ "$files" -ge 70000 ]; then
    "$kiban" net -t all -- python3 "$peers" see & guest=$!
    python3 "$peers" seen 127.0.0.1 8080
    kill $guest
    wait $guest || true
else
    status 1 "$kiban" net -t all -- true 2> "$3/said"
    grep -q 'too many ports are forwarded: 65535 files' "$3/said"
    echo 127.0.0.1
fi
ulimit -n 1000
status 1 "$kiban" net -t 1000-3000 -- true 2> "$3/said"
grep -q 'too many ports are forwarded: 2001 files are needed, and the process may open 1000' "$3/said"
"#;
    assert_eq!(run("all", script).0, "127.0.0.1\n");
}

#[test]
fn a_forwarded_udp_port_shows_the_guest_its_sender() {
    let script = r#"
"$kiban" net -u 192.0.2.1:9001:8081 -u 127.0.0.1:9002:8081 -u 9003:8081 -- python3 "$peers" tell & guest=$!
# The sender's address is the host's own; from its loopback, datagrams reach the guest's.
python3 "$peers" ask 192.0.2.1 9001
python3 "$peers" ask 127.0.0.1 9002
ip address add 10.0.2.77/32 dev lo
python3 "$peers" ask 10.0.2.77 9003
kill $guest
"#;
    assert_eq!(run("udp", script).0, "192.0.2.1\n127.0.0.1\n10.0.2.2\n");
}

/// How scripts begin for the programs that container engines start: `net` is a network namespace in a file.
const ENGINE: &str = r#"
net=$3/net
touch "$net"
unshare --net="$net" true
inside() { nsenter --net="$net" "$@"; }
ln -s "$kiban" "$3/pasta"
ln -s "$kiban" "$3/slirp4netns"
echo nameserver 192.0.2.1 > "$3/resolv"
mount --bind "$3/resolv" "$(realpath -e /etc/resolv.conf)"
"#;

#[test]
fn under_the_name_of_pasta_it_serves_podman() {
    let script = format!(
        r#"{ENGINE}
"$3/pasta" --config-net --pid "$3/pid" -t 127.0.0.1/9000-9000:8080-8080 -u 127.0.0.1/9001-9001:8081-8081     --dns-forward 169.254.1.1 -T none -U none --no-map-gw --quiet --netns "$net" --map-guest-addr 169.254.1.2
# It has returned, so the network works, and the loopback interface is up.
board=$(cat "$3/pid")
inside ip -o link show lo | grep -q 'LOOPBACK,UP'
# Ping is forbidden, and nobody reads the board's warning about it any longer: it goes on.
fails inside ping -c 1 -W 1 192.0.2.1 > /dev/null
inside python3 "$peers" few
inside python3 "$peers" names 169.254.1.1
# This address stands for the host's own, and the gateway's does not stand for the loopback.
inside python3 "$peers" upload 169.254.1.2
fails inside python3 "$peers" loopback 2> /dev/null
inside python3 "$peers" serve & guest=$!
until python3 "$peers" call 9000 2>/dev/null; do kill -0 $guest; done
wait $guest
nsenter --net="$net" python3 "$peers" tell & guest=$!
python3 "$peers" ask 127.0.0.1 9001
kill $guest
# The network ends with the file of the namespace.
umount "$net"
rm "$net"
while grep -qs '^State:.[^ZX]' /proc/$board/status; do :; done
# Errors are printed before it returns.
status 1 "$3/pasta" --config-net --netns "$net" 2> "$3/said"
grep -q "$net: No such file" "$3/said"
# Buildah names the namespace of a process: then the network ends with the process.
unshare --net sleep 1000 & guest=$!
until [ "$(readlink /proc/$guest/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do kill -0 $guest; done
"$3/pasta" --config-net --pid "$3/pid" --quiet --netns /proc/$guest/ns/net
board=$(cat "$3/pid")
kill $guest
while grep -qs '^State:.[^ZX]' /proc/$board/status; do :; done
status 1 "$3/pasta" --config-net --netns /proc/1999999999/ns/net 2> "$3/said"
grep -q "/proc/1999999999/ns/net: No such process" "$3/said"
"#
    );
    assert_eq!(run("pasta", &script).0, "127.0.0.1\n");
}

#[test]
fn dhclient_and_the_kernel_configure_an_interface_that_kiban_does_not() {
    let script = format!(
        r#"{ENGINE}
dir=$3
"$dir/pasta" --pid "$dir/pid" --quiet --mtu 1400 --dns-forward 10.0.2.3 --netns "$net"
board=$(cat "$dir/pid")
cat > "$dir/lease" <<'END'
#!/bin/sh
exec >> "$(dirname "$0")/leases"
case $reason in
BOUND | REBOOT)
    ip address replace "$new_ip_address/$new_subnet_mask" dev eth0
    ip route replace default via "$new_routers"
    echo "$reason $new_ip_address/$new_subnet_mask via $new_routers mtu $new_interface_mtu dns $new_domain_name_servers" ;;
*6)
    [ -z "$new_ip6_address" ] || ip address replace "$new_ip6_address/128" dev eth0
    echo "$reason $new_ip6_address" ;;
esac
END
chmod +x "$dir/lease"
echo 'request subnet-mask, routers, domain-name-servers, interface-mtu;' > "$dir/conf"
# Runs a client until it has a lease, or has released it.
client() {{
    inside dhclient "$@" -v -sf "$dir/lease" -cf "$dir/conf" -pf "$dir/client" -lf "$dir/known$1" eth0 2>> "$dir/said" ||
        {{ cat "$dir/said"; exit 1; }}
}}
# Returns once the client in the background has written its number to the file.
runs() {{ until [ -s "$dir/client" ]; do kill -0 "$board"; done; }}
# Ends it.
ends() {{
    runs
    pid=$(cat "$dir/client")
    kill "$pid"
    while grep -qs '^State:.[^ZX]' "/proc/$pid/status"; do :; done
    rm -f "$dir/client"
}}
inside ip link set lo up
inside ip link set eth0 up
client -4 -1
ends
client -4 -1
runs
client -4 -r
# The kernel's route, and an address that it has formed itself.
until inside ip -6 route | grep -q '^default via fe80'; do kill -0 "$board"; done
until inside ip -6 address show dev eth0 scope link | grep -v tentative | grep -q fe80; do kill -0 "$board"; done
inside ip -6 address show dev eth0 | grep -q 'fd6b:6962:616e:0:.*/64'
inside cat /proc/sys/net/ipv6/conf/eth0/mtu | grep -q 1400
client -6 -1
ends
client -6 -1
runs
client -6 -r
inside python3 "$peers" few
inside python3 "$peers" upload fd00:1::1
inside python3 "$peers" names 10.0.2.3
kill "$board"
cat "$dir/leases"
"#
    );
    let (out, _) = run("dhcp", &script);
    let lease = "10.0.2.15/255.255.255.0 via 10.0.2.2 mtu 1400 dns 10.0.2.3";
    let four = [format!("BOUND {lease}"), format!("REBOOT {lease}")];
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], four, "{out}");
    // A new address, and one that was confirmed.
    let six = lines[2..].iter().filter(|line| line.ends_with(" fd6b:6962:616e::15"));
    assert_eq!(six.count(), 2, "{out}");
}

#[test]
fn a_virtual_machine_gets_its_address_and_may_restart() {
    let script = r#"
vm=$3/vm.sock own=$3/net.sock
"$kiban" net --dns 192.0.2.1 --qemu-stream "$vm" 2> "$3/said" & board=$!
until grep -q 'ready for a virtual machine' "$3/said"; do kill -0 $board; done
python3 "$peers" machine "$vm"
python3 "$peers" machine "$vm"
kill $board
wait $board
fails test -e "$vm" && fails test -e "$vm.kiban-lock"
"$kiban" net --dns 192.0.2.1 --mtu 9000 --qemu-dgram "$own:$vm" & board=$!
until [ -S "$own" ]; do kill -0 $board; done
python3 "$peers" machine "$own" "$vm"
python3 "$peers" machine "$own" "$vm"
kill -INT $board
wait $board
fails test -e "$own"
# The command is in this host's namespaces, and its status is returned.
"$kiban" net --dns 192.0.2.1 --qemu-stream "$vm" -- python3 "$peers" machine "$vm"
status 7 "$kiban" net --qemu-stream "$vm" -- sh -c 'ip -o address show dev lo | grep -q 192.0.2.1 && exit 7'
fails test -e "$vm"
echo thesis > "$vm"
status 1 "$kiban" net --qemu-stream "$vm" -- touch "$3/started" 2> "$3/said"
grep -q 'a file that is not a socket is there' "$3/said"
fails test -e "$3/started"
status 1 "$kiban" net --qemu-stream "$vm" 2> /dev/null
grep -q thesis "$vm"
"#;
    let (out, _) = run("machine", script);
    let lines: Vec<&str> = out.lines().collect();
    let (small, large) = ("10.0.2.15 via 10.0.2.2 mtu 1500", "10.0.2.15 via 10.0.2.2 mtu 9000");
    assert_eq!(lines, [small, small, large, large, small]);
}

#[test]
fn under_the_name_of_slirp4netns_it_serves_podman_and_rootlesskit() {
    let script = format!(
        r#"{ENGINE}
mkfifo "$3/net-ready" "$3/net-exit"
"$3/slirp4netns" --disable-host-loopback --mtu=65520 --enable-sandbox --enable-seccomp --enable-ipv6 -c -r 3 -e 4 \
    --netns-type=path "$net" tap0 4< "$3/net-exit" 3> "$3/net-ready" & board=$!
exec 5> "$3/net-exit"
read -r ready < "$3/net-ready" || [ "$ready" = 1 ]
inside ip -o address show tap0 | grep -q '10.0.2.100/24'
inside python3 "$peers" few
inside python3 "$peers" names 10.0.2.3
inside python3 "$peers" upload fd00:1::1
fails inside python3 "$peers" loopback 2> /dev/null
# The network ends with the pipe.
exec 5>&-
wait $board
# RootlessKit creates and configures the interface.
inside ip tuntap add tap1 mode tap
inside ip link set tap1 mtu 65520 up
inside ip address add 10.1.0.100/16 dev tap1
inside ip route add default via 10.1.0.2
sleep 1000 & guest=$!
"$3/slirp4netns" --mtu 65520 -r 3 --cidr 10.1.0.0/16 --netns-type=path "$net" tap1 3> "$3/net-ready" & board=$!
read -r ready < "$3/net-ready" || [ "$ready" = 1 ]
inside python3 "$peers" few
inside python3 "$peers" names 10.1.0.3
kill $board $guest
"#
    );
    run("slirp4netns", &script);
}

#[test]
fn pings_need_permission_and_say_how_to_get_it() {
    let script = r#"
# In a new network namespace, the range is empty.
fails "$kiban" net -- ping -c 1 -W 1 192.0.2.1 > /dev/null 2>"$3/said"
grep -q 'sysctl -w net.ipv4.ping_group_range' "$3/said"
# Container engines discard the message; the status has it, too.
"$kiban" net -- sh -c '
    ping -c 1 -W 1 192.0.2.1 > /dev/null
    until "$1" status | grep "^net  the guest cannot ping: .*sysctl -w" > /dev/null; do :; done' sh "$kiban" 2> /dev/null
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
# If a port is in use, kiban does not wait for the end of the process.
status 1 "$kiban" net -t 192.0.2.1:8000 $guest 2> "$3/said"
grep -q "192.0.2.1:8000" "$3/said"
"$kiban" net -t 192.0.2.1:9000-9001:80-81 -U 9002:8002 $guest & board=$!
inside() { nsenter --preserve-credentials --user --net --target $guest "$@"; }
works $board
inside ip -o address show eth0 | grep -q 10.0.2.15
inside python3 "$peers" few
"$kiban" status net-$board > "$3/status"
grep -q '^net  guest 10.0.2.15/24 fd6b:6962:616e::15/64$' "$3/status"
grep -q '^net  TCP ports of this host to the guest: 192.0.2.1:9000-9001:80-81$' "$3/status"
grep -q '^net  UDP ports of the guest to this host: 9002:8002$' "$3/status"
kill $guest
wait $board
"#;
    run("process", script);
}

#[test]
fn the_setting_that_forbids_namespaces_is_named() {
    let script = r#"
says() { status 1 "$kiban" net -- true 2> "$3/said"; grep -q "$4" "$3/said" || { cat "$3/said"; exit 1; }; }
echo 0 > /proc/sys/user/max_net_namespaces
says "$@" 'cannot create a user namespace: No space left.*user.max_net_namespaces'
echo 0 > /proc/sys/user/max_user_namespaces
says "$@" 'user.max_user_namespaces is 0; root can allow them: sysctl user.max_user_namespaces=15000'
echo 1000 > /proc/sys/user/max_net_namespaces
echo 1000 > /proc/sys/user/max_user_namespaces
# The namespace can be created, but users cannot be mapped.
mount --bind /proc /proc
mount -o remount,bind,ro /proc
says "$@" 'cannot create a user namespace: Read-only file system'
"#;
    run("forbidden", script);
}

#[test]
fn low_ports_name_a_remedy_that_works_in_a_user_namespace() {
    let script = r#"
status 1 setpriv --bounding-set=-net_bind_service "$kiban" net -t 80 -- true 2> "$3/said"
grep -q 'or let all users have this one (sysctl net.ipv4.ip_unprivileged_port_start=80)' "$3/said"
fails grep -q 'run as root' "$3/said"
"#;
    run("low", script);
}

#[test]
fn wrong_arguments_are_explained() {
    let own = std::process::id().to_string();
    let rows: [(&[&str], &str); 15] = [
        (&["--gateway", "10.9.9.9", "--", "true"], "must be another address in the network of --address"),
        (&["-t", "x", "--", "true"], "-t x: write [ADDRESS:]PORT[:PORT]"),
        (&["-t", "8080:80", "-t", "8080:81", "--", "true"], "-t: port 8080 is given twice"),
        (&["-T", "0.0.0.0:5432", "--", "true"], "callers of other hosts would reach this host's loopback"),
        (&["1999999999"], "cannot use the network of process 1999999999: No such process"),
        (&["0"], "cannot use the network of process 0: No such process"),
        (&[&own], "it is in this host's network namespace; start it with unshare"),
        (&["1", "true"], "nothing may follow the process number 1; put options before it"),
        (&["--address", "10.0.2.15", "--", "true"], "write ADDRESS/BITS"),
        (&["--mtu", "1000", "--", "true"], "--mtu 1000: with IPv6, the MTU is between 1280 and 65520"),
        (&["--mtu", "100", "--no-ipv6", "--", "true"], "with IPv4, the MTU is between 576 and 65520"),
        (&[], "<COMMAND>"),
        (&["--qemu-dgram", "vm.sock"], "--qemu-dgram vm.sock: write kiban's path and QEMU's"),
        (&["--qemu-stream", "vm.sock", "--interface", "eth0"], "cannot be used with"),
        (&["--qemu-stream", "vm.sock", "4711"], "give the command that starts the virtual machine"),
    ];
    for (arguments, message) in rows {
        let output = Command::new(env!("CARGO_BIN_EXE_kiban")).arg("net").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{arguments:?}: {said}");
    }
}
