//! The state of an association's regimes: file selection, file open and data transfer.

use crate::ftam::WINDOW_MAX;
use crate::ftam::contents::{Inflow, Outflow};
use crate::ftam::filestore::{
    Actions, Entry, Handle, Hold, Kind, Mark, OpenedContents, Path, Stamp, WriteMode,
};
use crate::wire::ftam::{AttributeNames, Document};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::{self, Vec};

/// Contents that are not yet stored under the file's name, and the marks that the file will have. Both are
/// part of the docket, so that a recovered transfer ends with the same result as an uninterrupted one.
pub(super) struct Unfinished {
    pub(super) begun: OpenedContents,
    pub(super) write_mode: WriteMode,
    pub(super) marks: Vec<(Mark, Vec<u8>)>,
}

/// The file selection regime.
pub(super) struct Selected {
    pub(super) path: Path,
    /// The name by which the initiator selected it.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) access: Actions,
    pub(super) hold: Hold,
    /// The document type with which the file will be stored, if known.
    pub(super) document: Option<Document>,
    /// A created file that is not visible yet.
    pub(super) fresh: Option<Unfinished>,
    /// The file's attributes when it was selected; `None` if the file is new.
    pub(super) entry: Option<Entry>,
    pub(super) open: Option<Open>,
}

/// The file open regime.
pub(super) struct Open {
    pub(super) document: Document,
    pub(super) mode: Actions,
    /// The key of the docket, if the regime can be recovered.
    pub(super) docket: Option<String>,
    pub(super) bulk: i64,
    pub(super) resume: Option<Resume>,
}

/// The point at which a recovered transfer continues.
pub(super) struct Resume {
    pub(super) point: Point,
    /// The interrupted contents, for a write.
    pub(super) begun: Option<Unfinished>,
}

/// Maximum number of checkpoints from which a transfer can be restarted.
const POINTS_MAX: usize = 1024;

/// A position in the contents, identified by the number of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Point {
    pub(in super::super) checkpoint: i64,
    /// Offset in the host's file, in octets.
    pub(in super::super) at: u64,
    /// Whether a CR before this position is held back, because LF may follow.
    pub(in super::super) held: bool,
}

/// The checkpoints of a transfer in ascending order; the first one stands for the beginning of the file.
#[derive(Clone, Debug)]
pub(in super::super) struct Points(VecDeque<Point>);

impl Points {
    pub(in super::super) fn new(first: Point) -> Points {
        Points([first].into())
    }

    pub(in super::super) fn push(&mut self, point: Point) {
        if self.0.len() == POINTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// Goes back to a checkpoint, and drops later ones.
    pub(in super::super) fn back_to(&mut self, checkpoint: i64) -> Option<Point> {
        let place = self.0.iter().position(|point| point.checkpoint == checkpoint)?;
        self.0.truncate(place + 1);
        self.0.back().copied()
    }

    pub(in super::super) fn newest(&self) -> Point {
        *self.0.back().expect("the first is never taken")
    }

    /// Returns the newest checkpoints: one more than the checkpoint window, since the peer may lag behind by
    /// a whole window.
    pub(in super::super) fn last(&self) -> impl Iterator<Item = &Point> {
        self.0.iter().skip(self.0.len().saturating_sub(WINDOW_MAX as usize + 1))
    }
}

pub(super) enum Transfer {
    Read(Box<Reading>),
    Write(Box<Writing>),
}

pub(super) struct Reading {
    pub(super) source: Source,
    pub(super) points: Points,
    pub(super) unchecked: u64,
    pub(super) ended: bool,
}

pub(super) enum Source {
    File {
        handle: Handle,
        stamp: Stamp,
        outflow: Outflow,
    },
    Directory {
        /// The part of the entries' names before their last component.
        prefix: String,
        names: vec::IntoIter<String>,
        wanted: AttributeNames,
    },
}

pub(super) struct Writing {
    pub(super) contents: Unfinished,
    pub(super) inflow: Inflow,
    pub(super) at: u64,
    pub(super) points: Points,
    /// Whether the sender reported a failure.
    pub(super) failed: bool,
}
