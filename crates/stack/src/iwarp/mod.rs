//! iWARP: remote memory over TCP (RFC 5040, 5041, 5044, 6581).

pub mod mpa;
