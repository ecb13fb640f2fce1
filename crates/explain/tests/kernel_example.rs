//! Captures of the Linux kernel's TCP.

use kiban_explain::{Cause, Explained, Place, Report, Summary};
use std::io::Read;

/// Explains a capture of one connection.
fn explained(name: &str) -> (Report, Explained) {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path).expect("it is part of the source");
    file.read_to_end(&mut bytes).expect("it can be read");
    let mut report = kiban_explain::explain(&bytes).expect("a capture");
    assert_eq!((report.connections.len(), report.skipped, report.unread.is_none()), (1, 0, true), "{name}");
    let one = report.connections.remove(0);
    (report, one)
}

#[test]
fn the_kernels_delayed_acknowledgements_are_found_in_a_pcapng_file() {
    let (report, one) = explained("nagle.pcapng");
    assert_eq!(report.packets, 120);
    assert_eq!(one.place, Place::Middle);
    let finding = one.verdict.as_ref().expect("it is slow");
    assert_eq!((finding.cause, finding.sender), (Cause::NagleDelayedAck, 1));
    // Linux delays acknowledgements by 40 ms and more; here it was done at least ten times.
    assert!(finding.lost_ms > 400.0 && finding.lost_percent > 50.0, "{finding:?}");
    // The evidence: a write of 26 bytes, its acknowledgement, and the write of 723 bytes.
    let [_, acknowledgement, _] = finding.evidence[0].packets[..] else { panic!("{finding:?}") };
    let step = one.steps.iter().find(|step| step.packet == acknowledgement).expect("it is shown");
    assert!(step.from == 0 && step.what.starts_with("ACK") && step.wait.is_some(), "{step:?}");
}

#[test]
fn the_time_that_a_server_takes_is_measured_at_either_end() {
    for name in ["think_time-client.pcap", "think_time-server.pcap"] {
        let (_, one) = explained(name);
        let finding = one.verdict.as_ref().expect("it is slow");
        // The server slept for 4 s before its only answer.
        assert!((3950.0..4050.0).contains(&finding.lost_ms) && finding.lost_percent > 90.0, "{name}: {one}");
        assert!(finding.because.contains("The server took 4"), "{}", finding.because);
    }
}

#[test]
fn a_single_segment_takes_a_round_trip() {
    let (_, one) = explained("no_response.pcap");
    let most = one.directions[0].bytes as f64 * 8e3 / one.rtt_ms.expect("it is known");
    assert!((1.0..=most + 1.0).contains(&one.directions[0].bits_per_second), "{one}");
}

#[test]
fn a_cause_is_shown_with_its_cost() {
    let (_, one) = explained("think_time-client.pcap");
    let finding = one.verdict.as_ref().expect("it is slow");
    let cost = format!("cost    {:.0} ms, {:.0} % of the time", finding.lost_ms, finding.lost_percent);
    assert!(one.to_string().contains(&cost), "{cost}: {one}");
}

#[test]
fn what_never_arrived_does_not_count_as_delivered() {
    for name in ["path_mtu.pcap", "path_mtu-offload.pcap"] {
        let (_, one) = explained(name);
        let sender = one.verdict.as_ref().expect("it is slow").sender;
        let Summary { bytes, bits_per_second, .. } = one.directions[sender];
        assert_eq!((bytes, bits_per_second), (0, 0.0), "{name}: {one}");
        assert!(one.to_string().contains(": 0 bytes, 0 bit/s"), "{name}: {one}");
    }
}

/// Behind a queue that loses packets, without timestamps.
#[test]
fn what_was_lost_before_the_capture_counts_once_it_has_arrived() {
    let (_, one) = explained("bufferbloat-overflow.pcap");
    let sender = &one.directions[one.main_sender()];
    // All that the last acknowledgement covers, as tshark shows it.
    assert_eq!(sender.bytes, 341_640, "{one}");
    assert_eq!(sender.rtt_loaded_ms, None, "{one}");
}

#[test]
fn the_causes_of_kernel_connections_are_found() {
    for (name, cause) in [
        ("healthy.pcap", None),
        ("healthy-long.pcap", None),
        ("receiver_limited.pcap", Some(Cause::ReceiverLimited)),
        ("sender_limited.pcap", Some(Cause::SenderLimited)),
        ("retransmission_timeout.pcap", Some(Cause::RetransmissionTimeout)),
        ("zero_window.pcap", Some(Cause::SlowReader)),
        ("lost_window_scaling.pcap", Some(Cause::LostWindowScaling)),
        ("bufferbloat.pcap", Some(Cause::Bufferbloat)),
        ("think_time-client.pcap", Some(Cause::ThinkTime)),
        ("think_time-server.pcap", Some(Cause::ThinkTime)),
        ("slow_reader.pcap", Some(Cause::SlowReader)),
        // Begun after the handshake.
        ("think_time-late-client.pcap", Some(Cause::ThinkTime)),
        ("think_time-late-server.pcap", Some(Cause::ThinkTime)),
        // The client pauses for 4 s between exchanges, and the SYN-ACK was 5 ms late.
        ("healthy-idle.pcap", None),
        ("path_mtu.pcap", Some(Cause::PathMtu)),
        // The first segment is cut by the network card, and its retransmission by TCP.
        ("path_mtu-offload.pcap", Some(Cause::PathMtu)),
        ("path_mtu-client.pcap", Some(Cause::PathMtu)),
        ("no_response.pcap", Some(Cause::NoResponse)),
        // A path of 576 bytes: ICMP told the sender so, after its first flight was lost.
        ("small_mss-discovery.pcap", Some(Cause::SmallMss)),
        ("small_mss-discovery-offload.pcap", Some(Cause::SmallMss)),
        // A policer of 8 Mbit/s, at a sender whose network card cuts segments.
        ("policing-offload.pcap", Some(Cause::Policing)),
        // Answers are lost before the place of the capture, next to the server; and pauses of 0.8 s.
        ("retransmission_timeout-answers.pcap", Some(Cause::RetransmissionTimeout)),
        ("healthy-idle-jitter.pcap", None),
        ("refused.pcap", Some(Cause::Refused)),
        ("no_handshake.pcap", Some(Cause::NoHandshake)),
        ("retransmission_timeout-syn.pcap", Some(Cause::RetransmissionTimeout)),
        // Writes of 200 bytes with TCP_NODELAY.
        ("healthy-nodelay.pcap", None),
        // Behind the queue, without timestamps, and a look-alike.
        ("bufferbloat-behind.pcap", None),
        // The same, but the queue overflows.
        ("bufferbloat-overflow.pcap", Some(Cause::Bufferbloat)),
        ("paced.pcap", None),
        // Messages of 484 bytes into a window that has room for 792: the client waits for answers.
        ("healthy-tiny-window.pcap", None),
        // A program that reads 100 bytes at a time: Linux opens the window by a full segment or not at all.
        ("slow_reader-few-bytes.pcap", Some(Cause::SlowReader)),
        // A round trip of 0.4 ms, shorter than the tick of the timestamps.
        ("nagle-lan.pcap", Some(Cause::NagleDelayedAck)),
    ] {
        let (_, one) = explained(name);
        assert_eq!(one.verdict.as_ref().map(|finding| finding.cause), cause, "{name}: {one}");
        let hides_queue = name == "bufferbloat-behind.pcap";
        assert_eq!(one.limits.contains(&kiban_explain::Limit::Queue), hides_queue, "{name}: {one}");
        let evidence = one.verdict.iter().flat_map(|finding| &finding.evidence);
        let numbers: Vec<u32> = evidence.flat_map(|piece| &piece.packets).copied().collect();
        assert!(numbers.is_empty() == cause.is_none(), "{name}: {one}");
        assert!(numbers.iter().all(|number| (1..=one.packets as u32).contains(number)), "{name}: {one}");
    }
}
