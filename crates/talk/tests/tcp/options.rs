//! Timestamps (RFC 7323), and the SACK reports of the receiver (RFC 2018, RFC 2883).

use crate::check;

/// A session with SACK and timestamps, in which the peer's clock is at 101.
const MODERN: &str = "set tcp.tail_loss_probe off
    0ms listen 80; <- SYN seq 0 win 60000 mss 1000 sackok ts val 100 ecr 0
    -> SYN seq 0 ack 1 win 65535 mss 1460 sackok ts ecr 100
    <- ack 1 ts val 101; told accepted; info state ESTABLISHED;";

fn modern(script: &str) {
    check(&format!("{MODERN}{script}"));
}

#[test]
fn an_option_that_one_side_declines_is_not_used() {
    // RFC 6691: options take room from the MSS of 1000 bytes.
    for (timestamps, sack) in [("off", "off"), ("off", "on"), ("on", "off"), ("on", "on")] {
        let permitted = if sack == "on" { "sackok" } else { "" };
        let block = if sack == "on" { "sack 501:1001" } else { "" };
        let (stamp, stamps, clock, mss) = if timestamps == "on" {
            ("ts ecr 100", "ts", "ts val 101", 988)
        } else {
            ("", "no-ts", "", 1000)
        };
        check(&format!(
            "set tcp.timestamps {timestamps}; set tcp.sack {sack}
             0ms listen 80; <- SYN seq 0 win 60000 mss 1000 sackok ts val 100 ecr 0
             -> SYN seq 0 ack 1 mss 1460 {permitted} {stamp}
             <- ack 1 {clock}; told accepted; info mss {mss}
             <- seq 501:1001 ack 1 {clock}; -> ack 1 {stamps} {block}"
        ));
    }
    // We offer the option, but the peer's answer does not include it.
    check(
        "0ms open; -> SYN seq 0; <- SYN seq 0 ack 1 win 8000 mss 1000; told opened; -> ack 1 no-options
         info mss 1000; <- seq 501:1001 ack 1; -> ack 1 no-options",
    );
}

#[test]
fn every_segment_carries_our_timestamp_and_echoes_the_peers() {
    // First data is sent, then the data that Nagle had held back, the acknowledgement, FIN and RST. A tick is
    // one millisecond.
    modern(
        "write 1976; -> seq 1:989 ack 1 ts val 0 ecr 101; -> seq 989:1977 ack 1 ts val 0 ecr 101
         write 12; -> seq 1977:1989 ack 1 ts val 0 ecr 101; write 12
         +7ms <- seq 1:9 ack 1989 ts val 200; -> seq 1989:2001 ack 9 ts val 7 ecr 200
         +100ms finish; -> FIN seq 2001 ack 9 ts ecr 200; abort; -> RST seq 2002 ack 9 ts ecr 200",
    );
}

#[test]
fn a_segment_without_timestamps_is_dropped_unless_it_is_a_reset() {
    modern(
        "<- seq 1:5 ack 1 no-ts evil; silence; counter tcp.without_timestamps 1
         <- RST seq 1 no-ts; told ended reset",
    );
}

#[test]
fn segments_with_old_timestamps_are_answered_and_dropped() {
    // RFC 7323 §5.3: a value is old if it is less than the newest one; an equal value is not old. A pure ACK
    // that was overtaken by another one is not answered. §5.2: timestamps of resets are not checked.
    modern(
        "<- seq 1:4 ack 1 ts val 500; +40ms -> ack 4 ts ecr 500
         <- seq 4:7 ack 1 ts val 499 evil; -> ack 4 win 65532 ts ecr 500; got 3
         <- seq 4:8 ack 1 ts val 500; got 7; +40ms -> ack 8
         <- seq 8 ack 1 ts val 499; +50ms silence; counter tcp.paws_rejected 2
         <- RST seq 8 ack 1 ts val 1; told ended reset",
    );
}

#[test]
fn after_24_idle_days_any_timestamp_is_accepted() {
    modern(
        "+552h <- seq 1:2 ack 1 ts val 99 evil; got 0; -> ack 1
         +48h <- seq 1:2 ack 1 ts val 99; got 1; +40ms -> ack 2 ts ecr 99",
    );
}

#[test]
fn an_out_of_order_segment_does_not_move_the_echo_but_the_one_that_fills_the_hole_does() {
    // RFC 7323 §4.3, (B) and (C).
    modern(
        "<- seq 501:1001 ack 1 ts val 300; -> ack 1 win 65535 ts ecr 101 sack 501:1001
         <- seq 1:501 ack 1 ts val 301; -> ack 1001 win 65535 ts ecr 301",
    );
}

#[test]
fn an_echo_measures_where_our_own_timing_cannot() {
    // After a retransmission without timestamps, Karn's algorithm would take no sample. The handshake took no
    // time, so SRTT is an eighth of the new sample.
    modern(
        "write 900; -> seq 1:901 ack 1 ts val 0; +200ms -> seq 1:901 ack 1 ts val 200
         +400ms -> seq 1:901 ack 1 ts val 600; +500ms <- ack 901 ts val 110 ecr 0; info srtt 137.5ms",
    );
}

#[test]
fn sack_blocks_are_newest_first_and_three_fit_beside_timestamps() {
    // Columns: the blocks of a thousand bytes that arrive, and the SACK blocks in each answer.
    let rows: [&[(u32, &str)]; 3] = [
        &[(1, "1001:2001"), (3, "3001:4001 1001:2001"), (5, "5001:6001 3001:4001 1001:2001")],
        &[
            (1, "1001:2001"),
            (3, "3001:4001 1001:2001"),
            (5, "5001:6001 3001:4001 1001:2001"),
            (7, "7001:8001 5001:6001 3001:4001"),
        ],
        &[
            (1, "1001:2001"),
            (5, "5001:6001 1001:2001"),
            (3, "3001:4001 5001:6001 1001:2001"),
            (2, "1001:4001 5001:6001"),
        ],
    ];
    // When the hole is filled as far as the next one, delivered data is no longer reported.
    let left = ["ack 2001 sack 5001:6001 3001:4001", "ack 2001 sack 7001:8001 5001:6001 3001:4001", ""];
    for (row, left) in rows.into_iter().zip(left) {
        let early: String = row
            .iter()
            .map(|(n, blocks)| {
                let (begin, end) = (n * 1000 + 1, n * 1000 + 1001);
                format!("<- seq {begin}:{end} ack 1 ts val 110; -> ack 1 win 65535 ts ecr 101 sack {blocks};")
            })
            .collect();
        let left = if left.is_empty() { "ack 4001 sack 5001:6001" } else { left };
        modern(&format!("{early} <- seq 1:1001 ack 1 ts val 111; -> {left}"));
    }
    check(
        "established mss 1000 win 60000 sackok
         0ms <- seq 1001:2001 ack 1; -> ack 1 sack 1001:2001
         <- seq 3001:4001 ack 1; -> ack 1 sack 3001:4001 1001:2001
         <- seq 5001:6001 ack 1; -> ack 1 sack 5001:6001 3001:4001 1001:2001
         <- seq 7001:8001 ack 1; -> ack 1 sack 7001:8001 5001:6001 3001:4001 1001:2001
         <- seq 9001:10001 ack 1; -> ack 1 sack 9001:10001 7001:8001 5001:6001 3001:4001",
    );
}

#[test]
fn a_duplicate_is_reported_once_and_first() {
    // RFC 2883 §4: D-SACKs below the ACK and inside a block, each with the surrounding block. Finally, a
    // segment arrives that is partly new and in order.
    check(
        "established mss 1000 win 60000 sackok
         0ms <- seq 1:1001 ack 1; +40ms -> ack 1001
         <- seq 501:1001 ack 1; -> ack 1001 win 65535 sack 501:1001
         <- seq 2001:3001 ack 1; -> ack 1001 win 65535 sack 2001:3001
         <- seq 2001:2501 ack 1; -> ack 1001 win 65535 sack 2001:2501 2001:3001
         <- seq 4001:5001 ack 1; -> ack 1001 win 65535 sack 4001:5001 2001:3001
         <- seq 2501:3501 ack 1; -> ack 1001 win 65535 sack 2501:3001 2001:3501 4001:5001
         <- seq 901:1101 ack 1; -> ack 1101 win 65435 sack 901:1001 2001:3501 4001:5001",
    );
}

#[test]
fn without_sack_no_blocks_are_sent() {
    check("established mss 1000 win 60000; 0ms <- seq 1001:2001 ack 1; -> ack 1 win 65535 no-options");
}
