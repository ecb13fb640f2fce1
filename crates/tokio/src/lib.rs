//! kiban for programs that use the tokio runtime.
//!
//! [`Attachment`] provides a running board's streams as `AsyncRead` and `AsyncWrite`. [`runtime`] builds
//! runtimes that return an error instead of panicking if the system is out of threads or descriptors.
//! [`unix`] accepts clients on Unix sockets.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use kiban_tokio::Attachment;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let board = Attachment::attach(Some("lab")).await?;
//! let mut stream = board.connect("10.9.0.1:7".parse().expect("an address")).await?;
//! stream.write_all(b"hello").await?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer).await?;
//! # Ok(())
//! # }
//! ```

mod attached;
mod attachment;
pub mod runtime;
mod stream;
pub mod unix;

pub use attachment::Attachment;
pub use kiban_streams::{ClientService, EndReason, Settings};
pub use stream::{Listener, Stream};
