//! The OSI board's wiring: two file services over all layers, in bytes and in internal loopback; their
//! dissection by tshark; and recorded peers of other implementations.

mod dissected;
mod line;
mod loopback;
mod recorded;
mod story;
mod trickle;
