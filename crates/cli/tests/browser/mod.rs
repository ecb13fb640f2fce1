//! What a headless browser finds in a page that the program has written.
//!
//! Browser   Chromium, if it is installed (`make test` installs it), driven by `browse.mjs`.

#![allow(dead_code, reason = "not every test that uses this module has both pages and pictures")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
pub(crate) fn browsed(page: &Path, name: &str) -> Option<Value> {
    browse(&[page.to_owned()], name)
}

/// Checks that a headless browser, if there is one, shows every text of the pictures in a folder.
pub(crate) fn are_sound(pictures: &Path, name: &str) {
    let files = std::fs::read_dir(pictures).expect("a folder with pictures");
    let files = files.map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "svg")).collect();
    assert!(!files.is_empty(), "{} has no pictures", pictures.display());
    let Some(found) = browse(&files, name) else { return };
    for picture in found.as_array().expect("a list") {
        let none = serde_json::json!([]);
        assert_eq!((&picture["clipped"], &picture["overlapping"]), (&none, &none), "{picture}");
        assert!(picture["texts"].as_u64().is_some_and(|texts| texts > 3), "{picture}");
        for contrast in picture["ratios"].as_array().expect("light and dark") {
            assert!(contrast["ratio"].as_f64().is_some_and(|ratio| ratio >= 4.5), "{picture}");
        }
    }
}

/// Opens files in a headless browser: one page, or pictures.
fn browse(files: &[PathBuf], name: &str) -> Option<Value> {
    let (Some(node), Some(chromium)) =
        (there(&["node"]), there(&["chromium", "chromium-browser", "google-chrome"]))
    else {
        println!("skipped: no node or no chromium to open the files with");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/browse.mjs");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let mut command = Command::new(node);
    let output = command.arg(script).arg(chromium).arg(&folder).args(files).output().expect("node starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Checks the properties that every page must have.
pub(crate) fn is_sound(found: &Value) {
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
    let printed = found["print"]["layouts"].as_array().expect("folded and open");
    for layout in layouts.iter().chain(printed) {
        assert_eq!(layout["overflow"], 0, "the page scrolls sideways: {layout}");
        assert_eq!((&layout["clipped"], &layout["overlapping"]), (&none, &none), "{layout}");
        assert_eq!(layout["silent"], none, "it scrolls sideways, without a hint or the keyboard");
        assert_eq!(layout["broken"], none, "a table breaks words: {layout}");
    }
    assert!(layouts.iter().all(|layout| layout["cut"] == none), "tables are cut off: {layouts:?}");
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
