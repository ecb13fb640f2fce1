//! The stack.

use crate::config::Config;
use crate::core::{Core, Handle, Shared};
use crate::device::Device;
use crate::intercept::Interceptor;
use crate::interception::Limits;
use crate::stream::{TcpListener, TcpStream};
use crate::table::{Table, host_error};
use crate::task::Task;
use crate::udp::UdpSocket;
use crate::waiters::poll_of;
use kiban_board::Board;
use kiban_board::streams;
use kiban_os::random;
use kiban_streams::end_error;
use kiban_tcpip::tcp::Owner;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A TCP/IP stack on a packet device.
///
/// Clones are the same stack. See the [crate's documentation](crate) for its behaviour.
#[derive(Clone)]
pub struct Stack {
    handle: Arc<Handle>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stack")
    }
}

impl Stack {
    /// Starts a stack without addresses, for [`Stack::intercept`], with the default settings.
    ///
    /// # Errors
    /// Same as for [`Stack::with`].
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn new(device: impl Into<Device>) -> io::Result<Stack> {
        Stack::with(device, Config::default())
    }

    /// Starts a stack with settings. Its task runs on the current runtime.
    ///
    /// # Errors
    /// `InvalidInput`: the device's MTU is out of range. Otherwise, the system is out of descriptors.
    ///
    /// # Panics
    /// If called outside a tokio runtime, or in one without I/O or time.
    pub fn with(device: impl Into<Device>, config: Config) -> io::Result<Stack> {
        let mut port = device.into().0;
        let board = Board::new(&config.board(port.traits())?, random::key()?);
        port.register()?;
        let (requests_max, flows_max) = (config.tcp.backlog, config.flows_max);
        let table = Table::new(Limits { requests_max, flows_max, datagrams_max: config.datagrams_max });
        let shared = Shared::new(Core::new(board, port, table, config.linger));
        tokio::spawn(Task::new(shared.clone()));
        Ok(Stack { handle: Handle::new(shared) })
    }

    /// Connects from the stack's first address of the family. A cancelled attempt is aborted.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut` (after three minutes by default), `HostUnreachable`;
    /// `AddrNotAvailable`: the remote address is not one of a host; `OutOfMemory`: no session or port is free
    /// ([`tcp::Config::sessions_max`](crate::tcp::Config::sessions_max)).
    pub async fn connect(&self, remote: SocketAddr) -> io::Result<TcpStream> {
        self.connect_from(None, remote).await
    }

    /// Connects from a local address and port. With `None`, an unspecified address or port 0, the stack
    /// chooses.
    ///
    /// # Errors
    /// Same as for [`Stack::connect`]; `AddrNotAvailable` also if the local address is not the stack's;
    /// `AddrInUse`.
    pub async fn connect_from(&self, local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<TcpStream> {
        let (id, local) = self.handle.call(|table, host| {
            table.check()?;
            let id = host.open_for(Owner::BOARD, local, remote).map_err(host_error)?;
            table.add(id, false);
            Ok::<_, io::Error>((id, host.info(id).map_err(host_error)?.local))
        })?;
        let stream = TcpStream::new(self.handle.clone(), id, local, remote);
        poll_fn(|cx| poll_of(self.handle.look(|table| table.opened(id, cx)))).await?;
        Ok(stream)
    }

    /// Listens on an address of the stack; `0.0.0.0` means every IPv4 address, and `[::]` every address. Port
    /// 0 lets the stack choose a port.
    ///
    /// # Errors
    /// `AddrInUse`; `AddrNotAvailable`: the address is not the stack's.
    pub fn listen(&self, local: SocketAddr) -> io::Result<TcpListener> {
        let (number, local) = self.handle.call(|table, host| {
            table.check()?;
            let (number, local) = streams::listen(host, Owner::BOARD, local, false).map_err(end_error)?;
            table.add_listener(number);
            Ok::<_, io::Error>((number, local))
        })?;
        Ok(TcpListener::new(self.handle.clone(), number, local))
    }

    /// Binds a UDP socket to an address of the stack; unspecified addresses and port 0 mean the same as for
    /// [`Stack::listen`].
    ///
    /// # Errors
    /// `AddrInUse`; `AddrNotAvailable`: the address is not the stack's; `OutOfMemory`: there are
    /// [`Config::flows_max`] sockets.
    pub fn bind(&self, local: SocketAddr) -> io::Result<UdpSocket> {
        let (id, local) = self.handle.call(|table, host| {
            table.check()?;
            let (id, local) = streams::bind(host, local, false, |_| true).map_err(end_error)?;
            table.add_socket(id);
            Ok::<_, io::Error>((id, local))
        })?;
        Ok(UdpSocket::new(self.handle.clone(), id, local))
    }

    /// Intercepts connections, datagrams and pings to all addresses except those of this stack's own
    /// listeners and sockets, until the interceptor is dropped. Packets to multicast, link-local and loopback
    /// addresses are dropped.
    ///
    /// # Errors
    /// `AddrInUse`: there is an interceptor already.
    pub fn intercept(&self) -> io::Result<Interceptor> {
        self.handle.call(|table, host| table.intercept(host))?;
        Ok(Interceptor::new(self.handle.clone()))
    }
}
