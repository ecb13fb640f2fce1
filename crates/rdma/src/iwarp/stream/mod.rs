//! A stream: the MPA layer of one connection, between a queue pair of the core and any byte stream.
//!
//! Purpose          the same code runs on the operating system's sockets and on kiban's own TCP, in real and
//!                  in virtual time.
//! State            first, the two ends exchange start frames. Then the queue pair is connected with the
//!                  agreed traits, and segments flow until the stream ends.
//! Transmit path    [`Stream::fill`] builds a burst of frames when the previous one has been sent;
//!                  [`Stream::chunks`] returns its bytes, some of which are in the host's own memory. One
//!                  gathering write sends a burst.
//! Receive path     [`Stream::arrive`] takes received bytes. For a long frame without a CRC, the header is
//!                  validated as soon as it is complete, and [`Stream::placement_buffers`] returns the
//!                  memory for the next bytes of the byte stream, so that a socket stores them there
//!                  directly. Short frames, and all frames with a CRC, are copied once, when they are
//!                  complete and correct. [`Stream::frame_remainder`] provides the buffer into which the
//!                  socket reads the remainder of such a frame if it is long.
//! Limits           a stream holds at most one incomplete frame (64 KiB), and nothing between frames.
//!                  Streams share the buffers for bursts and for frames: the core keeps one spare of each
//!                  for the next stream that needs it. A stream with a message that waits for a receive also
//!                  holds the bytes that were read after that message.
//! Files            `connection`: setup and end; `receive`: the receive path; `transmit`: the transmit path;
//!                  `outgoing`: a burst of frames.
//! Not implemented  timers: the driver gives up connections whose peers do not complete the start frames
//!                  ([`Stream::is_starting`]).

mod connection;
mod outgoing;
mod receive;
mod transmit;

pub use connection::{Stream, StreamEvent};
pub use outgoing::{COPY_BYTES_MAX, Chunk};
pub use receive::DIRECT_PLACEMENT_BYTES_MIN;
pub use transmit::BURST_BYTES;
