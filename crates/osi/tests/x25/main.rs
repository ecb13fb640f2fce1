//! X.25 as a whole: packets over LAPB over a line, packets over TCP, a recorded peer, and an independent
//! decoder.

mod captures;
mod dissected;
mod line;
mod station;
