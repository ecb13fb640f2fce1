//! Tests the README's promise that `ib_write_bw` runs without any privileges.
//!
//! Goal      the user `nobody` runs `ib_write_bw` in a new user namespace and a new network namespace, in
//!           which only the loopback interface is configured.
//! Requires  perftest, iproute2, util-linux; and a system on which users may create namespaces (on Ubuntu
//!           24.04, this requires `sysctl kernel.apparmor_restrict_unprivileged_userns=0`).

#[path = "../../verbs/tests/common/libraries.rs"]
mod libraries;

use libraries::{linked, output};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// Starts the server, and starts the client once the server listens (when /proc/net/tcp shows its port in
/// state 0A).
const SCRIPT: &str = r#"
set -eu
ip link set lo up
"$1" verbs -- ib_write_bw -F -n 200 -p 18515 $2 & server=$!
until grep -q "$(printf ':%04X 0*:0000 0A' 18515)" /proc/net/tcp /proc/net/tcp6; do kill -0 $server; done
"$1" verbs -- ib_write_bw -F -n 200 -p 18515 $2 127.0.0.1
wait $server
"#;

/// The files that `make install` installs, in a directory that every user can read.
struct Installed(PathBuf);

impl Installed {
    fn new() -> Installed {
        let root = std::env::temp_dir().join(format!("kiban-unprivileged-{}", std::process::id()));
        let libraries = linked("unprivileged");
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
    let installed = Installed::new();
    let is_root = output(Command::new("id").arg("-u")).stdout == b"0\n";
    for options in ["-R", ""] {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60"]);
        if is_root {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        }
        command.args(["unshare", "--user", "--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"]);
        command.arg(installed.0.join("bin/kiban")).arg(options);
        command.env_remove("KIBAN_VERBS_LIB").env_remove("KIBAN_TRANSPORT").current_dir("/");
        let output = output(&mut command);
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(output.status.success(), "'{options}': {}\n{told}", output.status);
        // Rows with bytes, iterations, peak and average MB/s: one row from the server and one from the
        // client.
        let rows = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows: Vec<_> = rows.filter(|row| row.len() == 5 && row[..2] == ["65536", "200"]).collect();
        let figures = rows.iter().flat_map(|row| &row[2..]).map(|word| word.parse::<f64>().unwrap_or(0.0));
        assert!(rows.len() == 2 && figures.into_iter().all(|figure| figure > 0.0), "'{options}':\n{told}");
    }
}
