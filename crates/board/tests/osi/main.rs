//! Tests of the OSI board's wiring: two file services over all layers, over a byte stream and in internal
//! loopback; their dissection by tshark; and recordings of other implementations as peers.

mod dissected;
mod line;
mod loopback;
mod recorded;
mod story;
mod trickle;
