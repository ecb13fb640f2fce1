//! RoCEv2: captures of Linux's rdma_rxe, damaged packets, and pairs of NICs over a wire that loses packets.

mod captures;
mod cm;
mod congestion;
mod connections;
mod credits;
mod error_times;
mod impaired;
mod link;
mod operations;
mod pair;
mod refusals;
mod retransmission;
mod selective;
mod spoofed;
mod unreliable;
mod xrc;
