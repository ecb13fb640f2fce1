//! Stacks connected in memory, and a stack with this host's kernel as its peer.

mod devices;
mod intercepted;
mod kernel;
mod streams;

use kiban_stack::{Config, Stack, pipe};
use std::net::SocketAddr;
use std::time::Duration;

const ONE: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the settings of one end of a pair: two addresses, and little memory.
fn config(side: u8) -> Config {
    let mut config =
        Config::at([[10, 0, 0, side].into(), [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(side)].into()]);
    config.tcp.send_buffer_bytes = 256 << 10;
    config.tcp.receive_buffer_bytes = 256 << 10;
    config
}

/// Two stacks connected by a pipe.
fn pair() -> (Stack, Stack) {
    let (one, other) = pipe(1500);
    (Stack::with(one, config(1)).expect("a stack"), Stack::with(other, config(2)).expect("a stack"))
}

/// Fails instead of waiting forever.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), work).await.expect("it ends")
}

/// Returns the byte of a stream at an offset.
fn byte(offset: usize) -> u8 {
    (offset * 7 + offset / 253) as u8
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(byte).collect()
}
