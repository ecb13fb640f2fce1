//! A host that closes its streams leaves no session and no memory in use, whatever the peer does.

mod common;

use common::{Pair, config, socket};
use kiban_board::{Completion, Reason, StreamId};
use std::time::Duration;

/// Returns two boards, and the stream between them as each board numbers it.
fn opened() -> (Pair, StreamId, StreamId) {
    let mut pair = Pair::of([config(0), config(1)]);
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let near = pair.boards[0].host().open(socket(1, 80)).unwrap();
    pair.run();
    let [.., Completion::Accepted { stream: far, .. }] = pair.completions(1)[..] else { panic!("accepted") };
    (pair, near, far)
}

fn pass(pair: &mut Pair, length: Duration) {
    let until = pair.now + length;
    pair.run_until(until);
}

#[test]
fn an_abort_after_an_unsent_finish_resets_the_peer() {
    let (mut pair, near, far) = opened();
    pair.boards[1].host().finish(far).unwrap();
    pair.run();
    let mut host = pair.boards[0].host();
    host.finish(near).unwrap();
    host.abort(near).unwrap();
    pass(&mut pair, Duration::from_secs(10));
    assert_eq!(pair.boards[1].sessions(), 0);
}

#[test]
fn a_closed_stream_is_released_even_if_the_peer_is_silent() {
    let (mut pair, near, _far) = opened();
    pair.boards[0].host().close(near).unwrap();
    pass(&mut pair, Duration::from_secs(100));
    assert_eq!(pair.boards[0].sessions(), 0);
}

#[test]
fn data_for_a_closed_stream_is_answered_with_a_reset() {
    let (mut pair, near, far) = opened();
    pair.boards[0].host().close(near).unwrap();
    pair.run();
    pair.completions(1);
    pair.boards[1].host().write(far, &[1; 10_000]).unwrap();
    pass(&mut pair, Duration::from_secs(1));
    assert_eq!(pair.completions(1), [Completion::Ended { stream: far, reason: Reason::Reset }]);
    assert_eq!(pair.boards[0].sessions() + pair.boards[1].sessions(), 0);
}
