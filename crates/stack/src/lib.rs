//! TCP/IP in the process, for tokio: a [`Stack`] turns a packet device into streams, listeners and datagram
//! sockets.
//!
//! A stack is a board ([`kiban_board::Board`]) and a task that drives it. It needs no thread of its own and,
//! except for TUN, nothing of the operating system but its clock.
//!
//! | to | use |
//! |---|---|
//! | read and write IP packets of this host's kernel | [`Tun`]: segments of up to 64 KB pass uncut |
//! | use another source of packets, such as a tunnel | [`PacketDevice`], a trait with three methods |
//! | connect two stacks in memory | [`pipe`] |
//! | connect, and accept connections, as a host | [`Stack::connect`], [`Stack::listen`], [`Stack::bind`] |
//! | accept connections and datagrams to *any* address, as a proxy | [`Stack::intercept`] |
//!
//! # Example
//!
//! Two stacks, connected by a pipe. The second one is an echo server.
//!
//! ```
//! use kiban_stack::{Config, Stack, pipe};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let (one, other) = pipe(1500);
//! let client = Stack::with(one, Config::at(["10.0.0.1".parse().expect("an address")]))?;
//! let server = Stack::with(other, Config::at(["10.0.0.2".parse().expect("an address")]))?;
//!
//! let listener = server.listen("10.0.0.2:7".parse().expect("an address"))?;
//! tokio::spawn(async move {
//!     let (stream, _) = listener.accept().await?;
//!     let (mut reader, mut writer) = tokio::io::split(stream);
//!     tokio::io::copy(&mut reader, &mut writer).await
//! });
//!
//! let mut stream = client.connect("10.0.0.2:7".parse().expect("an address")).await?;
//! stream.write_all(b"hello").await?;
//! stream.shutdown().await?; // sends a FIN; reading continues
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! A transparent proxy accepts what a TUN device carries. It connects to the destination before it answers
//! the SYN, so its peer sees refused connections as refused:
//!
//! ```no_run
//! use kiban_stack::{Flow, Stack, Tun};
//!
//! # async fn example() -> std::io::Result<()> {
//! let stack = Stack::new(Tun::open("tun0")?)?;
//! let interceptor = stack.intercept()?;
//! loop {
//!     match interceptor.accept().await? {
//!         Flow::Tcp(request) => drop(tokio::spawn(async move {
//!             let Ok(mut remote) = tokio::net::TcpStream::connect(request.local_addr()).await else {
//!                 return request.refuse();
//!             };
//!             let Ok(mut stream) = request.accept().await else { return };
//!             let _ = tokio::io::copy_bidirectional(&mut stream, &mut remote).await;
//!         })),
//!         Flow::Udp(flow) => flow.refuse(),
//!         Flow::Ping(ping) => ping.reply(),
//!     }
//! }
//! # }
//! ```
//!
//! # Behaviour
//!
//! * **Task.** [`Stack::new`] spawns it on the current runtime, which must have its I/O and time drivers
//!   enabled. Streams can be used from other runtimes and threads. To give the board a thread of its own,
//!   create the stack in a `current_thread` runtime on that thread.
//! * **Calls.** Reads and writes copy directly from and to the board's pages, under a lock, and what a write
//!   sends goes to the device before the call returns.
//! * **Back-pressure.** A write waits while the send buffer is full ([`tcp::Config::send_buffer_bytes`]). A
//!   program that does not read closes the receive window (`receive_buffer_bytes`). While a device takes no
//!   packets, senders wait.
//! * **Half-close.** Reading returns 0 bytes after the peer's FIN; `shutdown` sends a FIN. The directions are
//!   independent.
//! * **Reset.** Reading and writing fail with `ConnectionReset`, after the data received before it.
//! * **Drop.** A dropped stream is closed. Data that was written is still sent; if received data has not been
//!   read, the peer gets a RST, as from Linux. When the stack and everything made by it have been dropped,
//!   the task continues until the connections have ended, for at most [`Config::linger`]; then the device is
//!   dropped.
//! * **Device.** If the device fails, every call fails with `NetworkDown`.
//! * **Limits.** [`Config`] has all of them.
//!
//! Not implemented: multicast; vectored datagrams; changing addresses of a running stack; devices with
//! Ethernet frames.

#![forbid(unsafe_code)]

mod config;
mod core;
mod device;
mod intercept;
mod interception;
mod pipe;
mod stack;
mod stream;
mod table;
mod task;
mod tun;
mod udp;
mod waiters;

pub use config::Config;
pub use device::{Device, PacketDevice};
pub use intercept::{Flow, Interceptor, Ping, TcpRequest, UdpFlow};
pub use kiban_board::MemoryConfig;
pub use kiban_tcpip::tcp;
pub use pipe::{Pipe, pipe};
pub use stack::Stack;
pub use stream::{TcpListener, TcpStream};
pub use tun::Tun;
pub use udp::UdpSocket;
