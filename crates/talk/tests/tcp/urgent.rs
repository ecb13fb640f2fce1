//! Urgent data (RFC 9293 §3.8.5, RFC 6093): a mark in the stream.

use crate::check;

#[test]
fn the_host_gets_the_distance_of_the_urgent_mark_and_the_data_in_line() {
    // A repeated mark causes no completion; nor does a mark in data already delivered. A segment without data
    // may announce bytes still to come. Without URG, the field is ignored.
    check(
        "established mss 1000 win 60000
         0ms <- URG seq 1 ack 1 urg 5 \"now!!later\"; told urgent 5; got 10
         <- URG seq 11:12 ack 1 urg 0; got 11
         <- URG seq 12 ack 1 urg 300; told urgent 300
         <- URG seq 12 ack 1 urg 300; <- URG seq 12 ack 1 urg 200
         <- URG seq 12 ack 1 urg 400; told urgent 400
         <- seq 12:13 ack 1 urg 9000; got 12; +40ms -> ack 13; silence",
    );
}

#[test]
fn no_mark_can_be_sent_after_the_shutdown() {
    check("established mss 1000; 0ms finish; -> FIN seq 1 ack 1; urgent refused finished");
}
