//! Tests the symbols and versions of the libraries, and that programs load them.
//!
//! Purpose   checks that every symbol has every version listed in a map and that nothing else is exported.
//!           Programs linked against rdma-core must load without warnings from the dynamic linker.
//! How       the script `link` builds the libraries from the archive that cargo builds for this test.
//! Needs     the Debian packages listed in `PROGRAMS`, and binutils.

#[path = "common/libraries.rs"]
mod libraries;

use kiban_verbs::absent::ABSENT;
use libraries::{home, linked, output, stdout_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

const LIBRARIES: [(&str, &str); 2] =
    [("libibverbs.so.1", "libibverbs.map"), ("librdmacm.so.1", "librdmacm.map")];

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| linked("verbs"));

/// Returns the symbols of a map with their nodes, in order.
fn map(name: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(home().join("exports").join(name)).expect("the maps are there");
    let mut node = String::new();
    let mut all = Vec::new();
    for line in text.lines() {
        match line.trim().strip_suffix([';', '{']).map(str::trim) {
            Some(word) if line.ends_with('{') => node = word.to_owned(),
            Some(word) if line.starts_with("        ") && word != "*" => {
                all.push((word.to_owned(), node.clone()));
            }
            _ => {}
        }
    }
    assert!(all.len() > 60, "{name} has {} lines", all.len());
    all
}

/// Returns a library's definitions: `name@@node` for a default version, `name@node` for another.
fn defined(library: &Path) -> BTreeSet<String> {
    let stdout = stdout_of(Command::new("readelf").args(["--dyn-syms", "-W"]).arg(library));
    let rows = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() > 7 && row[6].parse::<u32>().is_ok());
    rows.map(|row| row[7].to_owned()).filter(|name| name.contains('@')).collect()
}

#[test]
fn the_libraries_export_what_the_maps_name_and_nothing_else() {
    for (library, list) in LIBRARIES {
        let mut expected = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for (name, node) in map(list) {
            let at = if seen.insert(name.clone()) { "@@" } else { "@" };
            expected.insert(format!("{name}{at}{node}"));
        }
        if library == "libibverbs.so.1" {
            expected.extend(map("librdmacm.map").iter().map(|(name, _)| format!("kiban_{name}@@KIBAN_1")));
            expected.insert("kiban_device_tree@@KIBAN_1".into());
        }
        let made = defined(&FOLDER.join(library));
        let missing: Vec<_> = expected.difference(&made).collect();
        let more: Vec<_> = made.difference(&expected).collect();
        assert!(missing.is_empty() && more.is_empty(), "{library} lacks {missing:?} and has {more:?}");
    }
}

#[test]
fn every_symbol_of_the_installed_library_is_exported() {
    for (library, _) in LIBRARIES {
        let stdout =
            stdout_of(Command::new("ldconfig").arg("-p").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin"));
        let line = stdout.lines().find(|line| line.trim_start().starts_with(library));
        let place = line.and_then(|line| line.split("=> ").nth(1));
        let place =
            place.unwrap_or_else(|| panic!("{library} is missing: install libibverbs1 and librdmacm1"));
        let theirs = defined(Path::new(place));
        let ours: BTreeSet<String> =
            defined(&FOLDER.join(library)).iter().map(|name| name.replace("@@", "@")).collect();
        // Non-default versions are for structs from before 2007.
        let wanted = theirs.iter().filter(|name| name.contains("@@")).map(|name| name.replace("@@", "@"));
        let missing: Vec<String> = wanted.filter(|name| !ours.contains(name)).collect();
        assert!(theirs.len() > 60 && missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn every_version_is_found_by_name_and_can_be_called() {
    let program = FOLDER.join("find");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    stdout_of(
        Command::new(cc)
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(home().join("tests/c/find.c"))
            .arg("-ldl"),
    );
    let mut lines = String::new();
    let mut count = 0;
    for (library, list) in [("verbs", "libibverbs.map"), ("cm", "librdmacm.map")] {
        for (name, node) in map(list) {
            lines += &format!("{library} {name} {node}\n");
            count += 1;
        }
    }
    let mut child = Command::new(&program)
        .arg(&*FOLDER)
        .env("LD_LIBRARY_PATH", &*FOLDER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was just built");
    child.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert_eq!(stdout, format!("found {count}\n"));
}

/// Programs, arguments with which they exit at once, and their packages.
const PROGRAMS: [(&str, &[&str], &str); 9] = [
    ("rping", &["-h"], "rdmacm-utils"),
    ("rstream", &["-h"], "rdmacm-utils"),
    ("ib_write_bw", &["--version"], "perftest"),
    ("qperf", &["--help"], "qperf"),
    ("fi_info", &["-p", "verbs"], "libfabric-bin"),
    ("ucx_info", &["-d"], "ucx-utils"),
    ("ibv_devinfo", &[], "ibverbs-utils"),
    ("ibv_rc_pingpong", &["-d", "no such device"], "ibverbs-utils"),
    // Use the system's Python, because pyverbs is not available for others.
    ("/usr/bin/python3", &["-c", "import pyverbs.device, pyverbs.cmid, pyverbs.qp"], "python3-pyverbs"),
];

#[test]
fn programs_load_the_libraries_without_linker_warnings() {
    for (program, arguments, package) in PROGRAMS {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "60", program]).args(arguments);
        // Bind all symbols at load time, including those of libraries that are loaded later.
        command.env("LD_LIBRARY_PATH", &*FOLDER).env("LD_BIND_NOW", "1").stdin(Stdio::null());
        let output = output(&mut command);
        let stdout = [output.stdout, output.stderr].concat();
        let stdout = String::from_utf8_lossy(&stdout);
        // timeout(1) returns 124 or 137 if the program did not end, 126 or 127 if it did not start, and 128
        // or more for signals.
        let code = output.status.code().unwrap_or(128);
        assert!(code != 127, "{program}: install {package}\n{stdout}");
        // Some programs exit with -1, which is 255.
        assert!(code < 124 || code == 255, "{program}: {code}\n{stdout}");
        for words in
            ["no version information", "symbol lookup error", "undefined symbol", "error while loading"]
        {
            assert!(!stdout.contains(words), "{program}: {stdout}");
        }
    }
    // Check that programs really load our libraries.
    let mut maps = Command::new("/usr/bin/python3");
    maps.args(["-c", "import pyverbs.cmid; print(open('/proc/self/maps').read())"]);
    let stdout = stdout_of(maps.env("LD_LIBRARY_PATH", &*FOLDER));
    for (library, _) in LIBRARIES {
        let of_it: Vec<&str> = stdout.lines().filter(|line| line.contains(library)).collect();
        let ours = FOLDER.join(library);
        let ours = ours.to_str().expect("a plain path");
        assert!(!of_it.is_empty() && of_it.iter().all(|line| line.ends_with(ours)), "{of_it:?}");
    }
}

/// Runs `link`, which must fail; returns its message.
fn refused(archive: &Path) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing");
    let output = output(Command::new(home().join("link")).arg(archive).arg(&folder));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let left = std::fs::read_dir(&folder).expect("it was made").count();
    assert_eq!(left, 0, "no partial output is left");
    message
}

#[test]
fn link_names_undefined_symbols() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let empty = folder.join("empty.a");
    std::fs::write(&empty, "!<arch>\n").expect("the folder can be written");
    let message = refused(&empty);
    assert!(message.contains("has no machine code of this crate: build it with 'cargo rustc"), "{message}");

    let (source, object, one) = (folder.join("one.c"), folder.join("one.o"), folder.join("one.a"));
    std::fs::write(&source, "int ibv_alloc_pd(void) { return 0; }\n").expect("the folder can be written");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    stdout_of(Command::new(cc).arg("-c").arg(&source).arg("-o").arg(&object));
    stdout_of(Command::new("ar").arg("rcs").arg(&one).arg(&object));
    let message = refused(&one);
    for words in ["src/absent.rs", "    ibv_open_device\n", "    kiban_rdma_create_id\n"] {
        assert!(message.contains(words), "{message}");
    }
    assert!(!message.contains("ibv_alloc_pd\n"), "{message}");
}

#[test]
fn absent_functions_are_exported_once_with_a_reason() {
    let mut reasons = BTreeMap::new();
    let exported: BTreeSet<String> =
        LIBRARIES.iter().flat_map(|(_, list)| map(list)).map(|(name, _)| name).collect();
    for absent in ABSENT {
        assert!(exported.contains(absent.name), "{} is in no map", absent.name);
        assert!(reasons.insert(absent.name, absent.reason).is_none(), "{} is there twice", absent.name);
        assert!(absent.reason.len() > 10, "{}: {}", absent.name, absent.reason);
    }
}
