//! Greetings of a program on the sockets of the NIC's service.

use alloc::vec::Vec;

/// Number of bytes of a program's key.
const KEY_BYTES: usize = 16;

/// The first message of a connection. The NIC answers with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Greeting {
    /// A program wants to use the NIC.
    Nic {
        /// A random key, which the program's further connections repeat.
        key: [u8; KEY_BYTES],
    },
    /// A program wants more shared memory.
    Memory {
        /// The program's key.
        key: [u8; KEY_BYTES],
        /// The program's number for the memory.
        memory: u32,
    },
}

impl Greeting {
    /// Encodes the greeting.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Greeting::Nic { key } => [&b"nic1"[..], key].concat(),
            Greeting::Memory { key, memory } => [&b"mem1"[..], key, &memory.to_ne_bytes()].concat(),
        }
    }

    /// Decodes a greeting, or returns `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Greeting> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk()?;
        match (kind, rest) {
            (b"nic1", []) => Some(Greeting::Nic { key: *key }),
            (b"mem1", rest) => {
                Some(Greeting::Memory { key: *key, memory: u32::from_ne_bytes(rest.try_into().ok()?) })
            }
            _ => None,
        }
    }
}
