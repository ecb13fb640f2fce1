//! Runs rdma-core's own Python tests, which Debian ships as part of a package's documentation.
//!
//! Counts    counts the results that unittest prints for each test: ok, FAIL, ERROR, or skipped with a
//!           reason. Reasons are grouped into kinds, such as missing files in /sys, which a library without
//!           privileges cannot provide.

use crate::case::{Case, CaseOutput, How, Transport};
use crate::proof::Proof;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The heading on the page.
pub(crate) const GROUP: &str = "pyverbs";
/// The directory and the package in Debian.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// The minimum number of tests that pass: fewer on an iWARP device, because most tests connect out of band.
const ENOUGH: [(Transport, usize); 3] =
    [(Transport::Ib, 120), (Transport::Roce, 132), (Transport::Iwarp, 38)];
/// Tests that may fail on other devices than those of RoCE: one needs datagrams with `rdma_cm`, which pyverbs
/// does not skip. The others read what a peer's Write or Send has changed as soon as the peer has its
/// completion; with iWARP on the wire, a completion means that the data has been sent.
const ONLY_ROCE: [&str; 3] =
    ["test_rdmacm_async_udp_traffic", "test_rdmacm_async_write", "test_rdmacm_async_traffic_external_qp"];

/// Copies the tests to a folder where Python finds them.
pub(crate) fn unpack(folder: &Path) -> Result<(), String> {
    let output = Command::new("sh")
        .args(["-c", "mkdir -p \"$2\" && cp \"$1\"/*.py* \"$2\" && gzip -df \"$2\"/*.gz", "sh", TESTS])
        .arg(folder.join("pyverbs"))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Returns what is missing.
pub(crate) fn missing() -> Option<&'static str> {
    let is_there = |place: &str| Path::new(place).exists();
    if !is_there("/usr/lib/python3/dist-packages/pyverbs") {
        Some("python3-pyverbs")
    } else if !is_there(&format!("{TESTS}/run_tests.py")) {
        Some("--reinstall -o Dpkg::Options::=--path-include=/usr/share/doc/* rdma-core")
    } else {
        None
    }
}

pub(crate) fn cases() -> Vec<Case> {
    ENOUGH
        .map(|(transport, enough)| Case {
            group: GROUP,
            package: "python3-pyverbs",
            transport,
            // Use the system's own Python, because pyverbs is not available for other versions.
            how: How::Alone("/usr/bin/python3 {folder}/pyverbs/run_tests.py -v".into()),
            proof: Proof::Count(
                match transport {
                    Transport::Roce => counted,
                    Transport::Iwarp => counted_on_iwarp,
                    _ => counted_without_roce,
                },
                enough,
            ),
            seconds: 120,
            missing: None,
            shown: Some("run_tests.py -v (rdma-core's tests)"),
            codes: &[0, 1],
            port: None,
        })
        .into()
}

/// Words that occur in reasons, and the kind that each indicates; the tests word their reasons in many ways.
const KINDS: [(&[&str], &str); 12] = [
    (&["MLX5", "mlx5", "EFA", "PCI device"], "another vendor's device"),
    (&["dmabuf", "cuda", "CUDA"], "a graphics card"),
    (&["huge pages"], "huge pages"),
    (&["XRC"], "XRC"),
    (&["UC QP"], "UC"),
    (&["Raw Packet", "QP type 8"], "raw packets"),
    (&["timestamp"], "another vendor's clock"),
    (&["tag matching"], "tag matching"),
    (&["Multicast"], "multicast"),
    (&["atomic writes"], "atomic writes"),
    (&["gid indices"], "several GIDs"),
    (
        &["UD QP", "QP type 4", "AH ", "Extended QP", "Extended CQ", "Atomic"],
        "features that iWARP devices lack",
    ),
];

fn kind(reason: &str) -> &'static str {
    let found = KINDS.iter().find(|(words, _)| words.iter().any(|word| reason.contains(word)));
    found.map_or("other features", |(_, kind)| kind)
}

/// Counts the results. No test fails.
fn counted(output: &CaseOutput, enough: usize) -> Result<String, String> {
    counted_with(output, enough, |_, _| true)
}

/// Counts the results. No other tests than [`ONLY_ROCE`] fail.
fn counted_without_roce(output: &CaseOutput, enough: usize) -> Result<String, String> {
    let page = counted_with(output, enough, |name, _| !ONLY_ROCE.contains(&name))?;
    Ok(format!("{page}; only RoCE devices always pass {}", ONLY_ROCE.join(", ")))
}

/// Counts the results. Tests that connect out of band, which iWARP devices do not support, end with an error.
fn counted_on_iwarp(output: &CaseOutput, enough: usize) -> Result<String, String> {
    counted_with(output, enough, |_, word| word == "FAIL")
}

/// Counts the results. `is_fault` says whether a test's FAIL or ERROR is a fault.
fn counted_with(
    output: &CaseOutput,
    enough: usize,
    is_fault: impl Fn(&str, &str) -> bool,
) -> Result<String, String> {
    let output = &output.client;
    let mut results: BTreeMap<&str, usize> = BTreeMap::new();
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut wrong, mut faults) = (Vec::new(), 0);
    // A result is `name (tests.file.Class)`, then possibly a line of documentation, then ` ... ok`. The
    // test's own output may come in between.
    let mut name = "";
    for line in output.lines() {
        if line.contains(" (tests.") || line.contains(" (test_") {
            name = line.split_whitespace().next().unwrap_or("");
        }
        let Some((_, result)) = line.rsplit_once("... ") else { continue };
        let word = result.split_whitespace().next().unwrap_or("");
        *results.entry(word).or_default() += 1;
        match word {
            "skipped" => {
                let reason = result.trim_start_matches("skipped").trim().trim_matches(['\'', '"']);
                // These tests give reasons that others also give.
                let reason = match name {
                    _ if name.starts_with("test_tm_") => "tag matching",
                    "test_qp_ex_rc_atomic_write" => "atomic writes",
                    _ => reason,
                };
                if std::env::var_os("KIBAN_VERBOSE").is_some() {
                    eprintln!("    {name}: {reason}");
                }
                *skipped.entry(kind(reason)).or_default() += 1;
            }
            "FAIL" | "ERROR" => {
                faults += usize::from(is_fault(name, word));
                wrong.push(format!("{name} {word}"));
            }
            _ => {}
        }
    }
    let count = |word| results.get(word).copied().unwrap_or(0);
    let (passed, failed, errors, skips) = (count("ok"), count("FAIL"), count("ERROR"), count("skipped"));
    if !output.contains("\nRan ") {
        return Err("it did not come to its end".into());
    }
    eprintln!(
        "pyverbs: {passed} passed, {failed} failed, {errors} errors {wrong:?}, {skips} skipped: {skipped:?}"
    );
    if passed < enough || faults > 0 {
        return Err(format!("{passed} tests passed, not {enough}; {wrong:?}"));
    }
    // Omit the numbers, so that the page changes only when a kind appears or disappears.
    let kinds: Vec<&str> = skipped.into_keys().collect();
    Ok(format!(
        "at least {enough} tests pass; tests that need these features are skipped: {}",
        kinds.join(", ")
    ))
}
