//! Which segments are accepted and how the others are answered (RFC 9293 §3.10.7.4, RFC 5961), and how
//! sessions end.

use crate::{begin, check, run};
use kiban_tcpip::wire::ipv4;

/// A session whose next byte is 1001, so that older sequence numbers exist. The window ends at 1001 + 10,000.
const BEGIN: &str = "set tcp.receive_buffer_bytes 10000
    established mss 1000 win 60000
    0ms <- seq 1:1001 ack 1; +40ms -> ack 1001 win 10000;";

fn from_1001(script: &str) {
    check(&format!("{BEGIN}{script}"));
}

#[test]
fn the_table_of_acceptable_segments() {
    // RFC 9293 §3.4, table 6. Columns: the segment's start, its length, the bytes accepted now, and whether
    // it is answered.
    let rows: [(i64, i64, i64, bool); 16] = [
        (1001, 0, 0, false),
        (1001, 100, 100, false),
        (1002, 0, 0, false),
        (1002, 100, 0, true),
        (1000, 0, 0, true),
        (1, 1000, 0, true),
        (900, 101, 0, true),
        (900, 102, 1, true),
        (900, 300, 199, true),
        (10_999, 1, 0, true),
        (11_000, 1, 0, true),
        (11_001, 1, 0, true),
        (11_001, 0, 0, false),
        (11_002, 0, 0, true),
        (0x7000_0000, 10, 0, true),
        (-0x7000_0000, 10, 0, true),
    ];
    for (begin, length, taken, is_answered) in rows {
        let end = begin + length;
        let (acknowledgment, got) = (1001 + taken, 1000 + taken);
        let answer = if is_answered { format!("-> ack {acknowledgment}") } else { String::new() };
        from_1001(&format!("<- seq {begin}:{end} ack 1; {answer}; silence; got {got}"));
    }
}

#[test]
fn a_segment_that_fills_the_window_and_more_is_trimmed_at_both_ends() {
    // The FIN is beyond the window and is ignored.
    check(
        "set tcp.receive_buffer_bytes 500; set tcp.mss 400
         established mss 1000 win 60000
         host waits
         0ms <- seq 1:301 ack 1; told readable
         <- FIN seq 101:901 ack 1; -> ack 501 win 0; info state ESTABLISHED
         counter tcp.beyond_window_bytes 401; counter tcp.duplicate_bytes 200
         read 500; -> ack 501 win 500",
    );
}

#[test]
fn resets_end_a_session_only_at_the_exact_byte() {
    // RFC 5961 §3.2: a RST with the exact sequence number resets the connection. One within the window gets a
    // challenge ACK, and one outside is dropped silently.
    for (sequence, outcome) in [
        (1001, "told ended reset; sessions 0"),
        (1002, "-> ack 1001"),
        (11_000, "-> ack 1001"),
        (1000, ""),
        (11_002, ""),
        (-0x7000_0000, ""),
    ] {
        for acknowledgment in ["", "ack 1"] {
            from_1001(&format!("<- RST seq {sequence} {acknowledgment} win 0; {outcome}; silence"));
        }
    }
}

#[test]
fn a_syn_on_an_established_session_is_challenged_whatever_its_sequence_number() {
    // RFC 5961 §4.2.
    for (begin, bytes) in
        [(1001, 0), (1002, 0), (1000, 0), (0, 0), (-0x7000_0000, 0), (900, 500), (1001, 100)]
    {
        for acknowledgment in ["", "ack 1"] {
            let end = begin + bytes;
            from_1001(&format!(
                "<- SYN seq {begin}:{end} {acknowledgment} evil; -> ack 1001; info state ESTABLISHED
                 got 1000"
            ));
        }
    }
}

#[test]
fn a_restarted_peer_resets_the_old_session() {
    // RFC 9293 §3.5.1, figure 9: after SYN, challenge ACK and RST, the 4-tuple is free.
    from_1001("<- SYN seq 1342177280; -> ack 1001; <- RST seq 1001; told ended reset; sessions 0");
}

#[test]
fn acknowledgements_of_the_future_and_of_the_distant_past_are_challenged() {
    // RFC 5961 §5.2 accepts SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT. With any other ACK, the data is
    // dropped too.
    let challenged: String = [1002, 5000, 0x4000_0000, -0x7000_0000, -60_000]
        .map(|wrong: i64| format!("<- seq 1001:1002 ack {wrong} evil; -> ack 1001; got 1000;"))
        .concat();
    // An old ACK within the window is harmless, so the data in its segment is accepted.
    from_1001(&format!(
        "write 1000; -> seq 1:1001 ack 1001; <- ack 1001; {challenged} <- seq 1001:1002 ack 500; got 1001
         +40ms -> ack 1002"
    ));
}

#[test]
fn an_old_acknowledgement_does_not_change_the_window() {
    from_1001(
        "write 1000; -> seq 1:1001 ack 1001; <- ack 1001
         <- seq 1001 ack 1 win 5; <- seq 1001:1002 ack 500 win 5; <- seq 1002:1003 ack 500 win 5
         info window 60000; +40ms -> ack 1003",
    );
}

#[test]
fn segments_without_ack_are_dropped() {
    from_1001("<- seq 1001:1002; <- FIN seq 1001:1002; +1s silence; got 1000; counter tcp.without_ack 2");
}

#[test]
fn out_of_order_segments_are_delivered_in_order_with_one_ack() {
    // RFC 5681 §4.2: each of these segments is answered at once.
    check(
        "established mss 1000 win 60000
         0ms <- seq 1001:2001 ack 1; -> ack 1
         <- seq 3001:4001 ack 1; -> ack 1
         <- seq 1501:3501 ack 1; -> ack 1; got 0
         <- seq 1:1201 ack 1; -> ack 4001; got 4000",
    );
}

#[test]
fn up_to_three_duplicate_acks_are_sent_for_one_burst() {
    // RFC 5681 §4.2 requires a duplicate ACK for each segment, and fast retransmit needs three. When the hole
    // is filled, one ACK is enough.
    for (early, duplicates) in [(1, 1), (2, 2), (3, 3), (10, 3)] {
        let end = 1001 + 1000 * early;
        check(&format!(
            "established mss 1000 win 60000
             0ms <- seq 1001:{end} by 1000 ack 1; -> ack 1 x {duplicates}; silence
             <- seq 1:1001 ack 1; -> ack {end}"
        ));
    }
}

#[test]
fn out_of_order_data_is_freed_when_a_session_ends() {
    // Every script checks at its end that all memory is free.
    from_1001("<- seq 2001:3001 ack 1; -> ack 1001; <- RST seq 1001; told ended reset; sessions 0");
}

// ---- The end

#[test]
fn closing_first_leads_to_time_wait_of_2_msl() {
    // RFC 9293 §3.10.7.4: a retransmitted FIN is acknowledged, and the wait restarts. Other old segments are
    // acknowledged but do not prolong the wait.
    from_1001(
        "finish; -> FIN seq 1 ack 1001; info state FIN-WAIT-1
         <- ack 2; info state FIN-WAIT-2
         +500s silence
         <- FIN seq 1001:1005 ack 2; -> ack 1006; told finished; told ended closed; got 1004; sessions 1
         +59s <- FIN seq 1005 ack 2; -> ack 1006
         +59s sessions 1; <- seq 1001:1005 ack 2; -> ack 1006
         +999ms sessions 1; +1ms silence; sessions 0",
    );
}

#[test]
fn data_can_be_sent_after_the_peers_fin() {
    from_1001(
        "<- FIN seq 1001 ack 1; -> ack 1002; told finished; info state CLOSE-WAIT
         write \"more\"; -> PSH seq 1 \"more\" ack 1002; <- ack 5
         finish; -> FIN seq 5 ack 1002; info state LAST-ACK bytes-acknowledged 4
         <- ack 6; told ended closed; sessions 0",
    );
}

#[test]
fn both_close_at_once() {
    // RFC 9293 §3.6, figure 13; afterwards the FIN is retransmitted.
    from_1001(
        "finish; -> FIN seq 1 ack 1001; <- FIN seq 1001 ack 1; -> ack 1002; told finished; info state CLOSING
         <- FIN seq 1001 ack 1; -> ack 1002
         <- ack 2; told ended closed; sessions 1; +60s silence; sessions 0",
    );
}

#[test]
fn a_fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    from_1001(
        "finish; -> FIN seq 1 ack 1001; <- FIN seq 1001 ack 2; -> ack 1002; told finished; told ended closed
         sessions 1",
    );
}

#[test]
fn a_fin_waits_behind_data_and_behind_a_hole() {
    check(
        "established mss 1000 win 60000
         0ms <- FIN seq 2001:3001 ack 1; -> ack 1; <- seq 1001:2001 ack 1; -> ack 1; info state ESTABLISHED
         <- seq 1:1001 ack 1; -> ack 3002; told finished; got 3000; info state CLOSE-WAIT",
    );
}

#[test]
fn a_fin_without_data_ahead_of_a_hole_is_kept() {
    check(
        "established mss 1000 win 60000
         0ms <- FIN seq 1001 ack 1; -> ack 1; <- seq 1:1001 ack 1; -> ack 1002; told finished; got 1000
         info state CLOSE-WAIT",
    );
}

#[test]
fn a_fin_in_every_state() {
    // After the peer's FIN has been processed, a second one is only acknowledged, and data is dropped.
    for (way, sent, state) in [
        ("", 1, "CLOSE-WAIT"),
        ("finish; -> FIN seq 1 ack 1002;", 2, "LAST-ACK"),
        ("finish; -> FIN seq 1 ack 1002; <- ack 1;", 2, "LAST-ACK"),
        ("write 1; -> seq 1:2 ack 1002;", 2, "CLOSE-WAIT"),
    ] {
        from_1001(&format!(
            "<- FIN seq 1001 ack 1; -> ack 1002; told finished
             {way} info state {state}
             <- FIN seq 1001 ack 1; -> seq {sent} ack 1002; info state {state}
             <- seq 1002:1006 ack 1 evil; counter tcp.data_after_fin 1; got 1000"
        ));
    }
}

#[test]
fn our_fin_is_retransmitted_until_it_is_acknowledged() {
    // Retransmitted data and FIN are sent in one segment.
    from_1001(
        "write \"bye\"; -> PSH seq 1 \"bye\" ack 1001; finish; -> FIN seq 4 ack 1001
         +200ms -> FIN PSH seq 1 \"bye\" ack 1001; +50ms <- ack 4; -> FIN seq 4 ack 1001
         eventually -> FIN seq 4 ack 1001
         eventually -> FIN seq 4 ack 1001
         <- ack 5; info state FIN-WAIT-2",
    );
}

#[test]
fn an_abort_sends_a_reset_in_every_synchronized_state() {
    // RFC 9293 §3.10.5.
    for (way, reset) in [
        ("", "-> RST seq 1 ack 1001"),
        ("finish; -> FIN seq 1 ack 1001;", "-> RST seq 2 ack 1001"),
        ("finish; -> FIN seq 1 ack 1001; <- ack 2;", "-> RST seq 2 ack 1001"),
        ("<- FIN seq 1001 ack 1; -> ack 1002; told finished;", "-> RST seq 1 ack 1002"),
        ("write 3000; -> seq 1:3001 by 1000 ack 1001;", "-> RST seq 3001 ack 1001"),
        // In CLOSING and LAST-ACK, the peer expects no data.
        ("finish; -> FIN seq 1 ack 1001; <- FIN seq 1001 ack 1; -> ack 1002; told finished;", ""),
        ("<- FIN seq 1001 ack 1; -> ack 1002; told finished; finish; -> FIN seq 1 ack 1002;", ""),
    ] {
        from_1001(&format!("{way} abort; {reset}; silence; sessions 0"));
    }
    check("0ms open; -> SYN seq 0; abort; silence; sessions 0");
    check(
        "0ms open; -> SYN seq 0; <- SYN seq 0 win 8000 no-options; -> SYN seq 0 ack 1
         abort; -> RST seq 1 ack 1; sessions 0",
    );
}

#[test]
fn a_segment_with_a_wrong_checksum_or_header_is_counted_and_dropped() {
    let mut exchange = begin("established mss 1000 win 60000; 0ms <- seq 1:1001 ack 1; +40ms -> ack 1001");
    let good = exchange.packet("seq 1001:1006 ack 1")[ipv4::HEADER_BYTES..].to_vec();
    let mut arrives = |bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        run(&mut exchange, &format!("<- payload 6 {hex}; silence"));
    };
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        arrives(&bad);
    }
    // The header claims to be shorter than a header, or longer than the segment; the checksum is right.
    for claim in [0x40u8, 0xf0] {
        let mut bad = good.clone();
        // RFC 1624 §3, equation 3.
        let (old, new) = (u16::from(bad[12]) << 8, u16::from(claim) << 8);
        let sum = [!u16::from_be_bytes([bad[16], bad[17]]), !old, new].map(u32::from).iter().sum::<u32>();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        (bad[12], bad[16], bad[17]) = (claim, (sum >> 8) as u8, sum as u8);
        arrives(&bad);
    }
    arrives(&good[..19]);
    let counters = exchange.board().tcp_counters();
    assert_eq!(counters.checksum_errors + counters.malformed, 25 * 8 + 3);
    assert!(counters.malformed >= 3);
    run(&mut exchange, "got 1000");
    exchange.end().unwrap();
}
