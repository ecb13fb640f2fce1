//! `kiban reproduce all` as a user sees it: tables in the terminal, and a page in the browser.
//!
//! Operation the papers are reproduced once, with short runs that give exact results; several tests check the
//!           tables and the page.
//! Browser   headless Chromium, if it is installed (`make test` installs it), driven by `browser/browse.mjs`.

mod browser;

use browser::{are_sound, browsed, is_sound};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

struct Made {
    output: Output,
    page: PathBuf,
    folder: PathBuf,
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let page = folder.join("report.html");
        let output = Command::new(env!("CARGO_BIN_EXE_kiban"))
            .args(["reproduce", "all", "--quick", "--exact"])
            .args([Path::new("--html"), &page, Path::new("--svg"), &folder.join("figures")])
            .output()
            .expect("the program starts");
        Made { output, page, folder }
    })
}

fn page() -> String {
    std::fs::read_to_string(&made().page).expect("the page was written")
}

/// Results in virtual time are exact, so the whole text is compared with a recorded copy.
/// `KIBAN_KEEP_SNAPSHOTS=1` records a new copy.
#[test]
fn the_tables_equal_the_snapshot() {
    let text = String::from_utf8_lossy(&made().output.stdout).into_owned();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/all.txt");
    if std::env::var_os("KIBAN_KEEP_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(kept.parent().expect("it has a folder")).expect("the folder can be made");
        std::fs::write(&kept, &text).expect("the snapshot can be written");
    }
    let before = std::fs::read_to_string(&kept).unwrap_or_default();
    let differs = before.lines().zip(text.lines()).find(|(before, now)| before != now);
    assert!(
        before == text,
        "all.txt has changed, first at {differs:?}; if that is meant, run with KIBAN_KEEP_SNAPSHOTS=1 and look at the difference"
    );
    assert!(made().output.status.success(), "a value is missed");
}

#[test]
fn every_weakness_is_gone() {
    let text = String::from_utf8_lossy(&made().output.stdout).into_owned();
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("weaknesses:")).collect();
    let gone = table.iter().filter(|line| line.contains(" yes [")).count();
    assert_eq!((gone, table.iter().any(|line| line.contains(" NO ["))), (5, false), "{text}");
}

#[test]
fn the_page_is_complete_and_contains_no_measurements() {
    let page = page();
    for (what, count) in [("<!DOCTYPE html>", 1), ("</html>", 1), ("<script>", 1), ("<style>", 1)] {
        assert_eq!(page.matches(what).count(), count, "{what}");
    }
    assert!(!page.contains("Measured on this machine"));
    assert!(page.matches("<svg ").count() >= 12, "{}", page.matches("<svg ").count());
    let figures = std::fs::read_dir(made().folder.join("figures")).expect("figures were written").count();
    assert_eq!(figures, page.matches("<svg ").count());
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
}

/// The two pictures in the README must equal the program's output. `KIBAN_KEEP_SNAPSHOTS=1` (`make pictures`)
/// replaces them.
#[test]
fn the_pictures_of_the_readme_are_up_to_date() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let readme = std::fs::read_to_string(images.join("../../README.md")).expect("there is a README");
    for name in ["wide-area-atm-map.svg", "rdma-nic-figure-10-receive.svg"] {
        let now = std::fs::read(made().folder.join("figures").join(name)).expect("the figure was written");
        if std::env::var_os("KIBAN_KEEP_SNAPSHOTS").is_some() {
            std::fs::write(images.join(name), &now).expect("the picture can be written");
        }
        let kept = std::fs::read(images.join(name)).unwrap_or_default();
        assert!(kept == now, "docs/images/{name} is not what the program makes: run make pictures");
        assert!(readme.contains(&format!("docs/images/{name}")), "{name}");
    }
}

#[test]
fn a_browser_shows_every_text_of_the_pictures() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    are_sound(&images, "images-browser");
    are_sound(&made().folder.join("figures"), "figures-browser");
}

/// Returns whether one of the stops of the tab key is a chart.
fn reaches_a_chart(found: &Value) -> bool {
    found["tabs"].as_array().is_some_and(|tabs| tabs.iter().any(|stop| stop["isChart"] == true))
}

#[test]
fn a_browser_shows_the_page_without_network_requests() {
    let Some(found) = browsed(&made().page, "report-browser") else { return };
    is_sound(&found);
    // The kinds of charts: curves, maps and bars.
    assert_eq!(found["hover"].as_array().map(Vec::len), Some(3), "{}", found["hover"]);
    assert!(found["plain"].as_u64().is_some_and(|places| places > 100), "{}", found["plain"]);
    // The filter opens the sections with the chosen verdict, and hides the rows with others.
    let filter = &found["filter"];
    let shown = |when: &str, verdict: &str| filter[when][verdict].as_u64().unwrap_or(0);
    let chosen = filter["badge"].as_str().expect("the page has a filter");
    assert!(shown("pressed", chosen) > 5 && shown("released", "met") > 5, "{filter}");
    assert_eq!((shown("pressed", "met"), shown("released", chosen)), (0, shown("pressed", chosen)));
    assert_eq!(found["contents"], serde_json::json!({ "opened": true, "isVisible": true }));
    // Folded, the page has a tenth of the height that it has open.
    let height = |place: usize| found["layouts"][place]["height"].as_u64().expect("a height");
    assert!(height(4) < 2000 && height(5) > 10 * height(4), "{}", found["layouts"]);
}

/// `kiban lab report` writes the same kind of page for a run.
#[test]
fn a_browser_opens_the_page_of_a_run() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("run-page");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let plan = "question = \"wide-area-atm\"\n[parameters]\nmilliseconds = 100\nmessage_bytes = [500, 3000, 6000]\n\
                buffer_bytes = [2000, 8000, 16000]\nprofile = [\"solaris23\", \"modern\"]\n";
    std::fs::write(folder.join("plan.toml"), plan).expect("it can be written");
    for arguments in [["lab", "run", "plan.toml"], ["lab", "report", "plan.lab"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
        let output = command.args(arguments).current_dir(&folder).output().expect("the program starts");
        assert!(output.status.success(), "{output:?}");
    }
    let Some(found) = browsed(&folder.join("plan.lab/report.html"), "run-page-browser") else { return };
    is_sound(&found);
    are_sound(&folder.join("plan.lab/report"), "run-pictures-browser");
    // Two metrics for each of two profiles, with nine cells each. One of the maps has only zeros.
    assert_eq!((&found["svgs"], &found["plain"]), (&3.into(), &27.into()));
    assert!(reaches_a_chart(&found), "{}", found["tabs"]);
    // The first screen has the verdict and one map; the rest is folded, on paper as well.
    let height = |place: usize| found["layouts"][place]["height"].as_u64().expect("a height");
    assert!(height(4) < 1200 && height(5) > 2 * height(4), "{}", found["layouts"]);
    assert!(found["print"]["pages"].as_u64().is_some_and(|pages| pages <= 2), "{}", found["print"]);
}

/// `kiban lab explain` writes the same kind of page for a capture.
#[test]
fn a_browser_opens_the_page_of_a_capture() {
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("explain-page.html");
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../explain/tests/data/nagle.pcapng");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiban"));
    command.args(["lab", "explain", capture, "--html"]).arg(&page);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let Some(found) = browsed(&page, "explain-page-browser") else { return };
    is_sound(&found);
    // The packets that prove the verdict, and the time-sequence graph.
    assert_eq!(found["svgs"], 2);
}
