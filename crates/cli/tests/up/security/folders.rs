//! The directory that contains a board's sockets. Boards and their clients check that no other user can enter
//! or replace it.

use crate::common::{KIBAN, TestDir, enter, ip, run, spawn, text};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// A board that needs no privileges and has a socket of every kind.
const CONFIG: &str = "name = \"lab\"\n[[port]]\nname = \"far\"\nlink = \"udp-frames:127.0.0.1:7010-127.0.0.1:7011\"\n\
    address = \"10.8.0.2/24\"\n[[service]]\nkind = \"attach\"\n[[service]]\nkind = \"sockets\"\n";

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_directory_that_others_may_enter_or_replace_is_refused_by_boards_and_by_clients() {
    if !enter() {
        return;
    }
    ip("link set lo up");
    let dir = TestDir::new("folders");
    let config = dir.write("board.toml", CONFIG).display().to_string();
    let folder = dir.0.join("kiban");
    let make = || std::fs::create_dir(&folder).expect("room");
    let own = |its: u32| mode(&folder, its);
    type Row<'a> = (&'a str, &'a dyn Fn(), [&'a str; 2]);
    let rows: [Row<'_>; 4] = [
        (
            "others may enter",
            &|| {
                make();
                own(0o777);
            },
            ["has mode 0777, not 0700", "chmod 700 "],
        ),
        (
            "a link",
            &|| {
                std::fs::create_dir_all(dir.0.join("theirs")).expect("room");
                mode(&dir.0.join("theirs"), 0o700);
                symlink("theirs", &folder).expect("room");
            },
            ["is a symbolic link", "remove it"],
        ),
        (
            "others may replace it",
            &|| {
                make();
                own(0o700);
                mode(&dir.0, 0o777);
            },
            ["writable by others", "set XDG_RUNTIME_DIR"],
        ),
        (
            "another user's",
            &|| {
                make();
                own(0o700);
                chown(&folder, Some(65534), None).expect("we are root");
                chown(&dir.0, Some(65533), None).expect("we are root");
            },
            ["belongs to another user", "set XDG_RUNTIME_DIR"],
        ),
    ];
    for (what, prepare, words) in rows {
        if what == "another user's" && !rustix::process::geteuid().is_root() {
            continue;
        }
        prepare();
        // An impostor's socket, to which clients might connect.
        let names = ["lab.sock", "lab.streams", "lab.sockets"];
        let impostors = names.map(|name| UnixListener::bind(folder.join(name)).expect("room"));
        for arguments in [
            &["up", &config][..],
            &["status", "lab"],
            &["down", "lab"],
            &["capture", "--board", "lab", "far", "x.pcap"],
            &["connect", "--board", "lab", "10.8.0.1:7"],
            &["run", "--board", "lab", "true"],
        ] {
            let output = dir.kiban(arguments);
            let told = text(&output);
            assert_eq!(output.status.code(), Some(1), "{what}: {arguments:?}: {told}");
            // A board requires that the directory belong to the board's own user. A client that runs as root
            // accepts any user's directory.
            let owner = ["belongs to user 65534", words[1]];
            let words = if what == "another user's" && arguments[0] == "up" { owner } else { words };
            assert!(words.iter().all(|words| told.contains(words)), "{what}: {arguments:?}: {told}");
        }
        // If no name is given, the client queries every board.
        for arguments in [&["status"][..], &["connect", "10.8.0.1:7"], &["run", "true"]] {
            dir.kiban(arguments);
        }
        for impostor in impostors {
            impostor.set_nonblocking(true).expect("a socket");
            assert!(impostor.accept().is_err(), "{what}: the impostor was asked");
        }
        mode(&dir.0, 0o755);
        chown(&dir.0, Some(0), None).expect("we are root");
        let _ = std::fs::remove_file(&folder);
        let _ = std::fs::remove_dir_all(&folder);
        let _ = std::fs::remove_dir_all(dir.0.join("theirs"));
    }
    // A directory created by the board is accepted.
    let mut board = dir.up(CONFIG);
    assert_eq!(board.status()["name"], "lab");
    assert!(dir.kiban(&["down"]).status.success());
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
}

#[test]
fn root_creates_nothing_in_a_directory_of_another_user() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    ip("link set lo up");
    let dir = TestDir::new("folders-theirs");
    let config = dir.write("board.toml", CONFIG).display().to_string();
    // A path that contains control characters must not break the message across lines.
    let theirs = dir.0.join("their\n\u{1b}[2J");
    std::fs::create_dir(&theirs).expect("room");
    chown(&theirs, Some(65534), None).expect("we are root");
    for parent in [theirs.clone(), theirs.join("deeper")] {
        let output =
            dir.command(&["up", &config]).env("XDG_RUNTIME_DIR", &parent).output().expect("it was built");
        let told = text(&output);
        let words =
            "their\\n\\u{1b}[2J belongs to another user or is writable by others: set XDG_RUNTIME_DIR";
        assert!(output.status.code() == Some(1) && told.contains(words), "{told:?}");
        assert_eq!(std::fs::read_dir(&theirs).expect("it is there").count(), 0, "{told}");
    }
    // If the mode is wrong, the suggested command also contains the path.
    chown(&theirs, Some(0), None).expect("we are root");
    std::fs::create_dir(theirs.join("kiban")).expect("room");
    mode(&theirs.join("kiban"), 0o755);
    let output =
        dir.command(&["status", "lab"]).env("XDG_RUNTIME_DIR", &theirs).output().expect("it was built");
    let told = text(&output);
    assert!(told.contains("has mode 0755, not 0700: chmod 700 ") && told.lines().count() == 1, "{told:?}");
    // Inside a directory that belongs to its own user, the board creates the directory and any missing
    // parents.
    let own = dir.0.join("own/run");
    let mut board = dir.up_by(CONFIG, |mut command| {
        command.env("XDG_RUNTIME_DIR", &own);
        spawn(command)
    });
    assert!(own.join("kiban/lab.sock").exists());
    let output = dir.command(&["down"]).env("XDG_RUNTIME_DIR", &own).output().expect("it was built");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
}

/// Returns a command that runs as another user and has only the environment variables in `env`.
fn as_user(uid: u32, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--no-new-privs"]);
    command.args(words);
    command
}

#[test]
fn a_user_without_xdg_runtime_dir_has_a_directory_of_its_own() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    ip("link set lo up");
    let uid = 61_000 + std::process::id() % 1000;
    let dir = TestDir::new("folders-fallback");
    let program = dir.0.join("kiban-program");
    crate::common::copy_program(&program);
    mode(&program, 0o755);
    let program = program.display().to_string();
    let folder = std::path::PathBuf::from(format!("/tmp/kiban-{uid}"));
    let asked = |verb: &str| as_user(uid, &[&program, verb, "lab"]).env_remove("XDG_RUNTIME_DIR").output();
    let mut board = dir.up_by(CONFIG, |command| {
        chown(dir.0.join("board.toml"), Some(uid), None).expect("we are root");
        mode(&dir.0.join("notify.sock"), 0o777);
        let mut other = as_user(uid, &[&program]);
        other.args(command.get_args()).env_remove("XDG_RUNTIME_DIR").current_dir("/");
        other.env("NOTIFY_SOCKET", dir.0.join("notify.sock"));
        other.stderr(std::fs::File::create(dir.0.join("log")).expect("room"));
        spawn(other)
    });
    assert!(folder.join("lab.streams").exists() && folder.join("lab.sockets").exists());
    let output = asked("status").expect("it runs");
    assert!(text(&output).contains("lab"), "{}", text(&output));
    let output = asked("down").expect("it runs");
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(board.wait(), Some(0), "{}", dir.log());
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// With `RuntimeDirectory=` and `DynamicUser=`, /run/kiban is a symlink owned by root. It points to a
/// directory owned by the unit's user.
#[test]
fn root_reaches_a_board_in_the_directory_that_systemd_creates() {
    if !enter() || !rustix::process::geteuid().is_root() {
        println!("skipped: it takes root to become somebody else");
        return;
    }
    let dir = TestDir::new("folders-unit");
    dir.write("board.toml", CONFIG);
    let script = format!(
        "set -e; ip link set lo up; mount -t tmpfs -o mode=755 none /run; mkdir -m 700 /run/private; mkdir -m 700 /run/private/kiban
        chown 61999:61999 /run/private/kiban; ln -s private/kiban /run/kiban; cp {KIBAN} /run/program; chmod 755 /run/program
        cp board.toml /run/board.toml; chmod 711 /run/private
        export XDG_RUNTIME_DIR=/run
        setpriv --reuid=61999 --regid=61999 --clear-groups /run/program up /run/board.toml 2>log &
        board=$!
        until grep -q 'board is ready\\|ready' log; do kill -0 $board; done
        unset XDG_RUNTIME_DIR; chmod 700 /run/private
        ls /run/private/kiban/lab.sock; {KIBAN} status lab --json; {KIBAN} down lab; wait $board
        echo as it should; rm -r /run/kiban /run/private; mkdir -m 777 /run/else; mkdir -m 700 /run/else/kiban
        ln -s else/kiban /run/kiban; {KIBAN} status lab && exit 1
        rm /run/kiban; for to in kiban /run/kiban ../run/kiban else/loop; do
            ln -sfn $to /run/kiban; ln -sfn /run/kiban /run/else/loop; chmod 755 /run/else; {KIBAN} status lab && exit 1; done
        chmod 777 /run; rm /run/kiban; ln -s private/kiban /run/kiban; {KIBAN} status lab || echo end"
    );
    let output = run("unshare", &["-m", "sh", "-c", &format!("cd {} && {script}", dir.0.display())]);
    let told = text(&output);
    assert!(
        told.contains("as it should") && told.contains("\"name\": \"lab\"") && told.contains("end"),
        "{told}"
    );
    // The symlink's target is in a directory that is writable by other users, who could therefore replace the
    // target.
    let refused: Vec<&str> = told.lines().filter(|line| line.contains(" (not searched: ")).collect();
    let [there, ref loops @ .., link] = refused[..] else { panic!("{told}") };
    // A symlink to itself, written in three ways, and one that leads back to itself through another symlink.
    assert!(
        loops.len() == 4 && loops.iter().all(|line| line.contains("is a symbolic link: remove it")),
        "{told}"
    );
    assert!(there.contains("/run/else belongs to another user or is writable by others"), "{there}");
    assert!(link.contains("/run/kiban is a symbolic link: remove it"), "{link}");
}
