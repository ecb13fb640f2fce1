//! `kiban reproduce all` as a user sees it: tables in the terminal, and a page in the browser.
//!
//! Operation the papers are reproduced once, with short runs that give exact results; several tests check the
//!           tables and the page.
//! Browser   headless Chromium, if it is installed (`make test` installs it), driven by `report/browse.mjs`.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
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

/// Returns the first of these commands that is installed; `None` if none is.
fn there(names: &[&str]) -> Option<String> {
    let works = |name: &&&str| {
        let version =
            Command::new(**name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    names.iter().find(works).map(|name| (*name).to_owned())
}

/// Returns what a headless browser finds in a page; `None` if there is no browser. `name` is the directory
/// for its screenshots.
fn browsed(page: &Path, name: &str) -> Option<Value> {
    let (Some(node), Some(chromium)) =
        (there(&["node"]), there(&["chromium", "chromium-browser", "google-chrome"]))
    else {
        println!("skipped: no node or no chromium to open the page with");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/browse.mjs");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let output =
        Command::new(node).arg(script).arg(chromium).args([page, &folder]).output().expect("node starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("one JSON object"))
}

/// Checks the properties that every page must have.
fn is_sound(found: &Value) {
    let requests = found["requests"].as_array().expect("requests");
    let outside =
        |url: &&Value| !url.as_str().is_some_and(|url| url.starts_with("file:") || url.starts_with("data:"));
    assert!(!requests.is_empty() && requests.iter().filter(outside).count() == 0, "{requests:?}");
    assert_eq!(found["complaints"], serde_json::json!([]));

    let hovers = found["hover"].as_array().expect("hovers");
    for hover in hovers {
        let says = hover["says"].as_str().unwrap_or_default();
        assert!(says.contains('\n') && says.chars().any(|one| one.is_ascii_digit()), "{hover}");
    }
    assert_eq!(found["hoverEnds"], true);

    let download = &found["download"];
    assert_eq!(download["state"], "completed", "{download}");
    assert!(download["files"][0].as_str().is_some_and(|name| name.ends_with(".csv")), "{download}");
    assert_eq!(download["text"], download["expected"]);
    assert!(download["text"].as_str().is_some_and(|text| text.lines().count() > 3), "{download}");

    let images = found["images"].as_array().expect("images");
    assert_eq!(Some(images.len() as u64), found["svgs"].as_u64());
    for image in images {
        for what in ["name", "description"] {
            assert!(image[what].as_str().is_some_and(|text| text.len() > 3), "{what}: {image}");
        }
    }
    let headings: Vec<u64> =
        found["headings"].as_array().expect("headings").iter().filter_map(Value::as_u64).collect();
    assert_eq!(headings.iter().filter(|level| **level == 1).count(), 1);
    assert!(headings.windows(2).all(|two| two[1] <= two[0] + 1), "{headings:?}");
    assert_eq!(found["tables"], 0, "tables without caption or heads");
    assert_eq!(found["dead"], serde_json::json!([]), "links that lead nowhere");

    assert_ne!(found["light"], found["dark"]);
    for contrast in ["contrastLight", "contrastDark"] {
        assert!(found[contrast]["ratio"].as_f64().is_some_and(|ratio| ratio >= 4.5), "{}", found[contrast]);
    }
    let none = serde_json::json!([]);
    let layouts = found["layouts"].as_array().expect("layouts");
    assert_eq!(layouts.len(), 6, "three widths, folded and open");
    for layout in layouts.iter().chain([&found["print"]]) {
        assert_eq!(layout["overflow"], 0, "the page scrolls sideways: {layout}");
        assert_eq!((&layout["clipped"], &layout["overlapping"]), (&none, &none), "{layout}");
    }
    assert_eq!(found["canary"], serde_json::json!([1, 1]));
    let print = &found["print"];
    assert!(print["pages"].as_u64().is_some_and(|pages| pages > 0), "{print}");
    assert_eq!((&print["divided"], &print["orphans"]), (&0.into(), &0.into()), "{print}");

    let tabs = found["tabs"].as_array().expect("stops of the tab key");
    let says = |place: usize| tabs.get(place).and_then(|stop| stop["says"].as_str());
    assert_eq!(says(0), Some("Skip to the content"));
    assert!(tabs.len() > 3 && tabs.iter().all(|stop| stop["isOutlined"] == true), "{tabs:?}");
    assert_eq!(found["unreachable"], 0, "charts that the tab key does not reach");
    assert!(found["arrow"].as_str().is_some_and(|says| says.contains('\n')), "{}", found["arrow"]);
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
