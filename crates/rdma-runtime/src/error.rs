//! Why a call failed.

use kiban_os::turn::WaitError;
use kiban_rdma::nic::{ConnectError, OpenError};
use kiban_rdma::rnic::RequestError;
use std::fmt;
use std::io;

/// The reason why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The NIC refused the request.
    Refused(RequestError),
    /// The connection could not be established.
    Connect(ConnectError),
    /// The connection request could not be sent or answered.
    Open(OpenError),
    /// An operating system error.
    Os(io::Error),
    /// The timeout expired.
    Timeout,
    /// The context has been closed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refusal) => refusal.fmt(f),
            Error::Connect(error) => error.fmt(f),
            Error::Open(error) => error.fmt(f),
            Error::Os(error) => error.fmt(f),
            Error::Timeout => f.write_str("timed out"),
            Error::Closed => f.write_str("the context has been closed: open another"),
        }
    }
}

impl std::error::Error for Error {}

impl From<RequestError> for Error {
    fn from(refusal: RequestError) -> Error {
        Error::Refused(refusal)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        Error::Open(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Os(error)
    }
}

impl From<WaitError> for Error {
    fn from(ended: WaitError) -> Error {
        match ended {
            WaitError::Timeout => Error::Timeout,
            WaitError::Closed => Error::Closed,
        }
    }
}
