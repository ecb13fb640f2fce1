//! X.25 as a whole: packets over LAPB over a line, packets over TCP, a peer that was recorded, and another
//! decoder.

mod captures;
mod dissected;
mod line;
mod station;
