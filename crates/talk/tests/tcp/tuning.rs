//! The window scale of buffers that can grow, and the statistics of a session.

use crate::{begin, check, ms, run};

#[test]
fn the_window_scale_allows_for_the_largest_buffer() {
    for (autotune, shift) in [("on", 6), ("off", 1)] {
        check(&format!(
            "set tcp.autotune {autotune}; set tcp.receive_buffer_bytes 64k; set tcp.send_buffer_bytes 64k
             set tcp.receive_buffer_max_bytes 2048k; set tcp.send_buffer_max_bytes 2048k
             0ms open; -> SYN seq 0 win 65535 mss 1460 sackok ts shift {shift}"
        ));
    }
}

#[test]
fn info_reports_a_sessions_work_and_its_limits() {
    let mut exchange = begin(
        "set tcp.send_buffer_bytes 5000; set tcp.floor_bytes 1000; established mss 1000 win 60000
         0ms info segments-in 1 segments-out 1 busy 0ms",
    );
    // Limited by the path for 100 ms, while neither the buffer nor the window is full.
    run(
        &mut exchange,
        "write 3000; -> seq 1:3001 by 1000 ack 1; +100ms <- ack 3001
         info busy 100ms window-limited 0ms buffer-limited 0ms bytes-acknowledged 3000",
    );
    let info = exchange.info().expect("it is open");
    assert_eq!(exchange.now().since(info.data_sent_at), ms(100));
    // Limited by the buffer for 50 ms, while all of it is outstanding; then by the window for 70 ms, while
    // 2000 bytes wait behind a window of 1000. The rest is the other way.
    run(
        &mut exchange,
        "write 5000; -> seq 3001:8001 by 1000 ack 1; +50ms <- ack 8001 win 1000
         write 3000; -> seq 8001:9001 ack 1; +70ms <- ack 9001 win 60000; -> seq 9001:11001 by 1000 ack 1
         <- ack 11001; info busy 220ms window-limited 70ms buffer-limited 50ms
         <- seq 501:1001 ack 11001; -> ack 1; <- seq 1:701 ack 11001; -> ack 1001
         <- seq 1:101 ack 11001; -> ack 1001; +5ms info bytes-in 1000 early 1 repeated 1
         info receive-buffer 262144",
    );
    let (info, now) = (exchange.info().expect("it is open"), exchange.now());
    assert_eq!((now.since(info.last_received_at), now.since(info.data_received_at)), (ms(5), ms(5)));
    assert_eq!(info.peer_segment_bytes, 700);
}

#[test]
fn info_reports_the_negotiated_options() {
    let mut exchange = begin("established mss 1000 shift 5 sackok win 1000; 0ms silence");
    let info = exchange.info().expect("it is open");
    assert_eq!((info.window_shifts, info.sack, info.timestamps), ((5, 3), true, false));
}
