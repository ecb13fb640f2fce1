//! A tap: a capture of a line for Wireshark, as an analyser would record it (paper \[1\] used such an
//! analyser).

use kiban_atm::TimedCell;
use kiban_base::Instant;
use kiban_board::recorder::Recorder;

/// Receives the output of a tap.
pub type Sink = Box<dyn FnMut(&[u8])>;

/// A tap on one direction of a line or a cable.
pub struct Tap {
    interface: u8,
    /// `Some` once the file header has been written.
    recorder: Option<Recorder>,
    record: Vec<u8>,
    sink: Sink,
    frames: u64,
}

impl Tap {
    /// Creates a tap that passes a capture file to `sink` piece by piece; `interface` is the interface number
    /// in records of cells.
    pub fn new(interface: u8, sink: Sink) -> Tap {
        Tap { interface, recorder: None, record: Vec::new(), sink, frames: 0 }
    }

    /// Writes the file header unless it has been written; the line must be of the same kind.
    pub(crate) fn begin(&mut self, link_type: u32) {
        if let Some(known) = &self.recorder {
            assert!(known.link_type() == link_type, "a capture holds one kind of records: take a new tap");
            return;
        }
        let mut header = Vec::new();
        let recorder = Recorder::new(link_type);
        recorder.begin(&mut header);
        self.recorder = Some(recorder);
        (self.sink)(&header);
    }

    fn recorder(recorder: &mut Option<Recorder>) -> &mut Recorder {
        recorder.as_mut().expect("a tap is on a line before it sees something")
    }

    /// Frames or packets recorded.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Records a packet or a frame that has arrived.
    pub(crate) fn record_packet(&mut self, at: Instant, bytes: &[u8]) {
        self.record.clear();
        let recorder = Self::recorder(&mut self.recorder);
        recorder.packet(at.as_nanos(), std::iter::once(bytes), &mut self.record);
        (self.sink)(&self.record);
        self.frames += 1;
    }

    pub(crate) fn record_cell(&mut self, cell: &TimedCell) {
        self.record.clear();
        let recorder = Self::recorder(&mut self.recorder);
        if recorder.cell(cell.at.as_nanos(), self.interface, cell, &mut self.record) {
            (self.sink)(&self.record);
            self.frames += 1;
        }
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tap({} frames)", self.frames)
    }
}
