//! As systemd runs it: the unit of docs/operations.md, and the watchdog.

use crate::place::{ECHO, PORT, Place, enter, run, spawn, text};
use std::path::Path;
use std::time::Duration;

#[test]
fn the_unit_of_the_documentation_is_one_that_systemd_takes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(path).expect("it is in the repository");
    let unit = page.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a unit");
    // The program stands where it was built; kill where this host has it.
    let unit = unit.replace("/usr/local/bin/kiban", crate::place::KIBAN);
    let place = Place::new("unit");
    let file = place.write("kiban@.service", &unit);
    let Ok(output) =
        std::process::Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output()
    else {
        println!("skipped: systemd-analyze is not there (Debian: systemd)");
        return;
    };
    let told = text(&output);
    let about = |line: &&str| line.contains("kiban");
    assert_eq!(told.lines().find(about), None, "{told}");
    assert!(output.status.success(), "{told}");
    // A key that systemd does not know is told: the judge judges.
    let wrong = place.write("kiban-wrong@.service", &unit.replace("WatchdogSec", "WatchdagSec"));
    let output = run("systemd-analyze", &["verify", "--man=no", &wrong.display().to_string()]);
    assert!(text(&output).contains("WatchdagSec"), "{}", text(&output));
}

#[test]
fn the_watchdog_hears_of_a_board_that_works_and_not_of_one_that_stands_still() {
    if !enter() {
        return;
    }
    let place = Place::new("watchdog");
    let board = place.up_by(&format!("{PORT}{ECHO}"), |mut command| {
        command.env("WATCHDOG_USEC", "200000");
        spawn(command)
    });
    for _ in 0..3 {
        board.expect("WATCHDOG=1");
    }
    board.signal("-STOP");
    // What was said before it stood still is heard, and then nothing for five times its interval.
    let silence = Duration::from_millis(500);
    board.notify.set_read_timeout(Some(silence)).expect("a socket");
    let mut heard = 0;
    while board.notify.recv(&mut [0; 64]).is_ok() {
        heard += 1;
        assert!(heard < 5, "it is said that it works while it stands still");
    }
    board.signal("-CONT");
    board.notify.set_read_timeout(Some(crate::place::LONG)).expect("a socket");
    board.expect("WATCHDOG=1");
}
