//! Attachments: the ends of a world's lines and cables, and which of them match.

use kiban_board::PortConfig;
use kiban_capture as capture;
use std::fmt;

/// A board of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardNumber(pub(crate) usize);

/// A switch of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchNumber(pub(crate) usize);

/// An Ethernet switch of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetSwitchNumber(pub(crate) usize);

/// A terminal of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TerminalNumber(pub(crate) usize);

/// One direction of a simulated link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineNumber(pub(crate) usize);

/// One direction of a cable in a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CableNumber(pub(crate) usize);

/// The end of a line or a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// A port of a board.
    Board(BoardNumber, usize),
    /// A port of a switch.
    Switch(SwitchNumber, usize),
    /// A terminal.
    Terminal(TerminalNumber),
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Board(board, port) => write!(f, "port {port} of board {}", board.0),
            Attachment::Switch(switch, port) => write!(f, "port {port} of switch {}", switch.0),
            Attachment::Terminal(terminal) => write!(f, "terminal {}", terminal.0),
        }
    }
}

/// The kind of units that a port carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortKind {
    /// Cells, at an ATM port, a terminal, or any port of a switch.
    Cells,
    /// IP packets.
    Packets,
    /// Ethernet frames.
    Frames,
    /// Packets of VI NICs.
    Messages,
    /// Ethernet frames that the line fetches when it is free, as for EFE.
    Pulled,
}

impl PortKind {
    pub(crate) fn of(port: &PortConfig) -> PortKind {
        match port {
            PortConfig::Atm(_) => PortKind::Cells,
            PortConfig::Ip(_) | PortConfig::Host(_) => PortKind::Packets,
            PortConfig::Ethernet(_) | PortConfig::Bridge(_) => PortKind::Frames,
            PortConfig::Vi(_) => PortKind::Messages,
            PortConfig::Efe(_) => PortKind::Pulled,
        }
    }

    /// Returns whether the line fetches units, instead of the board pushing them.
    pub(crate) fn is_fetched(self) -> bool {
        matches!(self, PortKind::Messages | PortKind::Pulled)
    }

    /// Returns the link type of captures.
    pub(crate) fn link_type(self) -> u32 {
        match self {
            PortKind::Cells => capture::LINK_TYPE_ERF,
            PortKind::Packets => capture::LINK_TYPE_RAW,
            PortKind::Frames | PortKind::Pulled => capture::LINK_TYPE_ETHERNET,
            PortKind::Messages => capture::LINK_TYPE_USER0,
        }
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortKind::Cells => "cells",
            PortKind::Packets => "IP packets",
            PortKind::Frames => "Ethernet frames",
            PortKind::Messages => "VI packets",
            PortKind::Pulled => "EFE frames",
        })
    }
}

/// The reason why two attachments could not be connected. A failed attempt changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The board has no port with this number.
    NoSuchPort(Attachment),
    /// The attachment is connected already, or was given for both ends.
    Taken(Attachment),
    /// The two ports carry different units.
    Differ(Attachment, PortKind, Attachment, PortKind),
    /// A line carries cells: use [`World::connect_packets`](crate::World::connect_packets) for this port.
    NotCells(Attachment, PortKind),
    /// A cable carries packets: use [`World::connect`](crate::World::connect) for this port.
    NotPackets(Attachment),
    /// An Ethernet switch forwards Ethernet frames.
    NotFrames(Attachment),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::NoSuchPort(plug) => write!(f, "there is no {plug}: ports are numbered from 0"),
            AttachError::Taken(plug) => write!(f, "{plug} is already connected"),
            AttachError::Differ(one, kind, other, its) => {
                write!(f, "{one} carries {kind}, but {other} carries {its}: connect ports of the same kind")
            }
            AttachError::NotCells(plug, kind) => {
                write!(f, "{plug} carries {kind}, but a line carries cells: use World::connect_packets")
            }
            AttachError::NotPackets(plug) => {
                write!(f, "{plug} carries cells, but a cable carries packets: use World::connect")
            }
            AttachError::NotFrames(plug) => {
                write!(f, "{plug} does not carry Ethernet frames: connect an Ethernet port to the switch")
            }
        }
    }
}

impl std::error::Error for AttachError {}
