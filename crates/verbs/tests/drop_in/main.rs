//! Runs unmodified programs on kiban's libraries (docs/programs.md).
//!
//! Purpose   every program in the list must work, or must fail if it is listed as not working with a reason.
//! How       one test runs the whole list and produces one page. `KIBAN_PROGRAMS=WORDS` runs only the cases
//!           whose command, followed by the transport as in `(efe)`, contains the words, and does not check
//!           the page; `KIBAN_WRITE=1` writes the page.
//! Needs     the packages listed in the cases; the test fails if one is missing.

mod case;
#[path = "../common/libraries.rs"]
mod libraries;
mod list;
mod page;
mod proof;
mod pyverbs;
mod run;

use case::{Case, Place};
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of cases that run at the same time.
const WORKERS: usize = 1;

/// Runs a case. Returns a remark for the page, or the error.
fn verdict(case: &Case, place: &Place) -> Result<String, String> {
    match (case.run(place), case.missing) {
        (Err(_), Some(_)) => Ok(String::new()),
        (Ok(_), Some(reason)) => Err(format!(
            "{} ({}) works, and is listed as missing: {reason}",
            case.title(),
            case.transport.name()
        )),
        (result, None) => result,
    }
}

#[test]
fn unmodified_programs_run() {
    let wanted = std::env::var("KIBAN_PROGRAMS").unwrap_or_default();
    let is_wanted = |case: &Case| format!("{} ({})", case.title(), case.transport.name()).contains(&wanted);
    let cases: Vec<Case> = list::cases().into_iter().filter(is_wanted).collect();
    let mut packages: Vec<&str> = cases.iter().flat_map(Case::lacks).collect();
    packages.extend(pyverbs::missing());
    packages.sort_unstable();
    packages.dedup();
    assert!(packages.is_empty(), "run: apt-get install {}", packages.join(" "));

    let libraries = libraries::linked("programs");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs-run");
    let here = libraries::home().join("tests/drop_in");
    let host = first_address(&libraries);
    let next = AtomicUsize::new(0);
    let found: Vec<Mutex<Option<Result<String, String>>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let folder = folder.join(worker.to_string());
            let (cases, found, next, libraries, here, host) =
                (&cases, &found, &next, &libraries, &here, &host);
            scope.spawn(move || {
                prepare(&folder);
                let place = Place { libraries, folder: &folder, here, host };
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    let begun = run::after(std::time::Duration::ZERO);
                    let verdict = verdict(case, &place);
                    let seconds = run::after(std::time::Duration::ZERO).since(begun).as_secs_f32();
                    match &verdict {
                        Ok(_) => eprintln!("{seconds:5.1} s  {} ({})", case.title(), case.transport.name()),
                        Err(error) => eprintln!("{seconds:5.1} s  FAILED: {error}"),
                    }
                    *found[at].lock().expect("no panic while locked") = Some(verdict);
                }
            });
        }
    });
    let mut results = Vec::new();
    let mut wrong = Vec::new();
    for (case, found) in cases.into_iter().zip(found) {
        match found.into_inner().expect("no panic while locked").expect("every case was run") {
            Ok(detail) => results.push((case, detail)),
            Err(error) => wrong.push(error),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        wrong.len() + results.len(),
        wrong.join("\n")
    );
    if !wanted.is_empty() {
        return;
    }
    let page = page::page(&results);
    if std::env::var_os("KIBAN_WRITE").is_some() {
        std::fs::write(page::place(), page).expect("the page can be written");
        return;
    }
    let written = std::fs::read_to_string(page::place()).unwrap_or_default();
    assert!(
        written == page,
        "docs/programs.md is out of date: run this test with KIBAN_WRITE=1 and review the change"
    );
}

#[test]
fn the_log_names_unsupported_calls() {
    let libraries = libraries::linked("programs-log");
    for (command, named) in [
        ("rdma_xclient -c x", "ibv_create_qp: this type of queue pair with this transport"),
        ("mckey -m 239.77.6.1 -b 127.0.0.1", "rdma_join_multicast: groups with this transport"),
        ("udaddy -s 127.0.0.1", "rdma_cm: datagrams (RDMA_PS_UDP) with this transport"),
    ] {
        for (level, is_named) in [("info", true), ("warn", false)] {
            let mut program = Command::new("timeout");
            program.arg("30").args(command.split(' ')).env("LD_LIBRARY_PATH", &libraries);
            program.env_remove("KIBAN_TRANSPORT").env("KIBAN_LOG", level);
            let output = libraries::output(&mut program);
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = format!("kiban: not supported: {named}");
            assert_eq!(errors.lines().any(|found| found == line), is_named, "{command}: {errors}");
        }
    }
}

/// Creates a directory with the files that cases need.
fn prepare(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).expect("the target folder can be written");
    let source: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("source"), source).expect("the target folder can be written");
    if let Err(error) = pyverbs::unpack(folder) {
        panic!("the tests of pyverbs cannot be unpacked: {error}");
    }
}

/// Returns the IP address of the first device, from its GID.
fn first_address(libraries: &Path) -> String {
    let mut command = Command::new("ibv_devinfo");
    let output = libraries::stdout_of(command.args(["-v", "-d", "kiban0"]).env("LD_LIBRARY_PATH", libraries));
    let gid = output.lines().find_map(|line| line.trim().strip_prefix("GID[  0]:"));
    let gid = gid.and_then(|line| line.split([',', '\t', ' ']).find(|word| word.contains(':')));
    let gid = gid.unwrap_or_else(|| panic!("no GID in what ibv_devinfo says:\n{output}"));
    let address: Ipv6Addr = gid.parse().unwrap_or_else(|error| panic!("the GID {gid}: {error}"));
    address.to_canonical().to_string()
}
