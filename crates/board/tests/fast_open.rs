//! TCP Fast Open between two boards: requests leave in the SYN, answers before the handshake is complete.

mod common;

use common::{Pair, config, socket};
use kiban_board::{Completion, Owner, StreamId};
use std::time::Duration;

const ANSWER: usize = 5000;

fn pair() -> Pair {
    Pair::of([0, 1].map(|side| {
        let mut config = config(side);
        config.tcp.fast_open_pending_max = 5;
        config
    }))
}

/// Returns the request of an exchange.
fn request(number: usize) -> Vec<u8> {
    (0..200 + number % 100).map(|at| (at * 7 + number) as u8).collect()
}

/// Opens a stream with a request, answers it, and closes both ends.
fn exchange(pair: &mut Pair, number: usize) {
    let (sent, began) = (request(number), pair.now);
    let (near, taken) = pair.boards[0].host().open_with_data(None, socket(1, 80), &sent).unwrap();
    assert_eq!(taken, sent.len());
    let (mut far, mut heard, mut answer): (Option<StreamId>, Vec<u8>, usize) = (None, Vec::new(), 0);
    let mut buffer = vec![0; 10_000];
    while answer < ANSWER {
        pair.run();
        for completion in pair.completions(1) {
            if let Completion::Accepted { stream, .. } = completion {
                far = Some(stream);
            }
        }
        if let Some(far) = far
            && heard.len() < sent.len()
        {
            let count = pair.boards[1].host().read(far, &mut buffer).unwrap();
            heard.extend_from_slice(&buffer[..count]);
            if heard.len() == sent.len() {
                assert_eq!(heard, sent);
                assert_eq!(pair.boards[1].host().write(far, &[number as u8; ANSWER]).unwrap(), ANSWER);
                pair.run();
            }
        }
        let count = pair.boards[0].host().read(near, &mut buffer).unwrap();
        assert!(buffer[..count].iter().all(|byte| *byte == number as u8));
        answer += count;
        if answer < ANSWER {
            let later = pair.now + Duration::from_millis(1);
            pair.run_until(later);
        }
        assert!(pair.now < began + Duration::from_secs(300), "exchange {number}");
    }
    pair.boards[0].host().close(near).unwrap();
    pair.boards[1].host().close(far.unwrap()).unwrap();
    pair.run();
}

#[test]
fn requests_and_answers_survive_losses() {
    for lose_every in [None, Some(5), Some(7), Some(11)] {
        let mut pair = pair();
        pair.boards[1].host().listen(socket(1, 80)).unwrap();
        pair.lose_every = lose_every;
        for number in 0..60 {
            exchange(&mut pair, number);
            // Fast Open is suspended for an hour after a SYN with data was lost.
            pair.lose_every = None;
            let later = pair.now + Duration::from_secs(3700);
            pair.run_until(later);
            pair.completions(0);
            pair.completions(1);
            pair.lose_every = lose_every;
        }
        let [near, far] = [0, 1].map(|side| &pair.boards[side]);
        let (out, came) = (near.counter("tcp", "fast_opens_out"), far.counter("tcp", "fast_opens_in"));
        assert!(
            out > 10 && out <= came,
            "{lose_every:?}: {out} accepted by the client's count, {came} in all"
        );
        // The first has no cookie, and about every seventh shows one that has expired.
        assert!(lose_every.is_some() || came > 50, "{came}");
        for board in &mut pair.boards {
            assert!(board.memory_mut().is_all_free());
        }
    }
}

#[test]
fn a_syn_waits_for_data_if_the_server_has_granted_a_cookie() {
    let mut pair = pair();
    pair.boards[1].host().listen(socket(1, 80)).unwrap();
    let open = |pair: &mut Pair| pair.boards[0].host().open_fast(Owner::BOARD, None, socket(1, 80)).unwrap();
    let packets = |pair: &mut Pair| {
        let before = pair.packets[0];
        pair.run();
        pair.packets[0] - before
    };
    // The first SYN requests a cookie, so it does not wait.
    let (first, waits) = open(&mut pair);
    assert!(!waits && packets(&mut pair) == 2);
    assert_eq!(pair.boards[0].host().write(first, b"request").unwrap(), 7);
    // The others wait: for data, for the end of the data, or until the stream is closed.
    for (number, write) in [&b"request"[..], b"", b"request"].into_iter().enumerate() {
        let (stream, waits) = open(&mut pair);
        assert!(waits && packets(&mut pair) <= 1, "{number}");
        let later = pair.now + Duration::from_secs(600);
        pair.run_until(later);
        assert_eq!(packets(&mut pair), 0, "{number}");
        assert_eq!(pair.boards[0].host().write(stream, write).unwrap(), write.len());
        assert!(packets(&mut pair) > 0, "{number}");
        assert!(pair.completions(0).contains(&Completion::Opened { stream }), "{number}");
    }
    let (finished, _) = open(&mut pair);
    pair.boards[0].host().finish(finished).unwrap();
    assert!(packets(&mut pair) > 0);
    let (closed, _) = open(&mut pair);
    packets(&mut pair);
    pair.boards[0].host().close(closed).unwrap();
    assert_eq!(packets(&mut pair), 0);
    assert_eq!(pair.boards[0].counter("tcp", "fast_opens_out"), 2);
}
