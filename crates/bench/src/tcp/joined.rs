//! The parts that both sides of the comparison share: the parameters, the application, and the interface to
//! two connected stacks.

use kiban_os::clock::Clock;

/// The application's buffers, bytes.
pub(super) const SOURCE_BYTES: usize = 64 << 10;
pub(super) const MTU_BYTES: usize = 1500;
pub(super) const MSS: usize = 1460;
/// The largest number of full segments in one IP packet.
pub(super) const WHOLE_BYTES: usize = 44 * MSS;

/// The parameters that are tuned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    /// The receive window, bytes.
    pub(super) window_bytes: usize,
    /// The number of packets that may wait between the two ends.
    pub(super) packets: usize,
    /// Whether acknowledgements may be delayed. (kiban sends one per burst in either case.)
    pub(super) delayed_ack: bool,
    /// Whether segments carry timestamps (RFC 7323), as kiban's do by default; smoltcp does not send them.
    pub(super) timestamps: bool,
}

/// Two stacks and a connection from the first to the second.
pub(super) trait Joined {
    /// Gives each end one turn. The application writes at the first end and reads at the second.
    fn turn(&mut self, clock: &Clock, application: &mut Application);

    /// Checks that no error has occurred.
    fn check(&self);
}

/// Writes the same bytes repeatedly and reads them.
pub(super) struct Application {
    source: Vec<u8>,
    buffer: Vec<u8>,
    written: u64,
    pub(super) read: u64,
    last_read: usize,
    /// Whether all bytes read are compared.
    pub(super) compares: bool,
}

impl Application {
    pub(super) fn new() -> Application {
        Application {
            source: crate::noise::noise(1, SOURCE_BYTES),
            buffer: vec![0; SOURCE_BYTES],
            written: 0,
            read: 0,
            last_read: 0,
            compares: true,
        }
    }

    /// Writes until the stack accepts less than it was offered.
    pub(super) fn write(&mut self, mut write: impl FnMut(&[u8]) -> usize) {
        loop {
            let offered = &self.source[self.written as usize % SOURCE_BYTES..];
            let taken = write(offered);
            self.written += taken as u64;
            if taken < offered.len() {
                return;
            }
        }
    }

    /// Reads until no data is left.
    pub(super) fn read(&mut self, mut read: impl FnMut(&mut [u8]) -> usize) {
        loop {
            let count = read(&mut self.buffer);
            if count == 0 {
                return;
            }
            self.read += count as u64;
            self.last_read = count;
            if self.compares {
                self.compare();
            }
        }
    }

    /// Checks that the last bytes read have the values expected at their positions in the stream.
    pub(super) fn compare(&self) {
        let from = (self.read - self.last_read as u64) as usize % SOURCE_BYTES;
        let first = self.last_read.min(SOURCE_BYTES - from);
        let (got, again) = self.buffer[..self.last_read].split_at(first);
        assert!(
            *got == self.source[from..from + first] && *again == self.source[..again.len()],
            "bytes arrive intact"
        );
    }
}
