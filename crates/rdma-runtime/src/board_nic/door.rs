//! How a program reaches a board's NIC: the service's socket, and further shared memory.

use kiban_base::Region;
use kiban_os::channel::{Channel, FRONT_BYTES, PendingChannel};
use kiban_os::random;
use kiban_os::unix::names::folders_of_boards;
use kiban_rdma::hif::{Greeting, Layout};
use kiban_streams::ClientService;
use kiban_streams::call::{complete, is_no_listener, named, no_listener_error};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A board's service, as one program uses it.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    /// Whether the path was searched for, so that the socket must be checked before each connection.
    is_found: bool,
    key: [u8; 16],
    memories: AtomicU32,
}

impl Door {
    /// Connects to the service of the board with this name, or whose socket has this path, which contains a
    /// `/`. Without a name, connects to the only board with such a service.
    ///
    /// # Errors
    /// There is no such service, or it refuses.
    pub(super) fn open(name: Option<&str>) -> io::Result<(Door, Channel)> {
        if let Some(path) = name.filter(|name| name.contains('/')) {
            return Door::open_at(PathBuf::from(path), false);
        }
        let board = named(ClientService::Rdma, name)?;
        let mut why = no_listener_error(ClientService::Rdma, &board);
        for folder in folders_of_boards() {
            match Door::open_at(ClientService::Rdma.path(&folder, &board), true) {
                Err(error) if is_no_listener(&error) => {}
                Err(error) => why = io::Error::new(error.kind(), format!("board {board}: {error}")),
                opened => return opened,
            }
        }
        Err(why)
    }

    fn open_at(path: PathBuf, is_found: bool) -> io::Result<(Door, Channel)> {
        let door = Door { path, is_found, key: random::bytes()?, memories: AtomicU32::new(0) };
        let bytes = Layout::new(FRONT_BYTES).bytes().next_multiple_of(4096);
        let channel = door.call(&Greeting::Nic { key: door.key }, bytes)?;
        Ok((door, channel))
    }

    fn call(&self, greeting: &Greeting, bytes: usize) -> io::Result<Channel> {
        let call: fn(&Path, &[u8], usize) -> io::Result<PendingChannel> = match self.is_found {
            true => PendingChannel::connect_to_board,
            false => PendingChannel::connect_at,
        };
        complete(call(&self.path, &greeting.to_bytes(), bytes)?, bytes)
    }

    /// Shares at least `bytes` bytes of new, zeroed memory with the NIC. Returns the memory and its number.
    ///
    /// # Errors
    /// The board has ended, or a limit of the service is reached.
    pub(crate) fn share(&self, bytes: usize) -> io::Result<(u32, Region)> {
        let memory = self.memories.fetch_add(1, Ordering::Relaxed);
        let greeting = Greeting::Memory { key: self.key, memory };
        let channel = self.call(&greeting, bytes.next_multiple_of(4096))?;
        Ok((memory, channel.region().clone()))
    }
}
