//! Options and addresses of sockets on a board, as unmodified programs see them (`kiban run`).
//!
//! Requires  a C compiler for the preloaded library, python3.

use super::run::{SOCKETS, TOOLS, on_board, told};
use crate::common::{PORT, TestDir, enter, run, text};

/// Runs a Python program on the board, with the kernel as its peer.
#[track_caller]
fn succeeds(name: &str, program: &str) {
    let dir = TestDir::new(name);
    run("ip", &["link", "set", "lo", "up"]);
    let board = dir.up(&format!("{PORT}{SOCKETS}"));
    let output = told(on_board(&dir, &["python3", "-c", &format!("{TOOLS}{program}")]));
    assert_eq!(text(&output), "all is well\n", "{}", dir.log());
    board.until("all streams have gone", |status| status["services"][0]["sessions"] == 0);
}

#[test]
fn socket_options_act_on_the_boards_connection_are_stored_or_are_refused() {
    if enter() {
        succeeds("run-options", include_str!("python/options.py"));
    }
}

#[test]
fn inherited_and_passed_sockets_have_the_addresses_of_the_connection() {
    if enter() {
        succeeds("run-inherited", include_str!("python/inherited.py"));
    }
}
