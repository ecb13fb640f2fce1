//! Tests of the OSI board's wiring. Two file services communicate over all layers, through a byte stream and
//! in internal loopback; tshark dissects their traffic; and recordings of other implementations serve as
//! peers.

mod dissected;
mod line;
mod loopback;
mod recorded;
mod story;
mod trickle;
