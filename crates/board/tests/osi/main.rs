//! The OSI board's wiring: two file services over all layers, in bytes, and in internal loopback; as tshark
//! reads them; and peers of other makes, as they were recorded.

mod dissected;
mod line;
mod loopback;
mod recorded;
mod story;
mod trickle;
