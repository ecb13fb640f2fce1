//! The NIC: the core, its connections, and the connection manager.
//!
//! Purpose    one NIC type for every driver: the driver provides byte streams or an EFE endpoint, and the
//!            same code sets up and closes connections in real and in virtual time.
//! Streams    the driver owns the byte stream (a socket, a TCP session) and moves bytes between it and the
//!            [`Stream`](crate::iwarp::stream::Stream) of an *end*. [`Nic::open`] and
//!            [`Nic::incoming`] create an end, [`Nic::next_to_serve`] returns one with something to send, and
//!            [`Nic::on_stream_closed`] reports the end of its byte stream.
//! EFE        [`Nic::pump`] moves segments between the core and an endpoint. The endpoint's greetings carry
//!            MPA's start frames, so depths, extensions and private data are negotiated in the same way.
//! RoCEv2     queue pairs make their own packets; [`RocePort`] has the datagrams of a NIC and InfiniBand's
//!            connection manager. The driver passes datagrams in ([`Nic::take_roce`]) and sends those of
//!            [`Nic::next_roce`].
//! Host side  calls [`Nic::connect_flow`], [`Nic::accept`] and [`Nic::reject`], and polls [`Nic::poll`].
//! Limits     an end that does not complete its start frames in time is given up. The number of incoming ends
//!            that have not sent a request or have not been answered is bounded; when full, the oldest is
//!            dropped, first among those that have not sent a request.

mod answers;
mod connection;
mod device;
mod end;
mod flows;
mod roce;
mod streams;

pub use answers::{NUDGE, NUDGES_MAX};
pub use connection::{CmEvent, ConnectError, OpenError, Request};
pub use device::Nic;
pub use roce::{RoceConfig, RocePort};
