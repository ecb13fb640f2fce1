//! `rdma-nic`: the numbers of clock cycles are exact, so the whole text is compared with a snapshot.

mod common;

use common::check;
use kiban_lab::reproduce::Verdict;
use kiban_lab::reproduce::rdma_nic::work::Buffers;
use kiban_lab::reproduce::rdma_nic::{make, work};
use kiban_rdma::rnic::clocks::Step;
use kiban_sim::rnic_clocks::{Clocks, RDMA_NIC_2008, mib_per_second};

#[test]
fn the_report_equals_the_snapshot() {
    let made = make();
    let missed = made.report.rows.iter().filter(|row| row.verdict == Verdict::Missed);
    assert_eq!(missed.count(), 0);
    check("rdma-nic.txt", &made.to_string());
    check("rdma-nic.csv", &made.report.figures[0].csv());
}

/// The dip is caused by the pause between received segments, not by the look-ups.
#[test]
fn without_the_pause_two_segments_are_as_fast_as_one() {
    let even = Clocks { pause_receiving: 0, ..RDMA_NIC_2008 };
    let rate = |clocks: Clocks, bytes: usize| {
        let moments = clocks.in_sequence(&work::writes(bytes, 1, Buffers::One).receiving);
        mib_per_second(moments.bytes, moments.end)
    };
    assert!(rate(RDMA_NIC_2008, 2048) < rate(RDMA_NIC_2008, 1024));
    assert_eq!(rate(even, 2048), rate(even, 1024));
}

/// Without its look-ups per segment, the receiver would be about as fast as the sender. The paper gives the
/// look-ups as the reason for the difference.
#[test]
fn most_of_the_receiving_loss_is_look_ups_per_segment() {
    let steps = work::writes(65536, 1, Buffers::One);
    let [sent, received] =
        [&steps.sending, &steps.receiving].map(|steps| RDMA_NIC_2008.in_sequence(steps).end);
    let free = Clocks { read_stag: 0, read_pbl: 0, ..RDMA_NIC_2008 };
    let without = free.in_sequence(&steps.receiving).end;
    assert!(sent < received && without <= sent + 100, "{sent} {received} {without}");
}

#[test]
fn segments_fill_the_frame_in_whole_words() {
    assert_eq!(work::PAYLOAD_BYTES, 1456);
    for (bytes, segments) in [(1456, 1), (1457, 2), (2912, 2), (2913, 3), (65536, 46)] {
        let moments = RDMA_NIC_2008.in_sequence(&work::writes(bytes, 1, Buffers::One).sending);
        assert_eq!((moments.bytes, moments.segments), (bytes as u64, segments));
    }
}

/// A segment ends where a physical buffer ends (section 6.2.3), which needs a DMA transfer of its own.
#[test]
fn segments_are_cut_where_physical_buffers_end() {
    for (buffer, segments) in [(8192, 6), (4096, 6), (2048, 8), (1456, 6), (1000, 9)] {
        let steps = work::writes(8192, 1, Buffers::Of(buffer)).sending;
        let payloads = steps.iter().filter_map(|step| match step {
            Step::WritePayload(bytes) => Some(*bytes as usize),
            _ => None,
        });
        let mut at = 0;
        let mut cut = 0;
        for payload in payloads {
            assert!(at % buffer + payload <= buffer, "{payload} B at {at} cross a border of {buffer}");
            (at, cut) = (at + payload, cut + 1);
        }
        let transfers = steps.iter().filter(|step| **step == Step::DmaRequest).count();
        assert_eq!((at, cut, transfers), (8192, segments, 8192usize.div_ceil(buffer)), "{buffer}");
    }
}

/// The send module and the receive module share the tables and the DMA controller.
#[test]
fn neither_direction_gains_from_the_other_and_one_data_path_halves_long_messages() {
    let made = make();
    for row in &made.contention {
        for at in [0, 1] {
            assert!(row.both[at] <= row.alone[at] * 1.001 && row.both_one_path[at] <= row.both[at] * 1.001);
        }
    }
    let long = made.contention.last().expect("there are several sizes");
    assert!(long.both_one_path.iter().sum::<f64>() < 953.7 && long.both.iter().sum::<f64>() > 1600.0);
}
