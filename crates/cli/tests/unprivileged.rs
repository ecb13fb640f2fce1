//! Tests the README's promise that `ib_write_bw` runs without any privileges.
//!
//! Goals     the user `nobody` runs `ib_write_bw` in a new user namespace and a new network namespace, in
//!           which only the loopback interface is configured.
//!           Two users at two addresses of one host speak RoCEv2 with each other, and a second user of one
//!           address is told so (docs/roce.md, docs/verbs.md).
//! Requires  perftest, iproute2, util-linux; and a system on which users may create namespaces (on Ubuntu
//!           24.04, this requires `sysctl kernel.apparmor_restrict_unprivileged_userns=0`).

#[path = "../../verbs/tests/common/libraries.rs"]
mod libraries;

use libraries::{linked, output};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// What each script begins with. `listens` waits until a process listens: until /proc/net/tcp shows its port
/// in state 0A.
const PRELUDE: &str = r#"
set -eu
ip link set lo up
listens() {
    until grep -q "$(printf ':%04X 0*:0000 0A' 18515)" /proc/net/tcp /proc/net/tcp6; do kill -0 $1; done
}
"#;

/// Starts the server, and starts the client once the server listens.
const SCRIPT: &str = r#"
"$1" verbs -- ib_write_bw -F -n 200 -p 18515 $2 & server=$!
listens $server
"$1" verbs -- ib_write_bw -F -n 200 -p 18515 $2 127.0.0.1
wait $server
"#;

/// Runs a server at one address and its client at another, each as the user that its `setpriv` command
/// names ($2 and $3, which are empty if the test cannot change users).
const TWO_ADDRESSES: &str = r#"
ip address add 192.0.2.1/32 dev lo
ip address add 192.0.2.2/32 dev lo
$2 "$1" verbs --transport roce -- ib_write_bw -d kiban0 -F -n 200 -p 18515 & server=$!
listens $server
$3 "$1" verbs --transport roce -- ib_write_bw -d kiban1 -F -n 200 -p 18515 192.0.2.1
wait $server
"#;

/// Runs a program as one user, which makes its queue pair before it listens, and then `$4`, which must fail,
/// as another user at the same address.
const ONE_ADDRESS: &str = r#"
ip address add 192.0.2.1/32 dev lo
$2 "$1" verbs --transport roce -- ibv_rc_pingpong -d kiban0 -g 0 -p 18515 & first=$!
listens $first
code=0; $3 "$1" verbs --transport roce -- $4 || code=$?
kill $first
[ $code = 1 ]
"#;

/// What the second user of an address is told.
const MESSAGE: &str = "another user's programs or the kernel's rdma_rxe use it for RoCEv2; use another address \
                       of this host, or another network namespace";

/// The files that `make install` installs, in a directory that every user can read.
struct Installed(PathBuf);

impl Installed {
    /// `name` differs for each test of this process.
    fn new(name: &str) -> Installed {
        let root = std::env::temp_dir().join(format!("kiban-{name}-{}", std::process::id()));
        let libraries = linked(name);
        for (folder, from, name) in [
            ("bin", PathBuf::from(env!("CARGO_BIN_EXE_kiban")), "kiban"),
            ("lib/kiban", libraries.join("libibverbs.so.1"), "libibverbs.so.1"),
            ("lib/kiban", libraries.join("librdmacm.so.1"), "librdmacm.so.1"),
            ("lib/kiban", libraries.join("libkiban_paths.so"), "libkiban_paths.so"),
        ] {
            let folder = root.join(folder);
            // Let another process write the copy. If this process wrote it, a child forked in the meantime
            // could inherit the descriptor that is open for writing, and executing the copy would fail
            // (ETXTBSY).
            let mut install = Command::new("install");
            let copied = install.args(["-D", "-m", "755"]).arg(from).arg(folder.join(name)).status();
            assert!(copied.is_ok_and(|status| status.success()), "there is room for files of a while");
        }
        for folder in ["", "bin", "lib", "lib/kiban"] {
            set_permissions(root.join(folder), Permissions::from_mode(0o755)).expect("it is ours");
        }
        Installed(root)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Ignore errors: a leftover directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn user_nobody_runs_ib_write_bw_in_a_new_network_namespace() {
    let installed = Installed::new("unprivileged");
    for options in ["-R", ""] {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60"]);
        if is_root() {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        }
        command.args(["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]);
        command.arg(format!("{PRELUDE}{SCRIPT}")).arg("sh");
        command.arg(installed.0.join("bin/kiban")).arg(options);
        command.env_remove("KIBAN_VERBS_LIB").env_remove("KIBAN_TRANSPORT").current_dir("/");
        let output = output(&mut command);
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(output.status.success(), "'{options}': {}\n{told}", output.status);
        assert_measured(&told, options);
    }
}

/// Asserts that the server and the client each wrote a row with bytes, iterations, peak and average MB/s.
#[track_caller]
fn assert_measured(told: &str, case: &str) {
    let rows = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows: Vec<_> = rows.filter(|row| row.len() == 5 && row[..2] == ["65536", "200"]).collect();
    let figures = rows.iter().flat_map(|row| &row[2..]).map(|word| word.parse::<f64>().unwrap_or(0.0));
    assert!(rows.len() == 2 && figures.into_iter().all(|figure| figure > 0.0), "'{case}':\n{told}");
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).stdout == b"0\n"
}

/// Runs a script in a new network namespace, for two users if this one is root. Returns what was written.
#[track_caller]
fn run_for_two_users(script: &str, installed: &Installed, program: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60", "unshare", "--net"]);
    let mut users = [String::new(), String::new()];
    if is_root() {
        users = [65534, 65533]
            .map(|id| format!("setpriv --reuid={id} --regid={id} --clear-groups --no-new-privs"));
    } else {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["sh", "-c"])
        .arg(format!("{PRELUDE}{script}"))
        .arg("sh")
        .arg(installed.0.join("bin/kiban"))
        .args(users)
        .arg(program);
    command.env_remove("KIBAN_VERBS_LIB").env_remove("KIBAN_SHARED_MEMORY").current_dir("/");
    let output = output(&mut command);
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(output.status.success(), "'{program}': {}\n{told}", output.status);
    told
}

#[test]
fn two_users_at_two_addresses_of_a_host_speak_rocev2() {
    if !is_root() {
        println!("left out: only root can start programs as two users; here, one user has both addresses");
    }
    let told = run_for_two_users(TWO_ADDRESSES, &Installed::new("two-addresses"), "");
    assert_measured(&told, "roce");
}

#[test]
fn a_second_user_of_an_address_is_told_why_rocev2_fails() {
    if !is_root() {
        return println!("skipped: only root can start programs as two users");
    }
    let installed = Installed::new("one-address");
    // A queue pair, and a listener of rdma_cm.
    for program in ["ibv_rc_pingpong -d kiban0 -g 0 -p 18516", "ib_write_bw -R -d kiban0 -F -p 18516"] {
        let told = run_for_two_users(ONE_ADDRESS, &installed, program);
        assert!(told.contains(MESSAGE), "'{program}':\n{told}");
    }
}
